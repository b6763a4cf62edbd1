"""The `tfidf` baseline: a linear model on word counts, the most frequent tag of each word, the choice nearest to its
context, or a sliding window over the passage."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hornbook.evaluation.baselines.linear import fit_texts
from hornbook.models.head_config import MASKED_LOGIT
from hornbook.runs.finetuning.inputs import LabelledTask
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.kinds.spans import Answer, SpanPrediction
from hornbook.tasks.kinds.tagging import TagPrediction
from hornbook.tasks.records import ChoiceExample, SpanExample, TaggedExample, TextExample
from hornbook.tasks.task import Predict

TOKEN = re.compile(r"\w+|[^\w\s]")
CONTEXTS = (2, 5, 10)  # words on either side of a candidate answer in which question words are counted
QUESTION_WORD_PENALTY = 100.0  # for each question word inside the answer
RARITY_WEIGHT = 0.1  # of the rarity of the answer's words, relative to question words around it


def fit_tfidf(labelled: LabelledTask) -> tuple[Predict, dict[str, Any]]:
    """The function that predicts, and what was fitted."""
    task, train = labelled.spec.task, labelled.train
    if task.label_scope == "text":
        return fit_texts(labelled, TfidfFeatures(train).features)
    if task.label_scope == "word":
        return most_frequent_tags(train), {}
    if task.label_scope == "choice":
        return nearest_choice(task, tfidf_cosines(train)), {}
    return window_answers(train), {}


def lower_tokens(text: str) -> list[str]:
    return TOKEN.findall(text.lower())


def vectorizer(num_grams: int = 2) -> Any:
    """A TF-IDF vectorizer of n-grams up to `num_grams` over words and punctuation marks."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(tokenizer=lower_tokens, token_pattern=None, ngram_range=(1, num_grams), sublinear_tf=True)


class TfidfFeatures:
    """TF-IDF features, fitted on the training texts. A pair has those of both texts, their absolute difference and
    their product, and three overlap features: the cosine, the fraction of common words, and the ratio of lengths."""

    def __init__(self, examples: Sequence[TextExample]):
        self.is_pair = examples[0].pair is not None
        self.counter = vectorizer()
        self.counter.fit([text for each in examples for text in (each.text, each.pair) if text is not None])

    def features(self, examples: Sequence[TextExample]) -> Any:
        from scipy import sparse

        first = self.counter.transform([each.text for each in examples])
        if not self.is_pair:
            return first
        second = self.counter.transform([each.pair or "" for each in examples])
        shared = first.multiply(second).tocsr()
        overlap = np.array([_overlap(each.text, each.pair or "") for each in examples])
        cosine = np.asarray(shared.sum(1)).reshape(-1, 1)
        numbers = sparse.csr_matrix(np.concatenate([cosine, overlap], 1))
        return sparse.hstack([first, second, abs(first - second), shared, numbers], format="csr")


def _overlap(text: str, pair: str) -> tuple[float, float]:
    first, second = set(lower_tokens(text)), set(lower_tokens(pair))
    lengths = sorted((len(text), len(pair)))
    return len(first & second) / max(len(first | second), 1), lengths[0] / max(lengths[1], 1)


def tfidf_cosines(train: Sequence[ChoiceExample]) -> Callable[[str, Sequence[str]], np.ndarray]:
    """The cosines of the TF-IDF features of choices with those of a context."""
    counter = vectorizer(num_grams=1)
    counter.fit([text for each in train for text in (_context(each), *each.choices)])

    def cosines(context: str, choices: Sequence[str]) -> np.ndarray:
        rows = counter.transform([context, *choices])
        return (rows[1:] @ rows[0].T).toarray()[:, 0]

    return cosines


def _context(example: ChoiceExample) -> str:
    return f"{example.context} {example.beginning}".strip()


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
    return lambda examples: task.decode([cosines(_context(each), each.choices) for each in examples], None, examples)


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
