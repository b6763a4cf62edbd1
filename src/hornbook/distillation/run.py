"""`hornbook.distill`: a large model's knowledge to a small one, on plain text or on a task.

    hornbook.distill("runs/base", "distilbert", "runs/small", corpora=["corpus"])
    hornbook.distill("runs/sst", "runs/small", "runs/small-sst", task="sst-2", data="glue/SST-2")

Both run through what is there: the first is pre-training (`hornbook.pretraining`) and the second fine-tuning
(`hornbook.finetuning`), with a teacher beside the model. So they resume, validate, report and predict alike.
"""

import dataclasses
import difflib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from hornbook.config import parsed
from hornbook.devices import refuse_beyond_memory
from hornbook.files import read_json
from hornbook.finetuning import record as finetuning
from hornbook.finetuning.api import Finetuned, checked_inputs, finetune
from hornbook.finetuning.record import SHAPE
from hornbook.finetuning.settings import FinetuneSettings, settings_for
from hornbook.finetuning.steps import with_steps
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.interop.teacher import Teacher, open_teacher
from hornbook.lifecycle.locking import locks_out
from hornbook.models import registry
from hornbook.models.gpt import Gpt
from hornbook.models.pair import initialise_from_teacher
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.pretraining import record as pretraining
from hornbook.pretraining.run import pretrain, settings_with_teacher
from hornbook.pretraining.settings import PretrainSettings, changed_of_family
from hornbook.tasks.datasets import known
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.loop import Outcome, Status
from hornbook.train.randomness import seed_of

Log = Callable[[str], None]
RECIPE = "objective.recipe"
HALVES = ("distilbert", "distilgpt2")


@locks_out
def distill(
    teacher: str | Path,
    student: str | Path | None,
    out: str | Path,
    *,
    corpora: Sequence[str | Path] | str | Path = (),
    task: str | None = None,
    data: Any = None,
    recipe: str | None = None,
    overrides: dict | None = None,
    seed: int | None = None,
    resume: bool = False,
    on_progress: Callable[[Status], None] | None = None,
    log: Log = print,
    **more: Any,
) -> Outcome | Finetuned:
    """Makes `student` learn from `teacher`: on `corpora`, or on the `task` of labelled `data`.

    >>> import hornbook
    >>> hornbook.distill("runs/first", "distilbert", "runs/small", corpora="corpus", steps=20_000)  # doctest: +SKIP

    The student is a preset (without one, `distilbert`, or of a GPT `distilgpt2`) or, on a task, also a folder. `recipe`
    is a name (`distilbert`, `tinybert`, `patient`, `minilm`) or a JSON file. `overrides` sets any setting by its dotted
    name, `model.*` the shape of a preset. `more` is what `hornbook.pretrain` or `hornbook.finetune` take besides.
    """
    started_run = read_json(Path(out) / "run.json") if resume and (Path(out) / "run.json").exists() else {}
    if not corpora and "task" in started_run:
        task, data = task or started_run["task"], data if data is not None else started_run["data"]["path"]
    if bool(corpora) == (task is not None) and not started_run:
        raise ValueError("give either --corpus, to learn from plain text, or --task and --data, to learn on a task")
    opened = open_teacher(str(teacher))
    student = str(student or started_run.get("preset") or started_run.get("model") or _usual_student(opened))
    overrides = resolved(opened, student, task, recipe, overrides, started_run, log)
    common = {"seed": seed, "resume": resume, "on_progress": on_progress, "log": log, "teacher": opened}
    if task is None:
        return pretrain(student, corpora, out, overrides=overrides, **common, **more)
    shape = shape_in(started_run.get("request", {}).get("overrides", {}) if started_run else overrides)
    model = open_student(student, opened, shape, *_seed_and_start(started_run, seed, overrides), log)
    return finetune(student, data, task, out, overrides=overrides, opened=model, **common, **more)


