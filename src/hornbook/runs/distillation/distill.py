"""`hornbook.distill`: distils a large model into a small one, on plain text or on a task.

    hornbook.distill("runs/base", "distilbert", "runs/small", corpora=["corpus"])
    hornbook.distill("runs/sst", "runs/small", "runs/small-sst", task="sst-2", data="glue/SST-2")

The first is pre-training (`runs.pretraining`) and the second fine-tuning (`runs.finetuning`) with a teacher, so they
resume, validate, report and predict in the same way.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from hornbook.config import did_you_mean, parsed
from hornbook.devices import refuse_beyond_memory
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import as_overrides
from hornbook.lifecycle.run_folder import Log, recorded
from hornbook.models import registry
from hornbook.models.distillation_pair import initialize_from_teacher
from hornbook.models.gpt import Gpt
from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.runs.distillation.teacher import Teacher, open_teacher
from hornbook.runs.finetuning import finetune as finetuning
from hornbook.runs.finetuning.finetune import FinetuneResult, graph_overrides, run_request
from hornbook.runs.finetuning.record import SHAPE, FinetuneRequest
from hornbook.runs.finetuning.settings import FinetuneSettings
from hornbook.runs.pretraining import presets
from hornbook.runs.pretraining import resolve as pretraining
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.settings import PretrainSettings, with_model_overrides
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.job import OnProgress, Outcome
from hornbook.train.parallel.ranks import connects_ranks, current_ranks
from hornbook.train.randomness import seed_of

RECIPE = "objective.recipe"
HALVES = ("distilbert", "distilgpt2")  # students with half of their teacher's layers


@connects_ranks
@lock_output_folder
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
    device: str = "auto",
    resume: bool = False,
    on_progress: OnProgress | None = None,
    log: Log = print,
    **more: Any,
) -> Outcome | FinetuneResult:
    """Distils `teacher` into `student`: on the text of `corpora`, or on a `task` with labelled `data`.

    >>> import hornbook
    >>> hornbook.distill("runs/first", "distilbert", "runs/small", corpora="corpus", steps=20_000)  # doctest: +SKIP

    The student is a preset (by default `distilbert`, or `distilgpt2` for a GPT) or, on a task, a model folder. `recipe`
    is a name (`distilbert`, `tinybert`, `patient`, `minilm`) or a JSON file. `overrides` sets any setting by its dotted
    name; `model.*` sets the shape of a preset. `device` defaults to a GPU if there is one. `more` are further arguments
    of `hornbook.pretrain` or `hornbook.finetune`, whose result is returned. Raises `Stopped` as they do.
    """
    log = current_ranks().only_main(log)
    started_run = current_ranks().from_main(lambda: recorded(out) if resume else {})
    if not corpora and "task" in started_run:
        task, data = task or started_run["task"], data if data is not None else started_run["inputs"]["data"]["path"]
    if bool(corpora) == (task is not None) and not started_run:
        raise ValueError("give either corpora=, to distil on plain text, or task= and data=, to distil on a task")
    opened = open_teacher(str(teacher))
    name, overrides, loaded = _student(opened, student, task, recipe, overrides, seed, started_run, log)
    settings = {"overrides": overrides, "seed": seed, "device": device}
    run_options = {"resume": resume, "on_progress": on_progress, "log": log, "teacher": opened}
    if task is None:
        return pretrain(name, corpora, out, **settings, **run_options, **more)
    graph = graph_overrides(*(more.pop(each, None) for each in ("reason", "graph", "vectors")))
    run_options |= {each: more.pop(each) for each in ("seeds", "lr_search") if each in more}
    settings |= {"overrides": graph | overrides, "teacher": opened.name}
    request = FinetuneRequest.of(name, data, task, **settings, **more)
    return run_request(request, data, Path(out), **run_options, loaded=loaded)


def resolve_settings(
    teacher: str | Path,
    student: str | Path | None = None,
    *,
    corpora: Sequence[str] = (),
    task: str | None = None,
    data: Any = None,
    recipe: str | None = None,
    overrides: dict | None = None,
    seed: int | None = None,
    log: Log = print,
    **more: Any,
) -> tuple[PretrainSettings | FinetuneSettings, TransformerConfig | None]:
    """The settings that `distill` would run with, and on a task the config of a new student; nothing is trained. On a
    task some settings depend on the `data` (epochs for a large data set, intervals of logging and validation)."""
    opened = open_teacher(str(teacher))
    name, overrides, loaded = _student(opened, student, task, recipe, overrides, seed, {}, log)
    common = {"seed": seed, "overrides": overrides, "teacher": opened.name}
    if task is None:
        return pretraining.resolve_settings(PretrainRequest(name, list(corpora), **common, **more), opened), None
    request = FinetuneRequest.of(name, data, task, **common, **more)
    settings = finetuning.resolve_settings(request, data, loaded, opened, log)
    return settings, None if loaded is None else loaded[0].config


def _student(
    teacher: Teacher,
    student: str | Path | None,
    task: str | None,
    recipe: str | None,
    overrides: dict | None,
    seed: int | None,
    started_run: dict,
    log: Log,
) -> tuple[str, dict, tuple[Transformer, Tokenizer] | None]:
    """The name of the student, the overrides completed with its shape and the recipe, and on a task a new student. What
    is not given is taken from the run that is resumed, or else depends on the teacher."""
    default = "distilgpt2" if isinstance(teacher.model, Gpt) else "distilbert"
    name = str(student or started_run.get("preset") or started_run.get("model") or default)
    if task is None and name not in presets.PRESETS and Path(name).is_dir():
        raise ValueError(
            f"{name} is a folder, and on plain text a student is a preset, such as distilbert or tinybert-4: give a "
            "preset, with model.num_layers and the like for its shape, or distil on a task, by task and data"
        )
    overrides = dict(overrides or {})
    if not started_run:
        overrides = _half_of_teacher(teacher, name, overrides, log) | overrides
    if recipe is not None:
        overrides[RECIPE] = _read_recipe(recipe)
    elif RECIPE not in overrides and not started_run:
        overrides[RECIPE] = _default_recipe(teacher, name, task, overrides, log)
    if task is None:
        return name, overrides, None
    as_started = _started_overrides(started_run) if started_run else overrides | as_overrides(seed=seed)
    return name, overrides, _new_student(name, teacher, as_started, log)


def _started_overrides(run: dict) -> dict:
    """The overrides that the student of a run was made with: its shape, its seed and how it was initialised."""
    settings = run.get("settings") or {}
    seed = settings.get("runtime", {}).get("seed", 0)
    student_init = settings.get("objective", {}).get("student_init", "teacher")
    overrides = run.get("request", {}).get("overrides", {})
    return overrides | {"runtime.seed": seed, "objective.student_init": student_init}


def _half_of_teacher(teacher: Teacher, student: str, overrides: dict, log: Log) -> dict:
    """The shape of DistilBERT or DistilGPT2 for a teacher that is not of the published size, as overrides: half its
    layers and otherwise its shape. Settings in `overrides` are left out; empty if nothing differs from the preset."""
    if student not in HALVES or Path(student).is_dir():
        return {}
    config, published = teacher.model.config, presets.preset(student).model
    shape = {name: getattr(config, name) for name in ("width", "num_heads", "inner_width")}
    shape |= {"num_layers": max(1, config.num_layers // 2)}
    shape = {name: value for name, value in shape.items() if f"model.{name}" not in overrides}
    if all(getattr(published, name) == value for name, value in shape.items()):
        return {}
    log(f"{student} in the shape of the teacher: " + ", ".join(f"{name} {value}" for name, value in shape.items()))
    return {f"model.{name}": str(value) for name, value in shape.items()}


def _integer(overrides: dict, name: str, default: int) -> int:
    return parsed(str(overrides.get(name, default)), int, name)


def _read_recipe(recipe: str) -> str:
    """The content of a recipe file, so that the run records it; a recipe name is returned as it is."""
    path = Path(recipe)
    if path.suffix != ".json" or recipe.lstrip()[:1] in ("{", "["):
        return recipe
    if not path.is_file():
        raise ValueError(f"there is no file {recipe}: check the path of the recipe")
    return path.read_text(encoding="utf-8").strip()


def _default_recipe(teacher: Teacher, preset: str, task: str | None, overrides: dict, log: Log) -> str:
    """The default recipe: on a task TinyBERT's; on plain text DistilBERT's if student and teacher have the same width
    and the teacher has a vocabulary head, else TinyBERT's."""
    if task is not None:
        return "tinybert"
    width = _integer(overrides, "model.width", presets.preset(preset).model.width)
    if width != teacher.model.config.width:
        log(f"recipe tinybert, as the student is {width} wide and the teacher {teacher.model.config.width}")
        return "tinybert"
    if not {"mlm", "clm"} & set(teacher.model.heads):
        log("recipe tinybert, as the teacher has no vocabulary head, which distilbert needs")
        return "tinybert"
    if preset.startswith("tinybert"):
        return "tinybert"
    if not isinstance(teacher.model, Gpt):
        log("recipe distilbert; if the student will also be distilled on tasks, recipe='tinybert' retains more")
    return "distilbert"


