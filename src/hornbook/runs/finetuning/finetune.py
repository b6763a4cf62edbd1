"""`hornbook.finetune`: fine-tunes a model on labelled data into a run that predicts.

result = hornbook.finetune("bert-base-uncased", data=frame, task="classification")
result.score                                   # on the dev split
result.predict(["a text", "another"])

With `lr_search` or `seeds` it is a sweep of several runs, its trials: with different learning rates, or with different
seeds, which change the shuffling and the initialisation of the head.
"""

import itertools
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from hornbook.config import checked
from hornbook.files import absolute, hard_link_files, read_json, write_json
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import DEFAULT, model_folder
from hornbook.lifecycle.locking import run_lock
from hornbook.lifecycle.requests import as_overrides, option_differences, request_differences
from hornbook.lifecycle.run_folder import RECORD, Log, RunFolder, ignore, recorded
from hornbook.report.card import write_card
from hornbook.report.trials import TRIALS, draw, read_trials
from hornbook.runs.augmentation.stored_copies import with_copies
from hornbook.runs.distillation.task_stages import check_teacher, with_projections
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.inputs import FinetuneInputs, check_request, open_inputs
from hornbook.runs.finetuning.job import with_steps
from hornbook.runs.finetuning.published import searched_lrs, settings_for
from hornbook.runs.finetuning.record import (
    SWEEP,
    FinetuneRequest,
    check_record,
    refuse_other_request,
    run_folder,
    sweep_folder,
)
from hornbook.runs.finetuning.settings import FinetuneSettings
from hornbook.runs.finetuning.single_run import FinetuneResult, planned, run_once
from hornbook.tasks.datasets import find_task
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.job import OnProgress, preparation_progress
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.runtime import torch_settings_restored


def finetune(
    model: str | Path | None = None,
    data: Any = None,
    task: str | None = None,
    out: str | Path | None = None,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    epochs: float | None = None,
    lr: float | None = None,
    batch_size: int | None = None,
    seed: int | None = None,
    seeds: int = 1,
    lr_search: bool = False,
    from_scratch: bool = False,
    strict: bool = False,
    reason: str | None = None,
    graph: str | Path | None = None,
    vectors: str | Path | None = None,
    overrides: dict | None = None,
    device: str = "auto",
    resume: bool = False,
    on_progress: OnProgress | None = None,
    log: Log = print,
) -> FinetuneResult:
    """Fine-tunes a pre-trained model on a task.

    Args:
        model: A run folder, a folder that `transformers` wrote, a Hugging Face name or a built-in model (`en`); by
            default the built-in model for the language of the texts.
        data: A folder, a file, a data frame, a list of dictionaries, or a dictionary of these by split; defaults to the
            path that the resumed run was started with.
        task: The kind of task, or the name of a data set; defaults to that of the resumed run, or `classification`.
        out: The run folder; by default a new one under `runs/`.
        text, pair, label: The columns; inferred by default.
        delimiter, encoding: The format of the files; detected by default.
        epochs, lr, batch_size, seed: Settings of the run; they default to the published values for the task and model.
        seeds: Number of runs with different seeds; the one with the best dev score is kept.
        lr_search: Try the four published learning rates and keep the best by dev score.
        from_scratch: Train the same network from randomly initialised weights.
        strict: Raise a `ValueError` at the first bad row.
        reason: `kagnet`: multiple choice also reads the paths of a knowledge graph between question and answers.
        graph, vectors: The folders of that graph, and of its vectors. Without `reason`, `graph` is that of an ERNIE, to
            whose entities the texts of entity-typing and relation are linked.
        overrides: Any setting by its dotted name.
        device: `cpu`, `cuda` or `cuda:1`; defaults to a GPU if there is one.
        resume: Continue the run in `out`.
        on_progress, log: Receive the training status and the log messages.

    Returns:
        The finished run: `score`, `scores`, `degenerate`, `predict(items)`, `evaluate(data)`.

    Raises:
        Stopped: Ctrl-C, another signal or `on_progress` stopped the run after saving it.

    >>> import hornbook
    >>> settings = {"epochs": 1, "progress": False, "log": lambda message: None}
    >>> result = hornbook.finetune("runs/first", "reviews.csv", out="runs/example", **settings)
    >>> 0 <= result.score <= 1, len(result.predict(["A charming journey."]))
    (True, 1)
    """
    before = recorded_request(out) if resume else {}
    data = before.get("data") if data is None else data
    task = task or before.get("task") or "classification"
    out = new_folder(task) if out is None else out
    options = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    options |= {"epochs": epochs, "lr": lr, "batch_size": batch_size, "seed": seed, "device": device}
    options |= {"overrides": graph_overrides(reason, graph, vectors) | (overrides or {})}
    request = FinetuneRequest.of(model, data, task, **options, from_scratch=from_scratch, strict=strict)
    run_options = {"seeds": seeds, "lr_search": lr_search, "resume": resume, "on_progress": on_progress, "log": log}
    return run_request(request, data, Path(out), **run_options)