def settings_shown(
    teacher: str | Path,
    student: str | Path | None = None,
    *,
    task: str | None = None,
    data: Any = None,
    recipe: str | None = None,
    overrides: dict | None = None,
    seed: int | None = None,
    log: Log = print,
    **more: Any,
) -> tuple[PretrainSettings | FinetuneSettings, TransformerConfig | None]:
    """The settings that `distill` would run with, and the model of a new student on a task; nothing is trained. On a
    task some follow from the `data` (epochs of a large data set, how often it logs and validates)."""
    opened = open_teacher(str(teacher))
    student = str(student or _usual_student(opened))
    overrides = resolved(opened, student, task, recipe, overrides, {}, log)
    common = {"seed": seed, "overrides": overrides, "teacher": opened.name}
    if task is None:
        return settings_with_teacher(pretraining.Request(student, **common, **more), opened), None
    model = open_student(student, opened, shape_in(overrides), *_seed_and_start({}, seed, overrides), log)
    request = finetuning.Request(student, task, str(data), **common, **more)
    config = None if model is None else model[0].config
    if data is None:
        trained = load_folder(model_folder(student))[0] if model is None else model[0]
        return settings_for(known(task), trained, request.all_overrides(), has_teacher=True), config
    inputs = checked_inputs(request, data, model, opened, log)
    return with_steps(inputs.settings, inputs), config


def _usual_student(teacher: Teacher) -> str:
    return "distilgpt2" if isinstance(teacher.model, Gpt) else "distilbert"


def resolved(
    teacher: Teacher,
    student: str,
    task: str | None,
    recipe: str | None,
    overrides: dict | None,
    started_run: dict,
    log: Log,
) -> dict:
    """The changes with the student's shape and the recipe that were not given, as the teacher decides them."""
    if task is None and student not in registry.PRESETS and Path(student).is_dir():
        raise ValueError(
            f"{student} is a folder, and on plain text a student is a preset, such as distilbert or tinybert-4: name "
            "one, with model.num_layers and the like for its shape, or teach the folder on a task, by --task and --data"
        )
    overrides = dict(overrides or {})
    if not started_run:
        overrides = half_of(teacher, student, overrides, log) | overrides
    if recipe is not None:
        overrides[RECIPE] = _written_out(recipe)
    elif RECIPE not in overrides and not started_run:
        overrides[RECIPE] = _usual_recipe(teacher, student, task, overrides, log)
    return overrides


