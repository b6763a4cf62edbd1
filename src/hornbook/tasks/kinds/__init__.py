"""The kinds of tasks, and their table."""

from hornbook.models.head_config import HeadConfig
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.kinds.classification import Classification, MultiLabel
from hornbook.tasks.kinds.marked import EntityTyping, Relation
from hornbook.tasks.kinds.regression import Regression
from hornbook.tasks.kinds.similarity import Similarity
from hornbook.tasks.kinds.spans import Spans
from hornbook.tasks.kinds.tagging import Tagging
from hornbook.tasks.task import Task

KINDS: dict[str, type[Task]] = {
    each.kind: each
    for each in (Classification, MultiLabel, Regression, Spans, Tagging, Choice, Similarity, EntityTyping, Relation)
}


def kind_for(head_config: HeadConfig) -> type[Task]:
    """The kind of task of a model of which only the output is known: the first in the table that has this output."""
    kinds = [kind for kind in KINDS.values() if kind.output == head_config.output]
    return next((kind for kind in kinds if kind.problem_type == head_config.problem_type), kinds[0])
