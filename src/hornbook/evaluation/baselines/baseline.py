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

from collections.abc import Callable
from pathlib import Path
from typing import Any

from hornbook.evaluation.baselines.tfidf import fit_tfidf, fit_vectors
from hornbook.files import absolute, write_json
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import changed_values
from hornbook.lifecycle.run_folder import RECORD, Log, RunFolder, ignore, recorded
from hornbook.runs.finetuning.inputs import LabelledTask, open_labelled
from hornbook.runs.finetuning.record import FinetuneRequest, refuse_other_data, write_task_record
from hornbook.runs.finetuning.single_run import TaskResult, open_and_run, score_splits, write_predictions, write_scores
from hornbook.tasks.records import DataSet, Example
from hornbook.train.job import OnProgress
from hornbook.train.runtime import torch_settings_restored


def start_run(
    out: Path, command: str, request: FinetuneRequest, options: dict[str, Any], data: DataSet
) -> TaskResult | None:
    """Records the request and returns None, or returns the scores if the same request is already finished in `out`.
    Raises a `ValueError` for a different request, unless the earlier one produced nothing."""
    folder = RunFolder(out, command)
    if folder.is_started(resume=True):
        run = folder.read_record(lambda run: dict(run["request"]))
        if [path.name for path in out.iterdir()] != [RECORD]:
            # The data may have moved: its content is compared.
            folder.refuse(changed_values(run["request"] | {"data": request.data}, request.to_dict() | options))
            refuse_other_data(folder, run, data)
            return TaskResult.read(out) if folder.is_finished else None
    write_task_record(folder, request, data, options)
    return None


def finish(
    out: Path, inputs: LabelledTask, predict: Callable[[str, list[Example]], list], fitted: dict[str, Any]
) -> TaskResult:
    """Scores `predict`, which takes the name of a split and its examples, on every labelled split. Writes `scores.json`
    in the format of fine-tuning, `predictions-dev.jsonl`, `task.json`, and what was `fitted` to `run.json`."""
    scored = score_splits(inputs, predict)
    write_predictions(out, inputs, scored)
    info = {"metric_for_best": scored.task.metrics[0], "train_examples": len(inputs.train), "fitted": fitted}
    splits = {"dev": inputs.dev, **inputs.other_splits()}
    num_not_scored = {name: len(inputs.data.splits[name]) - len(each) for name, each in splits.items()}
    info["not_scored"] = {name: num for name, num in num_not_scored.items() if num}
    write_json(out / RECORD, recorded(out) | info)
    write_scores(out, inputs, scored, losses=[])
    return TaskResult.read(out)


NAMES = ("majority", "tfidf", "vectors", "from-scratch")


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
    options = {"seed": seed, "strict": strict, "overrides": overrides, "device": device}
    options["from_scratch"] = name == "from-scratch"
    request, out = FinetuneRequest.of(model, data, task, **reading, **options), Path(out)
    if name == "from-scratch":
        return open_and_run(out, request, data, on_progress, log)
    return baseline_labelled(name, out, request, open_labelled(request, data, log), word_vectors=word_vectors, log=log)


def baseline_labelled(
    name: str,
    out: Path,
    request: FinetuneRequest,
    labelled: LabelledTask,
    *,
    word_vectors: str | Path | None = None,
    log: Log = ignore,
) -> TaskResult:
    """Like `baseline`, for data that is already read; any baseline except `from-scratch`."""
    source, model = None if word_vectors is None else absolute(word_vectors), request.model
    if done := start_run(out, "baseline", request, {"baseline": name, "word_vectors": source}, labelled.data):
        return done
    if name == "majority":
        predict, fitted = labelled.spec.task.majority(labelled.train), {}
    elif name == "tfidf":
        predict, fitted = fit_tfidf(labelled)
    else:
        predict, fitted = fit_vectors(labelled, source, model, log)
    return finish(out, labelled, lambda name, examples: predict(examples), fitted)
