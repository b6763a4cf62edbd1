"""Writes `scores.json` from the predictions of finished runs: scores with intervals by template and number of
examples, and those of baselines."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hornbook.evaluation.prompting.baselines import baselines, chance, majority
from hornbook.files import read_json_lines, refusing_damage, write_json
from hornbook.lifecycle.run_folder import SCORES
from hornbook.metrics.confidence_intervals import crossed_intervals
from hornbook.metrics.generation import signature
from hornbook.tasks.kinds.choice import ENOUGH_CHOICES
from hornbook.tasks.text.definition import TextTask
from hornbook.tasks.text.metrics import METRICS
from hornbook.tasks.text.sources import Item, ItemSplits

if TYPE_CHECKING:
    from hornbook.evaluation.prompting.prompt import PromptRequest, PromptRun

PREDICTIONS = "predictions"  # the folder of prediction files, one per run
ALMOST_ALL = 0.95  # fraction of equal answers from which the model is considered to ignore the question
Statistics = dict[str, np.ndarray]  # for each metric, one row per question


def write_scores(
    out: Path, request: "PromptRequest", task: TextTask, runs: Sequence["PromptRun"], splits: ItemSplits
) -> dict[str, Any]:
    """Writes and returns the scores of all finished runs."""
    done = [run for run in runs if run.file(out).exists()]
    groups = dict.fromkeys((run.variant, run.shots) for run in done)
    with refusing_damage(out / PREDICTIONS, "remove its folder and resume"):
        points = [
            _point(out, task, [run for run in done if (run.variant, run.shots) == group], len(splits.test))
            for group in groups
        ]
    scores = {
        "kind": "prompt",
        "model": request.model,
        "task": task.name,
        "about": task.about,
        "data": request.data,
        "metric_for_best": task.metrics[0],
        "metrics": {name: _described(task, name) for name in task.metrics},
        "interval": "95% intervals by bootstrap over questions and seeds",
        "questions": len(splits.test),
        "runs": len(runs),
        "done": len(done),
        "points": points,
        "majority": majority(splits.test) if task.choices.is_given else None,
        "baselines": _baselines(task, splits.train, splits.test),
    }
    write_json(out / SCORES, scores)
    return scores


def _described(task: TextTask, name: str) -> dict[str, Any]:
    metric = METRICS[name]
    description = metric.description
    if name == "accuracy":
        description += f"; normalised by {task.choices.normalize}"
    if name == "bleu":
        description += f" ({signature()})"
    return {"words": description, "share": metric.is_share, "higher_is_better": metric.higher_is_better}


def _point(out: Path, task: TextTask, runs: Sequence["PromptRun"], num_questions: int) -> dict[str, Any]:
    """The scores over all seeds of one template and one number of examples."""
    by_seed = [_predictions(run.file(out), num_questions) for run in runs]
    lines = [line for of_seed in by_seed for line in of_seed]
    statistics = [
        {name: np.array([line["statistics"][name] for line in of_seed]) for name in task.metrics} for of_seed in by_seed
    ]
    nums = [line["examples"] for line in lines]
    return {
        "variant": runs[0].variant,
        "shots": runs[0].shots,
        "seeds": [run.seed for run in runs],
        "scores": scored(statistics),
        "shown": {"mean": float(np.mean(nums)), "fewest": min(nums), "whole": nums.count(runs[0].shots)},
        "cut": sum(line["cut"] for line in lines),
        "asked": len(lines),
        "degenerate": degenerate(by_seed) if task.choices.is_given else None,
    }


def _predictions(file: Path, num_questions: int) -> list[dict[str, Any]]:
    lines = read_json_lines(file)
    if len(lines) != num_questions:
        raise ValueError(
            f"{file} is damaged ({len(lines):,} valid lines for {num_questions:,} questions): remove it and resume"
        )
    return lines


def degenerate(by_seed: Sequence[Sequence[dict[str, Any]]]) -> str | None:
    """A message if a model gives almost always the same answer, from the prediction lines of each seed; else None.
    Choices are compared by their position, as each question may have its own."""
    lines = [line for of_seed in by_seed for line in of_seed]
    right = Counter(line["choices"].index(line["answers"][0]) for line in lines)
    most_given = [
        Counter(line["choices"].index(line["answer"]) for line in of_seed).most_common(1)[0] for of_seed in by_seed
    ]
    fraction = sum(num for _, num in most_given) / len(lines)
    if len(by_seed[0]) < ENOUGH_CHOICES or fraction < ALMOST_ALL or fraction <= max(right.values()) / len(lines):
        return None
    ((choice, _), *others) = most_given
    questions = f"{100 * fraction:.1f}% of the questions"
    if any(other != choice for other, _ in others):
        return f"it gives the same answer to {questions}, a different one for each seed"
    if len({tuple(line["choices"]) for line in lines}) == 1:
        return f"it answers '{lines[0]['choices'][choice]}' to {questions}"
    return f"it takes choice {choice + 1} for {questions}"


def scored(statistics: Sequence[Statistics]) -> dict[str, dict[str, Any]]:
    """For each metric the mean over seeds, its interval, and the score of each seed."""
    num_questions = len(next(iter(statistics[0].values())))

    def score(seed: int, chosen: np.ndarray) -> dict[str, float]:
        rows = statistics[seed]
        return {name: METRICS[name].score(values[chosen].sum(0), len(chosen)) for name, values in rows.items()}

    all_questions = np.arange(num_questions)
    by_seed = [score(seed, all_questions) for seed in range(len(statistics))]
    intervals = crossed_intervals(score, len(statistics), num_questions)
    return {
        name: {
            "value": float(np.mean([each[name] for each in by_seed])),
            "low": intervals[name][0],
            "high": intervals[name][1],
            "seeds": [each[name] for each in by_seed],
        }
        for name in statistics[0]
    }


def _baselines(task: TextTask, train: Sequence[Item], test: Sequence[Item]) -> dict[str, dict[str, Any]]:
    scores = {}
    if "accuracy" in task.metrics:
        scores |= {name: {"accuracy": {"value": value}} for name, value in chance(test).items()}
    text_metrics = [name for name in task.metrics if METRICS[name].needs == "text"]
    for name, answered in baselines(task, train, test).items():
        scores[name] = scored([{metric: METRICS[metric].rows(answered) for metric in text_metrics}])
    return scores
