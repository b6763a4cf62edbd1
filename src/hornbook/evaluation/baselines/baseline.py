"""Baselines without pre-training, to compare fine-tuned models with.

| name         | texts and pairs           | words                     | choices                | spans            |
|--------------|---------------------------|---------------------------|------------------------|------------------|
| majority     | most frequent class       | most frequent tag         | most frequent position | no answer        |
| tfidf        | word unigrams and bigrams | most frequent tag of word | nearest to context     | a sliding window |
| vectors      | averaged word vectors     | vectors of word context   | nearest to context     | -                |
| from-scratch | the same network, fine-tuned from random weights, for every kind                                  |

Text features go through logistic regression, or ridge regression for numbers. Word vectors come from a file or are the
token embeddings of a model.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.evaluation.baselines.linear import fit_classes, fit_labels, sampled_words
from hornbook.evaluation.baselines.mean_vectors import Average, averages, cosines, paired
from hornbook.evaluation.baselines.rules import most_frequent_tags, nearest_choice, window_answers
from hornbook.evaluation.baselines.scored_folder import finish, start_run
from hornbook.evaluation.baselines.tfidf import TfidfFeatures, tfidf_cosines
from hornbook.files import absolute
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import with_device
from hornbook.lifecycle.run_folder import Log, ignore
from hornbook.runs.finetuning.inputs import Labelled, open_labelled
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.scores import TaskResult
from hornbook.runs.finetuning.single_run import open_and_run
from hornbook.tasks.encoded import softmax
from hornbook.tasks.kinds.tagging import TagPrediction
from hornbook.tasks.records import TaggedExample
from hornbook.tasks.task import Predict
from hornbook.train.job import OnProgress
from hornbook.train.runtime import torch_settings_restored

NAMES = ("majority", "tfidf", "vectors", "from-scratch")
NEIGHBOURS = 1  # words on either side whose vectors are concatenated with a word's own


@lock_output_folder
@torch_settings_restored()
def baseline(
    name: str,
    data: Any,
    task: str,
    out: str | Path,
    *,
    model: str | None = None,
    word_vectors: str | Path | None = None,
    seed: int = 0,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    overrides: dict | None = None,
    device: str = "auto",
    on_progress: OnProgress = ignore,
    log: Log = ignore,
) -> TaskResult:
    """Scores a baseline and writes the scores to the folder `out`, in the format of fine-tuning.

    >>> import hornbook
    >>> hornbook.baseline("majority", "reviews.csv", "classification", "runs/majority").score
    0.5

    The baseline `vectors` averages the word vectors in the text file `word_vectors`, or the token embeddings of
    `model`. `from-scratch` takes the size of its network from `model` and writes all files of a fine-tuning run.
    `overrides` are fine-tuning settings by dotted name, such as `examples`. `device` defaults to a GPU if there is one.
    Raises `Stopped` if its training was stopped.
    """
    if name not in NAMES:
        raise ValueError(f"there is no baseline '{name}': use {', '.join(NAMES)}")
    if name == "from-scratch" and model is None:
        raise ValueError("the baseline from-scratch takes the size of its network from a model: give model=")
    if name == "vectors" and model is None and word_vectors is None:
        raise ValueError("the baseline vectors needs word vectors: give a file of them by word_vectors=, or model=")
    reading = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    options = {
        "seed": seed,
        "strict": strict,
        "overrides": with_device(overrides, device),
        "from_scratch": name == "from-scratch",
    }
    request, out = FinetuneRequest.of(model, data, task, **reading, **options), Path(out)
    if name == "from-scratch":
        return open_and_run(out, request, data, on_progress, log)
    return baseline_labelled(name, out, request, open_labelled(request, data, log), word_vectors=word_vectors, log=log)


def baseline_labelled(
    name: str,
    out: Path,
    request: FinetuneRequest,
    labelled: Labelled,
    *,
    word_vectors: str | Path | None = None,
    log: Log = ignore,
) -> TaskResult:
    """Like `baseline`, for data that is already read; any baseline except `from-scratch`."""
    source, model = None if word_vectors is None else absolute(word_vectors), request.model
    if done := start_run(out, "baseline", request, {"baseline": name, "word_vectors": source}, labelled.data):
        return done
    fitted: dict[str, Any] = {}
    if name == "majority":
        predict = labelled.spec.task.majority(labelled.train)
    elif name == "tfidf":
        predict = _tfidf(labelled, fitted)
    else:
        predict = _word_vectors(labelled, source, model, fitted, log)
    return finish(out, labelled, predict, fitted)


def _tfidf(labelled: Labelled, fitted: dict[str, Any]) -> Predict:
    task, train = labelled.spec.task, labelled.train
    by_scope = {
        "text": lambda: _linear(labelled, TfidfFeatures(train).features, fitted),
        "word": lambda: most_frequent_tags(train),
        "choice": lambda: nearest_choice(task, tfidf_cosines(train)),
        "passage": lambda: window_answers(train),
    }
    return by_scope[task.label_scope]()


def _word_vectors(
    labelled: Labelled, source: str | None, model: str | None, fitted: dict[str, Any], log: Log
) -> Predict:
    task = labelled.spec.task
    by_scope = {
        "text": lambda: _linear(labelled, lambda examples: paired(average, examples), fitted),
        "word": lambda: _tagged(labelled, average, fitted, log),
        "choice": lambda: nearest_choice(task, lambda context, choices: cosines(average, choices, context)),
    }
    if task.label_scope not in by_scope:
        raise ValueError(f"the vectors baseline does not predict {task.name}: use the tfidf baseline")
    all_examples = (each for split in labelled.data.splits.values() for each in split)
    average = averages(source, model, all_examples, log)
    return by_scope[task.label_scope]()


def _linear(labelled: Labelled, features: Callable[[list], Any], fitted: dict[str, Any]) -> Predict:
    """Logistic or ridge regression on the `features` of the examples."""
    task, train, seed = labelled.spec.task, labelled.train, labelled.settings.runtime.seed
    model = fit_labels(task, features(train), task.targets(train), seed)
    fitted["strength"] = model.strength
    return lambda examples: task.decode(list(model.score(features(examples))), None, examples)


def _tagged(labelled: Labelled, average: Average, fitted: dict[str, Any], log: Log) -> Predict:
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
    model = fit_classes(rows[sample], tags[sample], len(labels), labelled.settings.runtime.seed)
    fitted["strength"] = model.strength

    def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
        predictions = []
        for each in examples:
            probabilities = softmax(model.score(features(each))) if each.words else np.zeros((0, len(labels)))
            tags = tuple(labels[i] for i in probabilities.argmax(1))
            predictions.append(TagPrediction(tags, tuple(probabilities.max(1, initial=0).tolist())))
        return predictions

    return predict
