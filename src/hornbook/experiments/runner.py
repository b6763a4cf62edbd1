"""The runner: all pieces of an experiment one after another, fine-tunings side by side, from wherever it stands.

OUT/experiment.json                what was decided, once (`decided.py`)
OUT/pieces/, pretrained/, running/ what was done (`plan.py`)
OUT/results.json                   scores, records and verdicts, of as many pieces as there are
OUT/report.html, score-by-flops.png, RESULTS-NAME.md
"""

import contextlib
import dataclasses
import os
import statistics
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from hornbook.config import checked
from hornbook.experiments.definition import Experiment, TaskPlan, read_experiment
from hornbook.experiments.pieces import Finetuning, finetuned, judged, labelled, pretrained
from hornbook.experiments.plan import Piece, pieces_of, tasks_of
from hornbook.experiments.pool import Pool
from hornbook.experiments.resolved import FILE, ResolvedExperiment, decide
from hornbook.experiments.results import write_results
from hornbook.files import num_cores, read_json
from hornbook.lifecycle.locking import locks_out
from hornbook.pretraining.batches import names_of
from hornbook.report.experiment import write_experiment_page
from hornbook.tasks.records import fingerprint
from hornbook.train.loop import Status
from hornbook.train.signals import Signals

Log = Callable[[str], None]
SECONDS_A_RESULT = 60.0  # between results that are written while fine-tunings run


@dataclass
class Reproduced:
    """How far an experiment came: `finished`, `stopped` (by a signal or the time), or `incomplete` (pieces failed)."""

    ended: str
    num_done: int
    num_pieces: int
    results: dict
    failures: dict[str, str] = field(default_factory=dict)


@locks_out
def reproduce(
    name: str | Path,
    corpora: Sequence[str | Path] | str | Path,
    data: str | Path,
    out: str | Path,
    *,
    arms: Sequence[str] | None = None,
    flops: float | None = None,
    seeds: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    minutes_each: float | None = None,
    stop_after: float | None = None,
    processes: int = 1,
    resume: bool = False,
    device: str = "auto",
    on_progress: Callable[[Status], None] | None = None,
    log: Log = print,
) -> Reproduced:
    """Runs an experiment, or continues it, as the command does: with all of its arms or some, and with the FLOPs, the
    number of pre-training seeds and the settings of pre-training that its file has or others. `stop_after` is in
    minutes.

    >>> import hornbook
    >>> hornbook.reproduce("equal-compute", "corpus", "tasks", "runs/equal", minutes_each=10)  # doctest: +SKIP
    """
    began, out = time.time(), Path(out)
    flops = checked(flops, float | None, "--flops", above=0, high=1e30)
    minutes_each = checked(minutes_each, float | None, "--minutes-each", above=0, high=525_600)
    stop_after = checked(stop_after, float | None, "--stop-after", above=0, high=525_600)
    processes = checked(processes, int, "--processes", low=1, high=256)
    seeds = checked(seeds, int | None, "--seeds", low=1, high=1000)
    if flops is not None and minutes_each is not None:
        raise ValueError("--flops and --minutes-each both say how long an arm is trained: give one of them")
    recorded = _recorded_options(out) if resume else {}
    flops = recorded.get("flops") if flops is None and minutes_each is None else flops
    overrides = recorded.get("set", {}) | dict(overrides or {})
    options = {"flops": flops, "set": overrides}  # arms and seeds say how much of it is run, and may grow
    experiment = read_experiment(name)
    if arms is not None:
        whole, experiment = experiment, experiment.of_arms(arms)
        if len(experiment.arms) < len(whole.arms):
            claims = f"{len(experiment.claims)} of {len(whole.claims)} claims that are about no other"
            log(f"{len(experiment.arms)} of {len(whole.arms)} arms, and the {claims}")
    if overrides:
        experiment = experiment.with_settings(overrides)
    if device != "auto":
        experiment = experiment.on_device(device)
    if flops is not None:
        experiment = dataclasses.replace(experiment, equal=dataclasses.replace(experiment.equal, flops=flops))
    if seeds is not None:
        experiment = experiment.with_seeds(seeds)
    if (out / FILE).exists() and not resume:
        raise ValueError(f"{out} already holds an experiment: add --resume to go on with it, or choose another --out")
    if not (out / FILE).exists() and out.exists() and any(path for path in out.iterdir()):
        raise ValueError(f"{out} exists and is no experiment: choose another --out, or empty it")
    places = find_tasks(experiment, Path(data), log)
    named = names_of(corpora)
    read_data = {name: fingerprint_of(experiment.task(name), place) for name, place in places.items()}
    until = None if stop_after is None else began + 60 * stop_after
    decided = decide(out, experiment, named, read_data, minutes_each, log, options)
    runner = _Runner(out, decided, named, places, processes, until, on_progress or (lambda status: None), log)
    with Signals() as signals, runner:
        return runner.run(signals)


