"""A verdict on runs that learned nothing."""

from collections.abc import Sequence

import numpy as np

from hornbook.tasks.choice import Choice
from hornbook.tasks.classification import Classification
from hornbook.tasks.records import Example
from hornbook.tasks.spans import Spans
from hornbook.tasks.tagging import Tagging
from hornbook.tasks.task import Task

ENOUGH_CHOICES = 20  # questions: of fewer, one and the same place may be right by chance
CONSTANT_SHARE = 0.02  # of the spread of the right numbers: predictions that vary less are one number


def degenerate(task: Task, examples: Sequence[Example], predictions: list, losses: list[float]) -> str | None:
    """In words, what shows that a run learned nothing; None when nothing does."""
    if isinstance(task, Classification) and len(examples) > 1:
        if task.output.problem == "number":
            spread, right = np.std(predictions), np.std([example.label for example in examples])
            if spread < CONSTANT_SHARE * right:
                return f"it answers about {np.mean(predictions):.2f} whatever the text"
        else:
            said, right = {each.label for each in predictions}, {example.label for example in examples}
            if len(said) == 1 and len(right) > 1:
                return f"it answers '{_words(next(iter(said)))}' whatever the text"
    if isinstance(task, Tagging):
        said, right = ({tag for each in side for tag in each.tags} for side in (predictions, examples))
        if len(said) == 1 and len(right) > 1:
            return f"it tags every word '{next(iter(said))}'"
    if isinstance(task, Choice) and len(examples) >= ENOUGH_CHOICES:
        places, right = {each.choice for each in predictions}, {example.label for example in examples}
        if len(places) == 1 and len(right) > 1:
            return f"it takes ending {next(iter(places)) + 1} whatever the endings"
    has_answers = isinstance(task, Spans) and any(example.answers for example in examples)
    if has_answers and not any(each.answer for each in predictions):
        return "it leaves every question unanswered"
    tenth = len(losses) // 10
    if tenth and np.mean(losses[-tenth:]) > 0.97 * np.mean(losses[:tenth]):
        return f"its training loss did not move ({np.mean(losses[:tenth]):.3f} to {np.mean(losses[-tenth:]):.3f})"
    return None


def _words(label: str | tuple[str, ...]) -> str:
    return label if isinstance(label, str) else ", ".join(label) or "no class"
