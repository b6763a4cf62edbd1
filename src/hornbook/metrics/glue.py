"""The official GLUE metrics of each task, and their average."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from hornbook.files import read_json

OFFICIAL: dict[str, tuple[str, ...]] = {
    "cola": ("matthews",),
    "sst-2": ("accuracy",),
    "mrpc": ("f1", "accuracy"),
    "qqp": ("f1", "accuracy"),
    "sts-b": ("pearson", "spearman"),
    "mnli": ("accuracy", "accuracy_mismatched"),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
}


def read_glue_scores(runs: Iterable[Path]) -> dict[str, dict[str, float]]:
    """The validation scores of finished runs by task, as `glue_average` takes them."""
    scores: dict[str, dict[str, float]] = {}
    for run in runs:
        if not (run / "scores.json").is_file():
            raise ValueError(f"{run} has no scores.json: give the folders of finished runs")
        task, splits = read_json(run / "task.json")["task"], read_json(run / "scores.json")["splits"]
        if task not in OFFICIAL:
            raise ValueError(f"{run} is a run of {task}, which is not a GLUE task: give runs of {', '.join(OFFICIAL)}")
        if task in scores:
            raise ValueError(f"{run} is a second run of {task}: give one run of each task")
        scores[task] = {name: score["value"] for name, score in splits["dev"].items()}
        if task == "mnli" and "dev-mismatched" not in splits:
            raise ValueError(
                f"{run} has no scores of dev-mismatched: add dev_mismatched.tsv to its data and fine-tune again, or "
                "leave out the run"
            )
        if "dev-mismatched" in splits:
            scores[task]["accuracy_mismatched"] = splits["dev-mismatched"]["accuracy"]["value"]
    return scores


def glue_average(scores: Mapping[str, Mapping[str, float]]) -> tuple[float, tuple[str, ...]]:
    """(mean over tasks of the mean over each task's official metrics, the tasks averaged).

    Averages are comparable only over the same tasks: many papers omit WNLI. Other metrics are ignored; the average has
    the unit of the scores.
    """
    counted = tuple(task for task in OFFICIAL if task in scores)
    if not counted:
        raise ValueError(f"there are no scores of GLUE's tasks: give some of {', '.join(OFFICIAL)}")
    for task in counted:
        missing = [metric for metric in OFFICIAL[task] if metric not in scores[task]]
        if missing:
            raise ValueError(
                f"'{task}' has no '{missing[0]}', an official metric of this task; add it, or remove the task"
            )
    means = [sum(scores[task][metric] for metric in OFFICIAL[task]) / len(OFFICIAL[task]) for task in counted]
    return sum(means) / len(means), counted
