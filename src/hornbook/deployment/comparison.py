"""Compares models: size, FLOPs, latency, throughput, score, and score relative to the first.

OUT/comparison.json     all numbers; `hornbook report OUT` makes `comparison.png` and `report.html` from it

The first model is the reference, such as the teacher of the students after it.
"""

import platform
import statistics
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import hornbook
from hornbook.batch import Batch
from hornbook.deployment.measuring import (
    MeasuredModel,
    check_timing,
    open_measured_model,
    percentiles_ms,
    seconds_on_cpu,
    time_interleaved,
)
from hornbook.devices import chosen_device, inference_autocast
from hornbook.files import num_cores, read_json, read_json_if_exists, write_json
from hornbook.interop.onnx import OnnxModel
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.run_folder import RECORD, SCORES, OnCount, ignore
from hornbook.report.formatting import counted
from hornbook.report.measured import COMPARISON_FILE, EXPORT_FILE
from hornbook.tasks.encoded import EncodedExamples

NUM_TIMED = 64  # examples of the data, or random inputs, that are timed
SEED = 0  # of the random inputs
ROUNDS_PER_BATCH_ROUND = 10  # rounds of single inputs per round of batches


@lock_output_folder
def compare(
    names: Sequence[str | Path],
    *,
    data: Any = None,
    split: str | None = None,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    out: Path | None = None,
    length: int = 128,
    rounds: int = 100,
    threads: int = 1,
    batch_size: int = 32,
    batch_threads: int | None = None,
    device: str = "auto",
    on_progress: OnCount = ignore,
) -> dict[str, Any]:
    """Measures runs, models and exported folders, and returns the contents of `comparison.json`.

    >>> import hornbook
    >>> hornbook.compare(["runs/reviews", "runs/small-reviews"], data="more-reviews.csv")  # doctest: +SKIP

    With `data`, all models are scored on it and timed on its examples; without, scores are those that the runs
    recorded, and inputs of `length` random tokens are timed. Latency is measured for one input on `threads` CPU
    threads; throughput for batches of `batch_size` on `batch_threads` (none: all cores) and, unless `device` is cpu, on
    the GPU if there is one. Scores are computed on `device`.
    """
    settings = {"length": length, "rounds": rounds, "threads": threads, "batch_size": batch_size}
    settings["batch_threads"] = num_cores() if batch_threads is None else batch_threads
    settings = check_timing(settings)
    if not names:
        raise ValueError("there is nothing to compare: give runs, models or exported folders, the reference first")
    device = chosen_device(device)
    models = [open_measured_model(name) for name in names]
    if out is not None and (contents := _other_contents(Path(out), [model.name for model in models])):
        raise ValueError(f"{out} {contents}: choose another folder")
    _check_tasks(models, data)
    columns = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    scores, info = _score(models, data, split, columns, device, on_progress) if data is not None else _recorded(models)
    inputs = _inputs(models, data, info.get("split"), columns, max(batch_size, NUM_TIMED), length)
    rows = [_row(*each) for each in zip(models, inputs, scores, strict=True)]
    _add_times(rows, models, inputs, settings, device, on_progress)
    _add_relative(rows)
    comparison = {
        "hornbook": hornbook.__version__,
        **info,
        **settings,
        "data": None if data is None else str(data),
        "devices": _devices(settings, device),
        "rows": rows,
    }
    if out is not None:
        write_json(Path(out) / COMPARISON_FILE, comparison)
    return comparison


def _other_contents(out: Path, names: list[str]) -> str:
    """Describes contents that must not be overwritten; "" if the folder is empty or compares the same models."""
    if (out / COMPARISON_FILE).exists():
        compared = [row["name"] for row in read_json(out / COMPARISON_FILE)["rows"]]
        return "" if compared == names else f"holds a comparison of {', '.join(compared)}"
    return "holds something other than a comparison" if out.is_dir() and any(out.iterdir()) else ""


