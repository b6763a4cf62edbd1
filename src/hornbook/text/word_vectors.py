"""Files of word vectors, as GloVe and word2vec write them in text: a line is a word and its numbers."""

from pathlib import Path

import numpy as np

PACKED = (".gz", ".zip", ".bz2", ".xz")


def read_vectors(file: Path, wanted: set[str] | None, most: int | None = None) -> tuple[dict[str, np.ndarray], int]:
    """The vectors of the wanted words (None: of all), and how many numbers each has. A line is a word and its numbers,
    with spaces between; a first line that only counts words and numbers is passed over. Other words are not kept, and
    no line is read after `most` kept words."""
    if not file.exists():
        raise ValueError(f"{file} does not exist: name a file of word vectors")
    if not file.is_file():
        raise ValueError(f"{file} is not a file of word vectors")
    if file.suffix in PACKED:
        raise ValueError(f"{file} is packed: unpack it first")
    found: dict[str, np.ndarray] = {}
    width = 0
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            fields = line.rstrip().split(" ")
            if number == 1 and len(fields) == 2 and all(field.isdigit() for field in fields):
                continue
            if "\0" in line:
                raise ValueError(f"{file} is not text: write the vectors as text, a word and its numbers a line")
            width = width or len(fields) - 1
            if len(fields) <= width or width < 1:
                raise ValueError(f"{file} line {number}: {len(fields) - 1} numbers after a word, not {max(width, 1)}")
            word = " ".join(fields[: len(fields) - width])
            if (wanted is None or word in wanted) and word not in found:
                found[word] = _numbers(fields[-width:], file, number)
                if len(found) == most:
                    break
    if not width:
        raise ValueError(f"{file} is empty: a line of a vectors file is a word and its numbers")
    return found, width


def _numbers(fields: list[str], file: Path, line: int) -> np.ndarray:
    try:
        return np.array(fields, np.float32)
    except ValueError:
        raise ValueError(f"{file} line {line}: what stands after the word is not all numbers") from None
