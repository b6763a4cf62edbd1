"""Distillation on plain text as a whole run: its files, initial weights, resuming after a kill, and errors."""

import json
import signal
from pathlib import Path

import pytest
import torch
import transformers
from forked import status_of
from safetensors.torch import load_file
from tiny import TINY_MODEL, tiny_text

import hornbook
from hornbook.data.build import build_corpus
from hornbook.interop.folder import load_folder
from hornbook.models.transformer import count_parameters
from hornbook.runs.distillation.distill import distill
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.text.training import train_tokenizer

QUIET = {"log": lambda words: None}
RECIPE = {"matches": [{"quantity": "keys", "loss": "mse", "projection": "student-to-teacher"}], "hard_label_weight": 1}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, tiny_corpus) -> Path:
    folder = tmp_path_factory.mktemp("teacher") / "run"
    overrides = TINY_MODEL | {"model.num_layers": 3, "optimizer.lr": 3e-3}
    pretrain(
        "bert-tiny", [tiny_corpus], folder, steps=30, batch_tokens=512, recipe="published", overrides=overrides, **QUIET
    )
    return folder


def learn(teacher: Path, student: str, out: Path, corpus: Path, overrides=None, steps=8, **more):
    settings = TINY_MODEL | {"checkpoint.every_steps": 3, "optimizer.lr": 1e-3} | (overrides or {})
    more = {"batch_tokens": 512, **QUIET} | more
    return distill(teacher, student, out, corpora=[corpus], steps=steps, overrides=settings, **more)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.safetensors")}


@pytest.mark.parametrize(
    ("student", "overrides", "architecture", "terms"),
    [
        ("distilbert", {}, "DistilBertForMaskedLM", {"mlm", "logits", "hidden"}),
        ("tinybert-4", {"model.width": 16}, "BertModel", {"embeddings", "hidden", "attention"}),
        ("albert-base", {"model.width": 16, "model.embedding_width": 8}, "AlbertModel", {"embeddings"}),
        ("bert-tiny", {"objective.recipe": "minilm"}, "BertModel", {"attention", "value-relations"}),
        ("electra-small", {"model.embedding_width": 8}, "ElectraForMaskedLM", {"mlm", "logits", "hidden"}),
    ],
)
def test_a_student_of_every_kind(tmp_path, teacher, tiny_corpus, student, overrides, architecture, terms):
    before = bytes_of(teacher)
    out = tmp_path / "run"
    outcome = learn(teacher, student, out, tiny_corpus, overrides)
    assert outcome.ended == "finished" and terms <= outcome.last.keys()
    assert bytes_of(teacher) == before
    record = json.loads((out / "run.json").read_text())
    assert record["command"] == "distill" and record["inputs"]["teacher"]["layers"] == 3
    assert not any("teacher" in name for name in load_file(out / "model.safetensors"))
    theirs = transformers.AutoModel.from_pretrained(out)
    assert json.loads((out / "config.json").read_text())["architectures"] == [architecture]
    model = load_folder(out)[0]
    assert count_parameters(model) == record["kept_parameters"]
    assert len(theirs.state_dict()) > 5 and (out / "samples.json").exists() == ("mlm" in model.heads)
    assert str(teacher) in hornbook.write_report(out).read_text()
    assert hornbook.describe(out)["teacher"] == str(teacher)


@pytest.mark.parametrize(("asked", "num_layers"), [({}, 1), ({"model.num_layers": 2}, 2)])
def test_a_distilbert_has_half_the_layers_of_any_teacher(tmp_path, teacher, tiny_corpus, asked, num_layers):
    settings = {name: value for name, value in TINY_MODEL.items() if not name.startswith("model.")} | asked
    said, words = [], {"corpora": [tiny_corpus], "steps": 2, "batch_tokens": 512, "overrides": settings}
    distill(teacher, "distilbert", tmp_path / "run", log=said.append, **words)
    assert any("recipe='tinybert' retains more" in words for words in said)
    config, theirs = (load_folder(each)[0].config for each in (tmp_path / "run", teacher))
    assert config.num_layers == num_layers and theirs.num_layers == 3
    for name in ("width", "num_heads", "inner_width"):
        assert getattr(config, name) == getattr(theirs, name)
    assert any("in the shape of the teacher: width 32" in each for each in said)
    assert any("is initialised from layer" in each for each in said)
    assert json.loads((tmp_path / "run" / "run.json").read_text())["terms"].keys() == {"mlm", "logits", "hidden"}
    again = distill(teacher, "distilbert", tmp_path / "run", log=said.append, resume=True, **words)
    assert again.ended == "already finished" and again.step == 2


def test_show_lists_the_shape_that_a_run_would_have(hornbook, teacher):
    shown = hornbook("distill", teacher, "--student", "distilbert", "--show", "--json").answer
    assert (shown["model.width"], shown["model.num_layers"], shown["model.num_heads"]) == (32, 1, 2)


