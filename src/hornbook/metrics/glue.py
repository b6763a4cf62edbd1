"""The official GLUE metrics of each task, and their average."""

from collections.abc import Mapping

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


def glue_average(scores: Mapping[str, Mapping[str, float]]) -> tuple[float, tuple[str, ...]]:
    """(mean over tasks of the mean over each task's official metrics, the tasks averaged).

    Averages are comparable only over the same tasks: many papers omit WNLI. Other metrics are ignored; the average has
    the unit of the scores.
    """
    counted = tuple(task for task in OFFICIAL if task in scores)
    for task in counted:
        missing = [metric for metric in OFFICIAL[task] if metric not in scores[task]]
        if missing:
            raise ValueError(
                f"'{task}' has no '{missing[0]}', an official metric of this task; add it, or remove the task"
            )
    means = [sum(scores[task][metric] for metric in OFFICIAL[task]) / len(OFFICIAL[task]) for task in counted]
    return sum(means) / len(means), counted
