"""Extractive question answering: the span of a passage that answers a question, or none.

A long passage is split into overlapping windows; answers may start only at tokens for which this window has the most
context on both sides. "No answer" is the span at `[CLS]`, or the output of a separate classifier; in both cases a
question is left unanswered when its no-answer score (logit of no answer minus that of the best span) is above a
threshold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from hornbook.metrics import spans as measured
from hornbook.models.outputs import MASKED_LOGIT, Output
from hornbook.tasks.features import Features, Scorer, softmax
from hornbook.tasks.records import SpanExample
from hornbook.text.tokenizer import Tokenizer

RULES = {
    "squad": measured.SQUAD_1,
    "squad2": measured.SQUAD_2,
    "korquad": measured.KORQUAD,
    "triviaqa": measured.TRIVIA_QA,
    "coqa": measured.COQA,
}
CANDIDATE_FACTOR = 5  # candidates kept per window, relative to `num_best`: the same text may occur several times


class Window(NamedTuple):
    """The passage tokens of one sequence: indices `first` to `last` (exclusive) in the sequence, their offsets in the
    passage, and whether each token has the most context in this window."""

    first: int
    last: int
    offsets: np.ndarray  # start and end in characters, (last - first) x 2
    has_most_context: np.ndarray


class Answer(NamedTuple):
    text: str
    start: int  # in characters
    end: int
    probability: float


@dataclass(frozen=True)
class SpanPrediction:
    """`answer` is empty if the question is left unanswered; `n_best` always holds the best spans."""

    answer: str
    start: int
    end: int
    no_answer_score: float
    n_best: tuple[Answer, ...]


@dataclass(frozen=True)
class Spans:
    """Defaults as published: questions of at most 64 tokens, a window every 128 tokens, answers of at most 30
    tokens."""

    output: Output
    measures: tuple[str, ...] = ("f1", "exact")
    or_none: bool = False
    rules: str = "squad"
    threshold: float = 0.0
    step_tokens: int = 128
    longest_question: int = 64
    longest_answer: int = 30
    num_best: int = 20

    def with_threshold(self, threshold: float) -> "Spans":
        return replace(self, threshold=threshold)

    def encode(self, examples: Sequence[SpanExample], tokenizer: Tokenizer, longest: int) -> Features:
        questions = tokenizer.encode_batch([each.question for each in examples])
        passages = tokenizer.encode_batch([each.passage for each in examples])
        ids, segments, owners, places, labels = [], [], [], [], []
        num_cut = 0
        for owner, (example, question, passage) in enumerate(zip(examples, questions, passages, strict=True)):
            max_question = min(self.longest_question, (longest - tokenizer.num_special(True)) // 2)
            num_cut += len(question.ids) > max_question
            question.truncate(max_question)
            capacity = longest - len(question.ids) - tokenizer.num_special(True)
            step = min(self.step_tokens, -(-capacity // 2))  # short windows overlap by half
            answer = _answer_tokens(example, passage)
            windows = _windows(passage, capacity, step)
            contexts = _most_context([len(each.ids) for each in windows], step)
            for number, (window, has_most) in enumerate(zip(windows, contexts, strict=True)):
                encoding = tokenizer.joined(question, window)
                places.append(_place(encoding, window, has_most))
                ids.append(np.array(encoding.ids, np.int64))
                segments.append(np.array(encoding.type_ids, np.int64))
                owners.append(owner)
                labels.append(_target(answer, number * step, places[-1]))
        known = all(example.answers is not None for example in examples)
        return Features(
            ids,
            segments,
            np.array(owners),
            len(examples),
            labels=np.array(labels, np.int64) if known else None,
            num_cut=num_cut,
            places=places,
        )

    def decode(
        self, outputs: list[np.ndarray], features: Features, examples: Sequence[SpanExample]
    ) -> list[SpanPrediction]:
        windows: list[list[int]] = [[] for _ in examples]
        for sequence, owner in enumerate(features.owners.tolist()):
            windows[owner].append(sequence)
        return [
            self._answer(example.passage, [(outputs[i], features.places[i]) for i in numbers])
            for example, numbers in zip(examples, windows, strict=True)
        ]

    def _answer(self, passage: str, windows: list[tuple[np.ndarray, Window]]) -> SpanPrediction:
        candidates = np.concatenate([self._candidates(logits, place) for logits, place in windows])
        none_scores = [_none_score(logits, self.output.answerable) for logits, _ in windows]
        order = np.argsort(-candidates[:, 0], kind="stable")
        best, seen = [], set()
        for score, start, end in candidates[order]:
            text = passage[int(start) : int(end)]
            first = int(start) + len(text) - len(text.lstrip())  # some tokenizers include the space before a word
            text = text.strip()
            if text and text not in seen:
                seen.add(text)
                best.append((float(score), text, first, first + len(text)))
            if len(best) == self.num_best:
                break
        if not best:
            return SpanPrediction("", 0, 0, -MASKED_LOGIT, ())
        probabilities = softmax(np.array([score for score, *_ in best]))
        n_best = tuple(Answer(*each[1:], float(p)) for each, p in zip(best, probabilities, strict=True))
        no_answer = min(none_scores) - (0.0 if self.output.answerable else best[0][0])
        first = n_best[0]
        if self.or_none and no_answer > self.threshold:
            return SpanPrediction("", 0, 0, no_answer, n_best)
        return SpanPrediction(first.text, first.start, first.end, no_answer, n_best)

    def _candidates(self, logits: np.ndarray, place: Window) -> np.ndarray:
        """(score, start, end) of the best spans of a window; start and end in characters of the passage."""
        start, end = logits[place.first : place.last, 0], logits[place.first : place.last, 1]
        starts = np.flatnonzero(place.has_most_context)
        ends = starts[:, None] + np.arange(self.longest_answer)
        mask = ends < len(end)
        starts, ends = np.broadcast_to(starts[:, None], ends.shape)[mask], ends[mask]
        sums = start[starts] + end[ends]
        num_kept = CANDIDATE_FACTOR * self.num_best
        if len(sums) > num_kept:
            kept = np.argpartition(-sums, num_kept)[:num_kept]
            starts, ends, sums = starts[kept], ends[kept], sums[kept]
        return np.stack([sums, place.offsets[starts, 0], place.offsets[ends, 1]], 1)

    def scorer(self, examples: Sequence[SpanExample], predictions: list[SpanPrediction]) -> Scorer:
        rules = RULES[self.rules]
        per_question = 100 * np.array(
            [
                rules.score(prediction.answer, each.answers)
                for each, prediction in zip(examples, predictions, strict=True)
            ]
        )
        has_answer = np.array([bool(each.answers) for each in examples])

        def score(chosen: np.ndarray | None = None) -> dict[str, float]:
            values = per_question if chosen is None else per_question[chosen]
            answerable = has_answer if chosen is None else has_answer[chosen]
            scores = {"exact": values[:, 0].mean(), "f1": values[:, 1].mean()}
            if self.or_none:
                for name, subset in (("HasAns", values[answerable]), ("NoAns", values[~answerable])):
                    if len(subset):
                        scores |= {f"{name}_exact": subset[:, 0].mean(), f"{name}_f1": subset[:, 1].mean()}
            return {name: float(value) for name, value in scores.items()}

        return score

    def best_threshold(self, examples: Sequence[SpanExample], predictions: list[SpanPrediction]) -> float:
        """The threshold with the best F1 on these examples, by the official search."""
        keys = [str(i) for i in range(len(examples))]
        none_scores = dict(zip(keys, (each.no_answer_score for each in predictions), strict=True))
        answers = dict(zip(keys, (each.n_best[0].text if each.n_best else "" for each in predictions), strict=True))
        gold = dict(zip(keys, (each.answers for each in examples), strict=True))
        return measured.best_threshold(none_scores, answers, gold, "f1", RULES[self.rules])[1]

    def thresholded(self, predictions: list[SpanPrediction]) -> list[SpanPrediction]:
        """The predictions with this task's no-answer threshold applied."""
        return [
            replace(each, answer="", start=0, end=0)
            if self.or_none and each.no_answer_score > self.threshold
            else replace(each, answer=best.text, start=best.start, end=best.end)
            if (best := each.n_best[0] if each.n_best else None)
            else each
            for each in predictions
        ]

    def describe(self, example: SpanExample, prediction: SpanPrediction) -> dict[str, Any]:
        return {
            "question": example.question,
            "answer": prediction.answer,
            "start": prediction.start,
            "end": prediction.end,
            "probability": prediction.n_best[0].probability if prediction.n_best else 0.0,
            "no_answer_score": prediction.no_answer_score,
            "n_best": [each._asdict() for each in prediction.n_best[:5]],
        }


