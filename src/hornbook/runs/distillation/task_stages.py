"""Fine-tuning a student with a teacher: the projections that are trained with it, and the stages before the last.

RUN/stages/1/ ...    an earlier stage: its settings, checkpoints and metrics; the next stage starts from its last
                     weights
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from hornbook import config as configuration
from hornbook.files import write_json
from hornbook.interop.folder import load_weights, read_weights, save_model
from hornbook.models.pair import DistillationPair
from hornbook.models.transformer import Transformer
from hornbook.objectives.distillation.kept_teacher import KeptTeacher
from hornbook.objectives.distillation.matching import Recipe
from hornbook.objectives.distillation.objective import pair_for
from hornbook.objectives.distillation.task_objective import TaskDistillation
from hornbook.report.run import STAGE_FILE, STAGES
from hornbook.runs.distillation.expected_time import Stage
from hornbook.runs.distillation.projections import load_projections, read_projections, save_projections
from hornbook.runs.distillation.teacher import Teacher, refuse_other_vocabulary
from hornbook.runs.finetuning.batches import TaskBatches
from hornbook.runs.finetuning.inputs import Inputs, Log
from hornbook.runs.finetuning.layers import freeze, keeps_head, rates, with_head
from hornbook.runs.finetuning.objective import label_objective
from hornbook.runs.finetuning.settings import LayerSettings, TaskDistillationSettings
from hornbook.runs.finetuning.steps import is_trained, log_where_it_resumes, with_steps
from hornbook.tasks.datasets import known
from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.saved import load_task
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.device import Runtime
from hornbook.train.loop import Job, Outcome, Status, train
from hornbook.train.objective import TrainingModule
from hornbook.train.randomness import seed_of
from hornbook.train.signals import Signals
from hornbook.train.validation import validate


def with_teacher(
    student: Transformer,
    own: TaskObjective,
    recipe: Recipe,
    teacher: Teacher,
    seed: int,
    kept: KeptTeacher | None,
    projections: Mapping[str, Tensor] | None = None,
) -> tuple[DistillationPair, TaskDistillation]:
    """The student paired with its teacher, and the objective of a recipe. `own` is the loss on the labels. Teacher
    outputs that are cached are read from `kept`. `projections` learned earlier, on plain text or in an earlier stage,
    are reused if their shapes fit; the others are newly initialised."""
    pair = pair_for(recipe, student, teacher.model)
    pair.initialise_projections(torch.Generator().manual_seed(seed_of(seed, "projections")))
    pair.adopt_projections(projections or {})
    pair.to(next(student.parameters()).device)
    return pair, TaskDistillation(own, own.output, recipe, student.config, teacher.model.config, kept)


def with_projections(inputs: Inputs, folder: Path, teacher: Teacher, log: Log) -> Inputs:
    """The inputs with the projections that the student in `folder` learned on plain text, if a stage uses any; logs
    which of them are reused."""
    stages = inputs.settings.objective.stages(is_task=True)
    pairs = [pair_for(recipe, inputs.trained, teacher.model) for recipe in stages]
    needed = {term: None for pair in pairs for term in pair.projected}
    found = read_projections(folder) if needed else {}
    if not found:
        return inputs
    fitting = {term: None for pair in pairs for term in pair.adopt_projections(found)}
    if fitting:
        log(f"projections of {', '.join(fitting)} are initialised from those that the student learned earlier")
    if new := [term for term in needed if term not in fitting]:
        log(f"projections of {', '.join(new)} are newly initialised: the student has none that fit this teacher")
    return replace(inputs, projections=found)


def student_rates(student: Transformer, settings: LayerSettings) -> Callable[[str], float] | None:
    """A function from a parameter's name to its learning-rate multiplier, or None if all are 1. Projections, which only
    training needs, get that of the head."""
    share = rates(student, settings)
    if share is None:
        return None
    return lambda name: (
        settings.head_lr_ratio if name.startswith("projections.") else share(name.removeprefix("student."))
    )


def refuse_unfit_teacher(teacher: Teacher, inputs: Inputs) -> None:
    """Raises a `ValueError` unless the teacher has a head for the same task and labels, the same vocabulary if anything
    is matched per token, and the quantities that each stage matches."""
    needed, found = inputs.saved.task.output, teacher.model.output
    stages = inputs.settings.objective.stages(is_task=True)
    only_logits = len(stages) == 1 and all(match.quantity == "logits" for match in stages[0].matches)
    if not only_logits or not needed.type.of_sequences:
        refuse_other_vocabulary(teacher, inputs.tokenizer, "the student")
    if found is None:
        raise ValueError(
            f"the teacher {teacher.name} has no head for a task: fine-tune it first with hornbook finetune "
            f"{teacher.name} --task {inputs.named.name} --data PATH --out RUN, and give that run as the teacher"
        )
    for name in ("kind", "problem", "labels", "num_labels", "pairs", "answerable"):
        ours, theirs = getattr(needed, name), getattr(found, name)
        if ours != theirs:
            its = "its labels are" if name == "labels" else f"its {name} is"
            raise ValueError(
                f"the teacher {teacher.name} was made for another task: {its} {_as_text(theirs)}, and the data needs "
                f"{_as_text(ours)}; fine-tune a teacher on this data first"
            )
    if teacher.model.config.max_positions < inputs.longest:
        positions = teacher.model.config.max_positions
        raise ValueError(f"the teacher reads at most {positions} tokens: set task.max_length={positions}")
    for recipe in stages:
        TaskDistillation(TaskObjective(needed), needed, recipe, inputs.trained.config, teacher.model.config)


def note_another_data_set(teacher: Teacher, inputs: Inputs, log: Log) -> None:
    """Warns if the teacher was fine-tuned on another published data set: labels with equal names, such as 0 and 1, may
    differ in meaning."""
    theirs, ours = known(load_task(teacher.folder, teacher.model.output).name), inputs.named
    if theirs.name != ours.name and theirs.layout.folder and ours.layout.folder:  # both are published data sets
        log(
            f"note: the teacher {teacher.name} was fine-tuned on {theirs.name}, and this is {ours.name}: continue only "
            "if the labels of both mean the same"
        )


def _as_text(value: object) -> str:
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def has_started_stage(out: Path) -> bool:
    """Whether a stage before the last has a checkpoint."""
    return any(Checkpoints(folder).last() is not None for folder in (out / STAGES).glob("*"))


def earlier_stages(
    out: Path,
    inputs: Inputs,
    settings: TaskDistillationSettings,
    runtime: Runtime,
    teacher: Teacher,
    kept: KeptTeacher | None,
) -> list[Stage]:
    """All stages except the last, as they would run from the weights in `inputs`."""
    found = []
    for number, recipe in enumerate(settings.objective.stages(is_task=True)[:-1], 1):
        stage_settings = with_steps(settings.of_stage(number), inputs.train_features)
        job, _ = _stage(inputs, stage_settings, recipe, teacher, kept, runtime)
        found.append(Stage(out / STAGES / str(number), job, stage_settings))
    return found


def run_earlier_stages(
    out: Path,
    inputs: Inputs,
    settings: TaskDistillationSettings,
    runtime: Runtime,
    teacher: Teacher,
    kept: KeptTeacher | None,
    on_progress: Callable[[Status], None],
    log: Log,
) -> Inputs | Outcome:
    """Runs or resumes all stages except the last. Returns the inputs of the last stage, or an `Outcome` if a stage was
    stopped."""
    stages = settings.objective.stages(is_task=True)
    for number, recipe in enumerate(stages[:-1], 1):
        folder = out / STAGES / str(number)
        stage_settings = with_steps(settings.of_stage(number), inputs.train_features)
        job, student = _stage(inputs, stage_settings, recipe, teacher, kept, runtime)
        if is_trained(folder, stage_settings):
            last = Checkpoints(folder).last()
            Checkpoints(folder).publish(last)  # the run may have been killed while it did
            job.load_model(last)
        else:
            log(_stage_message(number, stages, stage_settings))
            log_where_it_resumes(folder, stage_settings, log)
            folder.mkdir(parents=True, exist_ok=True)
            _write_about(folder, number, stages, stage_settings)
            with Signals() as signals:
                outcome = train(folder, job, stage_settings.loop(), runtime, on_progress)
            if signals.stop:  # possibly during the last step, after which the stage counts as finished
                outcome = replace(outcome, ended="stopped")
            if outcome.ended == "stopped":
                return outcome
        inputs = inputs.initialised_from(student, {**inputs.projections, **job.model.projections.state_dict()})
    if len(stages) > 1:
        log(_stage_message(len(stages), stages, settings))
    return inputs


def _write_about(folder: Path, number: int, stages: Sequence[Recipe], settings: TaskDistillationSettings) -> None:
    about = {"number": number, "num_stages": len(stages), "terms": list(stages[number - 1].named())}
    write_json(folder / STAGE_FILE, {**about, "settings": configuration.to_dict(settings)})


def _stage_message(number: int, stages: Sequence[Recipe], settings: TaskDistillationSettings) -> str:
    terms = ", ".join(stages[number - 1].named()) or "only labels"
    epochs = f"{settings.epochs:g} epoch{'' if settings.epochs == 1 else 's'}"
    return f"stage {number} of {len(stages)}: {terms}, {epochs} at learning rate {settings.optimizer.lr:g}"


def _stage(
    inputs: Inputs,
    settings: TaskDistillationSettings,
    recipe: Recipe,
    teacher: Teacher,
    kept: KeptTeacher | None,
    runtime: Runtime,
) -> tuple[Job, Transformer]:
    seed, output = settings.runtime.seed, inputs.saved.task.output
    keeps = keeps_head(inputs.trained, output, settings.task)
    student, new_parts = with_head(inputs.trained, output, seed, settings.layers.dropout, keeps)
    freeze(student, settings.layers, new_parts)
    student.to(runtime.device)
    own = label_objective(inputs, settings)
    pair, objective = with_teacher(student, own, recipe, teacher, seed, kept, inputs.projections)
    if runtime.compiles:
        pair.compile_parts()
    module = TrainingModule(pair, objective)
    features = inputs.dev_features
    starts = range(0, features.num_units, settings.batch_size)
    dev = [features.batch(range(first, min(first + settings.batch_size, features.num_units))) for first in starts]

    def check(micro_tokens: int) -> dict[str, float]:
        return validate(module, dev, runtime, micro_tokens)

    save, load = checkpoint_io(inputs, student, pair)
    batches = TaskBatches(inputs.train_features, settings.batch_size, seed)
    return Job(module, batches, check, save, load, rate_of=student_rates(student, settings.layers)), student


def checkpoint_io(
    inputs: Inputs, model: Transformer, trained: torch.nn.Module
) -> tuple[Callable[[Path], None], Callable[[Path], None]]:
    """The functions that save and load a checkpoint: the model, its tokenizer, and a student's projections."""

    def save(folder: Path) -> None:
        inputs.tokenizer.save(folder, model.config.max_positions, model.config.num_segments)
        save_projections(folder, trained)
        save_model(folder, model)

    def load(folder: Path) -> None:
        load_weights(model, read_weights(folder), folder)
        load_projections(folder, trained)

    return save, load
