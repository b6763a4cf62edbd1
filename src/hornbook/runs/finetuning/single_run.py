"""One fine-tuning run, from its inputs to a finished run folder.

RUN/run.json              the resolved settings, data, labels and device
RUN/config.json, model.safetensors, tokenizer.json, tokenizer_config.json     the weights with the best dev score
RUN/task.json             what prediction needs in addition: metrics, threshold, tagging scheme
RUN/scores.json           standard metrics with intervals, for every split that has labels
RUN/augmented.jsonl       with augmentation: the changed fields of each copy
RUN/teacher/              with a teacher: its cached outputs; may be deleted when the run is finished
RUN/illustrations.json    for answer spans: the probabilities of the tokens of a few dev examples
RUN/predictions-dev.jsonl the prediction and the label of each dev example
RUN/training_texts.npy    a hash of the texts of each training example, by which `evaluate` knows them
RUN/checkpoints/          during training, the state to resume from; after it, only how the run ended
RUN/best/                 the weights with the best dev score, linked to the root at the end
RUN/metrics.jsonl         losses and dev scores during training
RUN/stages/               with a recipe of several stages: the earlier ones
RUN/attention.json        the attention for one dev example
RUN/README.md             the model card
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from torch import nn

from hornbook.files import hard_link_files, read_json, write_json, write_json_lines
from hornbook.inference.attention import MAX_TOKENS, write_attention
from hornbook.interop.folder import load_weights, read_weights
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.run_folder import SCORES, Log, RunFolder, ignore, read_metrics
from hornbook.models.transformer import count_parameters
from hornbook.report.card import write_card
from hornbook.runs.distillation.task_stages import STAGES, run_earlier_stages
from hornbook.runs.distillation.teacher import refuse_other_teacher
from hornbook.runs.distillation.teacher_cache import cache_plan, open_teacher_cache
from hornbook.runs.finetuning.inputs import FinetuneInputs, LabelledTask, open_inputs
from hornbook.runs.finetuning.job import build_job, log_where_it_resumes, planned_flops, with_steps
from hornbook.runs.finetuning.record import (
    FinetuneRequest,
    check_record,
    refuse_other_data,
    refuse_other_request,
    run_folder,
    settings_in,
    write_task_record,
)
from hornbook.runs.finetuning.settings import FinetuneSettings
from hornbook.tasks.encoded import EncodedExamples, Outputs
from hornbook.tasks.evaluation import Evaluation, evaluate_split, prediction_rows, run_model, with_intervals
from hornbook.tasks.overlap import write_training_texts
from hornbook.tasks.records import Example
from hornbook.tasks.spec import save_task
from hornbook.tasks.task import Task
from hornbook.train.checkpoint import Checkpoints, read_state
from hornbook.train.job import OnProgress, Outcome
from hornbook.train.loop import train
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch

if TYPE_CHECKING:
    from hornbook.inference.predictor import Predictor

MANY_UNKNOWN = 0.05  # of the tokens of train; a few are signs and pictures


@dataclass(frozen=True)
class TaskResult:
    """What a finished run returns: its folder, the scores of each split, and a message if the model is degenerate."""

    out: Path
    scores: dict[str, Any]
    metric_for_best: str
    degenerate: str | None

    @property
    def score(self) -> float:
        """The dev score of the metric that selects the best model."""
        return self.scores["dev"][self.metric_for_best]["value"]

    @classmethod
    def read(cls, out: Path, **more: Any) -> Self:
        """The result that `write_scores` wrote; `more` are the fields of a subclass."""
        scores = read_json(out / SCORES)
        return cls(out, scores["splits"], scores["metric_for_best"], scores["degenerate"], **more)


@dataclass(frozen=True)
class FinetuneResult(TaskResult):
    """What `finetune` returns: a finished run, ready to predict, and how its training ended."""

    outcome: Outcome

    @cached_property
    def predictor(self) -> "Predictor":
        from hornbook.inference.predictor import load_predictor

        return load_predictor(self.out)

    def predict(self, items: Any) -> Any:
        """One prediction per text, pair, question or sentence, in input order; for a data frame, a data frame."""
        return self.predictor.predict(items)

    def evaluate(self, data: Any, **columns: str) -> dict:
        """The standard metrics on other data with 95% intervals."""
        return self.predictor.evaluate(data, **columns)


@lock_output_folder
def run_once(out: Path, inputs: FinetuneInputs, on_progress: OnProgress, log: Log) -> FinetuneResult:
    """Starts or resumes one run in the folder `out`."""
    if inputs.settings.augment.copies and inputs.copies is None:
        raise ValueError("augment.copies is only for finetune and distill: leave it out here")
    folder, ranks = run_folder(out, inputs.request), current_ranks()
    has_record, is_finished = ranks.from_main(lambda: (folder.has_record, folder.is_finished))
    is_done = False
    if has_record:
        run = folder.read_record(check_record)
        _refuse_changes(folder, run, inputs)
        settings = settings_in(run)
        runtime = choose_runtime(settings.runtime, 0.0, run["runtime"])
        if is_finished:
            with ranks.main_first():
                if ranks.is_main:
                    clean_up(out)  # the run may have been killed before or during it
            return read_result(out)
        is_done = ranks.from_main(lambda: Checkpoints(out).is_trained(settings.schedule.steps))
    else:
        settings, runtime = planned(inputs)
        settings.check_run(ranks.size)
    configure_torch(runtime)
    inputs = inputs.replaced(settings=settings)
    job, model = build_job(inputs, runtime, log)
    if not has_record:
        if inputs.teacher is not None:
            cache_plan(inputs)  # raises before the run folder is written
        _write_record(folder, inputs, runtime, model)
    _log_truncated_texts("train", inputs.encoded_train, inputs, log)
    _log_truncated_texts("dev", inputs.encoded_dev, inputs, log)
    _log_unknown_tokens(inputs, log)
    if inputs.grounder is not None:
        log(inputs.encoded_train.extra_streams.coverage)
    on_dev = None
    if not is_done:
        if inputs.teacher is not None:
            with ranks.main_first():  # the others read what it has cached
                cache = open_teacher_cache(inputs, runtime, inputs.folder or out, on_progress, log)
            # Messages were logged already.
            build = partial(build_job, runtime=runtime, log=ignore, cache=cache)
            job, model = build(run_earlier_stages(out, inputs, runtime, build, on_progress, log))
        log_where_it_resumes(out, settings, log)
        outcome = train(out, job, settings, runtime, on_progress)
        on_dev = job.validate.last if outcome.best_step == outcome.step else None
    with ranks.main_first():
        if ranks.is_main:
            _finish(out, inputs, model, runtime, log, on_dev)
    return read_result(out)


def _refuse_changes(folder: RunFolder, run: dict[str, Any], inputs: FinetuneInputs) -> None:
    """Raises a `ValueError` if the request or an input is not that of the recorded run."""
    refuse_other_request(folder, run, inputs.request)
    refuse_other_data(folder, run, inputs.data)
    task, kagnet, recorded = inputs.settings.task, inputs.settings.reason, run["inputs"]
    for name, fingerprint in ({} if inputs.grounder is None else inputs.grounder.fingerprints).items():
        path = kagnet.graph if name == "graph" else kagnet.vectors
        folder.refuse_other_input(f"the {name.replace('_', ' of ')} in {path}", recorded.get(name), fingerprint)
    if inputs.linker is not None:
        folder.refuse_other_input(f"the graph {task.graph}", recorded.get("graph"), inputs.linker.fingerprint)
    if inputs.teacher is not None:
        refuse_other_teacher(folder, run, inputs.teacher)


def planned(inputs: FinetuneInputs) -> tuple[FinetuneSettings, Runtime]:
    """The settings of a new run with its number of steps, and where it runs."""
    settings = with_steps(inputs.settings, inputs.encoded_train)
    learns_text = bool(settings.task.lm_weight)
    flops = planned_flops(inputs.pretrained, inputs.encoded_train, settings.epochs, learns_text)
    return settings, choose_runtime(settings.runtime, flops)


def _write_record(folder: RunFolder, inputs: FinetuneInputs, runtime: Runtime, model: nn.Module) -> None:
    other_inputs = {} if inputs.teacher is None else {"teacher": inputs.teacher.to_record()}
    other_inputs |= {} if inputs.grounder is None else inputs.grounder.fingerprints
    other_inputs |= {} if inputs.linker is None else {"graph": inputs.linker.fingerprint}
    write_task_record(
        folder,
        inputs.request,
        inputs.data,
        inputs=other_inputs,
        settings=inputs.settings,
        runtime=runtime,
        parameters=count_parameters(model),
        trained_parameters=count_parameters(model, lambda name, each: each.requires_grad),
        metric_for_best=inputs.spec.task.metrics[0],
        train_examples=len(inputs.train),
        **({} if inputs.copies is None else {"augmented_examples": len(inputs.copies)}),
        truncated_texts={"train": inputs.encoded_train.num_truncated, "dev": inputs.encoded_dev.num_truncated},
    )


def read_result(out: Path) -> FinetuneResult:
    """The result of a finished run, from its files."""
    state = read_state(Checkpoints(out).last())
    outcome = Outcome.from_state("finished early" if state["ended_early"] else "finished", state)
    return FinetuneResult.read(out, outcome=outcome)


def _log_truncated_texts(name: str, encoded: EncodedExamples, inputs: FinetuneInputs, log: Log) -> None:
    if num := encoded.num_truncated:
        texts = inputs.spec.task.truncated_noun
        log(f"{num:,} {texts} of {name} are longer than {inputs.max_length} tokens and were truncated")


def _log_unknown_tokens(inputs: FinetuneInputs, log: Log) -> None:
    tokenizer = inputs.tokenizer
    if tokenizer.unk_id is None or tokenizer.unk_id == tokenizer.eos_id:  # GPT-2's ends of texts are no unknown words
        return
    ids = np.concatenate(inputs.encoded_train.ids)
    if (share := np.mean(ids == tokenizer.unk_id)) > MANY_UNKNOWN:
        log(f"note: {share:.0%} of the tokens of train are unknown to the model: choose one for this language")


def _finish(
    out: Path,
    inputs: FinetuneInputs,
    model: nn.Module,
    runtime: Runtime,
    log: Log,
    on_dev: Evaluation | None,
) -> None:
    """Scores the best weights on every labelled split, and links them to the root. `on_dev`: their scores if known."""
    load_weights(model, read_weights(out / "best"), out / "best")
    micro_tokens = inputs.settings.batch.micro_tokens

    def predict(name: str, examples: list[Example]) -> list:
        if name == "dev" and on_dev is not None:
            return on_dev.predictions
        encoded = inputs.encoded_dev if name == "dev" else inputs.encode(examples)
        if name in inputs.other_splits():
            _log_truncated_texts(name, encoded, inputs, log)
        return evaluate_split(model, inputs.spec.task, examples, encoded, runtime.autocast, micro_tokens).predictions

    scored = score_splits(inputs, predict)
    if scored.task != inputs.spec.task:
        log(f"threshold {scored.task.threshold:.3g}: the best {scored.task.metrics[0]} on dev")
    write_predictions(out, inputs, scored, inputs.max_length)
    write_training_texts(out, inputs.train)
    hard_link_files(out / "best", out)  # from where the run is loaded
    scored.task.write_files(out, model.config.width, inputs.max_length)
    _draw_attention(out, inputs, model)

    def run(examples: list[Example]) -> tuple[EncodedExamples, Outputs]:
        encoded = inputs.encode(examples)
        return encoded, run_model(model, encoded, runtime.autocast, micro_tokens).outputs

    if illustrations := scored.task.illustrations(inputs.dev, scored.predictions, inputs.encoded_dev, run):
        write_json(out / "illustrations.json", {"examples": illustrations})
    # A student's loss cannot fall below its teacher's entropy, and may already start there.
    lines = [] if inputs.teacher is not None else read_metrics(out)
    write_scores(out, inputs, scored, [line["loss"] for line in lines if line["kind"] == "train"])
    clean_up(out)


def clean_up(out: Path) -> None:
    """Removes the checkpoints of a finished run and writes its model card."""
    for folder in (out, *(out / STAGES).glob("*")):
        Checkpoints(folder).keep_only_state()
    write_card(out)


def _draw_attention(out: Path, inputs: FinetuneInputs, model: nn.Module) -> None:
    """Draws the attention for the first dev example that is short enough."""
    for example in inputs.dev[:200]:
        texts = example.sequence
        if len(inputs.tokenizer.encode(*texts).ids) <= MAX_TOKENS:
            write_attention(out, model, inputs.tokenizer, *texts)
            return


def open_and_run(out: Path, request: FinetuneRequest, data: Any, on_progress: OnProgress, log: Log) -> FinetuneResult:
    """Opens data and model of a request, and starts or resumes its run in the folder `out`."""
    return run_once(out, open_inputs(request, data, log), on_progress, log)


# ---- scores of a model or a baseline


class SplitScores(NamedTuple):
    task: Task  # with the threshold that is best on dev
    predictions: list  # on dev
    scores: dict[str, dict[str, dict[str, float]]]  # scores with intervals, by split


def score_splits(inputs: LabelledTask, predict: Callable[[str, list[Example]], list]) -> SplitScores:
    """The scores of every split that has labels. `predict` takes the name of a split and its examples."""
    dev, predictions = inputs.dev, predict("dev", inputs.dev)
    task = inputs.spec.task.with_best_threshold(dev, predictions)
    predictions = task.apply_threshold(predictions)
    scores = {"dev": with_intervals(task, dev, predictions)}
    if inputs.threshold_split:
        tuned_on_train = task.with_best_threshold(
            inputs.threshold_split, predict("a split of train", inputs.threshold_split)
        )
        name = "dev, threshold chosen on a split of train"
        scores[name] = with_intervals(tuned_on_train, dev, tuned_on_train.apply_threshold(predictions))
    for name, examples in inputs.other_splits().items():
        scores[name] = with_intervals(task, examples, task.apply_threshold(predict(name, examples)))
    return SplitScores(task, predictions, scores)


def write_predictions(out: Path, inputs: LabelledTask, scored: SplitScores, max_length: int | None = None) -> None:
    """Writes `task.json` and `predictions-dev.jsonl`. `max_length` is the maximum sequence length of a model."""
    save_task(out, replace(inputs.spec, task=scored.task, max_length=max_length))
    write_json_lines(out / "predictions-dev.jsonl", prediction_rows(scored.task, inputs.dev, scored.predictions))


def write_scores(out: Path, inputs: LabelledTask, scored: SplitScores, losses: list[float]) -> None:
    """Writes `scores.json`, which shows that a run is finished. `losses` are those of its training."""
    task, scores = scored.task, scored.scores
    message = degenerate(task, inputs.train, inputs.dev, scored.predictions, scores["dev"], losses)
    write_json(out / SCORES, {"metric_for_best": task.metrics[0], "degenerate": message, "splits": scores})


def degenerate(
    task: Task,
    train: Sequence[Example],
    dev: Sequence[Example],
    predictions: list,
    scores: Mapping[str, Mapping[str, float]],
    losses: list[float],
) -> str | None:
    """A message if the dev predictions are degenerate, or if their score is no better than chance; else None. `scores`
    are the dev scores with their intervals.

    The model must beat the constant prediction that is best on `train`: the lower end of the interval of
    `metric_for_best` must be above the score of that prediction. For unbalanced classes it is enough that the score is
    above it and the Matthews correlation is significantly above 0."""
    if message := learned_nothing(task, dev, predictions, losses):
        return message
    gold = [example.gold for example in train if example.gold is not None]
    constant = task.best_constant(gold) if gold else None
    if constant is None:
        return None
    description, predict = constant
    metric, score = task.metrics[0], scores[task.metrics[0]]
    chance = task.scorer(dev, predict(dev))()[metric]
    if score["value"] <= chance:
        return f"dev {metric} {score['value']:.3g} is not above {description} ({chance:.3g})"
    if score["low"] > chance:
        return None
    correlation = task.with_correlation_metric  # of predictions and labels (Matthews)
    if correlation is not None and with_intervals(correlation, dev, predictions)[correlation.metrics[0]]["low"] > 0:
        return None
    value = f"{score['value']:.3g} ({score['low']:.3g} to {score['high']:.3g})"
    return f"dev {metric} {value} is not significantly above {description} ({chance:.3g})"


def learned_nothing(task: Task, examples: Sequence[Example], predictions: list, losses: list[float]) -> str | None:
    """A message if the predictions or losses show that a run learned nothing; else None."""
    if message := task.degenerate(examples, predictions):
        return message
    if tenth := len(losses) // 10:
        first, last = np.mean(losses[:tenth]), np.mean(losses[-tenth:])
        if last > 0.97 * first:
            return f"the training loss did not move ({first:.3f} to {last:.3f})"
    return None
