"""The `vectors` baseline: a linear model on means of word vectors, or the choice nearest to its context. The vectors
come from a file, or are the token embeddings of a model."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.evaluation.baselines.linear import fit_logistic, fit_texts, sampled_words
from hornbook.evaluation.baselines.tfidf import TOKEN, nearest_choice
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.run_folder import Log
from hornbook.runs.finetuning.inputs import LabelledTask
from hornbook.tasks.encoded import softmax
from hornbook.tasks.kinds.tagging import TagPrediction
from hornbook.tasks.records import Example, TaggedExample, TextExample
from hornbook.tasks.task import Predict
from hornbook.text.word_vectors import forms_of, lookup, read_vectors

NEIGHBOURS = 1  # words on either side whose vectors are concatenated with a word's own
Average = Callable[[Sequence[str]], np.ndarray]  # texts to rows


def fit_vectors(
    labelled: LabelledTask, source: str | None, model: str | None, log: Log
) -> tuple[Predict, dict[str, Any]]:
    """The function that predicts, and what was fitted. The vectors come from the file `source` or, if it is None, from
    `model`."""
    task = labelled.spec.task
    if task.label_scope == "passage":
        raise ValueError(f"the vectors baseline does not predict {task.kind}: use the tfidf baseline")
    all_examples = (each for split in labelled.data.splits.values() for each in split)
    average = averages(source, model, all_examples, log)
    if task.label_scope == "text":
        return fit_texts(labelled, lambda examples: paired(average, examples))
    if task.label_scope == "word":
        return _fit_words(labelled, average, log)
    return nearest_choice(task, lambda context, choices: cosines(average, choices, context)), {}


def _fit_words(labelled: LabelledTask, average: Average, log: Log) -> tuple[Predict, dict[str, Any]]:
    """Logistic regression on the concatenated vectors of a word and its neighbours."""
    labels, train = labelled.spec.task.head_config.labels, labelled.train
    label_ids = {label: i for i, label in enumerate(labels)}

    def features(example: TaggedExample) -> np.ndarray:
        rows = np.pad(average(example.words), ((NEIGHBOURS, NEIGHBOURS), (0, 0)))
        return np.concatenate([rows[i : i + len(example.words)] for i in range(2 * NEIGHBOURS + 1)], 1)

    train = [each for each in train if each.words]
    rows = np.concatenate([features(each) for each in train])
    tags = np.array([label_ids[tag] for each in train for tag in each.tags])
    sample = sampled_words(len(tags), labelled.settings.runtime.seed, log)
    model = fit_logistic(rows[sample], tags[sample], len(labels), labelled.settings.runtime.seed)

    def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
        predictions = []
        for each in examples:
            probabilities = (
                softmax(model.decision_function(features(each))) if each.words else np.zeros((0, len(labels)))
            )
            tags = tuple(labels[i] for i in probabilities.argmax(1))
            predictions.append(TagPrediction(tags, tuple(probabilities.max(1, initial=0).tolist())))
        return predictions

    return predict, model.params


def averages(source: str | None, model: str | None, examples: Iterable[Example], log: Log) -> Average:
    """A function from texts to the means of their word vectors, one row per text; a text without any known word is 0.
    The vectors come from the file `source` or, if it is None, from the token embeddings of `model`."""
    if source is not None:
        words = {word for each in examples for text in each.texts for word in text.split()}
        forms = {form for word in words for each in (word, *TOKEN.findall(word)) for form in forms_of(each)}
        vectors, width = read_vectors(Path(source), forms)
        if not vectors:
            raise ValueError(f"{source} has no vectors for the words in the data: check that its language is the same")
        log(f"{source}: vectors of size {width} for {len(vectors):,} of the words in the data")
        return lambda texts: np.stack([_mean(_known_vectors(text, vectors), width) for text in texts])
    network, tokenizer = load_folder(model_folder(model))
    table = network.embeddings.tokens.weight.detach().numpy()

    def average(texts: Sequence[str]) -> np.ndarray:
        encodings = tokenizer.encode_batch(list(texts))
        return np.stack([_mean(list(table[each.ids]), table.shape[1]) for each in encodings])

    return average


def _known_vectors(text: str, vectors: dict[str, np.ndarray]) -> list[np.ndarray | None]:
    """The vectors of a text's words; a word without a vector, such as "end.", is split at punctuation."""
    of_words = []
    for word in text.split():
        whole = lookup(word, vectors)
        of_words += [whole] if whole is not None else [lookup(each, vectors) for each in TOKEN.findall(word)]
    return of_words


def _mean(vectors: list, width: int) -> np.ndarray:
    vectors = [each for each in vectors if each is not None]
    return np.mean(vectors, 0, dtype=np.float32) if vectors else np.zeros(width, np.float32)


def paired(average: Average, examples: Sequence[TextExample]) -> np.ndarray:
    """One row per example; for pairs the concatenation [u, v, |u - v|, u * v]."""
    first = average([each.text for each in examples])
    if examples[0].pair is None:
        return first
    second = average([each.pair or "" for each in examples])
    return np.concatenate([first, second, np.abs(first - second), first * second], 1)


def cosines(average: Average, texts: Sequence[str], to: str) -> np.ndarray:
    """The cosine of the mean vector of each text with that of the text `to`."""
    vectors = average([to, *texts])
    norms = np.linalg.norm(vectors, axis=1)
    return vectors[1:] @ vectors[0] / np.maximum(norms[1:] * norms[0], 1e-12)
