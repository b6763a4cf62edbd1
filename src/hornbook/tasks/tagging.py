"""A tag for each word, read off its first piece. Sentences that do not fit are read in overlapping windows, each word
in the window where it has most context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.metrics import tagging as measured
from hornbook.models.outputs import Output
from hornbook.tasks.records import TaggedExample
from hornbook.tasks.task import Features, Scorer, softmax
from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TagPrediction:
    tags: tuple[str, ...]  # one a word
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Tagging:
    """Tags are BIO inside where they mark entities, or plain ones such as parts of speech."""

    output: Output
    measures: tuple[str, ...]  # entity_f1, or tag_accuracy

    def encode(self, examples: Sequence[TaggedExample], tokenizer: Tokenizer, longest: int) -> Features:
        number = {label: i for i, label in enumerate(self.output.labels)}
        room = longest - tokenizer.num_special(False)
        ids, segments, owners, places, labels = [], [], [], [], []
        for owner, (example, pieces) in enumerate(
            zip(examples, tokenizer.pieces_of_words([list(each.words) for each in examples]), strict=True)
        ):
            windows = [pieces]
            if len(pieces.ids) > room:
                pieces.truncate(room, stride=room // 2)
                windows = [pieces, *pieces.overflowing]
            joined = [tokenizer.joined(window) for window in windows]
            for window, first_pieces in zip(joined, _first_pieces(joined), strict=True):
                wanted = np.full(len(window.ids), -1)
                if example.tags is not None:
                    for word, token in first_pieces:
                        wanted[token] = number.get(example.tags[word], -1)
                ids.append(np.array(window.ids, np.int64))
                segments.append(np.array(window.type_ids, np.int64))
                owners.append(owner)
                places.append(first_pieces)
                labels.append(wanted)
        known = all(each.tags is not None for each in examples)
        return Features(
            ids, segments, np.array(owners), len(examples), token_labels=labels if known else None, places=places
        )

    def decode(
        self, found: list[np.ndarray], features: Features, examples: Sequence[TaggedExample]
    ) -> list[TagPrediction]:
        labels = self.output.labels
        # A word that the tokenizer turns into nothing has no piece to read a tag from.
        nothing = "O" if "O" in labels else labels[0]
        tags = [[nothing] * len(each.words) for each in examples]
        chances = [[0.0] * len(each.words) for each in examples]
        for scores, owner, first_pieces in zip(found, features.owners.tolist(), features.places, strict=True):
            shares = softmax(scores)
            for word, token in first_pieces:
                best = int(shares[token].argmax())
                tags[owner][word], chances[owner][word] = labels[best], float(shares[token, best])
        return [TagPrediction(tuple(a), tuple(b)) for a, b in zip(tags, chances, strict=True)]

    def scorer(self, examples: Sequence[TaggedExample], predictions: list[TagPrediction]) -> Scorer:
        pairs = [(each.tags, found.tags) for each, found in zip(examples, predictions, strict=True)]
        right = np.array([sum(a == b for a, b in zip(*pair, strict=True)) for pair in pairs])
        total = np.array([len(gold) for gold, _ in pairs])
        counts = np.zeros((len(pairs), 3), int)
        if "entity_f1" in self.measures:
            spans = [(set(measured.entities(gold)), set(measured.entities(found))) for gold, found in pairs]
            counts = np.array([(len(gold & found), len(gold), len(found)) for gold, found in spans])

        def score(chosen: np.ndarray | None = None) -> dict[str, float]:
            some = slice(None) if chosen is None else chosen
            hits, in_gold, in_found = counts[some].sum(0)
            scores = {
                "entity_f1": 2 * hits / max(in_gold + in_found, 1),
                "precision": hits / max(in_found, 1),
                "recall": hits / max(in_gold, 1),
                "tag_accuracy": right[some].sum() / max(total[some].sum(), 1),
            }
            names = self.measures + (("precision", "recall") if "entity_f1" in self.measures else ())
            return {name: float(scores[name]) for name in names}

        return score

    def describe(self, example: TaggedExample, prediction: TagPrediction) -> dict[str, Any]:
        row: dict[str, Any] = {"words": list(example.words), "tags": list(prediction.tags)}
        if "entity_f1" in self.measures:
            row["entities"] = _entities(example, prediction.tags)
        return row | {"probabilities": list(prediction.probabilities)}


def _entities(example: TaggedExample, tags: Sequence[str]) -> list[dict[str, Any]]:
    """`start` and `end` are characters of the text that the words were split from, or of the words joined by spaces."""
    text = " ".join(example.words) if example.text is None else example.text
    offsets = word_offsets(example.words, text)
    found = []
    for kind, first, after in measured.entities(tags):
        start, end = offsets[first][0], offsets[after - 1][1]
        place = {"start": start, "end": end, "first_word": first, "last_word": after - 1}
        found.append({"type": kind, "text": text[start:end]} | place)
    return found


def word_offsets(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """The (start, end) of each word in characters of `text`, which has these words in this order.

    >>> word_offsets(("Ada", "ran", "."), " Ada  ran.")
    [(1, 4), (6, 9), (9, 10)]
    """
    found, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        found.append((start, end))
    return found


def _first_pieces(windows: list) -> list[list[tuple[int, int]]]:
    """For each window the (word, token) pairs to read: each word's first piece, in the window with most context."""
    best: dict[int, tuple[float, int, int]] = {}
    for number, window in enumerate(windows):
        seen = set()
        for token, word in enumerate(window.word_ids):
            if word is None or word in seen:
                continue
            seen.add(word)
            context = min(token, len(window.ids) - 1 - token)
            # The first word of a later window may be the middle of a word: it has no context to its left.
            if word not in best or context > best[word][0]:
                best[word] = (context, number, token)
    chosen: list[list[tuple[int, int]]] = [[] for _ in windows]
    for word, (_, number, token) in sorted(best.items()):
        chosen[number].append((word, token))
    return chosen
