"""The training job of a fine-tuning run, or of one stage of a distillation on a task: its batches, model and objective,
and how long it takes."""

import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hornbook import config as configuration
from hornbook.batch import Batch, part_bounds
from hornbook.devices import device_of
from hornbook.lifecycle.run_folder import Log
from hornbook.models.distillation_pair import DistillationPair
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.models.head_config import HeadConfig
from hornbook.models.transformer import Transformer
from hornbook.objectives.clm import AuxiliaryLanguageModel
from hornbook.objectives.distillation.matching import StageRecipe
from hornbook.objectives.distillation.objective import pair_for
from hornbook.objectives.distillation.task import CachedRows, TaskDistillation
from hornbook.objectives.similarity import SimilarityDistillation, SimilarityObjective
from hornbook.runs.distillation.teacher import Teacher
from hornbook.runs.finetuning.inputs import FinetuneInputs
from hornbook.runs.finetuning.layers import (
    freeze,
    from_scratch,
    keeps_head,
    lr_multiplier,
    start_at_frequencies,
    start_at_mean,
    with_head,
)
from hornbook.runs.finetuning.settings import FinetuneSettings
from hornbook.runs.model_files import load_models, save_models
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.evaluation import Evaluation, evaluate_split, rescored
from hornbook.tasks.kinds.regression import Regression
from hornbook.tasks.objective import TaskObjective, balanced_class_weights
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import TrainingJob
from hornbook.train.objective import TrainingModule
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime
from hornbook.train.step_timing import FORWARD_FRACTION, seconds_per_step
from hornbook.train.validation import validate

S = TypeVar("S")
LONGEST_WITHOUT_VALIDATION = 1000  # steps
NUM_TIMED, MAX_TIMED_SECONDS = 4, 10.0  # steps that are timed before a run, and the limit on their total time


