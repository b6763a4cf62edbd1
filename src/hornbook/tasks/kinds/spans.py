"""Extractive question answering: the span of a passage that answers a question, or none.

A long passage is split into overlapping windows; answers may start only at tokens for which this window has the most
context on both sides. "No answer" is the span at `[CLS]`, or the output of a separate classifier; in both cases a
question is left unanswered when its no-answer score (logit of no answer minus that of the best span) is above a
threshold.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from hornbook.metrics import spans as span_metrics
from hornbook.metrics.breakdown import Confusion, Judged, Mistake, confidence, confusion_matrix
from hornbook.metrics.formatting import cut, percent
from hornbook.models.head_config import MASKED_LOGIT, HeadConfig, HeadOptions
from hornbook.tasks.encoded import ALL, EncodedExamples, Outputs, Scorer, softmax
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.spans import CustomSpans, is_squad
from hornbook.tasks.records import DataSet, SpanExample
from hornbook.tasks.task import Predict, RegisteredTask, RunExamples, Task, is_list_of_texts
from hornbook.tasks.windows import (
    PassageWindow,
    answer_tokens,
    examples_to_illustrate,
    illustration,
    most_context,
    no_answer_score,
    split_windows,
    target_in,
    token_probabilities,
    window_of,
)
from hornbook.text.lemmas import whole_character

if TYPE_CHECKING:
    from hornbook.tasks.spec import TaskSpec
    from hornbook.text.tokenizer import Tokenizer

RULES = {
    "squad": span_metrics.SQUAD_1,
    "squad2": span_metrics.SQUAD_2,
    "korquad": span_metrics.KORQUAD,
    "triviaqa": span_metrics.TRIVIA_QA,
    "coqa": span_metrics.COQA,
}
LENGTHS = ((1, 1, "1 word"), (2, 3, "2 or 3 words"), (4, 7, "4 to 7 words"), (8, 10**9, "8 words or more"))
CANDIDATE_FACTOR = 5  # candidates kept per window, relative to `num_best`: the same text may occur several times


class Answer(NamedTuple):
    text: str
    start: int  # in characters
    end: int
    probability: float


NO_ANSWER = Answer("", 0, 0, 0.0)


@dataclass(frozen=True)
class SpanPrediction:
    """`answer` is empty if the question is left unanswered; `n_best` always holds the best spans."""

    answer: str
    start: int
    end: int
    no_answer_score: float
    n_best: tuple[Answer, ...]


@dataclass(frozen=True)
class Spans(Task):
    """Extractive question answering. Defaults as published: questions of at most 64 tokens, a window every 128 tokens,
    answers of at most 30 tokens."""

    kind = "spans"
    description = "an answer span in the text"
    accepted_inputs = "a (question, passage), or a dictionary with question and passage"
    example = SpanExample
    custom_layout = CustomSpans()
    output = "spans"
    default_metrics = ("f1", "exact")
    max_length = 384
    truncated_noun = "questions"
    tab_separated = "the question and the passage"
    unscored_hint = "; use task='squad2' or task='spans-or-none' for them"
    label_scope = "passage"
    mistake_order = "most confident answers without a word in common with a gold answer"
    hf_class = "ForQuestionAnswering"
    saved_fields = ("metrics", "allows_no_answer", "rules", "threshold")

    head_config: HeadConfig
    metrics: tuple[str, ...] = ("f1", "exact")
    allows_no_answer: bool = False
    rules: str = "squad"
    threshold: float = 0.0
    step_tokens: int = 128
    max_question_length: int = 64
    max_answer_length: int = 30
    num_best: int = 20

    @classmethod
    def read_file(cls, path: Path, registered: RegisteredTask, reader: Reader) -> list[SpanExample] | None:
        """SQuAD's JSON, and that of other published data sets."""
        if path.suffix.lower() != ".json":
            return None
        if is_squad(path):
            return cls.custom_layout.read_inputs(path, reader)
        return None if registered.layout.takes_columns else registered.layout.read_inputs(path, reader)

    @classmethod
    def from_list(cls, key: str, items: Sequence[Any]) -> SpanExample | None:
        return SpanExample(key, *items) if len(items) == 2 and is_list_of_texts(items) else None

    @classmethod
    def is_scored(cls, example: SpanExample, allows_no_answer: bool) -> bool:
        """A question without an answer can be scored only if the task may give none."""
        return super().is_scored(example, allows_no_answer) and (bool(example.answers) or allows_no_answer)

    @classmethod
    def head_config_for(cls, data: DataSet, options: HeadOptions) -> HeadConfig:
        return HeadConfig("spans", 2, has_answer_classifier=options.has_answer_classifier)

    @classmethod
    def details_for(cls, registered: RegisteredTask, data: DataSet) -> dict[str, Any]:
        rules = registered.name if registered.name in RULES else "squad2" if registered.allows_no_answer else "squad"
        return super().details_for(registered, data) | {"allows_no_answer": registered.allows_no_answer, "rules": rules}

    def encode(self, examples: Sequence[SpanExample], tokenizer: "Tokenizer", max_length: int) -> EncodedExamples:
        questions = tokenizer.encode_batch([each.question for each in examples])
        passages = tokenizer.encode_batch([each.passage for each in examples])
        ids, segments, example_ids, passage_windows, labels = [], [], [], [], []
        num_truncated = 0
        for example_id, (example, question, passage) in enumerate(zip(examples, questions, passages, strict=True)):
            max_question = min(self.max_question_length, (max_length - tokenizer.num_special(True)) // 2)
            num_truncated += len(question.ids) > max_question
            question.truncate(max_question)
            capacity = max_length - len(question.ids) - tokenizer.num_special(True)
            step = min(self.step_tokens, -(-capacity // 2))  # short windows overlap by half
            answer = answer_tokens(example, passage)
            windows = split_windows(passage, capacity, step)
            contexts = most_context([len(each.ids) for each in windows], step)
            for window_index, (window, has_most) in enumerate(zip(windows, contexts, strict=True)):
                encoding = tokenizer.with_special_tokens(question, window)
                passage_windows.append(window_of(encoding, window, has_most))
                ids.append(np.array(encoding.ids, np.int64))
                segments.append(np.array(encoding.type_ids, np.int64))
                example_ids.append(example_id)
                labels.append(target_in(answer, window_index * step, passage_windows[-1]))
        known = all(example.answers is not None for example in examples)
        return EncodedExamples(
            ids,
            segments,
            np.array(example_ids),
            len(examples),
            labels=np.array(labels, np.int64) if known else None,
            num_truncated=num_truncated,
            decode_info=passage_windows,
        )

    def decode(
        self, outputs: Outputs, encoded: EncodedExamples, examples: Sequence[SpanExample]
    ) -> list[SpanPrediction]:
        windows: list[list[tuple[np.ndarray, PassageWindow]]] = [[] for _ in examples]
        for example_id, *window in zip(encoded.example_ids.tolist(), outputs, encoded.decode_info, strict=True):
            windows[example_id].append(window)
        return self.apply_threshold([self._answer(example.passage, windows[i]) for i, example in enumerate(examples)])

    def _answer(self, passage: str, windows: list[tuple[np.ndarray, PassageWindow]]) -> SpanPrediction:
        """The best span, whatever the score of "no answer"."""
        candidates = np.concatenate([self._candidates(logits, window) for logits, window in windows])
        none_scores = [no_answer_score(logits, self.head_config.has_answer_classifier) for logits, _ in windows]
        order = np.argsort(-candidates[:, 0], kind="stable")
        best, seen = [], set()
        for score, start, end in candidates[order]:
            text = passage[int(start) : whole_character(passage, int(end))]
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
        no_answer = min(none_scores) - (0.0 if self.head_config.has_answer_classifier else best[0][0])
        return SpanPrediction(n_best[0].text, n_best[0].start, n_best[0].end, no_answer, n_best)

    def _candidates(self, logits: np.ndarray, window: PassageWindow) -> np.ndarray:
        """(score, start, end) of the best spans of a window; start and end in characters of the passage."""
        start, end = logits[window.first : window.last, 0], logits[window.first : window.last, 1]
        starts = np.flatnonzero(window.has_most_context)
        ends = starts[:, None] + np.arange(self.max_answer_length)
        mask = ends < len(end)
        starts, ends = np.broadcast_to(starts[:, None], ends.shape)[mask], ends[mask]
        sums = start[starts] + end[ends]
        num_candidates = CANDIDATE_FACTOR * self.num_best
        if len(sums) > num_candidates:
            best = np.argpartition(-sums, num_candidates)[:num_candidates]
            starts, ends, sums = starts[best], ends[best], sums[best]
        return np.stack([sums, window.offsets[starts, 0], window.offsets[ends, 1]], 1)

    def scorer(self, examples: Sequence[SpanExample], predictions: list[SpanPrediction]) -> Scorer:
        rules = RULES[self.rules]
        per_question = np.array(
            [
                rules.score(prediction.answer, each.answers)
                for each, prediction in zip(examples, predictions, strict=True)
            ]
        )
        has_answer = np.array([bool(each.answers) for each in examples])

        def score(chosen: np.ndarray | slice = ALL) -> dict[str, float]:
            values, answerable = per_question[chosen], has_answer[chosen]
            scores = {"exact": values[:, 0].mean(), "f1": values[:, 1].mean()}
            if self.allows_no_answer:
                for name, subset in (("HasAns", values[answerable]), ("NoAns", values[~answerable])):
                    if len(subset):
                        scores |= {f"{name}_exact": subset[:, 0].mean(), f"{name}_f1": subset[:, 1].mean()}
            return {name: float(value) for name, value in scores.items()}

        return score

    def average(self, logits: np.ndarray) -> np.ndarray:
        return logits.mean(0)

    def decision(self, outputs: np.ndarray) -> np.ndarray:
        """Start, end, and whether there is no answer."""
        ends = outputs[:-1] if self.head_config.has_answer_classifier else outputs
        return np.append(ends.argmax(0), outputs[-1].argmax(-1) if self.head_config.has_answer_classifier else 0)

    def with_best_threshold(self, examples: Sequence[SpanExample], predictions: list[SpanPrediction]) -> "Spans":
        """With the threshold that has the best F1, by the official search, raised halfway to the next score: a question
        whose score equals the threshold would else be answered or not by the rounding of the batch it is in."""
        if not self.allows_no_answer:
            return self
        scores = [each.no_answer_score for each in predictions]
        best = [each.n_best[0].text if each.n_best else "" for each in predictions]
        gold = [each.answers for each in examples]
        threshold = span_metrics.best_threshold(scores, best, gold, RULES[self.rules])[1]
        next_score = min((score for score in scores if score > threshold), default=threshold + 1)
        return replace(self, threshold=(threshold + next_score) / 2)

    def apply_threshold(self, predictions: list[SpanPrediction]) -> list[SpanPrediction]:
        if not self.allows_no_answer:
            return predictions
        answers = [
            NO_ANSWER if each.no_answer_score > self.threshold or not each.n_best else each.n_best[0]
            for each in predictions
        ]
        return [
            replace(each, answer=answer.text, start=answer.start, end=answer.end)
            for each, answer in zip(predictions, answers, strict=True)
        ]

    def describe(self, example: SpanExample, prediction: SpanPrediction) -> dict[str, Any]:
        return example.inputs | {
            "answer": prediction.answer,
            "start": prediction.start,
            "end": prediction.end,
            "probability": prediction.n_best[0].probability if prediction.n_best else 0.0,
            "no_answer_score": prediction.no_answer_score,
            "n_best": [each._asdict() for each in prediction.n_best[:5]],
        }

    def best_constant(self, gold: list) -> tuple[str, Predict] | None:
        if not self.allows_no_answer:
            return None
        unanswered = SpanPrediction("", 0, 0, 0.0, ())
        return "leaving every question unanswered", lambda examples: [unanswered] * len(examples)

    def degenerate(self, examples: Sequence[SpanExample], predictions: list[SpanPrediction]) -> str | None:
        if any(each.answers for each in examples) and not any(each.answer for each in predictions):
            return "the model leaves every question unanswered"
        return None

    @classmethod
    def confusion(cls, judged: Judged) -> Confusion | None:
        if not judged.allows_no_answer:
            return None
        names = ("has no answer", "has an answer")
        pairs = [(names[bool(row["gold"])], names[bool(row.get("answer"))]) for row in judged.rows]
        return confusion_matrix(pairs, list(names), "questions")

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        for row in filter(_is_miss, rows):
            gold = " / ".join(dict.fromkeys(map(str, row["gold"]))) or "no answer"
            note = f"probability {percent(confidence(row))}" if row.get("answer") else "not answered"
            predicted = cut(str(row.get("answer") or "no answer"), 200)
            badness = confidence(row) if row.get("answer") else -1.0
            yield badness, Mistake.of(row, cut(gold, 200), predicted, note)

    @classmethod
    def by_length(cls, rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
        """Questions without a gold answer are left out; the length is that of the first gold answer, and misses are
        defined by `_is_miss`."""
        answered = [(max(1, len(row["gold"][0].split())), _is_miss(row)) for row in rows if row["gold"]]
        counts = []
        for least, most, label in LENGTHS:
            if missed := [is_miss for length, is_miss in answered if least <= length <= most]:
                counts.append((label, len(missed), sum(missed)))
        return counts

    @classmethod
    def by_threshold(cls, rows: list[dict[str, Any]], rules: str) -> list[tuple[float, float, float]]:
        if all(row["gold"] for row in rows) or not all("no_answer_score" in row for row in rows):
            return []
        best = [row["n_best"][0]["text"] if row.get("n_best") else "" for row in rows]
        scores = [row["no_answer_score"] for row in rows]
        return span_metrics.threshold_curve(
            scores, best, [row["gold"] for row in rows], RULES.get(rules, RULES["squad2"])
        )

    def illustrations(
        self, examples: Sequence[SpanExample], predictions: list, encoded: EncodedExamples, run: RunExamples
    ) -> list[dict[str, Any]]:
        chosen = examples_to_illustrate(examples, (each.answer for each in predictions), encoded)
        shown = [examples[i] for i in chosen]
        encoded, outputs = run(shown)
        probabilities = map(token_probabilities, outputs, map(len, encoded.ids), encoded.decode_info)
        rows = [self.describe(examples[i], predictions[i]) for i in chosen]
        return list(map(illustration, shown, rows, probabilities))

    def submission(
        self, spec: "TaskSpec", examples: Sequence[SpanExample], predictions: list[SpanPrediction], ending: str
    ) -> dict[str, str]:
        pairs = list(zip(examples, predictions, strict=True))
        if spec.name == "coqa":
            return {f"predictions{ending}.json": _json([_turn(*pair) for pair in pairs])}
        files = {f"predictions{ending}.json": _json({each.key: prediction.answer for each, prediction in pairs})}
        if self.allows_no_answer:
            margins = {each.key: prediction.no_answer_score - self.threshold for each, prediction in pairs}
            probabilities = {key: 0.5 * (1 + math.tanh(margin / 2)) for key, margin in margins.items()}
            files[f"na_prob{ending}.json"] = _json(probabilities)
        return files


def _turn(example: SpanExample, prediction: SpanPrediction) -> dict:
    story, _, turn = example.key.partition("#")[0].rpartition("-")
    return {"id": story, "turn_id": int(turn), "answer": prediction.answer or "unknown"}


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False) + "\n"


def _is_miss(row: dict[str, Any]) -> bool:
    """Whether the predicted answer shares no word with any gold answer or, without one, the model gave an answer."""
    answer = row.get("answer") or ""
    return not any(span_metrics.have_common_word(answer, gold) for gold in row["gold"]) if row["gold"] else bool(answer)
