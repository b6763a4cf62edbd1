"""Model cards: `README.md` with a YAML header for the Hugging Face Hub. That of a fine-tuning run is written from the
files of the run only."""

import re
from pathlib import Path

from hornbook.files import refusing_damage, write_text
from hornbook.lifecycle.run_folder import RECORD
from hornbook.report import finetuned, formatting
from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.rendering import Table, plain, render
from hornbook.report.usage_code import HUB_TASKS

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
SHOWN_SETTINGS = {
    "epochs": "epochs",
    "batch_size": "batch size",
    "optimizer.name": "optimizer",
    "optimizer.lr": "learning rate",
    "schedule.steps": "steps",
    "schedule.warmup_fraction": "warmup fraction",
    "schedule.warmup_steps": "warmup steps",
    "optimizer.weight_decay": "weight decay",
    "task.head": "head",
    "task.max_length": "max sequence length",
    "layers.lr_decay": "layer-wise learning-rate decay",
    "layers.frozen": "frozen layers",
    "layers.dropout": "dropout",
    "runtime.seed": "seed",
}


def write_card(folder: str | Path) -> Path:
    """Writes `README.md` into the folder of a finished fine-tuning run, and returns its path."""
    run = ReportedTaskRun.load(folder)
    if not run.is_finished:
        raise ValueError(f"{folder} has no scores.json yet: finish the run, then write its model card")
    with refusing_damage(run.folder / RECORD):
        text = with_yaml_header(_text(run), **_header(run))
    path = run.folder / "README.md"
    write_text(path, text)
    return path


def _text(run: ReportedTaskRun) -> str:
    scores = [
        (plain(split), formatting.metric_label(name), formatting.score_with_interval(name, score))
        for split, scores in run.splits.items()
        for name, score in scores.items()
    ]
    values = {name: value for group in run.setting_groups.values() for name, value in group.items()}
    settings = [(label, values[name]) for name, label in SHOWN_SETTINGS.items() if values.get(name, "none") != "none"]
    return render(
        "card.md",
        run=run,
        scores=Table(("split", "metric", "value (95% interval)"), scores),
        settings=Table(("setting", "value"), settings),
        commands=finetuned.usage(run),
        has_test_score=any(split.startswith("test") for split in run.splits),
        seed=(run.settings.get("runtime") or {}).get("seed"),
    )


def with_yaml_header(text: str, **data: object) -> str:
    """The Markdown text with `data` as its YAML header; empty values are left out."""
    from huggingface_hub import ModelCard, ModelCardData  # imports the client of the Hub

    head = ModelCardData(**{name: value for name, value in data.items() if value}).to_yaml()
    return str(ModelCard(f"---\n{head}\n---\n\n{text.strip()}\n"))


def _header(run: ReportedTaskRun) -> dict[str, object]:
    is_on_hub = HUB_NAME.fullmatch(run.model) and not Path(run.model).exists()
    tags = filter(None, ["hornbook", run.config.get("model_type"), run.name, run.kind])
    return {
        "library_name": "transformers" if run.has_transformers_class else None,
        "pipeline_tag": HUB_TASKS.get(run.task_kind.output),
        "base_model": run.model if is_on_hub and not run.is_from_scratch else None,
        # Without unpaired surrogates, which UTF-8 cannot encode.
        "tags": [str(tag).encode("utf-16", "surrogatepass").decode("utf-16", "replace") for tag in dict.fromkeys(tags)],
        "metrics": list(run.splits.get("dev", ())),
    }