def _recorded_options(out: Path) -> dict[str, Any]:
    """The options that an experiment was started with, which hold where it is resumed without them."""
    return read_json(out / FILE).get("options", {}) if (out / FILE).exists() else {}


def find_tasks(experiment: Experiment, data: Path, log: Log) -> dict[str, Path]:
    """Where each task lies. Those that are not there, or that cannot be read, are left out, and said."""
    if experiment.tasks and not data.is_dir():
        raise ValueError(f"{data} is not a folder: give --data the folder that holds the tasks")
    found = {}
    for task in experiment.tasks:
        place = next((data / each for each in task.places if (data / each).exists()), None)
        if place is None:
            looked = " or ".join(str(data / each) for each in task.places)
            log(f"note: no data for {task.name} (looked for {looked}); the rest goes on without it")
            continue
        found[task.name] = place
    if experiment.tasks and not found:
        raise ValueError(f"{data} holds none of the tasks: it must hold {experiment.tasks[0].places[0]} and the like")
    return found


def fingerprint_of(task: TaskPlan, place: Path) -> str:
    """Of the data of a task. What cannot be read is refused here, before hours of pre-training rather than after."""
    from hornbook.tasks.reading.read import read

    read_data = labelled(task, place)
    read_data = read(task.task or task.name, read_data) if isinstance(read_data, str) else read_data
    for part in ("train", "dev"):
        if not read_data.parts.get(part):
            raise ValueError(f"the data of {task.name} in {place} has no {part} part")
    return fingerprint(read_data)


