"""A tag per word, predicted at its first token. Long sentences are split into overlapping windows; each word is
predicted in the window where it has the most context."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hornbook.metrics import tagging as measured
from hornbook.models.outputs import Output
from hornbook.tasks.features import Features, Scorer, softmax
from hornbook.tasks.records import TaggedExample
from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TagPrediction:
    tags: tuple[str, ...]  # one per word
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Tagging:
    """Tags are in BIO if they mark entities, otherwise plain, such as parts of speech."""

    output: Output
    measures: tuple[str, ...]  # entity_f1, or tag_accuracy

    def encode(self, examples: Sequence[TaggedExample], tokenizer: Tokenizer, longest: int) -> Features:
        index = {label: i for i, label in enumerate(self.output.labels)}
        capacity = longest - tokenizer.num_special(False)
        ids, segments, owners, places, labels = [], [], [], [], []
        for owner, (example, tokens) in enumerate(
            zip(examples, tokenizer.pieces_of_words([list(each.words) for each in examples]), strict=True)
        ):
            windows = [tokens]
            if len(tokens.ids) > capacity:
                tokens.truncate(capacity, stride=capacity // 2)
                windows = [tokens, *tokens.overflowing]
            encodings = [tokenizer.joined(window) for window in windows]
            for window, first_tokens in zip(encodings, _first_tokens(encodings), strict=True):
                targets = np.full(len(window.ids), -1)
                if example.tags is not None:
                    for word, token in first_tokens:
                        targets[token] = index.get(example.tags[word], -1)
                ids.append(np.array(window.ids, np.int64))
                segments.append(np.array(window.type_ids, np.int64))
                owners.append(owner)
                places.append(first_tokens)
                labels.append(targets)
        known = all(each.tags is not None for each in examples)
        return Features(
            ids, segments, np.array(owners), len(examples), token_labels=labels if known else None, places=places
        )

    def decode(
        self, outputs: list[np.ndarray], features: Features, examples: Sequence[TaggedExample]
    ) -> list[TagPrediction]:
        labels = self.output.labels
        # For words that the tokenizer drops, which have no token to predict a tag at.
        default = "O" if "O" in labels else labels[0]
        tags = [[default] * len(each.words) for each in examples]
        probabilities = [[0.0] * len(each.words) for each in examples]
        for logits, owner, first_tokens in zip(outputs, features.owners.tolist(), features.places, strict=True):
            distributions = softmax(logits)
            for word, token in first_tokens:
                best = int(distributions[token].argmax())
                tags[owner][word], probabilities[owner][word] = labels[best], float(distributions[token, best])
        return [TagPrediction(tuple(a), tuple(b)) for a, b in zip(tags, probabilities, strict=True)]

    def scorer(self, examples: Sequence[TaggedExample], predictions: list[TagPrediction]) -> Scorer:
        pairs = [(each.tags, prediction.tags) for each, prediction in zip(examples, predictions, strict=True)]
        num_correct = np.array([sum(a == b for a, b in zip(*pair, strict=True)) for pair in pairs])
        total = np.array([len(gold) for gold, _ in pairs])
        counts = np.zeros((len(pairs), 3), int)
        if "entity_f1" in self.measures:
            entities = [(set(measured.entities(gold)), set(measured.entities(tags))) for gold, tags in pairs]
            counts = np.array([(len(gold & found), len(gold), len(found)) for gold, found in entities])

        def score(chosen: np.ndarray | None = None) -> dict[str, float]:
            some = slice(None) if chosen is None else chosen
            in_both, in_gold, in_predicted = counts[some].sum(0)
            scores = {
                "entity_f1": 2 * in_both / max(in_gold + in_predicted, 1),
                "precision": in_both / max(in_predicted, 1),
                "recall": in_both / max(in_gold, 1),
                "tag_accuracy": num_correct[some].sum() / max(total[some].sum(), 1),
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
    """Entities of a sentence. `start` and `end` are character offsets in the original text or, if unknown, in the words
    joined by spaces."""
    text = " ".join(example.words) if example.text is None else example.text
    offsets = word_offsets(example.words, text)
    found = []
    for kind, first, after in measured.entities(tags):
        start, end = offsets[first][0], offsets[after - 1][1]
        place = {"start": start, "end": end, "first_word": first, "last_word": after - 1}
        found.append({"type": kind, "text": text[start:end]} | place)
    return found


def word_offsets(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """The (start, end) character offsets of each word in `text`, which contains the words in this order.

    >>> word_offsets(("Ada", "ran", "."), " Ada  ran.")
    [(1, 4), (6, 9), (9, 10)]
    """
    found, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        found.append((start, end))
    return found


def _first_tokens(windows: list) -> list[list[tuple[int, int]]]:
    """For each window the (word, token) pairs to predict at: each word's first token, in the window where it has the
    most context."""
    best: dict[int, tuple[float, int, int]] = {}
    for number, window in enumerate(windows):
        seen = set()
        for token, word in enumerate(window.word_ids):
            if word is None or word in seen:
                continue
            seen.add(word)
            context = min(token, len(window.ids) - 1 - token)
            # The first token of a later window may be inside a word; it loses, as it has no context to its left.
            if word not in best or context > best[word][0]:
                best[word] = (context, number, token)
    chosen: list[list[tuple[int, int]]] = [[] for _ in windows]
    for word, (_, number, token) in sorted(best.items()):
        chosen[number].append((word, token))
    return chosen
