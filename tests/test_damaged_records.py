"""Records with wrong values: one sentence that names the file."""

import json
import shutil

import numpy as np
import pytest

from hornbook.data.build_state import BuildState
from hornbook.files import read_json, refusing_damage
from hornbook.interop.files import weights_files
from hornbook.interop.folder import load_model
from hornbook.lifecycle.run_folder import RunFolder
from hornbook.models.head_config import HeadConfig
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.runs.finetuning import record as finetuned
from hornbook.runs.pretraining import record as pretrained
from hornbook.tasks.overlap import TRAINING_TEXTS, in_training_texts
from hornbook.tasks.records import TextExample
from hornbook.tasks.spec import load_task
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.checkpoint import Checkpoints, read_checkpoint


@pytest.fixture
def run(tmp_path, tiny_run):
    return shutil.copytree(tiny_run, tmp_path / "run")


def change(file, place: str, value) -> None:
    """Sets the value at a place such as `request.overrides`; `...` takes it out."""
    whole = inside = json.loads(file.read_text())
    *names, last = place.split(".")
    for name in names:
        inside = inside[name]
    if value is ...:
        del inside[last]
    else:
        inside[last] = value
    file.write_text(json.dumps(whole))


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' + "9" * 10_000 + "}", "\xff", "{"])
def test_json_that_cannot_be_read(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"a\.json is not valid JSON \(.+\): restore"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "error", [KeyError("a"), TypeError("b\nc"), AttributeError(), IndexError("d"), OverflowError()]
)
def test_damage_is_one_sentence(error):
    with (
        pytest.raises(ValueError, match=r"^x\.json is damaged \([^\n]+\): restore the file$"),
        refusing_damage("x.json"),
    ):
        raise error


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("request", []),
        ("request.overrides", None),
        ("request.unheard", 3),
        ("settings", 3),
        ("settings.objective", []),
        ("settings.model", None),
        ("inputs.corpora", {"a": 1}),
        ("runtime", "cpu"),
        ("terms", None),
        ("family", {}),
        ("planned_flops", None),
    ],
)
def test_a_pretraining_record(run, place, value):
    RunFolder(run, "pretrain").read_record(pretrained.check_record)
    change(run / "run.json", place, value)
    with pytest.raises(ValueError, match=r"run\.json|there is no setting"):
        RunFolder(run, "pretrain").read_record(pretrained.check_record)


@pytest.mark.parametrize(("place", "value"), [("step", []), ("tokens", None), ("loss_spike.seen", {})])
def test_the_state_of_a_checkpoint(run, place, value):
    checkpoint = Checkpoints(run).last()
    change(checkpoint / "state.json", place, value)
    with pytest.raises(ValueError, match=r"state\.json has no number for"):
        read_checkpoint(checkpoint)


@pytest.mark.parametrize(("place", "value"), [("request", []), ("settings", 3), ("inputs.data", []), ("runtime", {})])
def test_a_finetuning_record(tmp_path, place, value):
    whole = {"model": "m", "task": "t", "command": "finetune", "request": {"model": "m", "task": "t", "data": None}}
    whole |= {
        "settings": {},
        "inputs": {"data": {"fingerprint": "", "path": None}},
        "runtime": {"threads": 1, "compiles": False},
    }
    (tmp_path / "run.json").write_text(json.dumps(whole))
    RunFolder(tmp_path, "finetune").read_record(finetuned.check_record)
    change(tmp_path / "run.json", place, value)
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        RunFolder(tmp_path, "finetune").read_record(finetuned.check_record)


@pytest.mark.parametrize("place", ["architectures", "num_attention_heads", "hidden_act", "initializer_range"])
@pytest.mark.parametrize("value", [{"": None}, [[]], 2**70])
def test_a_model_config(run, place, value):
    change(run / "config.json", place, value)
    try:
        load_model(run)
    except ValueError as error:
        assert "config.json" in str(error) and "\n" not in str(error)


@pytest.mark.parametrize("value", [True, 1.5, {"": None}, [[]]])
def test_the_special_tokens_of_a_tokenizer(run, value):
    whole = Tokenizer.load(run)
    change(run / "tokenizer_config.json", "pad_token", value)
    assert Tokenizer.load(run).pad_id == whole.pad_id


@pytest.mark.parametrize(("place", "value"), [("totals.tokens", "many"), ("totals", 3), ("cleaned", {"lists": "all"})])
def test_the_progress_of_a_corpus_build(tmp_path, place, value):
    BuildState({}, np.zeros(3, np.int64)).save(tmp_path)
    assert BuildState.load(tmp_path, 3).totals["tokens"] == 0
    change(tmp_path / "progress.json", place, value)
    with pytest.raises(ValueError, match=r"progress\.json is damaged .* build it again"):
        BuildState.load(tmp_path, 3)


def test_weights_in_another_folder_are_not_opened(run):
    index = run / "model.safetensors.index.json"
    (run / "model.safetensors").rename(run.parent / "model.safetensors")
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(ValueError, match="is not a file in its own folder"):
        weights_files(run)


@pytest.mark.parametrize(
    ("name", "value"),
    [("columns", {"": None}), ("columns", {"text": 3}), ("metrics", 3), ("metrics", [{}, 1]), ("num_choices", [])],
)
def test_a_task(tmp_path, name, value):
    kind, head_config = (
        ("choice", HeadConfig("choice")) if name == "num_choices" else ("tagging", HeadConfig("tokens", 1, ("O",)))
    )
    (tmp_path / "task.json").write_text(json.dumps({"kind": kind, name: value}))
    try:
        load_task(tmp_path, head_config)
    except ValueError as error:
        assert "task.json is damaged" in str(error)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("parameters", {}),
        ("inputs", 3),
        ("inputs.corpora", 3),
        ("settings", []),
        ("unigram_baseline", 3),
        ("heads", None),
    ],
)
def test_pages_and_descriptions(run, place, value):
    change(run / "run.json", place, value)
    for use in (lambda: describe(run)["lines"], lambda: write_report(run)):
        try:
            use()
        except ValueError as error:
            assert str(run) in str(error)


@pytest.mark.parametrize("content", [b"", b"\x93NUMPY", b"text"])
def test_the_training_texts_of_a_run(tmp_path, content):
    (tmp_path / TRAINING_TEXTS).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{TRAINING_TEXTS} is damaged .*: remove it to score without this check"):
        in_training_texts(tmp_path, [TextExample("0", "a text")])
