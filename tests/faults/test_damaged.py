"""Damaged tables, corpora, models and runs: a one-sentence error, never a traceback, a hang, or a silently wrong
result."""

import random as chance
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bench import COMMANDS_BY_NAME, is_one_sentence, last_line, tree
from commands import write_table
from damage import damage_bytes, damage_header, damage_json, damage_table

BY_SUFFIX = {".json": damage_json, ".safetensors": damage_header}
NUM_TABLES, NUM_FOLDERS = 100, 60


def damaged_copy(source: Path, target: Path, draw: chance.Random, only: str = "*") -> str:
    """Copies a folder and damages one of its files."""
    shutil.copytree(source, target)
    file = draw.choice(sorted(path for path in target.rglob(only) if path.is_file() and "tensorboard" not in str(path)))
    by_bytes = damage_bytes if draw.random() < 0.3 and file.suffix != ".safetensors" else None
    return (by_bytes or BY_SUFFIX.get(file.suffix, damage_bytes))(file, draw)


def judged(found: list, how: list[str], is_right: Callable[[int], bool] = lambda number: True) -> list[str]:
    """What is wrong with the result of a damaged input; `is_right` checks those that exit normally."""
    failed = []
    for number, ((status, said, traceback), damage) in enumerate(zip(found, how, strict=False)):
        if traceback:
            failed.append(f"{damage}: {traceback.strip().splitlines()[-1][:200]}\n{traceback[-700:]}")
        elif status not in (0, 2):
            failed.append(f"{damage}: status {status}: {last_line(said)}")
        elif status == 2 and not is_one_sentence(said):
            failed.append(f"{damage}: not one sentence: {said[-300:]}")
        elif status == 0 and not is_right(number):
            failed.append(f"{damage}: accepted in silence, with another result")
    return failed


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl"])
def test_tables(suffix, bench, given, tmp_path, figures):
    draw, lines, how = chance.Random(suffix), [], []
    for number in range(NUM_TABLES):
        file = tmp_path / f"{number}{suffix}"
        write_table(file, 12)
        how.append(damage_table(file, draw))
        reads = draw.choice(
            (["predict", given / "reviews", "--file", file], ["evaluate", given / "reviews", "--data", file])
        )
        makes = [
            "baseline",
            "majority",
            "--task",
            "classification",
            "--data",
            file,
            "--out",
            tmp_path / f"out-{number}",
        ]
        lines.append([str(word) for word in draw.choice((reads, makes))])
    figures("damage", f"{suffix} tables", len(lines), len(lines), judged(bench.many(lines, tmp_path), how))


def test_corpora(bench, tmp_path, given, figures):
    """A corpus that is damaged but for its cache is refused; with another cache the same is learned."""
    command, draw = COMMANDS_BY_NAME["pretrain"], chance.Random(1)
    lines, how = [], []
    for number in range(-1, NUM_FOLDERS):
        work = tmp_path / str(number)
        if number < 0:
            shutil.copytree(given / "corpus", work / "corpus")
        else:
            how.append(damaged_copy(given / "corpus", work / "corpus", draw))
        lines.append(command.line(given, work))
    found = bench.many(lines, tmp_path)
    whole = tree(tmp_path / "-1" / "out")["model.safetensors"]
    failed = judged(
        found[1:], how, lambda number: tree(tmp_path / str(number) / "out").get("model.safetensors") == whole
    )
    figures(
        "damage",
        "corpora",
        len(how),
        len(how),
        [*failed, *(["the whole one: " + str(found[0])] if found[0][0] else [])],
    )


@pytest.mark.parametrize("use", ["predict", "evaluate", "info", "report", "finetune", "features", "corpus build"])
def test_model_folders(use, bench, tmp_path, given, figures):
    draw, lines, how = chance.Random(use), [], []
    table, num = given / "texts.csv", NUM_FOLDERS // 2
    for number in range(num):
        folder, out = tmp_path / str(number), tmp_path / f"out-{number}"
        how.append(damaged_copy(given / "reviews", folder, draw, "tokenizer*" if use == "corpus build" else "*"))
        words = {
            "predict": ["predict", folder, "the river"],
            "evaluate": ["evaluate", folder, "--data", table],
            "info": ["info", folder],
            "report": ["report", folder],
            "finetune": [
                "finetune",
                folder,
                "--data",
                table,
                "--out",
                out,
                "--epochs",
                1,
                "--set",
                "runtime.threads=1",
            ],
            "features": ["features", folder, table, "--out", out.with_suffix(".npy")],
            "corpus build": [
                "corpus",
                "build",
                given / "texts.txt",
                "--tokenizer",
                folder,
                "--out",
                out,
                "--workers",
                0,
            ],
        }
        lines.append([str(word) for word in words[use]])
    figures("damage", f"models, {use}", num, num, judged(bench.many(lines, tmp_path), how))


@pytest.mark.parametrize("name", ["pretrain", "finetune", "distill a task", "corpus build", "prompt", "label-curve"])
def test_unfinished_runs(name, bench, tmp_path, given, figures):
    """Killed in the middle, damaged, and resumed."""
    command, draw = COMMANDS_BY_NAME[name], chance.Random(name)
    _, points, _ = bench.unbroken(command)
    killed = bench.trial(command)
    killed.run(fault={"kind": "crash", "at": int(0.7 * len(points))})
    lines, how = [], []
    for number in range(num := NUM_FOLDERS // 2):
        work = tmp_path / str(number)
        if killed.command.copied:
            shutil.copytree(given / "corpus", work / "corpus")
        how.append(damaged_copy(killed.work / "out", work / "out", draw))
        lines.append([*command.line(given, work), *command.resume.split()])
    killed.remove()
    figures("damage", f"resumed {name}", num, num, judged(bench.many(lines, tmp_path), how))
