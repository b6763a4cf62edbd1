"""Each kind of task as in the examples of `transformers`: training rows, and predictions from model outputs."""

import math

import numpy as np
import transformers

from hornbook.tasks.kinds.spans import Answer, SpanPrediction
from hornbook.tasks.kinds.tagging import TagPrediction
from hornbook.tasks.records import ChoiceExample, Example, SpanExample, TaggedExample, TextExample

# Of their question answering example.
OVERLAP, NUM_BEST, LONGEST_ANSWER = 128, 20, 30
IGNORED = -100


def encode_texts(examples: list[TextExample], tokenizer, labels: tuple[str, ...], max_length: int) -> tuple:
    pairs = None if examples[0].pair is None else [each.pair for each in examples]
    encoded = tokenizer([each.text for each in examples], pairs, truncation=True, max_length=max_length)
    number = {label: i for i, label in enumerate(labels)}
    targets = [number[each.label] if number else float(each.label) for each in examples]
    return _rows(encoded, len(examples), label=targets), []


def encode_choices(examples: list[ChoiceExample], tokenizer, labels: tuple[str, ...], max_length: int) -> tuple:
    num_choices = len(examples[0].choices)
    firsts = [each.context for each in examples for _ in each.choices]
    seconds = [f"{each.beginning} {choice}".strip() for each in examples for choice in each.choices]
    flat = _rows(tokenizer(firsts, seconds, truncation=True, max_length=max_length), len(firsts))
    rows = []
    for place, each in enumerate(examples):
        group = flat[place * num_choices : (place + 1) * num_choices]
        rows.append({name: [row[name] for row in group] for name in group[0]} | {"label": each.label})
    return rows, []


def encode_tags(examples: list[TaggedExample], tokenizer, labels: tuple[str, ...], max_length: int) -> tuple:
    """Each word's tag on its first token."""
    words = [list(each.words) for each in examples]
    encoded = tokenizer(words, is_split_into_words=True, truncation=True, max_length=max_length)
    number = {label: i for i, label in enumerate(labels)}
    targets, places = [], []
    for place, each in enumerate(examples):
        word_of = encoded.word_ids(place)
        firsts = [word is not None and word != before for before, word in zip([None, *word_of], word_of, strict=False)]
        targets.append(
            [
                number.get(each.tags[word], IGNORED) if first else IGNORED
                for word, first in zip(word_of, firsts, strict=True)
            ]
        )
        places.append({word: token for token, (word, first) in enumerate(zip(word_of, firsts, strict=True)) if first})
    return _rows(encoded, len(examples), labels=targets), places


def encode_spans(examples: list[SpanExample], tokenizer, labels: tuple[str, ...], max_length: int) -> tuple:
    """Overlapping windows, with the token positions of the answer, or `[CLS]` where the window does not contain it."""
    encoded = tokenizer(
        [each.question.lstrip() for each in examples],
        [each.passage for each in examples],
        truncation="only_second",
        max_length=max_length,
        stride=OVERLAP,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    owners, offsets = encoded.pop("overflow_to_sample_mapping"), encoded.pop("offset_mapping")
    starts, ends, places = [], [], []
    for window, owner in enumerate(owners):
        tokens = [token for token, part in enumerate(encoded.sequence_ids(window)) if part == 1]
        start, end = _answer_tokens(examples[owner], offsets[window], tokens)
        starts.append(start)
        ends.append(end)
        in_passage = {token: tuple(offsets[window][token]) for token in tokens}
        places.append({"owner": owner, "offsets": in_passage})
    return _rows(encoded, len(owners), start_positions=starts, end_positions=ends), places


def _answer_tokens(example: SpanExample, offsets: list, tokens: list[int]) -> tuple[int, int]:
    if not example.answers or example.starts[0] < 0 or not tokens:
        return 0, 0
    start = example.starts[0]
    end = start + len(example.answers[0])
    if offsets[tokens[0]][0] > start or offsets[tokens[-1]][1] < end:
        return 0, 0
    return (
        max(token for token in tokens if offsets[token][0] <= start),
        min(token for token in tokens if offsets[token][1] >= end),
    )


def _rows(encoded, num_rows: int, **targets: list) -> list[dict]:
    columns = dict(encoded.items()) | targets
    return [{name: column[row] for name, column in columns.items()} for row in range(num_rows)]


def tags_of(
    found: list[np.ndarray], places: list[dict], examples: list[TaggedExample], labels: tuple[str, ...]
) -> list[TagPrediction]:
    """A word that was truncated or has no tokens gets O, or the first tag if there is no O."""
    nothing = "O" if "O" in labels else labels[0]
    predictions = []
    for scores_SL, token_of, example in zip(found, places, examples, strict=True):
        best = scores_SL.argmax(-1)
        tags = [labels[best[token_of[word]]] if word in token_of else nothing for word in range(len(example.words))]
        predictions.append(TagPrediction(tuple(tags), ()))
    return predictions


def answers_of(found: list[np.ndarray], places: list[dict], examples: list[SpanExample]) -> list[SpanPrediction]:
    """The best spans over all windows of a question by the sum of start and end; no answer scores the lowest sum at
    `[CLS]` over the windows, less the best span's."""
    spans: list[list[tuple]] = [[] for _ in examples]
    none = [math.inf] * len(examples)
    for scores_S2, place in zip(found, places, strict=True):
        owner, offsets = place["owner"], place["offsets"]
        none[owner] = min(none[owner], float(scores_S2[0].sum()))
        starts, ends = (np.argsort(-scores_S2[:, column])[:NUM_BEST].tolist() for column in (0, 1))
        spans[owner] += [
            (float(scores_S2[start, 0] + scores_S2[end, 1]), offsets[start][0], offsets[end][1])
            for start in starts
            for end in ends
            if start in offsets and end in offsets and start <= end < start + LONGEST_ANSWER
        ]
    predictions = []
    for example, candidates, none_score in zip(examples, spans, none, strict=True):
        best = sorted(candidates, key=lambda each: -each[0])[:NUM_BEST]
        if not best:
            predictions.append(SpanPrediction("", 0, 0, math.inf, ()))
            continue
        n_best = tuple(Answer(example.passage[start:end], start, end, 0.0) for _, start, end in best)
        first = n_best[0]
        predictions.append(SpanPrediction(first.text, first.start, first.end, none_score - best[0][0], n_best))
    return predictions


KINDS: dict[type[Example], tuple] = {
    TextExample: (
        encode_texts,
        transformers.AutoModelForSequenceClassification,
        transformers.DataCollatorWithPadding,
    ),
    ChoiceExample: (
        encode_choices,
        transformers.AutoModelForMultipleChoice,
        transformers.DataCollatorForMultipleChoice,
    ),
    TaggedExample: (
        encode_tags,
        transformers.AutoModelForTokenClassification,
        transformers.DataCollatorForTokenClassification,
    ),
    SpanExample: (
        encode_spans,
        transformers.AutoModelForQuestionAnswering,
        transformers.DataCollatorWithPadding,
    ),
}