@pytest.mark.parametrize("recipe", ["distilbert", "tinybert"])
def test_flops_count_the_teachers_forward_pass(tmp_path, teacher, tiny_corpus, recipe):
    """Of distilbert with the vocabulary at every token on both sides, of tinybert without it."""
    out = tmp_path / "run"
    learn(teacher, "distilbert", out, tiny_corpus, {"data.short_fraction": 0.0}, steps=2, recipe=recipe)
    width, vocabulary = 32, load_folder(out)[0].config.vocab_size
    block, attention = 4 * width**2 + 2 * width * 64, 12 * 64 * width
    head = 6 * (width * width + width * vocabulary) if recipe == "distilbert" else 0
    ours, theirs = (layers * (6 * block + attention) + head for layers in (1, 3))
    written = json.loads((out / "run.json").read_text())["planned_flops"]
    assert written == pytest.approx(2 * 512 * (ours + theirs / 3))


def test_it_comes_nearer_to_its_teacher(tmp_path, teacher, tiny_corpus):
    overrides = {"model.width": 16, "optimizer.lr": 1e-2, "validation.every_steps": 10}
    outcome = learn(teacher, "tinybert-4", tmp_path / "run", tiny_corpus, overrides, steps=60)
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    checks = [line for line in lines if line["kind"] == "validation"]
    assert outcome.ended == "finished" and checks[-1]["hidden"] < 0.8 * checks[0]["hidden"]


def test_it_starts_from_layers_of_the_teacher(tmp_path, teacher, tiny_corpus):
    """Seen before its first step, by a rate of almost nothing."""
    said: list[str] = []
    overrides = {"optimizer.lr": 1e-30, "model.num_layers": 2}
    learn(teacher, "distilbert", tmp_path / "run", tiny_corpus, overrides, steps=1, log=said.append)
    assert any("is initialised from layers 1, 3 of the teacher" in words for words in said)
    student, taught = load_folder(tmp_path / "run")[0], load_folder(teacher)[0]
    for block, number in zip(student.blocks, (0, 2), strict=True):
        torch.testing.assert_close(block.state_dict(), taught.blocks[number].state_dict(), rtol=0, atol=1e-6)
    learn(
        teacher,
        "distilbert",
        tmp_path / "random",
        tiny_corpus,
        overrides | {"objective.student_init": "random"},
        steps=1,
    )
    other = load_folder(tmp_path / "random")[0]
    assert (other.blocks[0].fc1.weight - taught.blocks[0].fc1.weight).abs().max() > 0.01
    narrow: list[str] = []
    learn(teacher, "distilbert", tmp_path / "n", tiny_corpus, {"model.width": 16}, steps=1, log=narrow.append)
    assert any("is randomly initialised" in words for words in narrow)
    assert any("recipe tinybert" in words for words in narrow)


KILLED = """
import os, sys
from tiny import TINY_MODEL
from hornbook.runs.distillation.distill import distill
teacher, corpus, out, stop = sys.argv[1:]
def watch(status):
    if status.step == int(stop):
        os.kill(os.getpid(), 9)
changes = TINY_MODEL | {"checkpoint.every_steps": 3, "optimizer.lr": 1e-3, "model.width": 16}
distill(teacher, "tinybert-4", out, corpora=[corpus], steps=8, batch_tokens=512, overrides=changes, resume=True,
        on_progress=watch, log=lambda words: None)
"""


def test_resume_after_kill_is_bit_exact(tmp_path, teacher, tiny_corpus):
    """The student and the projections."""
    learn(teacher, "tinybert-4", tmp_path / "whole", tiny_corpus, {"model.width": 16})
    for stop in (1, 5):
        assert status_of(KILLED, teacher, tiny_corpus, tmp_path / "killed", stop) == -signal.SIGKILL
    outcome = learn(teacher, "tinybert-4", tmp_path / "killed", tiny_corpus, {"model.width": 16}, resume=True)
    assert outcome.ended == "finished"
    whole, killed = bytes_of(tmp_path / "whole"), bytes_of(tmp_path / "killed")
    assert whole == killed and "projections.safetensors" in whole
    again = learn(teacher, "tinybert-4", tmp_path / "killed", tiny_corpus, {"model.width": 16}, resume=True)
    assert again.ended == "already finished"


def test_micro_batches_change_nothing_but_rounding(tmp_path, teacher, tiny_corpus):
    overrides = {"model.dropout": 0.0, "model.attention_dropout": 0.0, "optimizer.lr": 1e-4}
    learn(teacher, "distilbert", tmp_path / "whole", tiny_corpus, overrides, steps=3)
    learn(teacher, "distilbert", tmp_path / "parts", tiny_corpus, overrides | {"batch.micro_tokens": 128}, steps=3)
    whole, parts = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts"))
    assert all((value - parts[name]).abs().max() < 2e-5 for name, value in whole.items())


