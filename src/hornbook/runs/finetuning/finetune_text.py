"""Fine-tuning one GPT on a mixture of tasks as text (after McCann et al. 2018, arXiv 1806.08730): the training splits
of all tasks, formatted as questions and answers, in one training set. The loss is on the answers or on every token.

A .toml file lists the tasks of the mixture:

    [[tasks]]
    task = "sst-2-question"          # a shipped task, or a .toml file
    data = "glue/SST-2"              # its data, relative to this file
    examples = 5000                  # number of examples; by default all

RUN/run.json              the request and the resolved settings
RUN/config.json, model.safetensors, tokenizer.json, tokenizer_config.json     the weights with the best held-out loss
RUN/checkpoints/, best/, metrics.jsonl

The result is an ordinary GPT: `hornbook prompt RUN --task ... --shots 0` scores it with the same task files.
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from hornbook import config as configuration
from hornbook.config import ValidatedSettings, setting
from hornbook.files import hard_link_files, read_toml
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import RunRequest, request_differences
from hornbook.lifecycle.run_folder import Log, RunFolder, ignore, read_metrics, require
from hornbook.models.gpt import Gpt
from hornbook.models.transformer import count_parameters
from hornbook.objectives.clm import ClmObjective
from hornbook.runs.finetuning.job import TaskBatches, in_batches, planned_flops, with_steps
from hornbook.runs.finetuning.published import MAX_LR, rounded, width_factor
from hornbook.runs.finetuning.settings import FinetuningLoopSettings
from hornbook.runs.model_files import load_models, save_models
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.text.definition import TextTask, read_task
from hornbook.tasks.text.prompts import PromptWriter, answer, check_templates, drawable
from hornbook.tasks.text.sources import Item, read_items
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.checkpoint import Checkpoints, read_state
from hornbook.train.job import OnProgress, Outcome, TrainingJob
from hornbook.train.loop import train
from hornbook.train.objective import TrainingModule
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.randomness import seed_of
from hornbook.train.runtime import Runtime, choose_runtime, configure_torch, torch_settings_restored
from hornbook.train.settings import CheckpointSettings, OptimizerSettings, ScheduleSettings
from hornbook.train.validation import validate

COMMAND = "finetune-text"
GPT1_LR = 6.25e-5  # fine-tuning of GPT-1
VALIDATION_BATCH_SIZE = 32  # examples per validation batch
DEV_FRACTION, MAX_DEV = 0.05, 500  # of each task's training split, to validate on
Learns = Literal["answer", "all"]


@dataclass(frozen=True)
class MixtureTask(ValidatedSettings):
    task: str = setting("", "a shipped task, or a .toml file")
    data: str = setting("", "its data, relative to the file that names it")
    examples: int | None = setting(
        None, "number of training examples to use, always the same ones; none: all", low=2, high=1_000_000_000
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.task or not self.data:
            raise ValueError("an entry of [[tasks]] lacks its task or its data: give both")


@dataclass(frozen=True)
class TaskMixture(ValidatedSettings):
    """The contents of the .toml file."""

    tasks: tuple[MixtureTask, ...] = setting((), "the tasks to train on")
    folder: str = setting(".", "folder that data paths are relative to")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tasks:
            raise ValueError("there are no [[tasks]]: give at least one with its data")


@dataclass(frozen=True)
class Documents:
    """The train and dev splits as token sequences; `tasks` has the number of training examples per task."""

    train: EncodedExamples
    dev: EncodedExamples
    tasks: list[dict]


def read_mixture(path: str | Path) -> TaskMixture:
    """The mixture that a .toml file lists, with the folder of the file."""
    path = Path(path).expanduser()
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the spelling")
    if not path.is_file() or path.suffix != ".toml":
        raise ValueError(f"{path} is not a .toml file: the task text needs one that lists tasks and their data")
    values = read_toml(path)
    try:
        return configuration.from_dict(TaskMixture, values | {"folder": str(path.resolve().parent)})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from None


def documents(mixture: TaskMixture, tokenizer: Tokenizer, context: int, learns: Learns, log: Log) -> Documents:
    """The training examples of all tasks as documents, without those whose question is also in the test split.
    `context` is the model's context length in tokens."""
    train, dev, tasks = [], [], []
    for entry in mixture.tasks:
        task = read_task(Path(mixture.folder) / entry.task if Path(entry.task).suffix == ".toml" else entry.task)
        splits = read_items(task, Path(mixture.folder) / entry.data, log)
        if len(splits.train) < 2:
            raise ValueError(f"{entry.data} has no training split for {task.name}: add one")
        check_templates(task, splits.train[0])
        items = drawable(task, splits.train, splits.test)
        if num_dropped := len(splits.train) - len(items):
            log(f"{task.name}: {num_dropped:,} training examples are also in the test split: dropped")
        if len(items) < 2:
            raise ValueError(
                f"{entry.data} has {len(items)} training examples of {task.name} that are not also in its test split, "
                "too few to hold one out: give other training data"
            )
        order = np.random.default_rng(seed_of("joint", task.name)).permutation(len(items))[: entry.examples]
        num_dev = max(1, min(MAX_DEV, round(DEV_FRACTION * len(order))))
        num_train = len(order) - num_dev
        encoded = _encoded(task, [items[i] for i in order], tokenizer, context, learns)
        dev += encoded[:num_dev]
        train += encoded[num_dev:]
        tasks.append({"task": task.name, "data": str(entry.data), "examples": num_train})
        log(f"{task.name}: {num_train:,} examples to train on, {num_dev:,} to validate on")
    return Documents(_encoded_examples(train), _encoded_examples(dev), tasks)


