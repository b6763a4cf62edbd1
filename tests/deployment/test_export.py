"""Exported folders give the outputs of the original models: alone, in a batch, and without Hornbook."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from forked import status_of
from model_folders import LENGTH, model_folder_of
from typer.testing import CliRunner

from hornbook.batch import pack
from hornbook.cli import app
from hornbook.deployment import export as exporting
from hornbook.deployment.export import agreement, comparison_inputs, export
from hornbook.deployment.measuring import open_measured_model
from hornbook.deployment.memory import peak_memory
from hornbook.files import read_json
from hornbook.inference.predictor import load_predictor
from hornbook.interop.folder import load_folder
from hornbook.models.head_config import HeadConfig
from hornbook.report.info import describe
from hornbook.report.run_files import ReportedRun
from hornbook.report.usage_code import SAMPLE_TEXTS, sample_texts

LABELS = ("dark", "light", "other")
KINDS = {
    "bert": None,
    "roberta": HeadConfig("choice"),
    "albert": HeadConfig("tokens", 3, ("O", "B-X", "I-X")),
    "electra": HeadConfig("spans", 2, has_answer_classifier=True),
    "distilbert": HeadConfig("sequence", 3, LABELS),
    "gpt2": HeadConfig("sequence", 3, LABELS, "multi_label_classification"),
}
CHANGES = {"gpt2": {"num_layers": 2, "window": 3}, "albert": {"embedding_width": 16}}
FAST = {"rounds": 2, "length": 16}


@pytest.fixture(scope="module")
def exported(tmp_path_factory, tiny_tokenizer, fast_exporter) -> Callable[[str], tuple[Path, Path]]:
    """Makes the two folders of a family once, as torch's exporter takes seconds."""

    @cache
    def folders(family: str) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("export")
        source = model_folder_of(folder / "model", tiny_tokenizer, family, KINDS[family], **CHANGES.get(family, {}))
        export(source, folder / "exported", "onnx", **FAST)
        return source, folder / "exported"

    return folders


@pytest.fixture(scope="module", params=KINDS)
def both(request, exported):
    """A model's folder, and the one that it was exported to."""
    return exported(request.param)


