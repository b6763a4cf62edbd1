"""Passages with marks, accents and several scripts, questions about them, and scores for them, encoded."""

import random as chance

import numpy as np

from hornbook.models.head_config import MASKED_LOGIT, HeadConfig
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.records import SpanExample
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer

WORDS = (
    *(
        "river",
        "Café",
        "naïve",
        "한국어",
        "사람은",
        "(1990)",
        "U.S.",
        "don't",
        "high-speed",
        "“quoted”",
        "Zürich",
        "3.14",
    ),
    *("a", "the", "garden\u200b", "東京", "e\u0301t\u00e9"),
)
KINDS = ("wordpiece", "bpe", "unigram")
SPAN = HeadConfig("spans", 2)


def passage_of(draw: chance.Random, num_words: int) -> tuple[str, list[tuple[int, int]]]:
    """A passage, sometimes with two spaces or a line break, and the offset of each of its words."""
    text, places = "", []
    for _ in range(num_words):
        text += draw.choice([" ", " ", " ", "  ", "\n"]) if text else draw.choice(["", " "])
        word = draw.choice(WORDS)
        places.append((len(text), len(text) + len(word)))
        text += word
    return text, places


def examples_of(seed: int, number: int, longest: int = 60) -> list[SpanExample]:
    draw, examples = chance.Random(seed), []
    for key in range(number):
        passage, places = passage_of(draw, draw.randint(1, longest))
        first = draw.randrange(len(places))
        last = min(first + draw.choice([0, 0, 1, 3]), len(places) - 1)
        start, end = places[first][0], places[last][1]
        examples.append(SpanExample(str(key), "where is it?", passage, (passage[start:end],), (start,)))
    return examples


def windows_of(encoded: EncodedExamples, owner: int) -> list[int]:
    return np.flatnonzero(encoded.example_ids == owner).tolist()


def passage_tokens(tokenizer: Tokenizer, passage: str) -> list[int]:
    return tokenizer.encode_batch([passage])[0].ids


def gold_scores(encoded: EncodedExamples, answerable: bool = False) -> list[np.ndarray]:
    """What a model that is sure of the targets answers, in rectangles of one size."""
    longest = max(map(len, encoded.ids))
    found = []
    for ids, (start, end) in zip(encoded.ids, encoded.labels, strict=True):
        scores = np.full((longest + answerable, 2), MASKED_LOGIT, np.float32)
        scores[: len(ids)] = 0
        scores[start, 0] += 10
        scores[end, 1] += 10
        found.append(scores)
    return found


def trained(kind: str) -> Tokenizer:
    text = [" ".join(WORDS)] * 30 + ["who where what is in there?"] * 30
    return train_tokenizer(text, kind=kind, vocab_size=300)


def plain(text: str) -> str:
    """Without the marks that a tokenizer drops, at the ends too."""
    return text.replace("\u200b", "").strip()
