"""The probabilities that an answer starts and ends at each token of a passage, for pictures and the report.

Shapes: S tokens of the sequence, P tokens of the passage.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hornbook.metrics.spans import have_common_word
from hornbook.tasks.encoded import EncodedExamples, softmax
from hornbook.tasks.records import SpanExample
from hornbook.tasks.windows import PassageWindow

NUM_SHOWN = 5  # questions of a report
MAX_SHOWN_TOKENS = 200  # of a passage in a report


class TokenProbabilities(NamedTuple):
    """Over all tokens of the sequence, of which those of the passage are here."""

    offsets_P2: np.ndarray  # start and end in characters of the passage
    start_P: np.ndarray
    end_P: np.ndarray
    none: tuple[float, float]  # start and end at the first token, which stand for "no answer"


def token_probabilities(logits_S2: np.ndarray, num_tokens: int, window: PassageWindow) -> TokenProbabilities:
    """From the outputs of one sequence of `num_tokens` tokens, which a classifier of "no answer" may follow."""
    start_S, end_S = (softmax(logits_S2[:num_tokens, i]) for i in range(2))
    passage = slice(window.first, window.last)
    return TokenProbabilities(window.offsets, start_S[passage], end_S[passage], (float(start_S[0]), float(end_S[0])))


def examples_to_illustrate(
    examples: Sequence[SpanExample], answers: Iterable[str], encoded: EncodedExamples
) -> list[int]:
    """The indices of a few questions whose passage is short enough to be shown: by turns one of each outcome, such as
    right, wrong, and answered though there is no answer; in the order of the examples within an outcome."""
    num_windows = np.bincount(encoded.example_ids, minlength=len(examples))
    sizes = dict(
        zip(encoded.example_ids.tolist(), (window.last - window.first for window in encoded.decode_info), strict=True)
    )
    outcomes: dict[tuple[bool, bool, bool], list[int]] = {}
    for index, (example, answer) in enumerate(zip(examples, answers, strict=True)):
        if num_windows[index] == 1 and 0 < sizes[index] <= MAX_SHOWN_TOKENS:
            is_hit = any(have_common_word(answer, gold) for gold in example.answers or ())
            outcomes.setdefault((bool(example.answers), bool(answer), is_hit), []).append(index)
    turns = range(max(map(len, outcomes.values()), default=0))
    return [indices[turn] for turn in turns for indices in outcomes.values() if turn < len(indices)][:NUM_SHOWN]


def illustration(example: SpanExample, row: dict[str, Any], probabilities: TokenProbabilities) -> dict[str, Any]:
    """The example and its prediction `row`, with (start, end, probability of a start, of an end) of each token of the
    passage, the first two in characters."""
    probabilities_P2 = np.round(np.stack([probabilities.start_P, probabilities.end_P], 1), 5)
    names = ("question", "answer", "start", "end", "no_answer_score")
    return {
        "key": example.key,
        **{name: row[name] for name in names},
        "gold": list(example.answers or ()),
        "passage": example.passage,
        "tokens": [
            [*offsets, *values]
            for offsets, values in zip(probabilities.offsets_P2.tolist(), probabilities_P2.tolist(), strict=True)
        ],
        "none": [round(probability, 5) for probability in probabilities.none],
    }
