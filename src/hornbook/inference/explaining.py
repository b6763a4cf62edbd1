"""Why a model that reads a knowledge graph chose an answer: the paths and their weights.

The weight of a path is the attention of its pair of concepts among the pairs of the answer, times the attention of the
path among those of the pair. The weights of an answer's paths add up to 1.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hornbook.batch import Batch
from hornbook.graph.graph import GraphPath
from hornbook.inference.predictor import Predictor, load_predictor
from hornbook.models.kagnet import PAIRS
from hornbook.reasoning.schema import SchemaBuilder, SchemaGraphs
from hornbook.tasks.encoded import softmax
from hornbook.tasks.records import ChoiceExample


@dataclass(frozen=True)
class WeighedPath:
    """A path and its weight: `pair_weight` (of its two concepts in the answer) x `path_weight` (of the path among
    those of the pair). `score` is the plausibility by which paths are pruned; 1 without vectors of the graph."""

    path: GraphPath
    weight: float
    pair_weight: float
    path_weight: float
    score: float

    def to_dict(self) -> dict[str, Any]:
        return self.path.to_dict() | {name: value for name, value in vars(self).items() if name != "path"}


@dataclass(frozen=True)
class ExplainedChoice:
    """An answer: its probability, that which it would have without its paths, its concepts in the graph, and the paths
    to them, the heaviest first."""

    text: str
    probability: float
    without_paths: float
    concepts: tuple[str, ...]
    paths: tuple[WeighedPath, ...]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"paths": [each.to_dict() for each in self.paths]}


@dataclass(frozen=True)
class Explanation:
    """The answer that a model chose (`choice`, counted from 0), and what its graph has on each answer."""

    question: str
    choice: int
    concepts: tuple[str, ...]
    choices: tuple[ExplainedChoice, ...]

    @property
    def answer(self) -> str:
        return self.choices[self.choice].text

    def to_dict(self) -> dict[str, Any]:
        return vars(self) | {"answer": self.answer, "choices": [each.to_dict() for each in self.choices]}


def explain(
    run: str | Path | Predictor, question: str, choices: Sequence[str], context: str | None = None, device: str = "auto"
) -> Explanation:
    """Answers a question with a run that was fine-tuned with `--reason kagnet`, and shows the paths that it weighed.

    Args:
        run: The run folder, or a predictor that is already loaded.
        question: The question.
        choices: The possible answers.
        context: A text that goes before the question.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.

    >>> import hornbook
    >>> explained = hornbook.explain("runs/tools", "What do I take to plant in the garden?", ["a trowel", "the moon"])
    >>> [str(each.path) for each in explained.choices[0].paths if len(each.path.hops) == 1]
    ['garden <--UsedFor-- trowel']
    >>> round(sum(each.weight for each in explained.choices[0].paths), 6), explained.choices[1].paths
    (1.0, ())
    """
    predictor = run if isinstance(run, Predictor) else load_predictor(run, device)
    member = predictor.members[0]
    if member.grounder is None or len(predictor.members) > 1:
        raise ValueError(
            f"{member.folder} does not read a knowledge graph, so there are no paths to show: give one run that was "
            "fine-tuned with graph= and reason='kagnet'"
        )
    choices = [each.strip() for each in choices]
    if not question.strip() or len(choices) < 2 or not all(choices):
        raise ValueError("explain needs a question and at least two answers (choices=)")
    example = ChoiceExample("0", f"{context or ''} {question}".strip(), tuple(choices))
    task = predictor.task.for_example(example)
    schema = member.grounder.schema_graphs([example])
    encoded = member.grounder.with_schema_graphs(
        task.encode([example], predictor.tokenizer, predictor.max_length), schema
    )
    batch = encoded.packed(range(len(choices))).to(predictor.device)
    probabilities, of_paths, of_pairs = _attention_of_paths(predictor, batch)
    without_pairs = batch.with_values(PAIRS, weights_P=torch.zeros_like(batch.streams[PAIRS].weights_P))
    without_paths = _probabilities(predictor, without_pairs)
    builder, explained = member.grounder.builder, []
    for i, text in enumerate(choices):
        paths = _weighed_paths(builder, schema, i, of_paths, of_pairs)
        concepts = builder.concepts_of(schema, i, schema.in_answer_C)
        explained.append(ExplainedChoice(text, float(probabilities[i]), float(without_paths[i]), concepts, paths))
    question_concepts = builder.concepts_of(schema, 0, schema.in_question_C)
    return Explanation(example.context, int(probabilities.argmax()), question_concepts, tuple(explained))


def _attention_of_paths(predictor: Predictor, batch: Batch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The probability of each answer, the attention of each path among those of its pair, and that of each pair."""
    head = predictor.members[0].model.eval().task
    head.keeps_weights = True
    try:
        probabilities = _probabilities(predictor, batch)
        of_paths, of_pairs = (each.double().cpu().numpy() for each in head.weights)
    finally:
        head.keeps_weights, head.weights = False, None
    return probabilities, of_paths, of_pairs


def _weighed_paths(
    builder: SchemaBuilder, schema: SchemaGraphs, choice: int, of_paths: np.ndarray, of_pairs: np.ndarray
) -> tuple[WeighedPath, ...]:
    """The paths to an answer, the heaviest first."""
    first, last = schema.path_offsets[choice : choice + 2]
    path_weights = of_paths[first:last]
    pair_weights = of_pairs[schema.pair_offsets[choice] + schema.paths_K[first:last]]
    columns = (pair_weights * path_weights, pair_weights, path_weights, schema.scores_K[first:last])
    rows = zip(builder.paths_of(schema, choice), *(each.tolist() for each in columns), strict=True)
    return tuple(sorted((WeighedPath(*row) for row in rows), key=lambda each: -each.weight))


@torch.no_grad()
def _probabilities(predictor: Predictor, batch: Batch) -> np.ndarray:
    with predictor.autocast():
        logits = predictor.members[0].model.outputs(batch)
    return softmax(logits[0].double().cpu().numpy())