def _encoded(
    task: TextTask, items: Sequence[Item], tokenizer: Tokenizer, context: int, learns: Learns
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Input ids and next-token targets of each item; positions without a loss have the target -1."""
    answers = [answer(task, item.answers[0]) for item in items]
    reserved = [len(encoding.ids) + 1 for encoding in tokenizer.encode_batch(answers)]
    prompts = PromptWriter(task, task.example, tokenizer, context).write(items, [()] * len(items), reserved)
    end = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    encoded = []
    pairs = [(prompt.text, text) for prompt, text in zip(prompts, answers, strict=True)]
    for prompt_ids, answer_ids in tokenizer.split_encode(pairs):
        ids = np.array([*prompt_ids, *answer_ids, *end], np.int64)[: context + 1]
        targets = ids[1:].copy()
        if learns == "answer":
            targets[: max(len(prompt_ids) - 1, 0)] = -1
        encoded.append((ids[:-1], targets))
    return encoded


def _encoded_examples(sequences: list[tuple[np.ndarray, np.ndarray]]) -> EncodedExamples:
    return EncodedExamples(
        ids=[ids for ids, _ in sequences],
        segments=[np.zeros(len(ids), np.int64) for ids, _ in sequences],
        example_ids=np.arange(len(sequences)),
        num_examples=len(sequences),
        token_labels=[targets for _, targets in sequences],
    )


@dataclass(frozen=True)
class _TextGroups(ValidatedSettings):
    learns: Learns = setting("answer", "tokens that have a loss: only the answers, or all")
    epochs: float = setting(3.0, "passes over the training examples", above=0, high=10_000)
    batch_size: int = setting(32, "examples per batch", low=1, high=1_000_000)


@dataclass(frozen=True)
class TextSettings(FinetuningLoopSettings, _TextGroups):
    """All settings of a fine-tuning run on text tasks, by group."""

    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings(lr=GPT1_LR))
    schedule: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(steps=1, warmup_fraction=0.002))
    checkpoint: CheckpointSettings = field(
        default_factory=lambda: CheckpointSettings(every_steps=0, every_minutes=2.0, at_start=False, keep=1)
    )

    @property
    def unused(self) -> dict[str, str]:
        return super().unused | {"parallel": "one process fine-tunes on text tasks"}


@dataclass(frozen=True)
class TextRequest(RunRequest):
    model: str
    data: str


def text_settings(model: Gpt, overrides: dict) -> TextSettings:
    """GPT-1's published settings with overrides; narrow models use a higher learning rate."""
    lr = rounded(min(MAX_LR, GPT1_LR * width_factor(model.config.width)))
    default = dataclasses.replace(TextSettings(), optimizer=OptimizerSettings(lr=lr))
    configuration.refuse_unused(default, overrides)
    return configuration.with_overrides(default, overrides)


def resolve_settings(model: str | Path, data: str | Path | None, overrides: dict, log: Log = print) -> TextSettings:
    """The settings that a run would have; without `data`, the number of steps is not known."""
    trained, tokenizer = load_gpt_with_head(model)
    settings = text_settings(trained, overrides)
    if data is None:
        return settings
    texts = documents(read_mixture(data), tokenizer, trained.config.max_positions, settings.learns, log)
    return with_steps(settings, texts.train)


def load_gpt_with_head(name: str | Path) -> tuple[Gpt, Tokenizer]:
    model, tokenizer = load_folder(model_folder(name))
    if not isinstance(model, Gpt) or "clm" not in model.heads:
        raise ValueError(f"{name} is not a GPT with a clm head, which the task text needs: give one, or another task")
    return model, tokenizer


@lock_output_folder
@torch_settings_restored()
def finetune_text(
    model: str | Path,
    data: str | Path | None,
    out: str | Path,
    *,
    overrides: dict | None = None,
    resume: bool = False,
    on_progress: OnProgress | None = None,
    log: Log = print,
) -> Outcome:
    """Fine-tunes a GPT on the tasks in the .toml file `data` into the run folder `out`. With `resume`, `data` and
    `overrides` may be left out. Raises `Stopped` if Ctrl-C, another signal or `on_progress` stopped the run.

    >>> import hornbook
    >>> hornbook.finetune_text("runs/gpt", "joint.toml", "runs/joint", overrides={"epochs": 1})  # doctest: +SKIP
    """
    folder = RunFolder(Path(out), COMMAND)
    run = folder.read_record(_check) if folder.is_started(resume) else None
    data = run["request"]["data"] if data is None and run is not None else data
    if data is None:
        raise ValueError("data is missing: give a .toml file that lists the tasks")
    request = TextRequest(str(model), str(Path(data).resolve()), overrides=overrides or {})
    if run is not None:
        before = run["request"] | {"data": request.data}  # the file may have moved; its documents are compared below
        folder.refuse(request_differences(before, request, settings_in(run)))
    mixture = read_mixture(data)
    trained, tokenizer = load_gpt_with_head(model)
    settings = text_settings(trained, request.overrides) if run is None else settings_in(run)
    texts = documents(mixture, tokenizer, trained.config.max_positions, settings.learns, log)
    fingerprint = _fingerprint(texts)
    if run is None:
        settings = with_steps(settings, texts.train)
        settings.check_run(current_ranks().size)
    else:
        folder.refuse_other_input(f"the data of {data}", run["inputs"]["data"]["fingerprint"], fingerprint)

        if _is_finished(folder.path, settings):
            hard_link_files(folder.path / "best", folder.path)
            return Outcome.from_state("already finished", read_state(Checkpoints(folder.path).last()))
    flops = planned_flops(trained, texts.train, settings.epochs, learns_text=True)
    runtime = choose_runtime(settings.runtime, flops, run and run["runtime"])
    configure_torch(runtime)
    num_parameters = count_parameters(trained)
    log(f"{num_parameters:,} parameters; {runtime.description}")
    if run is None:
        folder.write_record(
            request.to_dict(),
            {"data": {"path": request.data, "fingerprint": fingerprint, "tasks": texts.tasks}},
            settings,
            runtime.to_record(),
            family=trained.model_type,
            heads=list(trained.heads),
            parameters=num_parameters,
            mixture=dataclasses.asdict(mixture),
            **{"from": request.model},
        )
    job = _job(trained, tokenizer, texts, settings, runtime)
    outcome = train(folder.path, job, settings, runtime, on_progress or ignore)
    hard_link_files(folder.path / "best", folder.path)
    return outcome


def _is_finished(run: Path, settings: TextSettings) -> bool:
    """Whether all steps were taken, and the last one validated."""
    validated = {line["step"] for line in read_metrics(run) if line["kind"] == "validation"}
    return Checkpoints(run).is_trained(settings.schedule.steps) and Checkpoints(run).last_step() in validated


def _fingerprint(texts: Documents) -> str:
    digest = hashlib.sha256()
    for encoded in (texts.train, texts.dev):
        for ids, targets in zip(encoded.ids, encoded.token_labels, strict=True):
            digest.update(ids.tobytes() + b"|" + targets.tobytes() + b"\n")
    return digest.hexdigest()


def _check(run: dict[str, Any]) -> None:
    TextRequest(**run["request"])
    require(run, "runtime.threads", "runtime.compiles", "inputs.data.fingerprint")
    settings_in(run)


def settings_in(run: dict[str, Any]) -> TextSettings:
    return configuration.from_dict(TextSettings, run["settings"])


def _job(model: Gpt, tokenizer: Tokenizer, texts: Documents, settings: TextSettings, runtime: Runtime) -> TrainingJob:
    objective = ClmObjective()
    if runtime.compiles:
        model.compile_parts()
        objective.compile()
    module = TrainingModule(model, objective)
    batches = TaskBatches(texts.train, settings.batch_size, settings.runtime.seed)
    validation = partial(validate, module, in_batches(texts.dev, VALIDATION_BATCH_SIZE), runtime)
    save, load = partial(save_models, network=model, tokenizer=tokenizer), partial(load_models, network=model)
    return TrainingJob(module, batches, validation, save, load)
