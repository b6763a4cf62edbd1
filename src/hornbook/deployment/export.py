"""Exports a trained model to an ONNX folder, for phones and small machines, and measures it.

OUT/model.onnx                              the model; in int8 a quarter of the size
OUT/config.json, tokenizer.json, task.json  as in the original folder
OUT/export.json                             what was exported, and all measurements
OUT/README.md                               the measurements, and a program that runs the model
"""

import difflib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.deployment.agreement import agreement
from hornbook.deployment.loading import MeasuredModel, open_model
from hornbook.deployment.memory import peak_memory
from hornbook.deployment.readme import readme
from hornbook.deployment.timing import check_timing, percentiles_ms, time_interleaved, torch_threads
from hornbook.files import replacing_folder, write_json, write_text
from hornbook.interop.onnx import ONNX_FILE, import_extra, is_exported, write_int8, write_onnx
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.run_folder import OnCount, RunFolder
from hornbook.models.padded import input_names, output_names, rows_together
from hornbook.report.measured import EXPORT_FILE, measurement_rows
from hornbook.tasks.datasets import find_task
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.kinds.texts import encode_texts
from hornbook.tasks.reading.inputs import inputs_in, read_inputs
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.spec import save_task

FORMATS = ("onnx", "onnx-int8")
NUM_COMPARED = 200  # inputs on which the exported model is compared with the original
SEED = 0  # of the random inputs


@lock_output_folder
def export(
    model: str | Path,
    format: str,
    out: Path,
    *,
    data: Any = None,
    texts: Path | None = None,
    length: int = 128,
    rounds: int = 100,
    threads: int = 1,
    on_progress: OnCount = lambda doing, number: None,
) -> dict[str, Any]:
    """Writes the folder and returns the contents of `export.json`.

    >>> import hornbook
    >>> hornbook.export("runs/reviews", "onnx-int8", Path("phone"), data="reviews.csv")  # doctest: +SKIP

    The exported model is compared with the original on `texts`, else on examples of `data`, else on random tokens; on
    `data`, both are scored. Latency is measured for one input of `length` tokens on `threads` CPU threads.
    """
    _check(format, length, rounds, threads)
    if (Path(out) / ONNX_FILE).exists():
        raise ValueError(f"{out} already holds an exported model: choose another folder, or remove it")
    source = open_model(model)
    if is_exported(source.folder):
        raise ValueError(f"{source.folder} is already exported: give the original run or model")
    if source.head_config is not None and source.head_config.output_type.is_embedding:
        raise ValueError(f"{source.folder}: export of embedding models is not supported: use hornbook embed, or Python")
    random = np.random.default_rng(SEED)
    length = min(length, source.model.config.max_positions)
    encoded = comparison_inputs(source, texts, data, length, random)
    scores_before = None if data is None else _scores(source, data, on_progress)  # bad data are refused before writing
    compared_on = str(texts or data or "random tokens")
    with replacing_folder(out) as folder:
        on_progress("writing the graph", 0)
        _write(source, format, folder)
        record = RunFolder(folder, "export", (EXPORT_FILE,)).write_record(  # open_model reads it
            {
                **{"model": str(model), "format": format, "data": compared_on},
                **{"length": length, "threads": threads, "rounds": rounds},
            },
            {"model": {"folder": str(source.folder.resolve()), "bytes": source.num_bytes}},
            family=source.model.family,
            parameters=source.parameters,
            bytes=(folder / ONNX_FILE).stat().st_size,
            input_names=list(input_names(source.model.config)),
            output_names=list(output_names(source.head_config)),
        )
        exported = open_model(folder).with_threads(threads)
        agreed = agreement(source, exported, encoded, lambda done: on_progress("inputs compared", done))
        record["agreement"] = agreed.to_dict() | {"on": compared_on}
        before, after = _latency([source, exported], length, rounds, threads, random, on_progress)
        record |= {"latency_ms": percentiles_ms(after), "latency_ms_before": percentiles_ms(before)}
        shape = (1, *([source.group_size] if rows_together(source.head_config) else []), length)
        record["memory_bytes"] = peak_memory(folder / ONNX_FILE, shape)
        if data is not None:
            record["scores"] = _scores(exported, data, on_progress)["splits"]
            record["scores_before"] = scores_before["splits"]
            record["scored_on"] = str(data)
            record["notes"] = scores_before["notes"]
        write_json(folder / EXPORT_FILE, record)
        max_length = length if source.predictor is None else source.predictor.max_length
        write_text(folder / "README.md", readme(source, format, max_length, measurement_rows(record)))
    return record


def _check(format: str, length: int, rounds: int, threads: int) -> None:
    if format not in FORMATS:
        near = difflib.get_close_matches(format, FORMATS, n=1, cutoff=0.0)[0]
        raise ValueError(f"the format must be {' or '.join(FORMATS)}, not '{format}'; did you mean {near}?")
    check_timing({"length": length, "rounds": rounds, "threads": threads})
    for name in ("onnx", "onnxscript", "onnxruntime"):
        import_extra(name)


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
            examples: Sequence = read_inputs(texts, source.predictor.spec)
        else:
            _, data_set = source.predictor.read(data)
            splits = [split for name, split in data_set.splits.items() if name != "train"]
            examples = splits[0] if splits else data_set.splits["train"]
        return source.encode(source.batchable(examples)[:NUM_COMPARED])
    if texts is not None:
        examples = inputs_in(texts, find_task("classification"), Notes(needs_labels=False))
        encodings, _ = encode_texts(examples[:NUM_COMPARED], source.tokenizer, source.model.config.max_positions)
        ids = [np.array(each.ids, np.int64) for each in encodings]
        return EncodedExamples(
            ids, [np.array(each.type_ids, np.int64) for each in encodings], np.arange(len(ids)), len(ids)
        )
    return source.random_inputs(random, random.integers(1, length, NUM_COMPARED, endpoint=True).tolist())


def _latency(
    models: Sequence[MeasuredModel],
    length: int,
    rounds: int,
    threads: int,
    random: np.random.Generator,
    on_progress: OnCount,
) -> list[list[float]]:
    batch = models[0].random_inputs(random, [length]).batch([0])
    with torch_threads(threads):
        answers = [lambda _, model=model: model.answer(batch) for model in models]
        return time_interleaved(answers, rounds, lambda done: on_progress("rounds timed", done))


def _scores(model: MeasuredModel, data: Any, on_progress: OnCount) -> dict[str, Any]:
    """The scores of every split, and notes about them."""
    return model.predictor.evaluate(data, on_progress=lambda done: on_progress("examples scored", done))
