"""Examples whose texts also occur in the training data, which make a score too optimistic."""

import unicodedata
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path

import numpy as np

from hornbook.data.shards import load_array, write_array
from hornbook.files import refusing_damage
from hornbook.metrics.formatting import cut
from hornbook.tasks.records import Example

TRAINING_TEXTS = "training_texts.npy"  # in a run folder: a hash of the texts of each training example
SHOWN = 60  # characters of an example in a note


def text_hash(example: Example) -> int:
    """64 bits that are the same for texts that differ only in case, white space or the form of Unicode.

    >>> from hornbook.tasks.records import TextExample
    >>> text_hash(TextExample("1", "A charming journey.")) == text_hash(TextExample("2", "a  charming JOURNEY. "))
    True
    """
    texts = (" ".join(unicodedata.normalize("NFKC", text).casefold().split()) for text in example.texts)
    return int.from_bytes(blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).digest())


def shown(example: Example) -> str:
    """The texts of an example as a note quotes them."""
    return repr(cut(" ||| ".join(example.texts), SHOWN))


def write_training_texts(run: Path, examples: Sequence[Example]) -> None:
    hashes = np.unique(np.fromiter(map(text_hash, examples), np.uint64, len(examples)))
    write_array(run / TRAINING_TEXTS, hashes)


def in_training_texts(run: Path, examples: Sequence[Example]) -> list[Example]:
    """The examples whose texts a run was trained on; none if its folder does not say."""
    file = run / TRAINING_TEXTS
    if not examples or not file.is_file():
        return []
    with refusing_damage(file, "remove it to score without this check"):
        known = load_array(file)
    is_known = np.isin(np.fromiter(map(text_hash, examples), np.uint64, len(examples)), known)
    return [examples[index] for index in np.flatnonzero(is_known)]