class _Runner:
    def __init__(
        self,
        out: Path,
        decided: ResolvedExperiment,
        corpora: list[str],
        places: dict[str, Path],
        processes: int,
        until: float | None,
        on_progress: Callable[[Status], None],
        log: Log,
    ):
        self.out, self.decided, self.corpora, self.places = out, decided, corpora, places
        self.pool, self.until, self.on_progress, self.log = Pool(processes), until, on_progress, log
        self.tasks = tasks_of(out, decided, list(places))
        self.pieces = pieces_of(decided, self.tasks)
        self.numbers = {piece: number for number, piece in enumerate(self.pieces, 1)}
        self.failures: dict[str, str] = {}
        self.without_weights: set[Path] = set()
        self.written_at = 0.0

    def __enter__(self) -> "_Runner":
        return self

    def __exit__(self, *_: object) -> None:
        self.pool.close()

    def run(self, signals: Signals) -> Reproduced:
        missing = [piece for piece in self.pieces if not piece.is_done(self.out)]
        done = len(self.pieces) - len(missing)
        self.log(f"{len(self.pieces)} pieces, {done} done; {self.decided.flops:.3g} FLOPs each pre-training")
        is_stopped = False
        self._write()
        for kind, group in groupby(missing, key=lambda piece: piece.kind):
            group = [piece for piece in group if self._can_run(piece)]
            if kind == "finetune" and self.pool.num_processes > 1:
                is_stopped = not self._side_by_side(group, signals)
            else:
                is_stopped = not all(self._alone(piece, signals) for piece in group)
            self._write()
            if is_stopped:
                break
        results = self._write()
        write_experiment_page(self.out)
        num_done = sum(piece.is_done(self.out) for piece in self.pieces)
        ended = "finished" if num_done == len(self.pieces) else "stopped" if is_stopped else "incomplete"
        return Reproduced(ended, num_done, len(self.pieces), results, self.failures)

    def _write(self) -> dict:
        self.written_at = time.monotonic()
        return write_results(self.out, self.decided, self.pieces, self.tasks)

    def _write_now_and_then(self) -> None:
        """So that a kill leaves results that are nearly new."""
        if time.monotonic() - self.written_at > SECONDS_A_RESULT:
            self._write()

    def _can_run(self, piece: Piece) -> bool:
        """Not without its data, nor without its pre-training, which may have failed or left no weights here."""
        if piece.kind in ("pretrain", "overlap"):
            return True
        pretraining = Piece("pretrain", piece.arm, piece.seed)
        if (piece.kind == "finetune" and piece.task not in self.places) or not pretraining.is_done(self.out):
            return False
        weights = piece.weights(self.out, self.decided)
        if not weights.is_dir() and weights not in self.without_weights:
            self.without_weights.add(weights)
            self.log(
                f"note: the weights {weights} are not here, which {piece.words} and others need: bring them from where "
                f"{piece.arm} was trained, or remove {pretraining.file(self.out)} to train it again"
            )
        return weights.is_dir()

    def _is_to_stop(self, signals: Signals) -> bool:
        return bool(signals.stop) or (self.until is not None and time.time() > self.until)

    def _alone(self, piece: Piece, signals: Signals) -> bool:
        """Runs a piece in this process. False where the experiment is to stop."""
        if self._is_to_stop(signals):
            return False
        self.log(f"[{self.numbers[piece]} of {len(self.pieces)}] {piece.words}{self._left()}")

        def on_progress(status: Status) -> bool:
            self.on_progress(status)
            return self._is_to_stop(signals)

        with self._noting_failures(piece):
            if piece.kind == "pretrain":
                return pretrained(piece, self.out, self.decided, self.corpora, on_progress, self.log) is not None
            if piece.kind == "finetune":
                found = finetuned(self._finetuning(piece), on_progress)
                self._log_score(piece, found)
                return found is not None
            judged(piece, self.out, self.decided, self.corpora)
        return True

    def _side_by_side(self, group: list[Piece], signals: Signals) -> bool:
        """Runs fine-tunings in processes that share the device. False where the experiment is to stop."""
        if not group:
            return True
        if self._is_to_stop(signals):
            return False
        self.log(f"{len(group)} fine-tunings, {self.pool.num_processes} at a time{self._left()}")
        took = self._seconds_per_piece()  # the longest go first, so that none is left alone at the end
        group = sorted(group, key=lambda piece: took.get(piece.alike, 0.0), reverse=True)

        def tell(job: Finetuning, found: dict | Exception) -> None:
            if isinstance(found, Exception):
                self._note_failure(job.piece, found)
            else:
                self._log_score(job.piece, found)
            self._write_now_and_then()

        return self.pool.run(list(map(self._finetuning, group)), lambda: self._is_to_stop(signals), tell, self.log)

    def _finetuning(self, piece: Piece) -> Finetuning:
        equal = self.decided.experiment.equal
        plan = self.decided.experiment.task(piece.task)
        overrides = equal.finetuning | plan.settings
        if self.pool.num_processes > 1:
            overrides = {"runtime.threads": max(1, num_cores() // self.pool.num_processes)} | overrides
        weights = str(piece.weights(self.out, self.decided))
        return Finetuning(piece, plan, weights, str(self.places[piece.task]), str(self.out), overrides, self.until)

    @contextlib.contextmanager
    def _noting_failures(self, piece: Piece) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._note_failure(piece, error)

    def _note_failure(self, piece: Piece, error: Exception) -> None:
        """A piece that fails is said, and the others go on; the same command tries it again."""
        if os.environ.get("HORNBOOK_TRACEBACK"):
            traceback.print_exception(error)
        self.failures[piece.key] = str(error).partition("\n")[0] or type(error).__name__
        self.log(f"note: {piece.words} failed: {self.failures[piece.key]}; the rest goes on")

    def _log_score(self, piece: Piece, found: dict | None) -> None:
        if found is not None:
            wrong = f" (it learned nothing: {found['degenerate']})" if found["degenerate"] else ""
            place = f"[{self.numbers[piece]} of {len(self.pieces)}]"
            self.log(f"{place} {piece.words}: {found['score']:.1f} in {found['seconds']:.0f} s{wrong}")

    def _left(self) -> str:
        """About how long the rest takes, from the pieces that are done."""
        took = self._seconds_per_piece()
        if self.decided.minutes_each is not None:
            took.setdefault(("pretrain",), 60 * self.decided.minutes_each)
        seconds = 0.0
        for piece in self.pieces:
            if piece.is_done(self.out):
                continue
            known = took.get(piece.alike, took.get((piece.kind,)))
            if known is None and piece.kind in ("pretrain", "finetune"):
                return ""
            at_once = self.pool.num_processes if piece.kind == "finetune" else 1
            seconds += (known or 0.0) / at_once
        return f"; about {max(1, round(seconds / 60))} min left in all" if seconds else ""

    def _seconds_per_piece(self) -> dict[tuple, float]:
        """On average, of those that are done: by what they are alike in, and by their kind."""
        took: dict[tuple, list[float]] = {}
        for piece in self.pieces:
            if (found := piece.found(self.out)) is not None:
                for alike in (piece.alike, (piece.kind,)):
                    took.setdefault(alike, []).append(found["seconds"])
        return {alike: statistics.fmean(seconds) for alike, seconds in took.items()}
