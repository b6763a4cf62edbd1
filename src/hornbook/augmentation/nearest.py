"""The words whose vectors lie nearest to that of another word, by cosine.

Shapes: V words with a vector, D numbers of each, Q words that are asked for.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hornbook.augmentation.filling import whole_words
from hornbook.infer.encoder import EncoderModel
from hornbook.text.word_vectors import read_vectors

MOST_WORDS = 100_000  # of a file, which lists the frequent ones first; as published
ASKED_AT_ONCE = 128


class NearestWords:
    """`vector_of` gives the vector of a word, or None where it has none."""

    def __init__(self, words: Sequence[str], vectors_VD: np.ndarray, vector_of: Callable[[str], np.ndarray | None]):
        self.words, self.vector_of = list(words), vector_of
        self.vectors_VD = _of_length_one(np.asarray(vectors_VD, np.float32))
        self.known: dict[str, tuple[str, ...]] = {}

    @classmethod
    def from_file(cls, file: Path) -> "NearestWords":
        """A word of the data is looked up as it is written, or in lower case."""
        vectors, _ = read_vectors(file, None, MOST_WORDS)
        return cls(list(vectors), np.stack(list(vectors.values())), lambda word: _looked_up(word, vectors))

    @classmethod
    def from_model(cls, opened: EncoderModel) -> "NearestWords":
        """The token embeddings of a model: a word is the mean of its pieces, and near it are tokens that are words."""
        tokenizer, table = opened.tokenizer, opened.mask_filler.embeddings.tokens.weight.detach().float().cpu().numpy()
        numbers = whole_words(tokenizer)

        before = " " if tokenizer.kind == "bpe" else ""  # whose pieces carry the space before a word

        def vector_of(word: str) -> np.ndarray | None:
            ids = [each for each in tokenizer.encode_batch([before + word])[0].ids if each != tokenizer.unk_id]
            return table[ids].mean(0) if ids else None

        return cls(list(numbers), table[list(numbers.values())], vector_of)

    def near(self, words: Sequence[str], number: int) -> dict[str, tuple[str, ...]]:
        """For each word so many others, the nearest first; none where it has no vector."""
        unknown = [word for word in dict.fromkeys(words) if word not in self.known]
        for first in range(0, len(unknown), ASKED_AT_ONCE):
            some = {word: self.vector_of(word) for word in unknown[first : first + ASKED_AT_ONCE]}
            self.known |= {word: () for word, vector in some.items() if vector is None}
            asked = [word for word, vector in some.items() if vector is not None]
            if asked:
                cosines_QV = _of_length_one(np.stack([some[word] for word in asked])) @ self.vectors_VD.T
                self.known |= {word: self._best(word, row, number) for word, row in zip(asked, cosines_QV, strict=True)}
        return {word: self.known[word] for word in words}

    def _best(self, word: str, cosines_V: np.ndarray, number: int) -> tuple[str, ...]:
        most = min(len(self.words), number + 2)  # the word itself may be there, as written and in lower case
        places = np.argpartition(-cosines_V, most - 1)[:most]
        places = places[np.lexsort((places, -cosines_V[places]))]
        others = (self.words[place] for place in places)
        return tuple(other for other in others if other.lower() != word.lower())[:number]


def _looked_up(word: str, vectors: dict[str, np.ndarray]) -> np.ndarray | None:
    return vectors.get(word, vectors.get(word.lower()))


def _of_length_one(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
