"""Fine-tuning a student with a teacher: the projections that are trained with it, and the stages before the last.

RUN/stages/1/ ...    an earlier stage: its settings, checkpoints and metrics; the next stage starts from its last
                     weights
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from hornbook.files import write_json
from hornbook.lifecycle.run_folder import Log
from hornbook.lifecycle.stopping import Signals
from hornbook.models.transformer import Transformer
from hornbook.objectives.distillation.matching import StageRecipe
from hornbook.objectives.distillation.objective import pair_for
from hornbook.objectives.distillation.task import TaskDistillation
from hornbook.report.formatting import duration
from hornbook.report.run_files import STAGE_FILE, STAGES
from hornbook.runs.distillation.teacher import refuse_other_vocabulary
from hornbook.runs.finetuning.inputs import FinetuneInputs
from hornbook.runs.finetuning.job import NUM_TIMED, expected_seconds, log_where_it_resumes, with_steps
from hornbook.runs.finetuning.settings import TaskDistillationSettings
from hornbook.runs.model_files import read_projections
from hornbook.tasks.datasets import find_task
from hornbook.tasks.objective import TaskObjective
from hornbook.tasks.spec import load_task
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import OnProgress, Stopped, TrainingJob
from hornbook.train.loop import train
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.runtime import Runtime
from hornbook.train.step_timing import LONG_RUN, MEASURING, num_to_time


def with_projections(inputs: FinetuneInputs, folder: Path, log: Log) -> FinetuneInputs:
    """The inputs with the projections that the student in `folder` learned on plain text, if a stage uses any."""
    stages = inputs.settings.objective.stages(is_task=True)
    pairs = [pair_for(recipe, inputs.pretrained, inputs.teacher.model) for recipe in stages]
    needed = {term: None for pair in pairs for term in pair.projected_terms}
    projections = read_projections(folder) if needed else {}
    if not projections:
        return inputs
    fitting = {term: None for pair in pairs for term in pair.adopt_projections(projections)}
    if fitting:
        log(f"projections of {', '.join(fitting)} are initialised from those that the student learned earlier")
    if new := [term for term in needed if term not in fitting]:
        log(f"projections of {', '.join(new)} are newly initialised: the student has none that fit this teacher")
    return replace(inputs, projections=projections)


def check_teacher(inputs: FinetuneInputs, log: Log) -> None:
    """Raises a `ValueError` unless the teacher has a head for the same task and labels, the same vocabulary if anything
    is matched per token, and the quantities that each stage matches. Warns if it was fine-tuned on another published
    data set: labels with equal names, such as 0 and 1, may differ in meaning."""
    teacher, task = inputs.teacher, inputs.registered
    head, teacher_head = inputs.spec.task.head_config, teacher.model.head_config
    stages = inputs.settings.objective.stages(is_task=True)
    only_logits = len(stages) == 1 and all(match.quantity == "logits" for match in stages[0].matches)
    if not only_logits or not head.output_type.of_sequences:
        refuse_other_vocabulary(teacher, inputs.tokenizer, "the student")
    if teacher_head is None:
        raise ValueError(
            f"the teacher {teacher.name} has no head for a task: fine-tune it first with hornbook finetune "
            f"{teacher.name} --task {task.name} --data PATH --out RUN, and give that run as the teacher"
        )
    if teacher_head.graph is not None:
        raise ValueError(
            f"the teacher {teacher.name} reads a knowledge graph, which a student cannot: give another one"
        )
    for name in ("output", "problem_type", "labels", "num_labels", "pair_encoding", "has_answer_classifier"):
        needed, found = getattr(head, name), getattr(teacher_head, name)
        if needed != found:
            subject = "its labels are" if name == "labels" else f"its {name} is"
            found, needed = (", ".join(each) if isinstance(each, tuple) else each for each in (found, needed))
            raise ValueError(
                f"the teacher {teacher.name} was made for another task: {subject} {found}, and the data needs "
                f"{needed}; fine-tune a teacher on this data first"
            )
    if teacher.model.config.max_positions < inputs.max_length:
        positions = teacher.model.config.max_positions
        raise ValueError(f"the teacher reads at most {positions} tokens: set task.max_length={positions}")
    for recipe in stages:
        TaskDistillation(TaskObjective(head), head, recipe, inputs.pretrained.config, teacher.model.config)
    learned = find_task(load_task(teacher.folder, teacher.model.head_config).name)
    if learned.name != task.name and learned.layout.folder and task.layout.folder:  # both are published data sets
        log(
            f"note: the teacher {teacher.name} was fine-tuned on {learned.name}, and this is {task.name}: continue "
            "only if the labels of both mean the same"
        )


def run_earlier_stages(
    out: Path,
    inputs: FinetuneInputs,
    runtime: Runtime,
    build: Callable[..., tuple[TrainingJob, Transformer]],
    on_progress: OnProgress,
    log: Log,
) -> FinetuneInputs:
    """Logs the expected time of all stages, then runs or resumes all but the last. `build` makes the job and the
    student of a stage from its inputs and index. Returns the inputs of the last stage."""
    settings = inputs.settings
    recipes = settings.objective.stages(is_task=True)
    stages = [
        (out / STAGES / str(number), with_steps(settings.of_stage(number), inputs.encoded_train))
        for number in range(1, len(recipes))
    ] + [(out, settings)]
    log(MEASURING)
    seconds = []
    for index, (folder, stage_settings) in enumerate(stages):
        stage_inputs = inputs.replaced(settings=stage_settings)
        job, _ = build(stage_inputs, stage=index)
        seconds.append(_seconds_left(folder, job, stage_inputs, runtime))
    _log_expected_time(seconds, log)
    for index, (folder, stage_settings) in enumerate(stages[:-1]):
        job, student = build(inputs.replaced(settings=stage_settings), stage=index)
        if Checkpoints(folder).is_trained(stage_settings.schedule.steps):
            last = Checkpoints(folder).last()
            Checkpoints(folder).link_to_root(last)  # the run may have been killed while it did
            job.load_model(last)
        else:
            log(_stage_message(index + 1, recipes, stage_settings))
            log_where_it_resumes(folder, stage_settings, log)
            folder.mkdir(parents=True, exist_ok=True)
            info = {"number": index + 1, "num_stages": len(recipes), "terms": list(recipes[index].named())}
            write_json(folder / STAGE_FILE, {**info, "settings": asdict(stage_settings)})
            with Signals() as signals:
                outcome = train(folder, job, stage_settings, runtime, on_progress)
            # Possibly during the last step, after which the stage counts as finished.
            if current_ranks().sum(int(signals.stop is not None))[0] > 0:
                raise Stopped(replace(outcome, ended="stopped"))
        projections = {**inputs.projections, **job.model.projections.state_dict()}
        inputs = inputs.replaced(pretrained=student, projections=projections)
    if len(recipes) > 1:
        log(_stage_message(len(recipes), recipes, settings))
    return inputs


def _stage_message(number: int, stages: Sequence[StageRecipe], settings: TaskDistillationSettings) -> str:
    terms = ", ".join(stages[number - 1].named()) or "only labels"
    epochs = f"{settings.epochs:g} epoch{'' if settings.epochs == 1 else 's'}"
    return f"stage {number} of {len(stages)}: {terms}, {epochs} at learning rate {settings.optimizer.lr:g}"


def _seconds_left(folder: Path, job: TrainingJob, inputs: FinetuneInputs, runtime: Runtime) -> float:
    """The expected time of the steps of a stage that are not done yet."""
    checkpoints, num_steps = Checkpoints(folder), inputs.settings.schedule.steps
    if checkpoints.is_trained(num_steps):
        return 0.0
    num_left = num_steps - (checkpoints.last_step() or 0)
    return expected_seconds(job, inputs, runtime, num_left, num_to_time(num_left, NUM_TIMED))[0]


def _log_expected_time(seconds: Sequence[float], log: Log) -> None:
    """Logs the expected time of the whole run, and of each stage if there are several."""
    stages = ", ".join(f"stage {number}: {duration(of_stage)}" for number, of_stage in enumerate(seconds, 1))
    log(f"expected time: about {duration(sum(seconds))}" + (f" ({stages})" if len(seconds) > 1 else ""))
    if sum(seconds) >= LONG_RUN:
        log(
            f"recipe='distilbert' has one stage on a task, and takes about {duration(seconds[-1])}"
            if len(seconds) > 1
            else "fewer epochs or a smaller student take less time"
        )
