"""The label curve: dev score against the number of labelled examples, for fine-tuning, frozen features, the same
network from random weights, and baselines: the methods of the curve.

OUT/curve.json                  {"metric_for_best", "points": [{"method", "examples", "score", "low", "high", "seeds"}]}
OUT/run.json                    the request
OUT/jobs/finetune-128-seed-0/   the run of a method, size and seed with its scores; a finished run is not repeated

For a given size and seed, every method trains on the same examples, sampled from the training split.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.config import checked
from hornbook.evaluation.baselines.baseline import NAMES, baseline_labelled, start_run
from hornbook.evaluation.baselines.probe import probe_inputs, with_defaults
from hornbook.files import absolute, read_json, write_json
from hornbook.inference.features import DEFAULT_LAYERS, Pooling
from hornbook.lifecycle.job_locks import JobLocks, lock_or_join_output_folder
from hornbook.lifecycle.run_folder import SCORES, Log, ignore
from hornbook.metrics.confidence_intervals import mean_interval
from hornbook.runs.finetuning.inputs import FinetuneInputs, open_inputs, refuse_without_baselines
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.single_run import clean_up, run_once
from hornbook.tasks.records import Example
from hornbook.train.job import OnProgress
from hornbook.train.randomness import sample_of
from hornbook.train.runtime import torch_settings_restored

METHODS = ("from-scratch", "features", "finetune", "tfidf")
FINETUNED = ("from-scratch", "finetune")
FIRST_SIZE, GROWTH = 32, 4
MIN_STEPS = 100  # training steps: three epochs over 32 examples would be three steps
NUM_VALIDATIONS = 3  # whatever the number of epochs: each validation is a chance to select a lucky checkpoint on dev


@lock_or_join_output_folder
@torch_settings_restored()
def label_curve(
    model: str,
    data: Any,
    task: str,
    out: str | Path,
    *,
    sizes: Sequence[int | str] | None = None,
    methods: Sequence[str] = METHODS,
    seeds: int = 3,
    layers: str = DEFAULT_LAYERS,
    pooling: Pooling | None = None,
    word_vectors: str | Path | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    overrides: dict | None = None,
    device: str = "auto",
    join: bool = False,
    on_progress: OnProgress = ignore,
    log: Log = ignore,
) -> dict[str, Any]:
    """Scores by number of labels, as in `curve.json`. Calling it again continues where it stopped, or adds more sizes,
    methods or seeds.

    >>> import hornbook
    >>> options = {"sizes": [8], "methods": ["tfidf"], "seeds": 1}
    >>> hornbook.label_curve("runs/first", "reviews.csv", "classification", "runs/curve", **options)["metric_for_best"]
    'accuracy'

    `sizes` are numbers of examples or "all"; they default to 32, 128, 512 and so on, and all. Small sizes train for at
    least 100 steps unless `overrides` sets `epochs`. The weights of finished runs are deleted.
    With `join`, the runs are shared with other processes that have the same arguments and `out`: each takes runs that
    none has taken, and waits for the rest; those of a process that dies are taken over. `device` defaults to a GPU if
    there is one. Raises `Stopped` if a training was stopped.
    """
    known = ("features", "finetune", *NAMES)
    if unknown := [method for method in methods if method not in known]:
        raise ValueError(f"there is no method '{unknown[0]}' in a label curve: use some of {', '.join(known)}")
    if not methods:
        raise ValueError(f"a label curve needs at least one method: use some of {', '.join(known)}")
    seeds = checked(seeds, int, "seeds", low=1, high=1000)
    reading = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    options = {"seed": 0, "strict": strict, "overrides": overrides, "device": device}
    request = FinetuneRequest.of(model, data, task, **reading, **options)
    refuse_without_baselines(task)
    inputs = open_inputs(request, data, log)
    features, sizes = {"layers": layers, "pooling": pooling}, chosen_sizes(sizes, len(inputs.train))
    vectors = None if word_vectors is None else absolute(word_vectors)
    curve = _Curve(Path(out), request, inputs, methods, sizes, seeds, features, vectors)
    job_locks = JobLocks(out, is_shared=join)
    with job_locks.wait_for("start"):
        curve.start()
    for name in job_locks.share(curve.missing, curve.is_done, should_stop=lambda: False, log=log):
        curve.run(name, on_progress, log)
        with job_locks.wait_for("results"):
            curve.write()
    for name in curve.runs:
        with job_locks.take(name) as is_mine:
            if is_mine:
                curve.tidy(name)
    with job_locks.wait_for("results"):
        return curve.write()


@dataclass(frozen=True)
class _Curve:
    """A label curve in the folder `out`: one run for each size, method and seed."""

    out: Path
    request: FinetuneRequest
    inputs: FinetuneInputs
    methods: Sequence[str]
    sizes: Sequence[int]
    seeds: int
    features: dict[str, Any]  # the layers and the pooling of frozen features
    word_vectors: str | None

    @cached_property
    def runs(self) -> dict[str, tuple[str, int, int]]:
        """Method, size and seed of each run by its name."""
        runs = itertools.product(self.sizes, self.methods, range(self.seeds))
        return {f"{method}-{size}-seed-{seed}": (method, size, seed) for size, method, seed in runs}

    def folder(self, name: str) -> Path:
        return self.out / "jobs" / name

    def is_done(self, name: str) -> bool:
        return (self.folder(name) / SCORES).exists()

    def missing(self) -> list[str]:
        return [name for name in self.runs if not self.is_done(name)]

    def start(self) -> None:
        """Records the request. Sizes, methods and seeds may be added later; everything else must stay the same."""
        options = self.features | {"word_vectors": self.word_vectors}
        start_run(self.out, "label-curve", self.request, options, self.inputs.data)

    def run(self, name: str, on_progress: OnProgress, log: Log) -> None:
        method, size, seed = self.runs[name]
        log(f"{list(self.runs).index(name) + 1} of {len(self.runs)}: {method}, {size:,} examples, seed {seed}")
        request = replace(self.request, seed=seed, overrides=self.request.overrides | {"examples": size})
        inputs, folder = self.inputs, self.folder(name)
        examples = sample_of(inputs.train, size, seed, "label curve")
        if method in FINETUNED or (method == "features" and inputs.spec.task.label_scope == "passage"):
            _train(method, folder, request, inputs, examples, on_progress)
        elif method == "features":
            chosen = inputs.with_request(with_defaults(request)).replaced(train=examples)
            probe_inputs(folder, request, chosen, **self.features, on_progress=on_progress)
        else:
            chosen = inputs.with_request(request).replaced(train=examples)
            baseline_labelled(method, folder, request, chosen, word_vectors=self.word_vectors)
        self.tidy(name)

    def tidy(self, name: str) -> None:
        """Deletes the weights of a finished run, which may have been killed before its last steps."""
        folder = self.folder(name)
        if self.runs[name][0] in FINETUNED and not (folder / "README.md").exists():
            clean_up(folder)
        for weights in folder.rglob("*.safetensors"):
            weights.unlink()

    def write(self) -> dict[str, Any]:
        """Writes and returns the curve of all finished runs, including those of earlier calls. `finished` is whether
        all runs of this call are."""
        done: dict[tuple[str, int], list[dict]] = {}
        for file in sorted((self.out / "jobs").glob(f"*/{SCORES}")):
            method, size, _, _ = file.parent.name.rsplit("-", 3)
            done.setdefault((method, int(size)), []).append(read_json(file))
        metric_for_best = next((each[0]["metric_for_best"] for each in done.values()), None)
        points = [
            {
                "method": method,
                "examples": size,
                **_interval([each["splits"]["dev"][metric_for_best] for each in scores], metric_for_best),
            }
            for (method, size), scores in sorted(done.items())
        ]
        curve = {"metric_for_best": metric_for_best, "finished": not self.missing(), "points": points}
        write_json(self.out / "curve.json", curve)
        return curve


def chosen_sizes(requested: Sequence[int | str] | None, total: int) -> list[int]:
    """The requested sizes in increasing order without duplicates, each at most `total`.

    >>> chosen_sizes(None, 600)
    [32, 128, 512, 600]
    """
    if requested is None:
        growing = (FIRST_SIZE * GROWTH**i for i in range(64))
        requested = [size for size in growing if size < total] + ["all"]
    sizes = set()
    for size in requested:
        text = str(size).strip().lower()
        if text != "all" and (not text.isdecimal() or int(text) < 1):
            raise ValueError(f"a size of the label curve must be a number of examples or 'all', not '{size}'")
        sizes.add(total if text == "all" else min(int(text), total))
    if not sizes:
        raise ValueError("the list of sizes is empty: give some, such as 32,128,all, or leave the option out")
    return sorted(sizes)


def _train(
    method: str,
    folder: Path,
    request: FinetuneRequest,
    inputs: FinetuneInputs,
    examples: list[Example],
    on_progress: OnProgress,
) -> None:
    settings, overrides = inputs.settings, dict(request.overrides)
    steps_per_epoch = math.ceil(len(examples) / settings.batch_size)
    epochs = overrides.setdefault("epochs", max(settings.epochs, MIN_STEPS / steps_per_epoch))
    num_steps = steps_per_epoch * float(epochs)
    overrides.setdefault("validation.every_steps", max(1, round(num_steps / NUM_VALIDATIONS)))
    if method == "features":  # there is no scikit-learn probe for spans: only the head is trained
        overrides["layers.frozen"] = -1
    request = replace(request, from_scratch=method == "from-scratch", overrides=overrides)
    chosen = inputs.with_request(request).replaced(train=examples)
    run_once(folder, chosen, on_progress, log=ignore)  # the data were already logged once


def _interval(of_seeds: list[dict[str, float]], metric: str) -> dict[str, Any]:
    """The mean over seeds with its 95% t interval, clipped to the range of the metric. With one seed, or if all seeds
    have the same score (a linear model on all examples), the bootstrap interval over the dev examples."""
    scores = [each["value"] for each in of_seeds]
    mean = float(np.mean(scores))
    spread = float(np.std(scores, ddof=1)) if len(scores) > 1 else 0.0
    if spread < 1e-12:
        return {"score": mean, "low": of_seeds[0]["low"], "high": of_seeds[0]["high"], "seeds": scores}
    low, high = mean_interval(scores)
    lowest = -1.0 if metric in ("matthews", "pearson", "spearman") else 0.0
    return {"score": mean, "low": max(lowest, low), "high": min(1.0, high), "seeds": scores}