def new_folder(task: str) -> Path:
    """The first free folder for a run of a task; several processes get that of the main one."""
    folders = (Path("runs") / f"{task}-{i}" for i in itertools.count(1))
    return current_ranks().from_main(lambda: next(folder for folder in folders if not folder.exists()))


@torch_settings_restored()
def run_request(
    request: FinetuneRequest,
    data: Any,
    out: Path,
    *,
    seeds: int = 1,
    lr_search: bool = False,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    log: Log = print,
    teacher: Teacher | None = None,
    loaded: tuple[nn.Module, Tokenizer] | None = None,
) -> FinetuneResult:
    """Runs a request of `finetune`, or one of `distill`, which passes the `teacher` and, if the student is a new model,
    that model (`loaded`)."""
    if request.from_scratch and teacher is not None:
        raise ValueError("from_scratch is for a model without a teacher: name a preset as the student instead")
    seeds = checked(seeds, int, "seeds", low=1, high=1000)
    if data is None:
        raise ValueError("there is no data to train on: give data=, such as a file")
    if lr_search and request.lr is not None:
        raise ValueError("lr_search= chooses the learning rate: leave out lr_search= or lr=")
    if lr_search and "optimizer.lr" in request.overrides:
        raise ValueError("lr_search= chooses the learning rate: leave out lr_search= or the setting optimizer.lr")
    ranks = current_ranks()
    log, on_progress = ranks.only_main(log), ranks.only_main(on_progress or ignore)
    with run_lock(out):  # before augmented copies and cached teacher outputs are written there
        if not resume:  # a run that is resumed first compares the request with its record
            check_request(request, needs_folder=loaded is None)
        folder = run_folder(out, request)
        if ranks.from_main(lambda: folder.is_started(resume)):
            request, seeds, lr_search = _as_started(folder, request, seeds, lr_search)
        inputs = replace(checked_inputs(request, data, loaded, teacher, log), folder=out)
        if inputs.grounder is not None:
            inputs.grounder.on_progress = preparation_progress(on_progress, "finding paths: question")
        if teacher is not None and loaded is None:
            inputs = with_projections(inputs, model_folder(inputs.request.model), log)
        with ranks.main_first():  # the others read the copies that it makes
            inputs = with_copies(inputs, out, on_progress, log)
        if seeds > 1 or lr_search:
            return run_trials(out, inputs, seeds, lr_search, on_progress, log)
        return run_once(out, inputs, on_progress, log)


def graph_overrides(reason: str | None, graph: str | Path | None, vectors: str | Path | None) -> dict[str, Any]:
    """The settings of a knowledge graph, whose paths are read (`reason`) or to whose entities texts are linked. Folders
    are recorded with their whole paths."""
    graph, vectors = (None if folder is None else absolute(folder) for folder in (graph, vectors))
    if reason is None and vectors is None:
        return {} if graph is None else {"task.graph": graph}
    return as_overrides(reason=reason, reason_graph=graph, reason_vectors=vectors)


def checked_inputs(
    request: FinetuneRequest, data: Any, loaded: tuple[nn.Module, Tokenizer] | None, teacher: Teacher | None, log: Log
) -> FinetuneInputs:
    """Data, model and settings of a run; raises a `ValueError` if the teacher does not fit them."""
    inputs = open_inputs(request, data, log, loaded, teacher)
    if teacher is not None:
        check_teacher(inputs, log)
    return inputs


def resolve_settings(
    request: FinetuneRequest,
    data: Any = None,
    loaded: tuple[nn.Module, Tokenizer] | None = None,
    teacher: Teacher | None = None,
    log: Log = print,
) -> FinetuneSettings:
    """The settings that a run would have; nothing is trained. Without `data`, those that depend on it have their
    defaults: epochs with a teacher, and the intervals of logging and validation."""
    if data is not None:
        inputs = checked_inputs(request, data, loaded, teacher, log)
        return with_steps(inputs.settings, inputs.encoded_train)
    pretrained, _ = loaded or load_folder(model_folder(request.model or DEFAULT))
    return settings_for(find_task(request.task), pretrained, request.all_overrides(), teacher is not None)