@torch.no_grad()
def test_ragged_batches_answer_as_before_and_as_one_at_a_time(both, random):
    (model, tokenizer), exported = load_folder(both[0]), open_measured_model(both[1])
    together = exported.group_size
    lengths = random.integers(1, LENGTH, 5 * together, endpoint=True)
    ids = [random.integers(tokenizer.vocab_size, size=length) for length in lengths]
    segments = [(np.arange(length) >= length // 2).astype(np.int64) for length in lengths]
    batch = pack(ids, segments, group_size=together)
    expected = model(batch) if model.head_config is None else model.outputs(batch)
    assert expected.std() > 0.01
    assert (exported.outputs(batch) - expected).abs().max() < 1e-5
    alone = [exported.outputs(batch.slice(i, i + together)) for i in range(0, len(ids), together)]
    if model.head_config is not None and model.head_config.output == "spans":
        longest = max(lengths)
        alone = [
            torch.cat([each[:, :-1], each.new_full((1, longest + 1 - each.shape[1], 2), -1e4), each[:, -1:]], 1)
            for each in alone
        ]
    assert (torch.cat(alone) - expected).abs().max() < 1e-5


def test_pairs_in_both_orders_are_rows_together(tmp_path, tiny_tokenizer, random, fast_exporter):
    """As GPT-1 reads them: each answer is of two rows."""
    head_config = HeadConfig("sequence", 3, LABELS, pair_encoding="both")
    source = model_folder_of(tmp_path / "model", tiny_tokenizer, "gpt2", head_config, num_layers=2)
    export(source, tmp_path / "exported", "onnx", **FAST)
    test_ragged_batches_answer_as_before_and_as_one_at_a_time((source, tmp_path / "exported"), random)


def test_the_record_and_the_page_say_what_was_measured(both):
    record, page = read_json(both[1] / "export.json"), (both[1] / "README.md").read_text(encoding="utf-8")
    assert record["bytes"] == (both[1] / "model.onnx").stat().st_size
    assert record["agreement"]["largest_difference"] < 1e-5
    assert record["agreement"].get("same", 1.0) == 1.0
    assert record["agreement"].get("smallest_cosine", 1.0) > 0.99999
    assert record["memory_bytes"]["peak"] > record["memory_bytes"]["without_model"] > 1e6
    assert 0 < record["latency_ms"]["p50"] <= record["latency_ms"]["p99"]
    assert all(f"`{name}`" in page for name in (*record["input_names"], *record["output_names"]))
    assert not list(both[1].glob(".*")), "nothing half-written is left"
    assert b"hornbook" not in (both[1] / "model.onnx").read_bytes(), "no path of this machine"


def test_the_program_of_the_page_runs_without_hornbook(both):
    page = (both[1] / "README.md").read_text(encoding="utf-8")
    program = re.search(r"```python\n(.*?)```", page, re.S).group(1)
    program += "\nimport sys\nassert not {'torch', 'hornbook', 'onnx'} & set(sys.modules)"
    # -I: no PYTHONPATH
    done = subprocess.run([sys.executable, "-I", "-c", program], cwd=both[1], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.strip(), done.stderr
    head_config, answers = open_measured_model(both[0]).head_config, None
    if (
        head_config is not None
        and head_config.output == "sequence"
        and head_config.problem_type == "single_label_classification"
    ):
        answers = [each.label for each in load_predictor(both[0], "cpu").predict(SAMPLE_TEXTS)]
    if head_config is not None and head_config.output == "spans":
        predictor = load_predictor(both[0], "cpu")
        answers = predictor.predict(sample_texts(predictor.task, 1, False))[0].n_best[0].text
    assert answers is None or done.stdout.strip() == str(answers)


def test_an_exported_folder_predicts(both):
    model = open_measured_model(both[0])
    if model.head_config is None:
        return
    items = {
        "sequence": ["the river", "a lantern of the garden", ""],
        "tokens": ["the river", "a lantern of the garden"],
        "spans": [("the garden", "a river and a lantern"), ("bread", "the bridge of silver bread")],
        "choice": [("the river", ["a lantern", "and bread", "of silver"]), ("the", ["a", "of the morning"])],
    }[model.head_config.output]
    ours, theirs = (load_predictor(folder, "cpu").predict(items) for folder in both)
    for one, other in zip(ours, theirs, strict=True):
        for name in ("label", "tags", "answer", "choice"):
            assert getattr(one, name, None) == getattr(other, name, None)


# ---- stopped half-way

KILLED = """
import os, shutil, sys
from hornbook import cli
from hornbook.deployment import export
export.write_onnx = lambda model, file: shutil.copy(sys.argv[1], file)
export.seconds_on_cpu = lambda *_: os.kill(os.getpid(), 9)
cli.app(sys.argv[2:])
"""


@pytest.fixture
def made_before(exported, monkeypatch):
    graph = exported("bert")[1] / "model.onnx"
    monkeypatch.setattr(exporting, "write_onnx", lambda model, file: shutil.copy(graph, file))
    return graph


@pytest.mark.parametrize("is_there", [False, True])
def test_a_second_run_makes_good_what_a_stop_left(tmp_path, tiny_tokenizer, made_before, is_there):
    source, out = model_folder_of(tmp_path / "model", tiny_tokenizer, "bert"), tmp_path / "phone"
    if is_there:
        out.mkdir()
        (out / "mine.txt").write_text("kept")
    words = ["export", str(source), "--format", "onnx", "--out", str(out), "--rounds", "2", "--length", "16"]
    assert status_of(KILLED, made_before, *words) == -signal.SIGKILL
    assert not (out / "model.onnx").exists()

    def stop(doing: str, number: int) -> None:
        if doing == "rounds timed":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(source, out, "onnx", on_progress=stop, **FAST)
    assert [path.name for path in tmp_path.iterdir() if path != source] == (["phone"] if is_there else [])
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, (done.output, done.exception)
    names = {"model.onnx", "export.json", "README.md", "config.json", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in out.iterdir()} == names | ({"mine.txt"} if is_there else set())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "phone"]


def test_without_out_it_is_written_next_to_the_model(tmp_path, tiny_tokenizer, made_before):
    source = model_folder_of(tmp_path / "model", tiny_tokenizer, "bert")
    words = ["export", f"{source}/", "--format", "onnx-int8", "--rounds", "2", "--length", "16"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert (tmp_path / "model-onnx-int8" / "model.onnx").exists()
    assert "model-onnx-int8 already holds" in str(CliRunner().invoke(app, words).exception)


# ---- int8, on a model that has learned something


def test_int8_keeps_predictions_and_stores_every_table_in_eight_bits(learned):
    record = read_json(learned.phone / "export.json")
    assert record["agreement"]["same"] >= 0.98
    assert 1e-6 < record["agreement"]["largest_difference"] < 1
    scores, before = record["scores"]["dev"]["accuracy"], record["scores_before"]["dev"]["accuracy"]
    assert abs(scores["value"] - before["value"]) <= 0.02
    held = onnx.load(learned.phone / "model.onnx").graph.initializer
    tables = {each.name: (tuple(each.dims), each.data_type) for each in held if len(each.dims) > 1}
    assert {kind for _, kind in tables.values()} <= {onnx.TensorProto.INT8, onnx.TensorProto.UINT8}, tables
    shapes = {shape for shape, _ in tables.values()}
    assert (load_folder(learned.run)[0].config.padded_vocab_size, 32) in shapes and (32, 128) in shapes


def test_int8_matrices_that_layers_share_are_stored_once(tmp_path, tiny_tokenizer, fast_exporter):
    source = model_folder_of(tmp_path / "model", tiny_tokenizer, "albert", num_layers=2, embedding_width=16)
    record = export(source, tmp_path / "exported", "onnx-int8", **FAST)
    assert record["agreement"]["smallest_cosine"] > 0.99
    held = onnx.load(tmp_path / "exported" / "model.onnx").graph.initializer
    assert [tuple(each.dims) for each in held].count((32, 128)) == 1


def test_info_shows_what_was_exported(learned):
    description = describe(learned.phone)
    assert description["kind"] == "exported model" and description["task"] == "classification"
    said = dict(description["lines"])
    assert said["format"] == "onnx-int8" and said["outputs"] == "logits" and "% of " in said["same predictions"]
    assert "examples, so the score does not measure" in said["note"]
    assert said["note"] in (learned.phone / "README.md").read_text(encoding="utf-8")


def test_the_command_prints_speed_size_and_agreement(learned):
    said = learned.said
    assert (
        "8 tokens on 1 core" in said and "same predictions" in said and f"accuracy, {Path(learned.data).name}" in said
    )
    size = (learned.phone / "model.onnx").stat().st_size
    assert f"{size / 1e3:.1f} kB" in said and "peak memory" in said
    words = ["export", str(learned.run), "--format", "onnx", "--out", str(learned.phone)]
    assert "already holds an exported model" in str(CliRunner().invoke(app, words).exception)


def test_a_process_that_was_killed_says_so(monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: subprocess.CompletedProcess([], -9, "", ""))
    with pytest.raises(ValueError, match=r"could not be run in a separate process: it was killed \(signal 9\)"):
        peak_memory("model.onnx", (1, 8))


def test_given_texts_are_what_is_compared(both, tmp_path):
    """Of a model without a task its vectors, of others what they answer."""
    source = open_measured_model(both[0])
    texts = tmp_path / "texts.txt"
    texts.write_text("the river\na lantern\nthe lantern of the bridge\n", encoding="utf-8")
    output = None if source.head_config is None else source.head_config.output
    if output == "spans":
        texts.write_text("the river\ta lantern\nthe\ta of\na\tof the bridge\n", encoding="utf-8")
    if output == "choice":
        texts.write_text("the river\ta lantern\tbread\nthe\ta\tof\na\tof the\tbridge\n", encoding="utf-8")
    encoded = comparison_inputs(source, texts, None, 8, np.random.default_rng(0))
    assert encoded.num_examples == 3
    found = agreement(source, open_measured_model(both[1]), encoded)
    assert found["num_inputs"] == 3 and found["largest_difference"] < 1e-5


# ---- refusals


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"format": "onnx-int4"}, "onnx or onnx-int8, not 'onnx-int4'"),
        ({"format": "onnx", "threads": 0}, "threads must be at least 1"),
        ({"format": "onnx", "data": "some.csv"}, "no task head.*give texts="),
    ],
)
def test_what_cannot_be_is_refused_with_the_fix(asked, said, tiny_tokenizer, tmp_path):
    model = model_folder_of(tmp_path / "model", tiny_tokenizer, "bert")
    with pytest.raises(ValueError, match=said):
        export(model, out=tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_without_its_packages_the_error_names_how_to_install_them(tiny_tokenizer, tmp_path, monkeypatch):
    model = model_folder_of(tmp_path / "model", tiny_tokenizer, "bert")
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ValueError, match=r"need the package onnxscript.*pip install 'hornbook\[export\]'"):
        export(model, tmp_path / "out", "onnx")


