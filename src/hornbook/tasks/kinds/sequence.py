"""What tasks on a text or a pair of texts have in common: reading, encoding, and programs that use a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hornbook.models.head_config import HeadConfig, HeadOptions, PairEncoding
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.records import DataSet, TextExample
from hornbook.tasks.task import Task

if TYPE_CHECKING:
    import tokenizers

    from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SequenceTask(Task):
    """A task on whole texts: the head maps `[CLS]` to one of `head_config.labels`, to several of them, or to a
    number."""

    accepted_inputs = "a text, a (text, pair), or a dictionary with text and optionally pair"
    example = TextExample
    output = "sequence"
    hf_class = "ForSequenceClassification"

    head_config: HeadConfig
    metrics: tuple[str, ...]

    @classmethod
    def refuse_training(cls, data: DataSet) -> None:
        if all(each.label in (None, ()) for each in data.splits["train"]):
            raise ValueError("no training example has a label: check which column has the labels, or name it by label=")

    @classmethod
    def from_text(cls, key: str, text: str) -> TextExample:
        return TextExample(key, text)

    @classmethod
    def from_list(cls, key: str, items: Sequence[Any]) -> TextExample | None:
        is_pair = len(items) == 2 and isinstance(items[0], str) and isinstance(items[1], str | None)
        return TextExample(key, *items) if is_pair else None

    @classmethod
    def head_config_for(cls, data: DataSet, options: HeadOptions) -> HeadConfig:
        return HeadConfig(
            "sequence", len(data.labels), data.labels, cls.problem_type, options.layers, options.pair_encoding
        )

    def encode(self, examples: Sequence[TextExample], tokenizer: "Tokenizer", max_length: int) -> EncodedExamples:
        targets = self.targets(examples) if all(each.label is not None for each in examples) else None
        if targets is not None and targets.dtype == float:
            targets = targets.astype(np.float32)
        encodings = encode_texts(examples, tokenizer, max_length, self.head_config.pair_encoding)
        return as_encoded_examples(*encodings, self.head_config.group_size, targets)

    def targets(self, examples: Sequence[TextExample]) -> np.ndarray:
        """The labels as numbers, one value or row per example; -1 for unknown classes."""
        raise NotImplementedError


def as_encoded_examples(
    encodings: "list[tokenizers.Encoding]", num_truncated: int, group_size: int, targets: np.ndarray | None
) -> EncodedExamples:
    """Examples from encodings, of which each `group_size` belong to one example, which has one target."""
    num_examples = len(encodings) // group_size
    return EncodedExamples(
        ids=[np.array(each.ids, np.int64) for each in encodings],
        segments=[np.array(each.type_ids, np.int64) for each in encodings],
        example_ids=np.repeat(np.arange(num_examples), group_size),
        num_examples=num_examples,
        labels=None if targets is None else np.repeat(targets, group_size, 0),
        group_size=group_size,
        num_truncated=num_truncated,
    )


def encode_texts(
    examples: Sequence[TextExample], tokenizer: "Tokenizer", max_length: int, pair_encoding: PairEncoding = "joint"
) -> tuple:
    """(encodings with special tokens, at least one token each; number of truncated texts). In a pair the longer text is
    truncated first, as published; with `pair_encoding="both"` both orders are truncated identically."""
    first = tokenizer.encode_batch([each.text for each in examples])
    has_pair = [each.pair is not None for each in examples]
    second = iter(tokenizer.encode_batch([each.pair for each in examples if each.pair is not None]))
    encodings, num_truncated = [], 0
    for one, paired in zip(first, has_pair, strict=True):
        two = next(second) if paired else None
        if pair_encoding != "joint" and two is None:
            raise ValueError(
                f"task.pair_encoding={pair_encoding!r} is for pairs of texts, but an example has only one text; "
                "give a pair (pair= names its column) or leave it out"
            )
        if pair_encoding == "separate":
            capacity = max_length - tokenizer.num_special(False)
            num_truncated += (len(one.ids) > capacity) + (len(two.ids) > capacity)
            for each in (one, two):
                each.truncate(capacity)
                encodings.append(_never_empty(tokenizer.with_special_tokens(each), tokenizer))
            continue
        capacity = max_length - tokenizer.num_special(paired)
        if pair_encoding == "both" and len(one.ids) == len(two.ids):
            capacity -= capacity % 2  # an odd token would go to one of the two texts depending on their order
        num_truncated += cut_pair(one, two, capacity)
        encodings.append(_never_empty(tokenizer.with_special_tokens(one, two), tokenizer))
        if pair_encoding == "both":
            encodings.append(_never_empty(tokenizer.with_special_tokens(two, one), tokenizer))
    return encodings, num_truncated


def _never_empty(encoding: "tokenizers.Encoding", tokenizer: "Tokenizer") -> "tokenizers.Encoding":
    """The encoding, or the end-of-text token alone if the encoding is empty: the head needs a token to read."""
    if encoding.ids:
        return encoding
    if tokenizer.eos_id is None:
        raise ValueError("a text is empty and the tokenizer has no end-of-text token to encode it as: remove the text")
    return tokenizer.backend.encode(tokenizer.token(tokenizer.eos_id), add_special_tokens=False)


def cut_pair(one, two, capacity: int) -> bool:
    """Truncates the longer text until both fit in `capacity` tokens. Returns whether anything was truncated."""
    first, second = len(one.ids), 0 if two is None else len(two.ids)
    if first + second <= capacity:
        return False
    if two is None:
        one.truncate(capacity)
        return True
    shorter = min(first, second)
    keep_shorter = min(shorter, capacity // 2)
    keep_longer = capacity - keep_shorter
    one.truncate(keep_longer if first > second else keep_shorter)
    two.truncate(keep_shorter if first > second else keep_longer)
    return True