def _answer_tokens(example: SpanExample, passage) -> tuple[int, int] | None:
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


def _target(answer: tuple[int, int] | None, window_start: int, place: Window) -> tuple[int, int]:
    """(start, end) positions in the sequence; (0, 0), that is `[CLS]`, unless the window contains the whole answer."""
    if answer is None or answer[0] < window_start or answer[1] >= window_start + len(place.offsets):
        return 0, 0
    shift = place.first - window_start
    return answer[0] + shift, answer[1] + shift


def _windows(passage, capacity: int, step: int) -> list:
    """The passage in windows of `capacity` tokens, one every `step` tokens, up to the one that contains its end."""
    if len(passage.ids) <= capacity:
        return [passage]
    passage.truncate(capacity, stride=capacity - step)
    return [passage, *passage.overflowing]


def _most_context(lengths: list[int], step: int) -> list[np.ndarray]:
    """For each window, whether each of its tokens has the most context (minimum of left and right) in this window."""
    total = step * (len(lengths) - 1) + lengths[-1]
    best, holder = np.full(total, -1.0), np.zeros(total, np.int64)
    for number, length in enumerate(lengths):
        within = np.arange(length)
        context = np.minimum(within, length - 1 - within) + 0.01 * length
        place = slice(number * step, number * step + length)
        better = context > best[place]
        best[place] = np.where(better, context, best[place])
        holder[place] = np.where(better, number, holder[place])
    return [holder[number * step : number * step + length] == number for number, length in enumerate(lengths)]


def _place(encoding, window, has_most_context: np.ndarray) -> Window:
    tokens = [i for i, segment in enumerate(encoding.sequence_ids) if segment == 1]
    first, last = (tokens[0], tokens[-1] + 1) if tokens else (0, 0)
    # Offsets of `window`, not `encoding`: adding special tokens makes a byte-level tokenizer trim offsets again, which
    # cuts off letters.
    return Window(first, last, np.array(window.offsets, np.int64).reshape(-1, 2), has_most_context)


def _none_score(logits: np.ndarray, answerable: bool) -> float:
    """The score of "no answer" in a window: that of the span at `[CLS]`, or with `answerable` the classifier's logit of
    no answer minus its logit of an answer."""
    if answerable:
        return float(logits[-1, 1] - logits[-1, 0])
    return float(logits[0, 0] + logits[0, 1])
