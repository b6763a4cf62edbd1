"""Finds documents that contain text of an evaluation set, by sequences of words that they share.

A model that has seen the texts of a test in pre-training scores too high on it. As in the GPT-3 paper (Brown et al.
2020, arXiv 2005.14165, appendix C), a document counts as contaminated if it has 13 consecutive words in common with an
evaluation set, ignoring case, punctuation and white space. Shorter texts cannot be told from chance.
"""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from hornbook.data.duplicates import sequence_hashes
from hornbook.data.hash_set import contains_sorted
from hornbook.data.sources import ByteReader, format_of
from hornbook.data.text_encoding import encoding_of

SEQUENCE_WORDS = 13  # consecutive words that documents and evaluation sets must not share
EXCLUDED = "excluded.npy"  # hashes of the sequences, in the folder of a corpus while it is built
EVALUATION_FORMATS = (".txt", ".jsonl", ".json", ".csv", ".tsv", ".parquet")


class ExcludedTexts:
    """The word sequences of evaluation sets."""

    def __init__(self, hashes: np.ndarray):
        self.hashes = np.unique(hashes)

    @classmethod
    def from_sets(cls, sets: Sequence[str | Path | Sequence[str]]) -> "ExcludedTexts":
        """The sequences of files, of all files in folders except training data (`train*`), or of lists of texts."""
        hashes = [sequence_hashes(text, SEQUENCE_WORDS) for texts in sets for text in _all_texts(texts)]
        if not any(map(len, hashes)):
            names = ", ".join(str(texts) if isinstance(texts, str | Path) else "the list" for texts in sets)
            raise ValueError(f"{names} has no text of {SEQUENCE_WORDS} words or more to exclude: check exclude=")
        return cls(np.concatenate(hashes))

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.hashes.tobytes()).hexdigest()[:16]

    def overlap(self, text: str) -> bool:
        return bool(contains_sorted(self.hashes, sequence_hashes(text, SEQUENCE_WORDS)).any())


def _all_texts(texts: str | Path | Sequence[str]) -> Iterator[str]:
    if not isinstance(texts, str | Path):
        yield from texts
        return
    for file in _files(Path(texts)):
        yield from _texts(file)


def _files(path: Path) -> list[Path]:
    if not path.exists():
        raise ValueError(f"{path} does not exist: check exclude=")
    if path.is_dir():
        files = sorted(each for each in path.rglob("*") if each.is_file() and not each.name.startswith(("train", ".")))
    else:
        files = [path]
    files = [file for file in files if format_of(str(file), EVALUATION_FORMATS)]
    if not files:
        raise ValueError(f"{path} has no file to exclude: give one of {', '.join(EVALUATION_FORMATS)}")
    return files


def _texts(path: Path) -> Iterator[str]:
    """All texts in a file. A .txt, .csv or .tsv is one text: sequences across the ends of fields do no harm."""
    kind = format_of(str(path), EVALUATION_FORMATS)[0]
    if kind == ".parquet":
        yield from _parquet_texts(path)
        return
    reader = ByteReader(str(path))
    data = b"".join(reader.blocks())
    text = data.decode(encoding_of(data), "replace")
    if reader.failure:
        raise ValueError(f"{path} could not be read ({reader.failure.detail}): check exclude=")
    if kind not in (".json", ".jsonl"):
        yield text
        return
    try:
        for part in [text] if kind == ".json" else filter(str.strip, text.split("\n")):
            yield from _strings(json.loads(part))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}): check exclude=") from None


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _strings(each)


def _parquet_texts(path: Path) -> Iterator[str]:
    import pyarrow
    from pyarrow import parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(1000):
            for row in batch.to_pylist():
                yield from _strings(row)
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path} could not be read ({str(error).splitlines()[0]}): check exclude=") from None