def test_an_exported_folder_reads_the_columns_of_its_run(learned):
    """The column named text is uninformative, and the run was trained on another column."""
    scores = load_predictor([learned.phone]).evaluate(learned.data)["splits"]["dev"]["accuracy"]
    assert scores == read_json(learned.phone / "export.json")["scores"]["dev"]["accuracy"] and scores["value"] > 0.9


def test_data_of_another_task_leaves_no_folder(learned, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("said,label\nan old lamp,\n")
    with pytest.raises(ValueError, match="there are no labels in"):
        export(learned.run, tmp_path / "phone", "onnx", data=other, **FAST)
    assert not (tmp_path / "phone").exists()


def test_error_for_unsupported_uses_of_an_exported_folder(both):
    with pytest.raises(ValueError, match=r"holds an exported model .* give the original run or model"):
        load_folder(both[1])
    with pytest.raises(ValueError, match="is an exported model, not a run: describe it with hornbook info"):
        ReportedRun.load(both[1])
    if open_measured_model(both[1]).head_config is None:
        with pytest.raises(ValueError, match="exported from a model without a task head: export a fine-tuned run"):
            load_predictor([both[1]])


def test_what_is_exported_is_not_exported_again(learned, tmp_path):
    with pytest.raises(ValueError, match="already exported: give the original run"):
        export(learned.phone, tmp_path / "two", "onnx-int8")


def test_a_damaged_file_is_named(learned, tmp_path):
    folder = tmp_path / "phone"
    shutil.copytree(learned.phone, folder)
    config = json.loads((folder / "config.json").read_text())
    del config["hornbook_head"]["num_labels"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config\.json cannot be used \('num_labels'\): export the model again"):
        open_measured_model(folder)
    shutil.copy(learned.phone / "config.json", folder)
    (folder / "model.onnx").write_bytes(b"cut short")
    with pytest.raises(ValueError, match=r"cannot be opened.*export the model again"):
        open_measured_model(folder)
