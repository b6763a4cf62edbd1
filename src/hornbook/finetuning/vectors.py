"""Averaged word vectors: from a file of them, or the token embeddings of a model."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.finetuning.tfidf import TOKEN
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.tasks.records import Example, TextExample
from hornbook.text.word_vectors import read_vectors

Average = Callable[[Sequence[str]], np.ndarray]  # texts to rows


def texts_in(example: Example) -> tuple[str, ...]:
    """All that is written in an example."""
    if isinstance(example, TextExample):
        return (example.text,) if example.pair is None else (example.text, example.pair)
    if hasattr(example, "words"):
        return example.words
    return (f"{example.context} {example.beginning}", *example.endings)


def averages(source: str | None, model: str | None, examples: Iterable[Example], log: Callable[[str], None]) -> Average:
    """How a text becomes the mean of its words' vectors; one without any known word is all 0."""
    if source is not None:
        parts = {part for each in examples for text in texts_in(each) for part in text.split()}
        wanted = {form for part in parts for word in (part, *TOKEN.findall(part)) for form in _forms(word)}
        vectors, width = read_vectors(Path(source), wanted)
        if not vectors:
            raise ValueError(f"{source} has a vector for none of the words in the data: is it of another language?")
        log(f"{source}: vectors of {width} numbers for {len(vectors):,} of the words in the data")
        return lambda texts: np.stack([_mean(_found(text, vectors), width) for text in texts])
    if model is None:
        raise ValueError("averaged word vectors need a file of them (vectors=) or a model whose token embeddings serve")
    network, tokenizer = load_folder(model_folder(model))
    table = network.embeddings.tokens.weight.detach().numpy()

    def average(texts: Sequence[str]) -> np.ndarray:
        pieces = [each.ids for each in tokenizer.encode_batch(list(texts))]
        return np.stack([_mean(list(table[ids]), table.shape[1]) for ids in pieces])

    return average


def _forms(part: str) -> list[str]:
    """How a word may stand in the file: as written, or in lower case."""
    return [part, part.lower()]


def _known(part: str, vectors: dict[str, np.ndarray]) -> np.ndarray | None:
    return next((vectors[form] for form in _forms(part) if form in vectors), None)


def _found(text: str, vectors: dict[str, np.ndarray]) -> list[np.ndarray | None]:
    """The vectors of a text's words; what has none as it stands, such as "end.", is taken apart."""
    found = []
    for part in text.split():
        whole = _known(part, vectors)
        found += [whole] if whole is not None else [_known(each, vectors) for each in TOKEN.findall(part)]
    return found


def _mean(vectors: list, width: int) -> np.ndarray:
    vectors = [each for each in vectors if each is not None]
    return np.mean(vectors, 0, dtype=np.float32) if vectors else np.zeros(width, np.float32)


def paired(average: Average, examples: Sequence[TextExample]) -> np.ndarray:
    """A row for each example; of pairs u, v, |u - v| and u * v."""
    first = average([each.text for each in examples])
    if examples[0].pair is None:
        return first
    second = average([each.pair or "" for each in examples])
    return np.concatenate([first, second, np.abs(first - second), first * second], 1)


def cosines(average: Average, texts: Sequence[str], to: str) -> np.ndarray:
    found: Any = average([to, *texts])
    lengths = np.linalg.norm(found, axis=1)
    return found[1:] @ found[0] / np.maximum(lengths[1:] * lengths[0], 1e-12)
