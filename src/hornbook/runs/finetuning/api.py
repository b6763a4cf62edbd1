"""`hornbook.finetune`: fine-tunes a model on labelled data into a run that predicts.

result = hornbook.finetune("bert-base-uncased", data=frame, task="classification")
result.score                                   # on the dev split
result.predict(["a text", "another"])

Several runs instead of one are a search over learning rates, and runs with other seeds, which change the shuffling and
the initialisation of the head. The run with the best dev score is linked to the root of the folder; all runs stay under
OUT/trials.
"""

import itertools
import statistics
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from hornbook.config import checked
from hornbook.files import absolute, link_files, read_json, write_json
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import DEFAULT, model_folder
from hornbook.lifecycle.locking import run_lock
from hornbook.lifecycle.requests import as_overrides, option_differences, request_differences, with_device
from hornbook.lifecycle.run_folder import RECORD, RunFolder, recorded
from hornbook.report.card import write_card
from hornbook.report.trials import TRIALS, draw, read_trials
from hornbook.runs.augmentation.copies import Augmenter, KeptCopies, made_from, open_masked_lm
from hornbook.runs.distillation.task_stages import check_teacher, with_projections
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.finetune import FinetuneResult, run_once
from hornbook.runs.finetuning.inputs import Inputs, Log, check_request, open_inputs
from hornbook.runs.finetuning.job import with_steps
from hornbook.runs.finetuning.record import (
    REQUEST,
    FinetuneRequest,
    read_run,
    refuse_other_request,
    run_folder,
    sweep_folder,
)
from hornbook.runs.finetuning.settings import FinetuneSettings, searched_lrs, settings_for
from hornbook.tasks.datasets import find_task
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.job import OnProgress, Outcome, preparation_progress
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.runtime import choose_runtime, configure_torch, torch_settings_restored


class Stopped(RuntimeError):
    """Raised by `finetune` when a signal, or `on_progress` by returning True, stopped the run, which therefore has no
    model that could predict. Its state is saved; the same call with `resume=True` continues it."""

    def __init__(self, out: Path, outcome: Outcome):
        super().__init__(f"stopped at step {outcome.step:,} and saved in {out}: resume=True continues it")
        self.outcome = outcome


@torch_settings_restored()
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
    teacher: Teacher | None = None,
    loaded: tuple[nn.Module, Tokenizer] | None = None,
) -> FinetuneResult:
    """Fine-tunes a pre-trained model on a task.

    Args:
        model: A run folder, a folder that `transformers` wrote, a Hugging Face name or a built-in model (`en`); by
            default the built-in model for the language of the texts.
        data: A folder, a file, a data frame, a list of dictionaries, or a dictionary of these by split.
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
        teacher, loaded: A teacher and the loaded student, as `hornbook.distill` passes them.

    Returns:
        The finished run: `score`, `scores`, `degenerate`, `predict(items)`, `evaluate(data)`.

    Raises:
        Stopped: Ctrl-C, another signal or `on_progress` stopped the run after saving it (`pretrain`, whose result
            cannot predict, returns an `Outcome` instead).

    >>> import hornbook
    >>> settings = {"epochs": 1, "progress": False, "log": lambda message: None}
    >>> result = hornbook.finetune("runs/first", "reviews.csv", out="runs/example", **settings)
    >>> 0 <= result.score <= 1, len(result.predict(["A charming journey."]))
    (True, 1)
    """
    if from_scratch and teacher is not None:
        raise ValueError("from_scratch is for a model without a teacher: name a preset as the student instead")
    seeds = checked(seeds, int, "seeds", low=1, high=1000)
    if data is None:
        raise ValueError("there is no data to train on: give data=, such as a file")
    if lr_search and lr is not None:
        raise ValueError("lr_search= chooses the learning rate: leave out lr_search= or lr=")
    if lr_search and "optimizer.lr" in (overrides or {}):
        raise ValueError("lr_search= chooses the learning rate: leave out lr_search= or the setting optimizer.lr")
    task = task or (recorded_request(out).get("task") if resume else None) or "classification"
    if out is None:
        folders = (Path("runs") / f"{task}-{i}" for i in itertools.count(1))
        out = next(folder for folder in folders if not folder.exists())
    out = Path(out)
    reading = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    settings = {"epochs": epochs, "lr": lr, "batch_size": batch_size, "seed": seed}
    settings["overrides"] = graph_overrides(reason, graph, vectors) | with_device(overrides, device)
    request = FinetuneRequest.of(
        *(model, data, task),
        **reading,
        **settings,
        from_scratch=from_scratch,
        strict=strict,
        teacher=teacher and teacher.name,
    )
    ranks = current_ranks()
    log, on_progress = ranks.only_main(log), ranks.only_main(on_progress or (lambda status: None))
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
            result = run_many(out, inputs, seeds, lr_search, on_progress, log)
        else:
            result = run_once(out, inputs, on_progress, log)
    if isinstance(result, Outcome):
        raise Stopped(out, result)
    return result


def graph_overrides(reason: str | None, graph: str | Path | None, vectors: str | Path | None) -> dict[str, Any]:
    """The settings of a knowledge graph, whose paths are read (`reason`) or to whose entities texts are linked. Folders
    are recorded with their whole paths."""
    graph, vectors = (None if folder is None else absolute(folder) for folder in (graph, vectors))
    if reason is None and vectors is None:
        return {} if graph is None else {"task.graph": graph}
    return as_overrides(reason=reason, reason_graph=graph, reason_vectors=vectors)