def _check_tasks(models: Sequence[MeasuredModel], data: Any) -> None:
    """Raises unless the models have the same task, and a task head if there is data to score them on."""
    if data is not None and (bare := next((each for each in models if each.predictor is None), None)):
        raise ValueError(
            f"{bare.name} has no task head, so it cannot be scored on data: fine-tune it first, or leave out data to "
            "compare only size and speed"
        )
    of_task = [each for each in models if each.predictor is not None]
    for other in of_task[1:]:
        first, second = of_task[0].predictor.spec, other.predictor.spec
        if (first.name, first.task.kind) != (second.name, second.task.kind):
            raise ValueError(
                f"{of_task[0].name} is for {first.name} and {other.name} for {second.name}, so their scores cannot be "
                "compared: give models of one task"
            )


# ---- scores


def _score(
    models: Sequence[MeasuredModel],
    data: Any,
    split: str | None,
    columns: dict[str, str | None],
    device: str,
    on_progress: OnCount,
) -> tuple[list[dict | None], dict[str, Any]]:
    """Returns the score of each model on the data, and the task, metric, split and notes."""
    scores, noted = [], {}
    if not any(columns[role] for role in ("text", "pair", "label")):
        columns = columns | models[0].predictor.members[0].columns
    for model in models:
        model.predictor.to(device)
        doing = f"{model.name}: examples scored"
        evaluated = model.predictor.evaluate(
            data, split=split, **columns, on_progress=lambda done, doing=doing: on_progress(doing, done)
        )
        model.predictor.to("cpu")
        # One split is compared: dev, else the first.
        chosen = "dev" if "dev" in evaluated["splits"] else next(iter(evaluated["splits"]))
        metric_for_best = evaluated["metric_for_best"]
        scores.append(evaluated["splits"][chosen][metric_for_best])
        for note in evaluated["notes"]:
            noted.setdefault(note, []).append(model.name)
    notes = [*(f"{', '.join(names)}: {note}" for note, names in noted.items()), *_degenerate_notes(models)]
    return scores, {"task": evaluated["task"], "metric_for_best": metric_for_best, "split": chosen, "notes": notes}


def _recorded(models: Sequence[MeasuredModel]) -> tuple[list[dict | None], dict[str, Any]]:
    """The dev scores that the runs recorded (None where there is none), and the task, metric, split and notes."""
    of_task = [each for each in models if each.predictor is not None]
    if not of_task:
        return [None] * len(models), {"notes": []}
    metric_for_best = of_task[0].predictor.task.metrics[0]
    found = [_recorded_score(model, metric_for_best) for model in models]
    scores, notes = [score for score, _ in found], _degenerate_notes(models)
    without = [each.name for each, score in zip(models, scores, strict=True) if score is None]
    if without and len(without) < len(models):
        notes.append(f"there is no recorded score of {', '.join(without)}: give data= to score all models")
    if len({fingerprint for score, fingerprint in found if score is not None}) > 1:
        notes.append("the recorded scores are of different data: give data= to score all models on the same data")
    task = of_task[0].predictor.spec.name
    return scores, {"task": task, "metric_for_best": metric_for_best, "split": "dev", "notes": notes}


def _degenerate_notes(models: Sequence[MeasuredModel]) -> list[str]:
    """Returns a note for each run that was recorded as degenerate, with the reason."""
    records = [(each.name, each.folder / "scores.json") for each in models]
    reasons = [(name, read_json(record).get("degenerate")) for name, record in records if record.is_file()]
    return [f"{name}: {reason}" for name, reason in reasons if reason]


def _recorded_score(model: MeasuredModel, metric_for_best: str) -> tuple[dict | None, str | None]:
    """The recorded dev score of a model, and the fingerprint of the data it is of."""
    is_exported = isinstance(model.model, OnnxModel)
    record = read_json_if_exists(model.folder / (EXPORT_FILE if is_exported else RECORD))
    splits = record.get("scores") if is_exported else read_json_if_exists(model.folder / SCORES).get("splits")
    fingerprint = record.get("inputs", {}).get("data", {}).get("fingerprint")
    return (splits or {}).get("dev", {}).get(metric_for_best), fingerprint


# ---- inputs


