"""Nearest words by the cosine similarity of their vectors.

Shapes: V words with a vector, D vector size, Q query words.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from hornbook.inference.encoder import EncoderModel
from hornbook.inference.loaded import l2_normalized
from hornbook.runs.augmentation.filling import whole_words
from hornbook.text.word_vectors import lookup, read_vectors

MAX_WORDS = 100_000  # read from a file, which lists frequent words first; as published
QUERY_BATCH = 128


class NearestWords:
    """Searches `words`, whose vectors are the rows of `vectors_VD`. `vector_of` returns the vector of a query word, or
    None if it has none."""

    def __init__(self, words: Sequence[str], vectors_VD: np.ndarray, vector_of: Callable[[str], np.ndarray | None]):
        self.words, self.vector_of = list(words), vector_of
        self.vectors_VD = l2_normalized(np.asarray(vectors_VD, np.float32))
        self.known: dict[str, tuple[str, ...]] = {}

    @classmethod
    def from_file(cls, file: Path) -> "NearestWords":
        """Vectors from a text file. A query word is looked up as written, then in lower case."""
        vectors, _ = read_vectors(file, None, MAX_WORDS)
        return cls(list(vectors), np.stack(list(vectors.values())), lambda word: lookup(word, vectors))

    @classmethod
    def from_model(cls, encoder: EncoderModel) -> "NearestWords":
        """The token embeddings of a model: the vector of a query word is the mean over its tokens, and its neighbours
        are the tokens that are whole words."""
        tokenizer = encoder.tokenizer
        embeddings_VD = encoder.mask_filler.embeddings.tokens.weight.detach().float().cpu().numpy()
        token_ids = whole_words(tokenizer)
        prefix = " " if tokenizer.kind == "bpe" else ""  # BPE tokens include the space before a word

        def vector_of(word: str) -> np.ndarray | None:
            ids = [i for i in tokenizer.encode_batch([prefix + word])[0].ids if i != tokenizer.unk_id]
            return embeddings_VD[ids].mean(0) if ids else None

        return cls(list(token_ids), embeddings_VD[list(token_ids.values())], vector_of)

    def near(self, words: Sequence[str], num: int) -> dict[str, tuple[str, ...]]:
        """For each word the `num` nearest other words, nearest first; empty if it has no vector."""
        new = [word for word in dict.fromkeys(words) if word not in self.known]
        for first in range(0, len(new), QUERY_BATCH):
            vectors = {word: self.vector_of(word) for word in new[first : first + QUERY_BATCH]}
            queries = [word for word, vector in vectors.items() if vector is not None]
            self.known |= dict.fromkeys(vectors, ())
            if queries:
                cosines_QV = l2_normalized(np.stack([vectors[word] for word in queries])) @ self.vectors_VD.T
                for word, cosines_V in zip(queries, cosines_QV, strict=True):
                    self.known[word] = self._best(word, cosines_V, num)
        return {word: self.known[word] for word in words}

    def _best(self, word: str, cosines_V: np.ndarray, num: int) -> tuple[str, ...]:
        most = min(len(self.words), num + 2)  # the word itself may be among them, as written and in lower case
        indices = np.argpartition(-cosines_V, most - 1)[:most]
        indices = indices[np.lexsort((indices, -cosines_V[indices]))]
        others = (self.words[i] for i in indices)
        return tuple(other for other in others if other.lower() != word.lower())[:num]