def test_a_recipe_of_ones_own(tmp_path, teacher, tiny_corpus):
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(RECIPE))
    outcome = learn(teacher, "bert-tiny", tmp_path / "run", tiny_corpus, {"model.width": 16}, recipe=str(file))
    assert {"keys", "mlm"} <= outcome.last.keys()
    kept = json.loads((tmp_path / "run" / "run.json").read_text())["settings"]["objective"]["recipe"]
    assert json.loads(kept) == RECIPE


@pytest.fixture(scope="module")
def tiny_bpe(tmp_path_factory, tiny_text_file) -> Path:
    """A corpus for GPTs."""
    folder = tmp_path_factory.mktemp("bpe")
    train_tokenizer(tiny_text(50).split("\n\n"), kind="bpe", vocab_size=300).save(folder / "tokenizer")
    build_corpus(tiny_text_file, folder / "tokenizer", folder / "corpus", workers=0)
    return folder / "corpus"


def test_a_gpt_learns_from_a_gpt(tmp_path, tiny_bpe):
    """With next-token prediction as in DistilGPT2: no student given, half of the layers, with GPT-2's final norm."""
    size = {"model.width": 32, "model.num_heads": 2, "model.inner_width": 64, "data.length": 64}
    usual = size | {"checkpoint.every_steps": 0, "runtime.tensorboard": False}
    taught = usual | {"model.num_layers": 4, "optimizer.lr": 3e-3}
    teacher, out = tmp_path / "teacher", tmp_path / "student"
    pretrain(
        "gpt2-small", [tiny_bpe], teacher, steps=20, batch_tokens=512, recipe="published", overrides=taught, **QUIET
    )
    said = []
    more = {"corpora": [tiny_bpe], "steps": 4, "batch_tokens": 512, "log": said.append}
    overrides = usual | {"model.num_layers": 2, "optimizer.lr": 1e-12}
    outcome = distill(teacher, None, out, overrides=overrides, **more)
    assert {"clm", "logits", "hidden"} <= outcome.last.keys()
    assert any("is initialised from layers 1, 4 of the teacher" in words for words in said)
    theirs, ours = load_file(teacher / "model.safetensors"), load_file(out / "model.safetensors")
    for name in ("h.1.mlp.c_fc.weight", "ln_f.weight", "wte.weight", "wpe.weight"):
        of = name.replace("h.1.", "h.3.")
        assert torch.allclose(ours[f"transformer.{name}"], theirs[f"transformer.{of}"], atol=1e-6), name
    assert hornbook.load(out).generate("the", max_new_tokens=3)[0].text
    with pytest.raises(ValueError, match=r"distilgpt2 or another GPT as the student"):
        distill(teacher, "distilbert", tmp_path / "other", overrides=usual, **more)
    with pytest.raises(ValueError, match=r"objective\.soft_targets would have no effect"):
        distill(teacher, None, tmp_path / "other", overrides=overrides | {"objective.soft_targets": "masked"}, **more)


def test_what_is_refused(tmp_path, teacher, tiny_corpus, tiny_text_file):
    with pytest.raises(ValueError, match="a gpt2 cannot learn from a bert: use an encoder as the student"):
        learn(teacher, "gpt2-small", tmp_path / "gpt", tiny_corpus)
    train_tokenizer(tiny_text(50).split("\n\n"), vocab_size=150).save(tmp_path / "tokenizer")
    build_corpus(tiny_text_file, tmp_path / "tokenizer", tmp_path / "corpus", workers=0)
    with pytest.raises(ValueError, match=r"different vocabularies.*Instead, give"):
        learn(teacher, "distilbert", tmp_path / "run", tmp_path / "corpus")
    with pytest.raises(ValueError, match="either corpora"):
        distill(teacher, "distilbert", tmp_path / "run", **QUIET)
    with pytest.raises(ValueError, match="is for tasks"):
        learn(teacher, "distilbert", tmp_path / "run", tiny_corpus, recipe="patient")
    with pytest.raises(ValueError, match=r"set model\.num_heads=2"):
        learn(teacher, "tinybert-4", tmp_path / "run", tiny_corpus, {"model.num_heads": 4})
    with pytest.raises(ValueError, match="at most 512 tokens"):
        longer = {"model.max_positions": 600, "data.length": 600}
        learn(teacher, "distilbert", tmp_path / "run", tiny_corpus, longer, batch_tokens=1024)
    assert not (tmp_path / "run").exists()
    headless = tmp_path / "headless"
    learn(teacher, "tinybert-4", headless, tiny_corpus, steps=1)
    with pytest.raises(ValueError, match="has no mlm head"):
        learn(headless, "distilbert", tmp_path / "run", tiny_corpus, recipe="distilbert")
    with pytest.raises(ValueError, match="a run of 'distill'"):
        pretrain("tinybert-4", [tiny_corpus], headless, resume=True, **QUIET)
    run = json.loads((headless / "run.json").read_text())
    run["inputs"]["teacher"]["fingerprint"] = "another"
    (headless / "run.json").write_text(json.dumps(run))
    with pytest.raises(ValueError, match=r"the teacher in .* is not what .* was started with"):
        learn(teacher, "tinybert-4", headless, tiny_corpus, steps=1, resume=True)