@dataclasses.dataclass(frozen=True)
class _Shape:
    model: TransformerConfig


def _new_student(name: str, teacher: Teacher, overrides: dict, log: Log) -> tuple[Transformer, Tokenizer] | None:
    """A new student from a preset with the requested shape and the teacher's vocabulary, and its tokenizer; None for a
    folder, which is loaded like any model. With `objective.student_init=teacher` its weights are initialised from the
    teacher's."""
    shape = {setting: value for setting, value in overrides.items() if setting.startswith(SHAPE)}
    if Path(name).is_dir() or name not in presets.PRESETS:
        try:
            model_folder(name)
        except ValueError as error:
            raise ValueError(f"{error}; {did_you_mean(name, presets.PRESETS, most=2)}".removesuffix("; ")) from None
        if shape:
            raise ValueError(
                f"{next(iter(shape))} cannot be changed, as {name} has weights of a fixed shape: leave it out, or give "
                "a preset as the student, such as tinybert-4"
            )
        return None
    if "model.vocab_size" in shape:
        raise ValueError("model.vocab_size is that of the teacher, whose tokenizer the student uses: leave it out")
    model_class = registry.model_class_of(presets.preset(name).model)
    config = with_model_overrides(_Shape(presets.preset(name).model), shape).model
    positions = min(config.max_positions, teacher.model.config.max_positions)
    if "model.max_positions" in shape and positions < config.max_positions:
        raise ValueError(f"model.max_positions is at most the teacher's {positions}: lower it, or leave it out")
    config = dataclasses.replace(config, vocab_size=teacher.model.config.vocab_size, max_positions=positions)
    refuse_beyond_memory(
        4.0 * config.num_matrix_parameters,
        "cpu",
        f"the {config.num_matrix_parameters:,} parameters of the student need",
        "give a smaller preset as the student, or lower model.num_layers, model.width or model.inner_width",
    )
    student = model_class(model_class.for_tokenizer(config, teacher.tokenizer.pad_id, teacher.tokenizer.eos_id), ())
    seed = _integer(overrides, "runtime.seed", 0)
    student.initialize(torch.Generator().manual_seed(seed_of(seed, "weights")))
    if overrides.get("objective.student_init", "teacher") == "teacher":
        log(f"the student {initialize_from_teacher(student, teacher.model)}")
    return student.eval(), teacher.tokenizer
