"""Passages of answer spans: splits long ones into overlapping windows, locates answers in them, and gives the
probabilities that an answer starts and ends at each token, for pictures and the report.

Shapes: S tokens of the sequence, P tokens of the passage.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from hornbook.metrics.spans import have_common_word
from hornbook.tasks.encoded import EncodedExamples, softmax
from hornbook.tasks.records import SpanExample


class PassageWindow(NamedTuple):
    """The passage tokens of one sequence: indices `first` to `last` (exclusive) in the sequence, their offsets in the
    passage, and whether each token has the most context in this window."""

    first: int
    last: int
    offsets: np.ndarray  # start and end in characters, (last - first) x 2
    has_most_context: np.ndarray


def answer_tokens(example: SpanExample, passage) -> tuple[int, int] | None:
    """(first, last) passage token that overlaps the first answer with a known start; None if no start is known or the
    tokenizer drops all of its characters."""
    located = zip(example.starts, example.answers or (), strict=False)
    start, answer = next(((start, answer) for start, answer in located if start >= 0), (-1, ""))
    if start < 0:
        return None
    end = start + len(answer)
    offsets = np.array(passage.offsets, np.int64).reshape(-1, 2)
    touched = np.flatnonzero((offsets[:, 0] < end) & (start < offsets[:, 1]))
    return (int(touched[0]), int(touched[-1])) if len(touched) else None


def target_in(answer: tuple[int, int] | None, window_start: int, window: PassageWindow) -> tuple[int, int]:
    """(start, end) positions in the sequence; (0, 0), the first token (`[CLS]` of an encoder), unless the window
    contains the whole answer."""
    if answer is None or answer[0] < window_start or answer[1] >= window_start + len(window.offsets):
        return 0, 0
    shift = window.first - window_start
    return answer[0] + shift, answer[1] + shift


def split_windows(passage, capacity: int, step: int) -> list:
    """The passage in windows of `capacity` tokens, one every `step` tokens, up to the one that contains its end."""
    if len(passage.ids) <= capacity:
        return [passage]
    passage.truncate(capacity, stride=capacity - step)
    return [passage, *passage.overflowing]


def most_context(lengths: list[int], step: int) -> list[np.ndarray]:
    """For each window, whether each of its tokens has the most context (minimum of left and right) in this window."""
    total = step * (len(lengths) - 1) + lengths[-1]
    best, holder = np.full(total, -1.0), np.zeros(total, np.int64)
    for index, length in enumerate(lengths):
        within = np.arange(length)
        context = np.minimum(within, length - 1 - within) + 0.01 * length
        window = slice(index * step, index * step + length)
        better = context > best[window]
        best[window] = np.where(better, context, best[window])
        holder[window] = np.where(better, index, holder[window])
    return [holder[index * step : index * step + length] == index for index, length in enumerate(lengths)]


def window_of(encoding, window, has_most_context: np.ndarray) -> PassageWindow:
    tokens = [i for i, segment in enumerate(encoding.sequence_ids) if segment == 1]
    first, last = (tokens[0], tokens[-1] + 1) if tokens else (0, 0)
    # Offsets of `window`, not `encoding`: adding special tokens makes a byte-level tokenizer trim offsets again, which
    # cuts off letters.
    return PassageWindow(first, last, np.array(window.offsets, np.int64).reshape(-1, 2), has_most_context)


def no_answer_score(logits: np.ndarray, has_answer_classifier: bool) -> float:
    """The score of "no answer" in a window: that of the span at the first token, or with `has_answer_classifier` the
    classifier's logit of no answer minus its logit of an answer."""
    if has_answer_classifier:
        return float(logits[-1, 1] - logits[-1, 0])
    return float(logits[0, 0] + logits[0, 1])


# ---- probabilities of the tokens


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
