"""From the predictions of finished pieces to `scores.json`: each score with its interval, by template and number of
examples, and the baselines beside them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hornbook.files import read_json_lines, write_json
from hornbook.finetuning.evaluation import ENOUGH_CHOICES
from hornbook.metrics.bleu import signature
from hornbook.metrics.bootstrap import crossed_intervals
from hornbook.prompting.baselines import baselines, blind, majority
from hornbook.prompting.definition import TextTask
from hornbook.prompting.measures import MEASURES
from hornbook.prompting.sources import Item, Parts

if TYPE_CHECKING:
    from hornbook.prompting.run import Piece

SCORES = "scores.json"
KIND = "prompt"  # what the file says that it is about
INTERVAL = "95% intervals by bootstrap over questions and seeds"
ALMOST_ALL = 0.95  # of the answers: where they are one choice, it is not the question that decides
Statistics = dict[str, np.ndarray]  # of each measure, a row a question


def write_scores(
    out: Path, asked: dict[str, Any], task: TextTask, pieces: Sequence["Piece"], parts: Parts
) -> dict[str, Any]:
    """Of as many pieces as are there."""
    done = [piece for piece in pieces if piece.file(out).exists()]
    groups = dict.fromkeys((piece.variant, piece.shots) for piece in done)
    points = [_point(out, task, [piece for piece in done if (piece.variant, piece.shots) == group]) for group in groups]
    found = {
        "kind": KIND,
        "model": asked["model"],
        "task": task.name,
        "about": task.about,
        "data": asked["data"],
        "decided_by": task.measures[0],
        "measures": {name: _described(task, name) for name in task.measures},
        "interval": INTERVAL,
        "questions": len(parts.test),
        "pieces": len(pieces),
        "done": len(done),
        "points": points,
        "majority": majority(parts.test) if task.choices.is_there else None,
        "baselines": _baselines(task, parts.train, parts.test),
    }
    write_json(out / SCORES, found)
    return found


def _described(task: TextTask, name: str) -> dict[str, Any]:
    measure = MEASURES[name]
    words = measure.words
    if name == "accuracy":
        words += f"; normalised by {task.choices.normalise}"
    if name == "bleu":
        words += f" ({signature()})"
    return {"words": words, "share": measure.is_share, "higher_is_better": measure.is_better_high}


def _point(out: Path, task: TextTask, pieces: Sequence["Piece"]) -> dict[str, Any]:
    """All seeds of one template and one number of examples."""
    several = [read_json_lines(piece.file(out)) for piece in pieces]
    lines = [line for its in several for line in its]
    statistics = [
        {name: np.array([line["statistics"][name] for line in its]) for name in task.measures} for its in several
    ]
    shown = [line["examples"] for line in lines]
    return {
        "variant": pieces[0].variant,
        "shots": pieces[0].shots,
        "seeds": [piece.seed for piece in pieces],
        "scores": scored(statistics),
        "shown": {"mean": float(np.mean(shown)), "fewest": min(shown), "whole": shown.count(pieces[0].shots)},
        "cut": sum(line["cut"] for line in lines),
        "asked": len(lines),
        "degenerate": degenerate(several) if task.choices.is_there else None,
    }


def degenerate(several: Sequence[Sequence[dict[str, Any]]]) -> str | None:
    """In words, what shows that a model does not look at the question, from the lines of each seed; None when nothing
    does. Choices that each question brings itself are the same where their places are."""
    lines = [line for its in several for line in its]
    right = Counter(line["choices"].index(line["answers"][0]) for line in lines)
    said = [Counter(line["choices"].index(line["answer"]) for line in its).most_common(1)[0] for its in several]
    share, commonest = (num / len(lines) for num in (sum(num for _, num in said), max(right.values())))
    if len(several[0]) < ENOUGH_CHOICES or share < ALMOST_ALL or share <= commonest:
        return None
    ((place, _), *others) = said
    to = f"{100 * share:.1f}% of the questions"
    if any(other != place for other, _ in others):
        return f"it answers {to} alike, by each seed in another way"
    if len({tuple(line["choices"]) for line in lines}) == 1:
        return f"it answers '{lines[0]['choices'][place]}' to {to}"
    return f"it takes choice {place + 1} for {to}"


def scored(statistics: Sequence[Statistics]) -> dict[str, dict[str, Any]]:
    """Each measure with its interval, the mean over seeds, and the score of each seed."""
    num_questions = len(next(iter(statistics[0].values())))

    def score(seed: int, chosen: np.ndarray) -> dict[str, float]:
        rows = statistics[seed]
        return {name: MEASURES[name].score(its[chosen].sum(0), len(chosen)) for name, its in rows.items()}

    every = np.arange(num_questions)
    by_seed = [score(seed, every) for seed in range(len(statistics))]
    ends = crossed_intervals(score, len(statistics), num_questions)
    return {
        name: {
            "value": float(np.mean([each[name] for each in by_seed])),
            "low": ends[name][0],
            "high": ends[name][1],
            "seeds": [each[name] for each in by_seed],
        }
        for name in statistics[0]
    }


def _baselines(task: TextTask, train: Sequence[Item], test: Sequence[Item]) -> dict[str, dict[str, Any]]:
    found = {}
    if "accuracy" in task.measures:
        found |= {name: {"accuracy": {"value": value}} for name, value in blind(test).items()}
    of_texts = [name for name in task.measures if MEASURES[name].needs == "text"]
    for name, answered in baselines(task, train, test).items():
        found[name] = scored([{measure: MEASURES[measure].rows(answered) for measure in of_texts}])
    return found
