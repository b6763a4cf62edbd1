"""TF-IDF features of texts, pairs and choices, over words and punctuation marks."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hornbook.tasks.records import ChoiceExample, TextExample

TOKEN = re.compile(r"\w+|[^\w\s]")


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
    counter.fit([text for each in train for text in (context_of(each), *each.choices)])

    def cosines(context: str, choices: Sequence[str]) -> np.ndarray:
        rows = counter.transform([context, *choices])
        return (rows[1:] @ rows[0].T).toarray()[:, 0]

    return cosines


def context_of(example: ChoiceExample) -> str:
    return f"{example.context} {example.beginning}".strip()