def checked_inputs(
    request: FinetuneRequest, data: Any, loaded: tuple[nn.Module, Tokenizer] | None, teacher: Teacher | None, log: Log
) -> Inputs:
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
    return recorded(out, REQUEST, RECORD).get("request", {})


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
        run = read_run(folder)
        folder.refuse(option_differences({"seeds": 1, "lr_search": False}, options))
        refuse_other_request(folder, run, request)
        return FinetuneRequest(**run["request"]), 1, False
    record = sweep.read_record(lambda record: FinetuneRequest(**record["request"]))
    folder.refuse([*option_differences(record, options), *request_differences(record["request"], request)])
    return FinetuneRequest(**record["request"]), record["seeds"], record["lr_search"]


def with_copies(inputs: Inputs, out: Path, on_progress: OnProgress, log: Log) -> Inputs:
    """The inputs with `augment.copies` copies per text, which are made in the folder `out` or read from it."""
    settings, seed = inputs.settings.augment, inputs.settings.runtime.seed
    if not settings.copies:
        return inputs
    if settings.model is None and inputs.teacher is not None:
        model = _base_of_teacher(inputs.teacher)
    else:
        model = model_folder(settings.model or inputs.request.model)
    num_examples = len(inputs.train)
    stored = KeptCopies(out, inputs.train, made_from(inputs.train, model, settings, seed))
    if (num_done := stored.num_done()) < num_examples:
        log(f"making up to {settings.copies} copies per text of {num_examples:,} examples with {model}")
        runtime = choose_runtime(inputs.settings.runtime, 0.0)
        configure_torch(runtime)
        try:
            encoder = open_masked_lm(model, str(runtime.device))
        except ValueError as error:
            raise ValueError(f"{error}: name a masked-language model for augmentation by augment.model") from None
        augmenter = Augmenter(encoder, settings, seed, runtime.autocast)
        show = preparation_progress(on_progress, "augmenting: example", num_done)
        stored.make(augmenter, lambda done: show(done, num_examples, augmenter.filling.num_tokens))
    copies = stored.read()
    log(f"training on {len(copies):,} augmented copies in addition to {num_examples:,} examples")
    return replace(inputs, copies=copies)


def _base_of_teacher(teacher: Teacher) -> Path:
    """The folder of the pre-trained model that the teacher was fine-tuned from."""
    base = recorded(teacher.folder).get("model")
    if base is None:
        raise ValueError(
            f"the model that the teacher {teacher.name} was fine-tuned from is not known, and augmentation needs a "
            "masked-language model: name one by augment.model="
        )
    try:
        return model_folder(base)
    except ValueError as error:
        raise ValueError(
            f"the teacher {teacher.name} was fine-tuned from {base}, which augmentation uses by default, but {error}: "
            "name another model by augment.model="
        ) from None


def run_many(
    out: Path, inputs: Inputs, seeds: int, lr_search: bool, on_progress: OnProgress, log: Log
) -> FinetuneResult | Outcome:
    """The best of several runs, or an `Outcome` if one was stopped. Finished runs are not run again."""
    request = inputs.request
    folder = sweep_folder(out, request)
    if not folder.has_record:
        folder.write_record(request.to_dict(), {}, seeds=seeds, lr_search=lr_search)
    first_seed, trials = inputs.settings.runtime.seed, {}
    write = partial(_write_trials, out, inputs.spec.task.in_percent)

    def run_trial(name: str, variant: FinetuneRequest) -> Outcome | None:
        """Runs a variant of the request and adds it to `trials`; an `Outcome` if it was stopped."""
        result = run_once(out / "trials" / name, inputs.with_request(variant), on_progress, log)
        if isinstance(result, Outcome):
            return result
        trials[name] = result
        note = f"; note: {result.degenerate}" if result.degenerate else ""
        log(f"{name}: {result.metric_for_best} {result.score:.4g}{note}")
        return None

    for lr in searched_lrs(inputs.pretrained.config.width) if lr_search else ():
        if stopped := run_trial(f"lr-{lr:g}", replace(request, lr=lr)):
            return stopped
        write("lr_search", trials)
    if not lr_search and (stopped := run_trial(f"seed-{first_seed}", request)):
        return stopped
    if seeds > 1:
        best = trials[_best(trials)]
        best_lr = _trial_settings(best)["optimizer"]["lr"] if lr_search else request.lr
        # After a search, its best run counts as the first restart; being the best of four, its score is biased high.
        trials = {f"seed-{first_seed}": best}
        for seed in range(first_seed + 1, first_seed + seeds):
            if stopped := run_trial(f"seed-{seed}", replace(request, lr=best_lr, seed=seed)):
                return stopped
            write("seeds", trials)
    write("seeds" if seeds > 1 else "lr_search", trials)
    best = trials[_best(trials)]
    if current_ranks().is_main:
        draw(out, read_trials(out))
        link_files(best.out, out)
        write_card(out)  # replaces the card of the best trial, which names the folder of that trial
    return replace(best, out=out)


def _best(trials: dict[str, FinetuneResult]) -> str:
    """The name of the trial with the highest dev score; degenerate runs come last."""
    return max(trials, key=lambda name: (trials[name].degenerate is None, trials[name].score))


def _trial_settings(result: FinetuneResult) -> dict[str, Any]:
    return read_json(result.out / RECORD)["settings"]


def _write_trials(out: Path, in_percent: bool, kind: str, trials: dict[str, FinetuneResult]) -> None:
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
        "in_percent": in_percent,
        "trials": rows,
        "best": _best(trials),
        "median": statistics.median(scores),
        "spread": statistics.stdev(scores) if len(scores) > 1 else 0.0,
    }
    write_json(out / TRIALS, summary)