def half_of(teacher: Teacher, student: str, overrides: dict, log: Log) -> dict:
    """The shape of DistilBERT or DistilGPT2 beside this teacher, where it is none of the published size: half its
    layers, and all else as it has it. What is asked for otherwise stays as it is asked."""
    if student not in HALVES or Path(student).is_dir():
        return {}
    theirs, published = teacher.model.config, registry.preset(student).model
    shape = {name: getattr(theirs, name) for name in ("width", "num_heads", "inner_width")}
    shape |= {"num_layers": max(1, theirs.num_layers // 2)}
    shape = {name: value for name, value in shape.items() if f"model.{name}" not in overrides}
    if all(getattr(published, name) == value for name, value in shape.items()):
        return {}
    log(f"{student} in the shape of the teacher: " + ", ".join(f"{name} {value}" for name, value in shape.items()))
    return {f"model.{name}": str(value) for name, value in shape.items()}


def _seed_and_start(started_run: dict, seed: int | None, overrides: dict) -> tuple[int, str]:
    """What the first weights of a new student follow from: as the run was begun, or as it is asked for now."""
    if started_run:
        settings = started_run.get("settings") or {}
        return settings.get("runtime", {}).get("seed", 0), settings.get("objective", {}).get("start", "teacher")
    seed = _whole(overrides, "runtime.seed", 0) if seed is None else seed
    return seed, overrides.get("objective.start", "teacher")


def _whole(overrides: dict, name: str, default: int) -> int:
    return parsed(str(overrides.get(name, default)), int, name)


def _written_out(recipe: str) -> str:
    """The recipe itself where a file is named, so that the run keeps it."""
    path = Path(recipe)
    if path.suffix != ".json" or recipe.lstrip()[:1] in ("{", "["):
        return recipe
    if not path.is_file():
        raise ValueError(f"there is no file {recipe}: check the path of the recipe")
    return path.read_text(encoding="utf-8").strip()


def _usual_recipe(teacher: Teacher, preset: str, task: str | None, overrides: dict, log: Log) -> str:
    """On a task TinyBERT's; on plain text DistilBERT's, where hidden states are of one width and the teacher fills in
    masks, else TinyBERT's."""
    if task is not None:
        return "tinybert"
    width = _whole(overrides, "model.width", registry.preset(preset).model.width)
    if width != teacher.model.config.width:
        log(f"recipe tinybert, as the student is {width} wide and the teacher {teacher.model.config.width}")
        return "tinybert"
    if not {"mlm", "clm"} & set(teacher.model.heads):
        log("recipe tinybert, as the teacher has no vocabulary head that distilbert could follow")
        return "tinybert"
    if preset.startswith("tinybert"):
        return "tinybert"
    if not isinstance(teacher.model, Gpt):
        log("recipe distilbert; a student that will learn tasks from a teacher too keeps more with --recipe tinybert")
    return "distilbert"


def _check_model(name: str) -> None:
    """What is no model may be a preset that is misspelt."""
    try:
        model_folder(name)
    except ValueError as error:
        near = difflib.get_close_matches(name, registry.PRESETS, n=2)
        hint = f"; of the presets, did you mean {' or '.join(near)}?" if near else ""
        raise ValueError(f"{error}{hint}") from None


def shape_in(overrides: dict) -> dict:
    """Those of the changes that are about the shape of the student."""
    return {name: value for name, value in overrides.items() if name.startswith(SHAPE)}


@dataclasses.dataclass(frozen=True)
class _Student:
    model: TransformerConfig


def open_student(
    name: str, teacher: Teacher, shape: dict, seed: int, start: str, log: Log
) -> tuple[Transformer, Tokenizer] | None:
    """A preset in such a shape as a new model with the teacher's vocabulary; None for a folder, which is opened as any
    model is."""
    if Path(name).is_dir() or name not in registry.PRESETS:
        _check_model(name)
        if shape:
            raise ValueError(
                f"{next(iter(shape))} cannot be changed, as {name} has weights of that shape: leave it out, or name a "
                "preset as --student, such as tinybert-4"
            )
        return None
    if "model.vocab_size" in shape:
        raise ValueError("model.vocab_size is that of the teacher, whose tokens the student reads: leave it out")
    config, theirs = registry.preset(name).model, teacher.model.config
    config = changed_of_family(_Student(config), shape, registry.family_of(config).family).model
    positions = min(config.max_positions, theirs.max_positions)
    if "model.max_positions" in shape and positions < config.max_positions:
        raise ValueError(f"model.max_positions is at most the teacher's {positions}, which teaches no longer sequence")
    config = dataclasses.replace(config, vocab_size=theirs.vocab_size, max_positions=positions)
    refuse_beyond_memory(
        4.0 * config.num_matrix_parameters,
        "cpu",
        f"the {config.num_matrix_parameters:,} parameters of the student need",
        "name a smaller preset as --student, or lower model.num_layers, model.width or model.inner_width",
    )
    family = registry.family_of(config)
    student = family(family.for_tokenizer(config, teacher.tokenizer.pad_id, teacher.tokenizer.end_id), ())
    student.initialise(torch.Generator().manual_seed(seed_of(seed, "weights")))
    if start == "teacher":
        log(f"the student {initialise_from_teacher(student, teacher.model)}")
    return student.eval(), teacher.tokenizer
