"""Baselines that fit no linear model: the most frequent tag of a word, the choice nearest to its context, and a sliding
window over a passage."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hornbook.evaluation.baselines.tfidf import TOKEN, context_of, lower_tokens
from hornbook.models.head_config import MASKED_LOGIT
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.kinds.spans import Answer, SpanPrediction
from hornbook.tasks.kinds.tagging import TagPrediction
from hornbook.tasks.records import SpanExample, TaggedExample
from hornbook.tasks.task import Predict

CONTEXTS = (2, 5, 10)  # words on either side of a candidate answer in which question words are counted
QUESTION_WORD_PENALTY = 100.0  # for each question word inside the answer
RARITY_WEIGHT = 0.1  # of the rarity of the answer's words, relative to question words around it


def most_frequent_tags(train: Sequence[TaggedExample]) -> Predict:
    """Predicts each word's most frequent tag in training, or the most frequent tag overall for unknown words."""
    of_all = Counter(tag for each in train for tag in each.tags)
    of_word: dict[str, Counter] = {}
    for each in train:
        for word, tag in zip(each.words, each.tags, strict=True):
            of_word.setdefault(word, Counter())[tag] += 1

    def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
        predictions = []
        for each in examples:
            counts = [of_word.get(word, of_all) for word in each.words]
            best = [count.most_common(1)[0] for count in counts]
            frequencies = [num / count.total() for (_, num), count in zip(best, counts, strict=True)]
            predictions.append(TagPrediction(tuple(tag for tag, _ in best), tuple(frequencies)))
        return predictions

    return predict


def nearest_choice(task: Choice, cosines: Callable[[str, Sequence[str]], np.ndarray]) -> Predict:
    """Predicts the choice with the highest cosine to the context, which `cosines` computes for all choices."""
    return lambda examples: task.decode([cosines(context_of(each), each.choices) for each in examples], None, examples)


def window_answers(train: Sequence[SpanExample]) -> Predict:
    """Predicts spans with a sliding window of the median answer length: the best window has the most question words
    around it, rare and near ones weighing more, and none inside it."""
    passages = {each.passage for each in train}
    occurs_in = Counter(word for passage in passages for word in set(lower_tokens(passage)))
    lengths = [len(lower_tokens(each.answers[0])) for each in train if each.answers]
    size = max(1, int(np.median(lengths))) if lengths else 1

    def rarity(word: str) -> float:
        return float(np.log1p(len(passages) / (1 + occurs_in[word]))) if word[0].isalnum() else 0.0

    def predict(examples: Sequence[SpanExample]) -> list[SpanPrediction]:
        return [_window_answer(each, size, rarity) for each in examples]

    return predict


def _window_answer(example: SpanExample, size: int, rarity: Any) -> SpanPrediction:
    # Lower-casing may change the number of characters, so offsets refer to the original passage.
    words = [(match[0].lower(), match.start(), match.end()) for match in TOKEN.finditer(example.passage)]
    if not words:
        return SpanPrediction("", 0, 0, -MASKED_LOGIT, ())
    size = min(size, len(words))
    positions: dict[str, list[int]] = {}
    for position, (word, _, _) in enumerate(words):
        positions.setdefault(word, []).append(position)
    firsts = np.arange(len(words) - size + 1)
    total_rarity = np.concatenate([[0.0], np.cumsum([rarity(word) for word, _, _ in words])])
    scores = RARITY_WEIGHT * (total_rarity[firsts + size] - total_rarity[firsts]) / size
    for word in set(lower_tokens(example.question)) & positions.keys():
        for context in CONTEXTS:
            scores += rarity(word) * _holds(positions[word], firsts - context, firsts + size + context)
        scores -= QUESTION_WORD_PENALTY * _holds(positions[word], firsts, firsts + size)
    best = int(scores.argmax())
    start, end = words[best][1], words[best + size - 1][2]
    text = example.passage[start:end]
    return SpanPrediction(text, start, end, -float(scores[best]), (Answer(text, start, end, 1.0),))


def _holds(positions: list[int], firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """Whether any of the sorted positions is between first (inclusive) and last (exclusive)."""
    return np.searchsorted(positions, lasts) > np.searchsorted(positions, firsts)