def recorded_request(out: str | Path | None) -> dict[str, Any]:
    """The request that the run in `out` was started with; empty if there is no run."""
    return recorded(out, SWEEP, RECORD).get("request", {})


def _as_started(
    folder: RunFolder, request: FinetuneRequest, seeds: int, lr_search: bool
) -> tuple[FinetuneRequest, int, bool]:
    """The request, `seeds` and `lr_search` that the run was started with, so that resuming needs only its folder.
    Raises a `ValueError` if different ones are given."""
    options = {"seeds": seeds if seeds > 1 else None, "lr_search": lr_search}
    sweep = sweep_folder(folder.path, request)
    if not sweep.has_record:
        if not folder.has_record:  # only augmented copies were made
            return request, seeds, lr_search
        run = folder.read_record(check_record)
        folder.refuse(option_differences({"seeds": 1, "lr_search": False}, options))
        refuse_other_request(folder, run, request)
        return FinetuneRequest(**run["request"]), 1, False
    record = sweep.read_record(lambda record: FinetuneRequest(**record["request"]))
    folder.refuse([*option_differences(record, options), *request_differences(record["request"], request)])
    return FinetuneRequest(**record["request"]), record["seeds"], record["lr_search"]


# ---- sweeps


def run_trials(
    out: Path, inputs: FinetuneInputs, seeds: int, lr_search: bool, on_progress: OnProgress, log: Log
) -> FinetuneResult:
    """Runs the trials that are not finished yet, and links the one with the best dev score to `out`.

    OUT/sweep.json      the request
    OUT/trials/NAME/    a trial: a finished run
    OUT/trials.json     the score of each trial, and their median and standard deviation
    """
    request = inputs.request
    folder = sweep_folder(out, request)
    if not folder.has_record:
        planned(inputs)[0].check_run(current_ranks().size)
        folder.write_record(request.to_dict(), {}, seeds=seeds, lr_search=lr_search)
    first_seed, trials = inputs.settings.runtime.seed, {}

    def run_trial(name: str, variant: FinetuneRequest) -> None:
        """Runs a variant of the request and adds it to `trials`."""
        trials[name] = result = run_once(out / "trials" / name, inputs.with_request(variant), on_progress, log)
        note = f"; note: {result.degenerate}" if result.degenerate else ""
        log(f"{name}: {result.metric_for_best} {result.score:.4g}{note}")

    if lr_search:
        for lr in searched_lrs(inputs.pretrained.config.width):
            run_trial(f"lr-{lr:g}", replace(request, lr=lr))
            _write_trials(out, "lr_search", trials)
    else:
        run_trial(f"seed-{first_seed}", request)
    if seeds > 1:
        best = trials[_best(trials)]
        best_lr = _trial_settings(best)["optimizer"]["lr"] if lr_search else request.lr
        # The trial with the best learning rate is that of the first seed: its score, the best of four, is biased high.
        trials = {f"seed-{first_seed}": best}
        for seed in range(first_seed + 1, first_seed + seeds):
            run_trial(f"seed-{seed}", replace(request, lr=best_lr, seed=seed))
            _write_trials(out, "seeds", trials)
    best = trials[_best(trials)]
    if current_ranks().is_main:
        draw(out, read_trials(out))
        hard_link_files(best.out, out)
        write_card(out)  # replaces the card of the best trial, which names the folder of that trial
    return replace(best, out=out)


def _best(trials: dict[str, FinetuneResult]) -> str:
    """The name of the trial with the highest dev score; degenerate ones come last."""
    return max(trials, key=lambda name: (trials[name].degenerate is None, trials[name].score))


def _trial_settings(result: FinetuneResult) -> dict[str, Any]:
    return read_json(result.out / RECORD)["settings"]


def _write_trials(out: Path, kind: str, trials: dict[str, FinetuneResult]) -> None:
    rows = []
    for name, result in trials.items():
        settings = _trial_settings(result)
        score = result.scores["dev"][result.metric_for_best]
        rows.append(
            {
                "name": name,
                "folder": str(result.out.relative_to(out)),
                "lr": settings["optimizer"]["lr"],
                "seed": settings["runtime"]["seed"],
                "score": score["value"],
                "low": score["low"],
                "high": score["high"],
                "degenerate": result.degenerate,
                "seconds": result.outcome.seconds,
            }
        )
    scores = [row["score"] for row in rows]
    summary = {
        "kind": kind,
        "metric_for_best": next(iter(trials.values())).metric_for_best,
        "trials": rows,
        "best": _best(trials),
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
    }
    write_json(out / TRIALS, summary)
