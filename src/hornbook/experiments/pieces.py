"""How a piece of an experiment is run. A piece that is stopped answers None and goes on from there the next time, by
the exact resume of pre-training and fine-tuning; one that is finished leaves a file, and is not run again."""

import dataclasses
import shutil
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hornbook.experiments.definition import TaskPlan
from hornbook.experiments.memory import PeakMemory
from hornbook.experiments.plan import Piece
from hornbook.experiments.resolved import ResolvedExperiment, open_for
from hornbook.experiments.sentences import crossed, overlap
from hornbook.files import read_json, write_json
from hornbook.finetuning.record import Request
from hornbook.finetuning.run import open_and_run
from hornbook.interop.folder import load_model
from hornbook.pretraining.run import pretrain
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.split import by_article
from hornbook.tasks.records import DataSet
from hornbook.train.loop import OnProgress, Outcome, Status
from hornbook.train.metrics import read_metrics

NEVER = 1_000_000_000  # steps: the last weights are scored, and none are chosen by their dev score
IN_PERCENT = "spans"  # the kind of task whose scores are in percent already
Log = Callable[[str], None]


@dataclass(frozen=True)
class Finetuning:
    """Everything that a process of its own needs for one fine-tuning."""

    piece: Piece
    plan: TaskPlan
    weights: str
    place: str
    out: str
    overrides: dict[str, Any]
    until: float | None = None  # seconds since the epoch, at which it stops and saves


def pretrained(
    piece: Piece,
    out: Path,
    decided: ResolvedExperiment,
    corpora: list[str],
    on_progress: Callable[[Status], bool | None],
    log: Log,
) -> dict | None:
    """Pre-trains an arm for its FLOPs, with its checkpoints kept, and writes down what it took."""
    arm, run = decided.experiment.arm(piece.arm), piece.run_folder(out)
    peak_file = Path(out) / "running" / f"{piece.key}.memory.json"
    torch.compiler.reset()  # one piece of code is compiled for at most 8 shapes, and arms have theirs
    with PeakMemory() as peak:
        outcome = pretrain(
            arm.preset,
            corpora,
            run,
            seed=piece.seed,
            overrides=decided.changes_of(arm),
            resume=True,
            on_progress=on_progress,
            log=log,
        )
    before = read_json(peak_file) if peak_file.exists() else {"bytes": 0}
    memory = max(before, {"bytes": peak.bytes, "of": peak.of}, key=lambda each: each["bytes"])
    if outcome.ended == "stopped":
        write_json(peak_file, memory)
        return None
    found = _record(run, outcome, decided, piece) | {"memory": memory}
    write_json(piece.file(out), found)
    for no_more_needed in ("checkpoints", "best"):  # what is measured lies under kept/
        shutil.rmtree(run / no_more_needed, ignore_errors=True)
    peak_file.unlink(missing_ok=True)
    return found


def _record(run: Path, outcome: Outcome, decided: ResolvedExperiment, piece: Piece) -> dict[str, Any]:
    about, lines = read_json(run / "run.json"), read_metrics(run)
    budget = decided.arms[piece.arm]
    speeds = [line["tokens_per_second"] for line in lines if line["kind"] == "train"]
    speed = statistics.median(speeds[1:] or speeds or [0.0])
    validations = {line["step"]: line for line in lines if line["kind"] == "validation"}
    left_out = ("kind", "step", "best")
    kept = load_model(piece.weights(run.parents[1], decided))
    return {
        "steps": outcome.step,
        "tokens": outcome.tokens,
        "seconds": outcome.seconds,
        "flops": outcome.tokens * budget.step_flops / budget.step_tokens,
        "parameters": sum(weight.numel() for weight in kept.parameters()),
        "trained_parameters": about["parameters"],
        "tokens_per_second": speed,
        "updates_per_second": speed / (outcome.tokens / max(1, outcome.step)) if outcome.tokens else 0.0,
        "device": about["runtime"]["reason"],
        "losses": {
            f"{share:g}": {name: value for name, value in found.items() if name not in left_out}
            for share in decided.experiment.equal.checkpoints
            if (found := validations.get(budget.step_at(share)))
        },
    }


def finetuned(job: Finetuning, on_progress: OnProgress) -> dict | None:
    """Fine-tunes a checkpoint on a task and writes down its score; the run itself is not kept."""
    out, piece, plan = Path(job.out), job.piece, job.plan
    folder = out / "running" / piece.key
    request = Request(
        job.weights,
        plan.task or plan.name,
        None,
        seed=piece.task_seed,
        overrides={"validation.every_steps": NEVER, **job.overrides},
    )
    if (folder / "run.json").exists() and read_json(folder / "run.json")["request"] != request.to_dict():
        # Begun where the weights lay elsewhere, or with other threads: it is short enough to begin anew.
        shutil.rmtree(folder)
    began = time.monotonic()
    result = open_and_run(folder, request, labelled(plan, Path(job.place)), on_progress, lambda words: None)
    if isinstance(result, Outcome):
        return None
    unit = 1.0 if plan.known.kind == IN_PERCENT else 100.0
    found = {
        "score": unit * result.scores["dev"][plan.decided_by]["value"],
        "scores": {name: each["value"] for name, each in result.scores["dev"].items()},
        "degenerate": result.degenerate,
        "training_seconds": result.outcome.seconds,
        "seconds": time.monotonic() - began,
    }
    write_json(piece.file(out), found)
    shutil.rmtree(folder)
    return found


def labelled(plan: TaskPlan, place: Path) -> DataSet | str:
    """The data of a task as it is fine-tuned on."""
    if plan.parts == "as published":
        return str(place)
    data = read(plan.task or plan.name, place, held_out=0, default_split="dev")
    train, dev = by_article(data.parts["dev"])
    return dataclasses.replace(data, parts={"train": train, "dev": dev})


def judged(piece: Piece, out: Path, decided: ResolvedExperiment, corpora: list[str]) -> dict:
    """A piece about sentence pairs: `crossed` or `overlap`."""
    experiment, began = decided.experiment, time.monotonic()
    arm = experiment.arm(piece.arm) if piece.arm else experiment.arms[0]
    settings, sentences = experiment.settings_of(arm), experiment.sentences
    opened = open_for(settings, corpora)
    if piece.kind == "overlap":
        found = overlap(settings, opened, sentences.pairs, sentences.fit_pairs)
    else:
        found = crossed(piece.weights(out, decided), settings, opened, sentences.pairs)
    found = found | {"seconds": time.monotonic() - began}
    write_json(piece.file(out), found)
    return found
