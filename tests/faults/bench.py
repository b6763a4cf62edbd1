"""Trials: a command in its own folder, interrupted and resumed, compared with an uninterrupted run."""

import json
import os
import random as chance
import re
import shutil
import signal
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import forked
from child import PROGRAM
from commands import COMMANDS, Command

os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
forked.preload("warm")
SECONDS_TO_END = 120
SIGKILLED = -signal.SIGKILL
COMMANDS_BY_NAME = {each.name: each for each in COMMANDS}
TIMES = re.compile(r"second|time|latency|throughput|memory|_ms$|date|pid|minutes")
SHOWN_ONLY = (".html", ".png", ".svg", ".md", ".onnx")  # pages and pictures hold times: that they are there is enough


class Trial:
    """The folder of one trial."""

    def __init__(self, command: Command, given: Path, work: Path):
        self.command, self.given, self.work = command, given, work / "work"
        self.log, self.ready, self.beside = work / "log", work / "ready", work
        self.work.mkdir(parents=True)
        for name in command.copied:
            shutil.copytree(given / name, self.work / name)

    def begin(self, resume: bool = False, fault: dict | None = None, start: Path | None = None) -> BaseProcess:
        words = self.command.line(self.given, self.work) + (self.command.resume.split() if resume else [])
        self.log.write_text("")
        asked = {"words": words, "work": str(self.work), "log": str(self.log), "points": str(self.beside / "points")}
        asked |= {"fault": fault, "start": start and str(start), "ready": str(self.ready)}
        file = self.beside / f"asked-{time.monotonic_ns()}.json"
        file.write_text(json.dumps(asked))
        return forked.begun(PROGRAM, file)

    def run(self, **options) -> int:
        return ended(self.begin(**options))

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")

    def resumed(self, whole: dict) -> list[str]:
        """What is wrong after resuming: nothing, where the result is that of an unbroken run."""
        status = self.run(resume=True)
        found = differences(whole, tree(self.work))
        if status not in (0, 2) or (status == 2 and found) or "Traceback" in self.said():
            return [f"resumed with status {status}: {last_line(self.said())}", *found[:3]]
        return found[:3]

    def remove(self) -> None:
        shutil.rmtree(self.beside)


class Bench:
    """Makes trials, and remembers of each command what an unbroken run gives, takes, and touches."""

    def __init__(self, given: Path, folder: Path):
        self.given, self.folder = given, folder
        self._unbroken: dict[str, tuple[dict, list[str], float]] = {}
        self._number = 0
        forked.status_of("")  # starts the server

    def trial(self, command: Command) -> Trial:
        self._number += 1
        return Trial(command, self.given, self.folder / f"trial-{self._number}")

    def unbroken(self, command: Command) -> tuple[dict, list[str], float]:
        """(its files, its points, its seconds)."""
        if command.name not in self._unbroken:
            trial = self.trial(command)
            began = time.monotonic()
            status = trial.run(fault={"kind": "count"})
            assert status == 0, trial.said()
            points = json.loads((trial.beside / "points").read_text())
            self._unbroken[command.name] = tree(trial.work), points, time.monotonic() - began
            trial.remove()
        return self._unbroken[command.name]

    def many(self, lines: list[list[str]], folder: Path) -> list[tuple[int, str, str | None]]:
        """What became of each command line, run one after the other in one process."""
        results, log = folder / "results.jsonl", folder / "log"
        (folder / "sweep.json").write_text(json.dumps({"lines": lines, "log": str(log), "results": str(results)}))
        status = ended(forked.begun(PROGRAM, folder / "sweep.json"), 600)
        found = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
        if len(found) < len(lines):
            found.append([status, log.read_text(errors="replace")[-500:], f"the process died with status {status}"])
        return found


def ended(process: BaseProcess, seconds: float = SECONDS_TO_END) -> int:
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return 124
    return process.exitcode


def tree(folder: Path) -> dict[str, object]:
    """The files of a folder by name, with what counts of their content."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if "tensorboard" in name or path.name == "verified.json":
            continue
        found[name] = "folder" if path.is_dir() else _content(path, folder)
    return found


def _content(path: Path, folder: Path) -> object:
    if path.suffix in SHOWN_ONLY:
        return "there"
    raw = path.read_bytes()
    if path.suffix in (".json", ".jsonl"):
        text = raw.decode("utf-8", errors="replace").replace(str(folder), "WORK")
        try:
            return [
                _without_times(json.loads(each)) for each in (text.splitlines() if path.suffix == ".jsonl" else [text])
            ]
        except json.JSONDecodeError:
            return raw
    return raw


def _without_times(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_times(each) for name, each in value.items() if not TIMES.search(name)}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


def differences(whole: dict, found: dict) -> list[str]:
    wrong = [f"{name} is missing" for name in whole if name not in found]
    wrong += [f"{name} is left over" for name in found if name not in whole]
    return wrong + [
        _difference(name, whole[name], found[name]) for name in whole if found.get(name, whole[name]) != whole[name]
    ]


def _difference(name: str, whole: object, found: object) -> str:
    """The place of the first difference in a record."""
    while isinstance(whole, dict | list) and isinstance(found, type(whole)):
        if len(whole) != len(found):
            return f"{name} has {len(found)} entries, not {len(whole)}"
        if isinstance(whole, dict) and whole.keys() != found.keys():
            return f"{name} has other keys"
        keys = whole if isinstance(whole, dict) else range(len(whole))
        key = next(key for key in keys if found[key] != whole[key])
        name, whole, found = f"{name}/{key}", whole[key], found[key]
    return f"{name} differs" + ("" if isinstance(whole, bytes) else f": {found!r}, not {whole!r}"[:200])


def sampled(items: list, most: int, seed: int = 0) -> list:
    """All, or `num` of them spread evenly with some randomness."""
    if len(items) <= most:
        return items
    draw, width = chance.Random(seed), len(items) / most
    return [items[min(int(width * (i + draw.random())), len(items) - 1)] for i in range(most)]


def last_line(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "nothing was said"


def is_one_sentence(said: str) -> bool:
    """Whether the command's complaint is one line, and no traceback or bare error of the system."""
    is_raw = "Traceback" in said or "[Errno" in said
    return not is_raw and sum(line.startswith("hornbook: ") for line in said.splitlines()) == 1