def with_steps(settings: S, encoded: EncodedExamples) -> S:
    """The settings with the number of steps on these training examples, and the intervals of logging and validation."""
    steps_per_epoch = math.ceil(encoded.num_groups / settings.batch_size)
    steps = max(1, round(steps_per_epoch * settings.epochs))
    # A short run logs often enough to see whether its loss moved.
    overrides = {
        "schedule.steps": steps,
        "runtime.log_every_steps": max(1, min(settings.runtime.log_every_steps, steps // 50)),
    }
    if settings.validation.every_steps is None:
        overrides["validation.every_steps"] = min(steps_per_epoch, LONGEST_WITHOUT_VALIDATION)
    return configuration.with_overrides(settings, overrides)


class TaskBatches:
    """Every group once per epoch, in an order that depends on seed and epoch. The last batch may be smaller."""

    def __init__(self, encoded: EncodedExamples, batch_size: int, seed: int):
        self.encoded, self.batch_size, self.seed = encoded, batch_size, seed
        self.steps_per_epoch = math.ceil(encoded.num_groups / batch_size)
        self._epoch, self._order = -1, np.zeros(0, np.int64)

    def __call__(self, step: int, part: tuple[int, int] = (0, 1)) -> Batch:
        """The batch of a step, or part `part[0]` of `part[1]` of it. An empty part is one of its groups, as padding."""
        epoch, index = divmod(step, self.steps_per_epoch)
        if epoch != self._epoch:
            self._order = np.random.default_rng(seed_of(self.seed, epoch, "order")).permutation(self.encoded.num_groups)
            self._epoch = epoch
        groups = self._order[index * self.batch_size : (index + 1) * self.batch_size].tolist()
        first, last = part_bounds(len(groups), part)
        batch = self.encoded.batch(groups[first:last] or groups[:1], with_dataset_index=True)
        step_index = first * self.encoded.group_size + np.arange(batch.num_sequences)
        batch = batch.with_values("sequences", step_index_host=step_index)
        return batch.as_padding() if first == last else batch


def planned_flops(model: Transformer, encoded: EncodedExamples, epochs: float, learns_text: bool) -> float:
    """Useful FLOPs of the whole run, which decide whether compilation pays off. `learns_text`: whether the model also
    predicts every next token."""
    num_tokens = sum(map(len, encoded.ids))
    predicted, head = (1.0, "clm") if learns_text else (0.0, "none")
    flops_per_token = model_flops_per_token(shape_of(model.config, num_tokens / len(encoded.ids), predicted, head))
    return num_tokens * flops_per_token * epochs


def expected_seconds(
    job: TrainingJob, inputs: FinetuneInputs, runtime: Runtime, num_steps: int, num_timed: int
) -> tuple[float, float]:
    """The expected time of `num_steps` steps with their validations, and that of one step, both in seconds, measured on
    `num_timed` steps at learning rate 0. A validation costs a forward pass over the tokens of dev."""
    settings = inputs.settings
    step_seconds = seconds_per_step(job, settings, runtime, range(num_timed), MAX_TIMED_SECONDS)
    num_train, num_dev = (sum(map(len, split.ids)) for split in (inputs.encoded_train, inputs.encoded_dev))
    steps_per_epoch = inputs.encoded_train.num_groups / settings.batch_size
    validation_seconds = FORWARD_FRACTION * step_seconds * steps_per_epoch * num_dev / max(1, num_train)
    num_validations = math.ceil(num_steps / settings.validation.every_steps)
    return num_steps * step_seconds + num_validations * validation_seconds, step_seconds


def log_where_it_resumes(out: Path, settings: FinetuneSettings, log: Log) -> None:
    """Logs the step at which a run or stage resumes, if it has a checkpoint."""
    if step := Checkpoints(out).last_step():
        log(f"resuming at step {step:,} of {settings.schedule.steps:,}")


def build_job(
    inputs: FinetuneInputs, runtime: Runtime, log: Log, cache: CachedRows | None = None, stage: int = -1
) -> tuple[TrainingJob, nn.Module]:
    """The training job, and the model itself; with a teacher, the job trains the model together with projections.
    `stage` is the index of a stage of the teacher's recipe: the last one, like a run without a teacher, is validated by
    the scores on dev, the others by their loss."""
    settings, head_config, is_from_scratch = inputs.settings, inputs.spec.task.head_config, inputs.request.from_scratch
    seed = settings.runtime.seed
    has_head = not is_from_scratch and keeps_head(inputs.pretrained, head_config, settings.task)
    if is_from_scratch:
        model, new_parts = from_scratch(inputs.pretrained, head_config, seed, settings.layers.dropout), []
    else:
        _log_head(inputs.pretrained.head_config, head_config, has_head, inputs.request.model, log)
        model, new_parts = with_head(inputs.pretrained, head_config, seed, settings.layers.dropout, has_head)
    if inputs.grounder is not None and not has_head:
        generator = torch.Generator().manual_seed(seed_of(seed, "graph"))
        model.task.initialize(generator, inputs.grounder.relation_vectors)
    if head_config.problem_type == "multi_label_classification" and not has_head:
        start_at_frequencies(model, inputs.encoded_train.labels)
    if inputs.registered.name == Regression.kind and not has_head:
        start_at_mean(model, inputs.encoded_train.labels, log)
    if new_parts:
        log(f"the model has no {', '.join(new_parts)}: newly initialised, like the head")
    freeze(model, settings.layers, new_parts)
    model.to(runtime.device)
    trainable, objective, is_last_stage = model, label_objective(inputs), True
    if inputs.teacher is not None:
        recipes = settings.objective.stages(is_task=True)
        is_last_stage = stage in (-1, len(recipes) - 1)
        trainable, objective = with_teacher(
            model, objective, recipes[stage], inputs.teacher, seed, cache, inputs.projections
        )
    elif settings.task.lm_weight:
        objective = AuxiliaryLanguageModel(objective, settings.task.lm_weight)
    if runtime.compiles:
        trainable.compile_parts()
    module = TrainingModule(trainable, objective)
    if is_last_stage:
        validation, metric_for_best = _DevValidation(model, inputs, runtime), inputs.spec.task.metrics[0]
    else:
        validation = partial(validate, module, in_batches(inputs.encoded_dev, settings.batch_size), runtime)
        metric_for_best = "loss"
    job = TrainingJob(
        module,
        TaskBatches(inputs.encoded_train, settings.batch_size, seed),
        validation,
        partial(save_models, network=trainable, tokenizer=inputs.tokenizer),
        partial(load_models, network=trainable),
        metric_for_best=metric_for_best,
        lr_multiplier_of=lr_multiplier(model, settings.layers),
    )
    return job, model


def in_batches(encoded: EncodedExamples, batch_size: int) -> list[Batch]:
    """All groups in batches, in their order, to validate on."""
    groups = range(encoded.num_groups)
    return [encoded.batch(groups[first : first + batch_size]) for first in groups[::batch_size]]


def _log_head(old: HeadConfig | None, new: HeadConfig, is_kept: bool, model: str, log: Log) -> None:
    """Logs whether the head of a fine-tuned model is kept or dropped."""
    if is_kept:
        log(f"keeping the {new.task_name} head of {model}; task.new_head=true initialises a new one")
    elif old is not None:
        why = f", as its {old.task_name} head is for other labels or layers" if not new.fits(old) else ""
        log(f"the {new.task_name} head is newly initialised, and that of {model} is dropped{why}")


def label_objective(inputs: FinetuneInputs) -> TaskObjective | SimilarityObjective:
    """The loss on labels. `task.class_weights` also apply to the match of teacher logits."""
    head_config, encoded, settings = inputs.spec.task.head_config, inputs.encoded_train, inputs.settings.task
    if not settings.class_weights:
        if not head_config.output_type.is_embedding:
            return TaskObjective(head_config)
        similarity = SimilarityDistillation if settings.embedding_teacher else SimilarityObjective
        return similarity(head_config, settings.temperature)
    if not head_config.output_type.has_labels or head_config.problem_type != "single_label_classification":
        raise ValueError("task.class_weights is for single-label classification and tagging: leave it out here")
    labels = np.concatenate(encoded.token_labels) if head_config.output_type.per_token else encoded.labels
    return TaskObjective(head_config, balanced_class_weights(labels, head_config.num_labels))


def with_teacher(
    student: Transformer,
    label_objective: TaskObjective,
    recipe: StageRecipe,
    teacher: Teacher,
    seed: int,
    cache: CachedRows | None,
    projections: Mapping[str, Tensor] | None = None,
) -> tuple[DistillationPair, TaskDistillation]:
    """The student paired with its teacher, and the objective of a recipe. `label_objective` is the loss on the labels.
    Teacher outputs that are cached are read from `cache`. `projections` learned earlier, on plain text or in an earlier
    stage, are reused if their shapes fit; the others are newly initialised."""
    pair = pair_for(recipe, student, teacher.model)
    pair.initialize_projections(torch.Generator().manual_seed(seed_of(seed, "projections")))
    pair.adopt_projections(projections or {})
    pair.to(device_of(student))
    configs = label_objective.head_config, recipe, student.config, teacher.model.config
    return pair, TaskDistillation(label_objective, *configs, cache)


class _DevValidation:
    """Validates on dev and keeps the last evaluation, which the run reuses if the last weights are the best."""

    def __init__(self, model: nn.Module, inputs: FinetuneInputs, runtime: Runtime):
        self.model, self.inputs, self.runtime = model, inputs, runtime
        self.last: Evaluation | None = None

    def __call__(self, micro_tokens: int) -> dict[str, float]:
        task, dev, encoded = self.inputs.spec.task, self.inputs.dev, self.inputs.encoded_dev
        self.last = evaluate_split(self.model, task, dev, encoded, self.runtime.autocast, micro_tokens)
        tuned = rescored(task.with_best_threshold(dev, self.last.predictions), dev, self.last)
        return {"loss": tuned.loss, **tuned.scores}
