"""Exports a trained model to an ONNX folder, for phones and small machines, and measures it.

OUT/model.onnx                              the model; in int8 a quarter of the size
OUT/config.json, tokenizer.json, task.json  as in the original folder
OUT/export.json                             what was exported, and all measurements
OUT/README.md                               the measurements, and a program that runs the model
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.deployment.measuring import (
    MeasuredModel,
    check_timing,
    open_measured_model,
    percentiles_ms,
    seconds_on_cpu,
)
from hornbook.deployment.memory import peak_memory
from hornbook.files import replacing_folder, write_json, write_text
from hornbook.interop.onnx import ONNX_FILE, import_onnx, is_exported, write_int8, write_onnx
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.run_folder import OnCount, RunFolder, ignore
from hornbook.models.padded import input_names, output_names, rows_together
from hornbook.report.card import with_yaml_header
from hornbook.report.measured import EXPORT_FILE, measurement_rows
from hornbook.report.rendering import Table, render
from hornbook.report.usage_code import SAMPLE_TEXTS, sample_texts
from hornbook.tasks.datasets import find_task
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.evaluation import outputs_by_group
from hornbook.tasks.kinds.sequence import encode_texts
from hornbook.tasks.reading.inputs import inputs_in, read_input_rows
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.records import fingerprint
from hornbook.tasks.spec import save_task

EXPORT_FORMATS = ("onnx", "onnx-int8")
NUM_COMPARED = 200  # inputs on which the exported model is compared with the original
BATCH_TOKENS = 4096  # tokens per forward pass of the comparison
SEED = 0  # of the random inputs


@lock_output_folder
def export(
    model: str | Path,
    out: str | Path,
    format: str = "onnx",
    *,
    data: Any = None,
    texts: Path | None = None,
    length: int = 128,
    rounds: int = 100,
    threads: int = 1,
    on_progress: OnCount = ignore,
) -> dict[str, Any]:
    """Writes the folder and returns the contents of `export.json`.

    >>> import hornbook
    >>> hornbook.export("runs/reviews", "phone", "onnx-int8", data="reviews.csv")  # doctest: +SKIP

    The exported model is compared with the original on `texts`, else on examples of `data`, else on random tokens; on
    `data`, both are scored. Latency is measured for one input of `length` tokens on `threads` CPU threads.
    """
    _check(format, length, rounds, threads)
    out = Path(out)
    if (out / ONNX_FILE).exists():
        raise ValueError(f"{out} already holds an exported model: choose another folder, or remove it")
    source = _open_exportable(model)
    random = np.random.default_rng(SEED)
    length = min(length, source.model.config.max_positions)
    encoded = comparison_inputs(source, texts, data, length, random)
    evaluation = {"data": data, "on_progress": partial(on_progress, "examples scored")}
    scores_before = None if data is None else source.predictor.evaluate(**evaluation)  # refuses bad data before writing
    compared_on = str(texts or data or "random tokens")
    with replacing_folder(out) as folder:
        on_progress("writing the ONNX file", 0)
        _write(source, format, folder)
        record = RunFolder(folder, "export", (EXPORT_FILE,)).write_record(  # open_measured_model reads it
            {
                "model": str(model),
                "format": format,
                "data": compared_on,
                "length": length,
                "threads": threads,
                "rounds": rounds,
            },
            {"model": {"folder": str(source.folder.resolve()), "bytes": source.num_bytes}},
            family=source.model.model_type,
            parameters=source.parameters,
            bytes=(folder / ONNX_FILE).stat().st_size,
            input_names=list(input_names(source.model.config)),
            output_names=list(output_names(source.head_config)),
        )
        exported = open_measured_model(folder).with_threads(threads)
        agreed = agreement(source, exported, encoded, partial(on_progress, "inputs compared"))
        record["agreement"] = agreed | {"on": compared_on}
        input_to_time = source.random_inputs(random, [length])
        record |= _latencies(source, exported, input_to_time, threads, rounds, partial(on_progress, "rounds timed"))
        shape = (1, *([source.group_size] if rows_together(source.head_config) else []), length)
        record["memory_bytes"] = peak_memory(folder / ONNX_FILE, shape)
        if data is not None:
            record["scores"] = exported.predictor.evaluate(**evaluation)["splits"]
            record["scores_before"] = scores_before["splits"]
            record["scored_on"] = str(data)
            record["inputs"]["data"] = {"fingerprint": fingerprint(source.predictor.read(data)[1])}
            record["notes"] = scores_before["notes"]
        write_json(folder / EXPORT_FILE, record)
        max_length = length if source.predictor is None else source.predictor.max_length
        write_text(folder / "README.md", _readme(source, format, max_length, measurement_rows(record)))
    return record


def _check(format: str, length: int, rounds: int, threads: int) -> None:
    if format not in EXPORT_FORMATS:
        raise ValueError(f"the format must be {' or '.join(EXPORT_FORMATS)}, not '{format}'")
    check_timing({"length": length, "rounds": rounds, "threads": threads})
    for name in ("onnx", "onnxscript", "onnxruntime"):
        import_onnx(name)


def _open_exportable(model: str | Path) -> MeasuredModel:
    source = open_measured_model(model)
    if is_exported(source.folder):
        raise ValueError(f"{source.folder} is already exported: give the original run or model")
    if source.head_config is not None and source.head_config.output_type.is_embedding:
        raise ValueError(f"{source.folder}: export of embedding models is not supported: use hornbook embed, or Python")
    return source


def _latencies(
    source: MeasuredModel,
    exported: MeasuredModel,
    encoded: EncodedExamples,
    threads: int,
    rounds: int,
    on_progress: Callable[[int], None],
) -> dict[str, dict[str, float]]:
    """The latency of one input before and after the export."""
    batches = [[encoded.batch([0])]] * 2
    before, after = seconds_on_cpu([source, exported], batches, threads, rounds, on_progress)
    return {"latency_ms": percentiles_ms(after), "latency_ms_before": percentiles_ms(before)}


def _write(source: MeasuredModel, format: str, out: Path) -> None:
    """Writes everything but `export.json` and `README.md`."""
    source.tokenizer.save(out, source.model.config.max_positions, source.model.config.num_segments)
    write_json(out / "config.json", source.model.hf_config())
    if source.predictor is not None:
        max_length, columns = source.predictor.max_length, source.predictor.members[0].columns
        save_task(out, replace(source.predictor.spec, max_length=max_length, columns=columns or None))
    if format == "onnx":
        write_onnx(source.model, out / ONNX_FILE)
        return
    float_file = out / f".float-{ONNX_FILE}"
    try:
        write_onnx(source.model, float_file)
        write_int8(float_file, out / ONNX_FILE)
    finally:
        float_file.unlink(missing_ok=True)


def comparison_inputs(
    source: MeasuredModel, texts: Path | None, data: Any, length: int, random: np.random.Generator
) -> EncodedExamples:
    """Returns the inputs on which the exported model is compared with the original."""
    if data is not None and source.predictor is None:
        raise ValueError(
            f"{source.name} has no task head, so it cannot be scored on data: give texts= to compare the "
            "vectors of texts, or export a fine-tuned run"
        )
    if source.predictor is not None and (texts is not None or data is not None):
        if texts is not None:
            examples = [row.example for row in read_input_rows(texts, source.predictor.spec)]
        else:
            _, data_set = source.predictor.read(data)
            splits = [split for name, split in data_set.splits.items() if name != "train"]
            examples = splits[0] if splits else data_set.splits["train"]
        return source.encode(source.batchable(examples)[:NUM_COMPARED])
    if texts is not None:
        examples = inputs_in(texts, find_task("classification"), Reader(needs_labels=False))
        encodings, _ = encode_texts(examples[:NUM_COMPARED], source.tokenizer, source.model.config.max_positions)
        ids = [np.array(each.ids, np.int64) for each in encodings]
        return EncodedExamples(
            ids, [np.array(each.type_ids, np.int64) for each in encodings], np.arange(len(ids)), len(ids)
        )
    return source.random_inputs(random, random.integers(1, length, NUM_COMPARED, endpoint=True).tolist())


def agreement(
    original: MeasuredModel,
    exported: MeasuredModel,
    encoded: EncodedExamples,
    on_progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Compares the outputs of both models on the same inputs: `num_inputs`, `largest_difference` of any output number,
    and `same`, the fraction of inputs (for tagging: of tokens) with the same prediction, unless the models output a
    number or vectors. For vectors, `smallest_cosine` of the mean vectors of an input."""
    pairs = list(zip(_answers(original, encoded), _answers(exported, encoded, on_progress), strict=True))
    largest = max(float(np.abs(a - b).max(initial=0.0)) for a, b in pairs)
    found = {"num_inputs": len(pairs), "largest_difference": largest}
    if original.head_config is None:
        means = [(a.mean(0), b.mean(0)) for a, b in pairs]
        cosines = [a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), 1e-30) for a, b in means]
        return found | {"smallest_cosine": float(min(cosines))}
    task = original.predictor.task
    predicted = [(task.decision(a), task.decision(b)) for a, b in pairs]
    if predicted[0][0] is None:
        return found
    if original.head_config.output_type.per_token:
        same = np.concatenate([a == b for a, b in predicted])
    else:
        same = np.array([np.array_equal(a, b) for a, b in predicted])
    return found | {"same": float(same.mean())}


