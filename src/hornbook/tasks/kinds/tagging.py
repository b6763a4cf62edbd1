"""A tag per word, predicted at its first token. Long sentences are split into overlapping windows; each word is
predicted in the window where it has the most context."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hornbook.metrics import tagging as tag_metrics
from hornbook.metrics.breakdown import (
    Confusion,
    Fragment,
    Judged,
    Mistake,
    Tally,
    confusion_matrix,
    tag_type,
    tally_classes,
)
from hornbook.metrics.tagging import Scheme, from_bio, repaired, scheme_of, to_bio
from hornbook.models.head_config import HeadConfig, HeadOptions
from hornbook.tasks.encoded import ALL, EncodedExamples, Outputs, Scorer, softmax
from hornbook.tasks.reading.layout import INPUT_SPLIT
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.tagging import CUSTOM_TAGS, read_sentences, words_of
from hornbook.tasks.records import DataSet, Splits, TaggedExample
from hornbook.tasks.task import Predict, RegisteredTask, Task, is_list_of_texts
from hornbook.tasks.windows import split_windows

if TYPE_CHECKING:
    from hornbook.tasks.spec import TaskSpec
    from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TagPrediction:
    tags: tuple[str, ...]  # one per word
    probabilities: tuple[float, ...]


@dataclass(frozen=True)
class Tagging(Task):
    """Tags are in BIO if they mark entities, otherwise plain, such as parts of speech."""

    kind = "tagging"
    description = "one tag per word"
    accepted_inputs = "a text, or a list of words"
    example = TaggedExample
    custom_layout = CUSTOM_TAGS
    output = "tokens"
    default_metrics = ("entity_f1", "tag_accuracy")
    has_labels = True
    label_scope = "word"
    mistake_order = "most wrong tags (marked as: gold, not predicted)"
    hf_class = "ForTokenClassification"

    head_config: HeadConfig
    metrics: tuple[str, ...]  # entity_f1, or tag_accuracy

    @classmethod
    def read_file(cls, path: Path, registered: RegisteredTask, reader: Reader) -> list[TaggedExample]:
        return cls.with_bio_tags({INPUT_SPLIT: read_sentences(path, reader)}, Reader())[0][INPUT_SPLIT]

    @classmethod
    def from_text(cls, key: str, text: str) -> TaggedExample:
        return TaggedExample(key, words_of(text), text=text)

    @classmethod
    def from_list(cls, key: str, items: Sequence[Any]) -> TaggedExample | None:
        return TaggedExample(key, tuple(items)) if is_list_of_texts(items) else None

    @classmethod
    def with_bio_tags(cls, splits: Splits, reader: Reader) -> tuple[Splits, Scheme]:
        """Tags that mark entities are converted to BIO."""
        scheme = scheme_of(example.tags for examples in splits.values() for example in examples if example.tags)
        if scheme == "plain":
            reader.log("tags: plain, one per word")
            return splits, scheme
        reader.log(f"tags: {scheme}" + ("" if scheme == "BIO" else ", read as BIO"))
        splits = {
            split: [_repaired(each, scheme, split, reader) for each in examples] for split, examples in splits.items()
        }
        return splits, scheme

    @classmethod
    def head_config_for(cls, data: DataSet, options: HeadOptions) -> HeadConfig:
        return HeadConfig("tokens", len(data.labels), data.labels)

    @classmethod
    def details_for(cls, registered: RegisteredTask, data: DataSet) -> dict[str, Any]:
        return {"metrics": list(registered.metrics) if data.scheme != "plain" else ["tag_accuracy"]}

    @classmethod
    def build(cls, head_config: HeadConfig, details: Mapping[str, Any]) -> "Tagging":
        has_entities = any(label.startswith(("B-", "I-")) for label in head_config.labels)
        default = cls.default_metrics if has_entities else ("tag_accuracy",)
        return cls(head_config, tuple(details.get("metrics") or default))

    def encode(self, examples: Sequence[TaggedExample], tokenizer: "Tokenizer", max_length: int) -> EncodedExamples:
        index = {label: i for i, label in enumerate(self.head_config.labels)}
        capacity = max_length - tokenizer.num_special(False)
        ids, segments, example_ids, words_and_tokens, labels = [], [], [], [], []
        for example_id, (example, tokens) in enumerate(
            zip(examples, tokenizer.encode_words([list(each.words) for each in examples]), strict=True)
        ):
            windows = split_windows(tokens, capacity, capacity - capacity // 2)
            encodings = [tokenizer.with_special_tokens(window) for window in windows]
            for window, word_tokens in zip(encodings, _word_tokens(encodings), strict=True):
                targets = np.full(len(window.ids), -1)
                if example.tags is not None:
                    for word, token in word_tokens:
                        targets[token] = index.get(example.tags[word], -1)
                ids.append(np.array(window.ids, np.int64))
                segments.append(np.array(window.type_ids, np.int64))
                example_ids.append(example_id)
                words_and_tokens.append(word_tokens)
                labels.append(targets)
        known = all(each.tags is not None for each in examples)
        return EncodedExamples(
            ids,
            segments,
            np.array(example_ids),
            len(examples),
            token_labels=labels if known else None,
            decode_info=words_and_tokens,
        )

    def decode(
        self, outputs: Outputs, encoded: EncodedExamples, examples: Sequence[TaggedExample]
    ) -> list[TagPrediction]:
        labels = self.head_config.labels
        # For words that the tokenizer drops, which have no token to predict a tag at.
        default = "O" if "O" in labels else labels[0]
        tags = [[default] * len(each.words) for each in examples]
        probabilities = [[0.0] * len(each.words) for each in examples]
        for logits, example_id, word_tokens in zip(
            outputs, encoded.example_ids.tolist(), encoded.decode_info, strict=True
        ):
            distributions = softmax(logits)
            for word, token in word_tokens:
                best = int(distributions[token].argmax())
                tags[example_id][word] = labels[best]
                probabilities[example_id][word] = float(distributions[token, best])
        return [TagPrediction(tuple(a), tuple(b)) for a, b in zip(tags, probabilities, strict=True)]

    def scorer(self, examples: Sequence[TaggedExample], predictions: list[TagPrediction]) -> Scorer:
        pairs = [(each.tags, prediction.tags) for each, prediction in zip(examples, predictions, strict=True)]
        num_correct = np.array([sum(a == b for a, b in zip(*pair, strict=True)) for pair in pairs])
        total = np.array([len(gold) for gold, _ in pairs])
        counts = np.zeros((len(pairs), 3), int)
        if "entity_f1" in self.metrics:
            entities = [(set(tag_metrics.entities(gold)), set(tag_metrics.entities(tags))) for gold, tags in pairs]
            counts = np.array([(len(gold & predicted), len(gold), len(predicted)) for gold, predicted in entities])

        def score(chosen: np.ndarray | slice = ALL) -> dict[str, float]:
            in_both, in_gold, in_predicted = counts[chosen].sum(0)
            scores = {
                "entity_f1": 2 * in_both / max(in_gold + in_predicted, 1),
                "precision": in_both / max(in_predicted, 1),
                "recall": in_both / max(in_gold, 1),
                "tag_accuracy": num_correct[chosen].sum() / max(total[chosen].sum(), 1),
            }
            names = self.metrics + (("precision", "recall") if "entity_f1" in self.metrics else ())
            return {name: float(scores[name]) for name in names}

        return score

    def describe(self, example: TaggedExample, prediction: TagPrediction) -> dict[str, Any]:
        row = example.inputs | {"tags": list(prediction.tags)}
        if "entity_f1" in self.metrics:
            row["entities"] = _entities(example, prediction.tags)
        return row | {"probabilities": list(prediction.probabilities)}

    def in_hornbook_scheme(self, prediction: TagPrediction) -> TagPrediction:
        scheme = scheme_of([self.head_config.labels])
        if scheme == "plain":
            return prediction
        return replace(prediction, tags=tuple(repaired(to_bio(prediction.tags, scheme))[0]))

    def in_file_scheme(self, row: dict[str, Any], scheme: str) -> dict[str, Any]:
        return row | {"tags": from_bio(row["tags"], scheme)} if "tags" in row else row

    def best_constant(self, gold: list[tuple[str, ...]]) -> tuple[str, Predict]:
        counts = Counter(tag for tags in gold for tag in tags)
        tag, num = counts.most_common(1)[0]

        def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
            lengths = [len(each.words) for each in examples]
            return [TagPrediction((tag,) * length, (num / counts.total(),) * length) for length in lengths]

        return f"tagging every word '{tag}'", predict

    def degenerate(self, examples: Sequence[TaggedExample], predictions: list[TagPrediction]) -> str | None:
        predicted, right = ({tag for each in side for tag in each.tags} for side in (predictions, examples))
        return (
            f"the model tags every word '{next(iter(predicted))}'" if len(predicted) == 1 and len(right) > 1 else None
        )

    @classmethod
    def confusion(cls, judged: Judged) -> Confusion | None:
        tags = ((row["gold"], row["tags"]) for row in judged.rows)
        pairs = [(tag_type(a), tag_type(b)) for gold, predicted in tags for a, b in zip(gold, predicted, strict=False)]
        return confusion_matrix(pairs, list(dict.fromkeys(map(tag_type, judged.labels))), "words")

    @classmethod
    def tallies(cls, judged: Judged) -> list[Tally]:
        tags = ((row["gold"], row["tags"]) for row in judged.rows)
        if judged.has_entities:
            return tally_classes(
                (tag_metrics.entities(gold), tag_metrics.entities(predicted)) for gold, predicted in tags
            )
        return tally_classes(
            ([(a, 0)], [(b, 0)]) for gold, predicted in tags for a, b in zip(gold, predicted, strict=False)
        )

    @classmethod
    def tally_noun(cls, judged: Judged) -> str:
        return "type of entity" if judged.has_entities else "tag"

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        for row in rows:
            num_wrong = sum(a != b for a, b in zip(row["gold"], row.get("tags") or [], strict=False))
            if not num_wrong:
                continue
            words = zip(row.get("words") or [], row["gold"], row["tags"], strict=False)
            fragments = [Fragment(str(word), "" if a == b else f"{a}, not {b}") for word, a, b in words]
            note = f"{num_wrong} of {len(row['tags'])} tags wrong"
            yield num_wrong, Mistake(str(row.get("key", "")), [fragments], "", "", note)

    def submission(
        self, spec: "TaskSpec", examples: Sequence[TaggedExample], predictions: list[TagPrediction], ending: str
    ) -> dict[str, str]:
        """One word per line with its tag in the scheme of the user's files; if known, the gold tag is the column
        between, as conlleval expects."""
        return {f"predictions{ending}.txt": "\n".join(_column_lines(examples, predictions, spec.scheme or "BIO"))}


def _column_lines(
    examples: Sequence[TaggedExample], predictions: Sequence[TagPrediction], scheme: str
) -> Iterator[str]:
    for example, prediction in zip(examples, predictions, strict=True):
        columns = [[word.replace(" ", "_") or "_" for word in example.words]]
        if example.tags is not None:
            columns.append(from_bio(example.tags, scheme))
        columns.append(from_bio(prediction.tags, scheme))
        yield from map(" ".join, zip(*columns, strict=True))
        yield ""


def _repaired(example: TaggedExample, scheme: Scheme, split: str, reader: Reader) -> TaggedExample:
    if not example.tags:
        return example
    read = to_bio(example.tags, scheme)
    tags, num_changed = repaired(read)
    if num_changed:
        index = next(index for index, (old, new) in enumerate(zip(read, tags, strict=True)) if old != new)
        detail = f"{example.tags[index]} on '{example.words[index]}' continues no entity"
        reader.add_example_problem("broken_tags", split, example.key, detail, num_changed)
    return replace(example, tags=tuple(tags))


def _entities(example: TaggedExample, tags: Sequence[str]) -> list[dict[str, Any]]:
    """Entities of a sentence. `start` and `end` are character offsets in the original text or, if unknown, in the words
    joined by spaces."""
    text = " ".join(example.words) if example.text is None else example.text
    offsets = word_offsets(example.words, text)
    entities = []
    for kind, first, after in tag_metrics.entities(tags):
        start, end = offsets[first][0], offsets[after - 1][1]
        entity = {"type": kind, "text": text[start:end], "start": start, "end": end}
        entities.append(entity | {"first_word": first, "last_word": after - 1})
    return entities


def word_offsets(words: Sequence[str], text: str) -> list[tuple[int, int]]:
    """The (start, end) character offsets of each word in `text`, which contains the words in this order.

    >>> word_offsets(("Ada", "ran", "."), " Ada  ran.")
    [(1, 4), (6, 9), (9, 10)]
    """
    offsets, end = [], 0
    for word in words:
        start = text.index(word, end)
        end = start + len(word)
        offsets.append((start, end))
    return offsets


def _word_tokens(windows: list) -> list[list[tuple[int, int]]]:
    """For each window the (word, token) pairs to predict at: each word's first token, in the window where it has the
    most context."""
    best: dict[int, tuple[float, int, int]] = {}
    for window_index, window in enumerate(windows):
        seen = set()
        for token, word in enumerate(window.word_ids):
            if word is None or word in seen:
                continue
            seen.add(word)
            context = min(token, len(window.ids) - 1 - token)
            # The first token of a later window may be inside a word; it loses, as it has no context to its left.
            if word not in best or context > best[word][0]:
                best[word] = (context, window_index, token)
    chosen: list[list[tuple[int, int]]] = [[] for _ in windows]
    for word, (_, window_index, token) in sorted(best.items()):
        chosen[window_index].append((word, token))
    return chosen
