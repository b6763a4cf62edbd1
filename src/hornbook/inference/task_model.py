"""A fine-tuned model with all that prediction needs: its task, its limits, and the graph that it reads."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from hornbook.files import read_json_if_exists, refusing_damage
from hornbook.graph.linking import EntityLinker, open_linker
from hornbook.interop.hub import model_folder
from hornbook.interop.onnx import is_exported, load_model_and_tokenizer
from hornbook.interop.sentence_transformers import MODULES, read_embedding_settings
from hornbook.lifecycle.run_folder import is_task_run
from hornbook.models.head_config import HeadConfig
from hornbook.reasoning.grounding import Grounder, open_saved_grounder
from hornbook.tasks.spec import TaskSpec, load_task
from hornbook.text.tokenizer import Tokenizer

WRITTEN_LAST = ("config.json", "task.json", "scores.json")  # by a fine-tuning run
SIMILARITY = "similarity"


@dataclass(frozen=True)
class TaskModel:
    """A fine-tuned model, loaded with all that prediction needs. `columns` are the column names given to its run."""

    folder: Path
    model: nn.Module
    tokenizer: Tokenizer
    spec: TaskSpec
    max_length: int
    columns: dict[str, str]
    grounder: Grounder | None = None
    linker: EntityLinker | None = None  # of an ERNIE: finds the entities that texts mention


def load_task_model(name: str | Path, graph: str | Path | None = None, task: str | None = None) -> TaskModel:
    """Loads a fine-tuned run or folder, an exported folder, or a Hugging Face name. `graph` and `task` are those of
    `load_predictor`."""
    folder = model_folder(name)
    run = read_finished_record(folder)
    model, tokenizer = load_model_and_tokenizer(folder)
    if task is not None and model.head_config is not None and not model.head_config.output_type.is_embedding:
        raise ValueError(f"{name} has the head of another task: leave out task=, or give the model it started from")
    if model.head_config is None and (task is not None or (folder / MODULES).is_file()) and not is_exported(folder):
        settings = read_embedding_settings(folder)
        settings.refuse_lower_case(folder)
        model.add_task_head(HeadConfig("vectors", problem_type="regression", pooling=settings.pooling))
        member = build_task_model(folder, model, tokenizer, run)
        return replace(member, max_length=min(member.max_length, settings.max_length or member.max_length))
    if model.head_config is None:
        if is_exported(folder):
            raise ValueError(f"{name} was exported from a model without a task head: export a fine-tuned run instead")
        raise ValueError(
            f"{name} is a pre-trained model without a task head: fine-tune it with "
            f"hornbook finetune {name} --task NAME --data PATH --out RUN (or, to score how well its vectors compare "
            f"texts, evaluate it with task={SIMILARITY!r})"
        )
    return build_task_model(folder, model, tokenizer, run, graph)


def read_finished_record(folder: Path) -> dict[str, Any]:
    """Returns the contents of `run.json`, or {} without one; a `ValueError` if the run has no model, or not yet."""
    run = read_json_if_exists(folder / "run.json")
    if run.get("command") in ("baseline", "probe", "label-curve"):
        raise ValueError(f"{folder} is a {run['command']} run, which saves no model: give a fine-tuned run")
    if is_task_run(run) and not all((folder / name).is_file() for name in WRITTEN_LAST):
        raise ValueError(
            f"the run in {folder} is not finished: resume it with 'hornbook {run['command']} --out {folder} --resume'"
        )
    return run


def build_task_model(
    folder: Path, model: nn.Module, tokenizer: Tokenizer, run: dict[str, Any], graph: str | Path | None = None
) -> TaskModel:
    """Builds a `TaskModel` from a model with a task head, its folder and the contents of its `run.json`. `graph` is
    the folder of the knowledge graph that it reads, if it was moved."""
    spec = load_task(folder, model.head_config)
    with refusing_damage(folder / "run.json"):
        settings, request = run.get("settings") or {}, run.get("request") or {}
        max_length = spec.max_length or (settings.get("task") or {}).get("max_length")
        max_length = max_length or spec.task.max_length or model.config.max_positions
        max_length = min(model.config.max_positions, max_length)
        columns = spec.columns or {role: request[role] for role in ("text", "pair", "label") if request.get(role)}
    grounder = None if model.head_config.graph is None else open_saved_grounder(spec.reason or {}, folder, graph)
    linker = None if spec.graph is None else _open_linker(spec.graph, graph, folder, model)
    if graph is not None and grounder is None and linker is None:
        raise ValueError(f"{folder} was trained without a graph: leave out graph=")
    return TaskModel(folder, model, tokenizer, spec, max_length, columns, grounder, linker)


def _open_linker(
    graph_record: dict[str, Any], graph: str | Path | None, folder: Path, model: nn.Module
) -> EntityLinker:
    """The entity linker of the graph, which is in the folder `graph` or where it was in training."""
    if graph is None and not (Path(graph_record["folder"]) / "manifest.json").is_file():
        raise ValueError(
            f"the graph {graph_record['folder']}, which {folder} was trained with, is not there: give its folder with "
            "graph="
        )
    return open_linker(graph or graph_record["folder"], model)
