"""Reads word vectors in the text format of GloVe and word2vec: one word and its values per line."""

from pathlib import Path

import numpy as np

COMPRESSED = (".gz", ".zip", ".bz2", ".xz")


def read_vectors(file: Path, wanted: set[str] | None, most: int | None = None) -> tuple[dict[str, np.ndarray], int]:
    """(vectors by word, their dimension), for the words in `wanted`, or for all if it is None. A line is a word and its
    values, separated by spaces; a header line with the number of words and dimensions is skipped. Reading stops after
    `most` words."""
    if not file.exists():
        raise ValueError(f"{file} does not exist: give a file of word vectors")
    if not file.is_file():
        raise ValueError(f"{file} is not a file of word vectors")
    if file.suffix in COMPRESSED:
        raise ValueError(f"{file} is compressed: decompress it first")
    vectors: dict[str, np.ndarray] = {}
    width = 0
    with open(file, encoding="utf-8", errors="replace") as lines:
        for line_number, line in enumerate(lines, 1):
            fields = line.rstrip().split(" ")
            if line_number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                continue
            if "\0" in line:
                raise ValueError(f"{file} is not text: write the vectors as text, one word and its values per line")
            width = width or len(fields) - 1
            if len(fields) <= width or width < 1:
                raise ValueError(
                    f"{file} line {line_number}: {len(fields) - 1} values after the word, expected {max(width, 1)}"
                )
            word = " ".join(fields[: len(fields) - width])
            if (wanted is None or word in wanted) and word not in vectors:
                try:
                    vectors[word] = np.array(fields[-width:], np.float32)
                except ValueError:
                    raise ValueError(
                        f"{file} line {line_number}: the values after the word are not all numbers"
                    ) from None
                if len(vectors) == most:
                    break
    if not width:
        raise ValueError(f"{file} is empty: it must have one word and its values per line")
    return vectors, width


def forms_of(word: str) -> tuple[str, str]:
    """The forms under which a word is looked up: as written, and in lower case."""
    return word, word.lower()


def lookup(word: str, vectors: dict[str, np.ndarray]) -> np.ndarray | None:
    return next((vectors[form] for form in forms_of(word) if form in vectors), None)