def _inputs(
    models: Sequence[MeasuredModel],
    data: Any,
    split: str | None,
    columns: dict[str, str | None],
    num: int,
    length: int,
) -> list[EncodedExamples]:
    """Returns the same inputs for every model, each encoded with its own tokenizer."""
    if data is None:
        return [model.random_inputs(np.random.default_rng(SEED), [length] * num) for model in models]
    _, data_set = models[0].predictor.read(data, **columns)
    examples = models[0].batchable(data_set.splits.get(split) or next(iter(data_set.splits.values())))
    # Evenly spaced, as the examples may be sorted by length.
    examples = [examples[i * len(examples) // num] for i in range(num)] if len(examples) > num else examples
    return [model.encode(examples) for model in models]


def _batches(encoded: EncodedExamples, size: int) -> list[Batch]:
    """Packs all inputs into batches of `size` inputs; an input may be several sequences."""
    sequences: list[list[int]] = [[] for _ in range(encoded.num_examples)]
    for sequence, example_id in enumerate(encoded.example_ids.tolist()):
        sequences[example_id].append(sequence)
    groups = [sequences[i : i + size] for i in range(0, len(sequences), size)]

    def num_tokens(example: list[int]) -> int:
        return sum(len(encoded.ids[i]) for i in example)

    return [encoded.packed([i for example in sorted(group, key=num_tokens) for i in example]) for group in groups]


# ---- numbers


def _row(model: MeasuredModel, encoded: EncodedExamples, score: dict | None) -> dict[str, Any]:
    lengths, config = [len(each) for each in encoded.ids], model.model.config
    row = {
        "name": model.name,
        "kind": model.kind,
        "family": str(read_json(model.folder / "config.json").get("model_type")),
        "num_layers": config.num_layers,
        "width": config.width,
        "bytes": model.num_bytes,
        "parameters": model.parameters,
        "flops": sum(map(model.flops, lengths)) / encoded.num_examples,
        "mean_tokens": sum(lengths) / encoded.num_examples,
    }
    return row | ({"score": score} if score else {})


def _add_times(
    rows: list[dict],
    models: Sequence[MeasuredModel],
    inputs: Sequence[EncodedExamples],
    settings: dict[str, int],
    device: str,
    on_progress: OnCount,
) -> None:
    """Adds the latency of single inputs, and inputs per second in batches; these also on a GPU, in half precision and
    not for exported models."""
    rounds, num_inputs = settings["rounds"], min(settings["batch_size"], inputs[0].num_examples)
    single, threads = [_batches(encoded, 1) for encoded in inputs], settings["threads"]
    times = seconds_on_cpu(models, single, threads, rounds, partial(on_progress, "rounds of single inputs timed"))
    for row, seconds in zip(rows, times, strict=True):
        row["latency_ms"] = percentiles_ms(seconds)
    batches, threads = [_batches(encoded, settings["batch_size"])[:1] for encoded in inputs], settings["batch_threads"]
    few, show = max(3, rounds // ROUNDS_PER_BATCH_ROUND), partial(on_progress, "rounds of batches timed")
    times = seconds_on_cpu(models, batches, threads, few, show, num_warm_up=1)
    for row, seconds in zip(rows, times, strict=True):
        row["throughput"] = {"cpu": num_inputs / statistics.median(seconds)}
    if device == "cpu":
        return
    moved = [i for i, model in enumerate(models) if not isinstance(model.model, OnnxModel)]
    for i in moved:
        models[i].model.to(device)
    answers = [partial(_answer_on_gpu, models[i], batches[i][0], device) for i in moved]
    times = time_interleaved(answers, rounds, partial(on_progress, "rounds on the GPU timed"))
    for i, seconds in zip(moved, times, strict=True):
        rows[i]["throughput"]["cuda"] = num_inputs / statistics.median(seconds)
        models[i].model.to("cpu")


def _answer_on_gpu(model: MeasuredModel, batch: Batch, device: str, _: int) -> None:
    with inference_autocast(device):
        model.outputs(batch.to(device))
    torch.cuda.synchronize(device)


def _add_relative(rows: list[dict]) -> None:
    first = rows[0]
    for row in rows:
        row["times_faster"] = first["latency_ms"]["p50"] / row["latency_ms"]["p50"]
        if "score" in row and first.get("score", {}).get("value", 0.0) > 0:
            row["kept"] = row["score"]["value"] / first["score"]["value"]


def _devices(settings: dict[str, int], device: str) -> dict[str, str]:
    cpu = {"cpu": f"{counted(settings['batch_threads'], 'core')} of {_processor()}"}
    return cpu | ({} if device == "cpu" else {"cuda": torch.cuda.get_device_name(device)})


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    return name or platform.processor() or platform.machine()