def _answers(
    model: MeasuredModel, encoded: EncodedExamples, on_progress: Callable[[int], None] | None = None
) -> list[np.ndarray]:
    """The output of a model for each group; for tagging and vectors, for each sequence."""
    per_token = model.head_config is None or model.head_config.output_type.per_token
    return outputs_by_group(lambda batch: model.outputs(batch).numpy(), encoded, per_token, BATCH_TOKENS, on_progress)


def _readme(model: MeasuredModel, format: str, max_length: int, numbers: list[tuple[str, str]]) -> str:
    """Its inputs and outputs, the measurements, and a short program that runs it without Hornbook."""
    head_config, config, tokenizer, padding = model.head_config, model.model.config, model.tokenizer, ""
    task, task_name, texts = None, "", SAMPLE_TEXTS
    if (predictor := model.predictor) is not None:
        task, task_name = predictor.task, predictor.spec.name
        texts = sample_texts(task, model.group_size, bool(predictor.spec.has_pairs))
    if tokenizer.pad_id is not None:
        padding = f"pad_id={tokenizer.pad_id}, pad_token={tokenizer.token(tokenizer.pad_id)!r}"
    text = render(
        "exported.md",
        family=model.model.model_type,
        format=format,
        task=task,
        task_name=task_name,
        inputs=input_names(config),
        outputs=output_names(head_config),
        max_positions=config.max_positions,
        is_grouped=model.group_size > 1,
        padding=padding,
        max_length=max_length,
        texts=texts,
        measured=Table(("measured", ""), numbers),
    )
    return with_yaml_header(text, library_name="onnx", tags=["hornbook", "onnx", model.model.model_type])
