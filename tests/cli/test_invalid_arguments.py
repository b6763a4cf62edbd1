"""One sentence for everything that is wrong."""

import json
import os
import shutil
import sys

import pytest
from tiny import TINY_WORDS

from hornbook import cli


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (["--set", "optimizer.lrr=1"], "did you mean 'optimizer.lr'"),
        (["--set", "lr=1"], "did you mean 'optimizer.lr'"),
        (["--set", "optimizer.learning_rate=1"], "did you mean 'optimizer.lr'"),
        (["--set", "model.hidden_size=64"], "did you mean 'model.width'"),
        (["--set", "objective.lr=1"], "did you mean 'optimizer.lr'"),
        (["--set", "model.layers=1"], "did you mean 'model.num_layers'"),
        (["--set", "optimizer.lr"], "--set takes key=value"),
        (["--set", "optimizer.lr=fast"], "optimizer.lr must be a number"),
        (["--set", "optimizer=1"], "there is no setting 'optimizer'"),
        (["--set", "model.num_heads=5"], "does not divide"),
        (["--set", "runtime.device=abacus"], "there is no device 'abacus' here: use auto, cpu or cuda"),
        (["--steps", "3", "--minutes", "1"], "only one of --steps, --tokens and --minutes"),
        (["--steps", "0"], "--steps must be at least 1, not 0"),
        (["--tokens", "-1"], "--tokens must be at least 1, not -1"),
        (["--minutes", "-1"], "--minutes must be above 0, not -1"),
        (["--minutes", "nan"], "--minutes must be above 0"),
        (["--minutes", "inf"], "--minutes must be above 0"),
        (["--batch-tokens", "1"], "--batch-tokens must be at least 8, not 1"),
        (["--batch-tokens", "32"], "less than one sequence"),
        (["--seed", "-1"], "--seed must be at least 0, not -1"),
        (["--from", "/no/such/model"], "there is no folder /no/such/model"),
        (["--from", "nobody-s/model"], "could be downloaded"),
    ],
)
def test_pretrain_refuses(complaint, pretraining, tmp_path, extra, expected):
    assert expected in complaint(*pretraining, *extra)
    assert not (tmp_path / "run").exists()


def test_pretrain_refuses_names(complaint, tmp_path, tiny_corpus):
    out = ["--out", tmp_path / "run"]
    assert "did you mean bert-tiny" in complaint("pretrain", "bert-tinny", "--corpus", tiny_corpus, *out)
    assert "needs --corpus" in complaint("pretrain", "bert-tiny", *out)
    assert "needs --out" in complaint("pretrain", "bert-tiny", "--corpus", tiny_corpus)
    assert "needs a preset, too" in complaint("pretrain", "--from", "en", "--corpus", tiny_corpus, *out)
    assert "distill needs TEACHER" in complaint("distill", *out)
    for corpus in (tmp_path / "none", f"{tmp_path / 'none'}:3", "C:\\corpora\\x", f"{tiny_corpus}:heavy"):
        assert "there is no folder" in complaint("pretrain", "bert-tiny", "--corpus", corpus, *out)
    assert "is not a corpus" in complaint("pretrain", "bert-tiny", "--corpus", tmp_path, *out)
    for weight in ("-1", "0", "nan", "inf"):
        assert "weight" in complaint("pretrain", "bert-tiny", "--corpus", f"{tiny_corpus}:{weight}", *out, *TINY_WORDS)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("extra", [[], ["--dry-run"], ["--out", "run"]])
def test_a_file_in_place_of_the_model_is_the_data(complaint, tmp_path, extra):
    (tmp_path / "reviews.csv").touch()
    error = complaint("finetune", tmp_path / "reviews.csv", *extra)
    assert f"is a file, not a model: give it as --data {tmp_path / 'reviews.csv'}" in error


def test_an_option_that_names_the_data_is_given_once(hornbook, tmp_path):
    command = ["finetune", "--data", "first.csv", "--data", "second.csv", "--out", tmp_path / "run"]
    refused = hornbook(*command)
    assert refused.status == 2 and "--data takes one value, but is given 2 times" in refused.error
    quiet_and_set = ("--quiet", "--quiet", "--set", "epochs=1", "--set", "batch_size=8")
    assert "first.csv does not exist" in hornbook(*command[:3], *command[5:], *quiet_and_set).error


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (["pretrain"], "PRESET"),
        (["pretrain", "bert-tiny"], "--corpus"),
        (["distill"], "TEACHER"),
        (["finetune"], "--data"),
        (["prompt"], "MODEL"),
    ],
)
def test_there_is_no_run_to_resume(complaint, tmp_path, command, missing):
    error = complaint(*command, "--out", tmp_path / "kill", "--resume")
    assert f"kill holds no run to resume: to start one, give {missing}; see 'hornbook {command[0]} --help'" in error
    assert not (tmp_path / "kill").exists()


@pytest.mark.parametrize("extra", ["--dry-run", "--show"])
def test_resume_and_overwrite_are_refused_together_also_if_nothing_is_trained(complaint, tmp_path, extra):
    finetune = ["finetune", "--data", tmp_path / "none.csv", "--out", tmp_path / "run"]
    assert "give only one of them" in complaint(*finetune, "--resume", "--overwrite", extra)


@pytest.mark.parametrize(
    ("model", "extra", "expected"),
    [
        ("en", ["--set", "optimizer.l=3"], "did you mean 'optimizer.lr'"),
        ("en", ["--head", "cnnn"], "task.head must be"),
        ("en", ["--device", "gpu"], "there is no device 'gpu' here"),
        ("en", ["--task", "clasification"], "did you mean"),
        (".", [], "is not a model folder"),
        ("none/of/these", [], "there is no folder"),
    ],
)
def test_options_and_the_model_are_checked_before_out_and_the_data(complaint, tmp_path, model, extra, expected):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.doc").touch()
    finetune = ["finetune", model, "--data", tmp_path / "none.csv", "--out", tmp_path / "run"]
    assert expected in complaint(*finetune, *extra)
    assert expected in complaint(*finetune, *extra, "--dry-run")


@pytest.mark.parametrize(
    ("extra", "expected"),
    [
        (["--set", "optimizer.l=3"], "did you mean 'optimizer.lr'"),
        (["--device", "gpu"], "there is no device 'gpu' here"),
        (["--from", "."], "is not a model folder"),
    ],
)
def test_options_of_pretraining_are_checked_before_out_and_the_corpus(complaint, tmp_path, extra, expected):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.doc").touch()
    words = ["pretrain", "bert-tiny", "--corpus", tmp_path / "none", "--out", tmp_path / "run"]
    assert expected in complaint(*words, *extra)


@pytest.mark.parametrize("name", ["plain", "with:colon", "with:3", "a b"])
@pytest.mark.parametrize("weight", ["", ":2", ":0.5"])
def test_names_of_corpora(hornbook, tmp_path, tiny_corpus, name, weight):
    shutil.copytree(tiny_corpus, tmp_path / name)
    said = hornbook(
        *["pretrain", "bert-tiny", "--corpus", f"{tmp_path / name}{weight}", "--out", tmp_path / "run"],
        *[*TINY_WORDS, "--steps", 1],
    )
    assert said.status == 0, said.error
    (corpus,) = json.loads((tmp_path / "run" / "run.json").read_text())["inputs"]["corpora"]
    assert corpus["folder"] == str(tmp_path / name)
    assert corpus["weight"] == float(weight[1:] or 1)


def test_out_that_is_taken(complaint, tiny_run, tiny_corpus, tiny_tokenizer, tiny_text_file, tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.doc").touch()
    start = ["pretrain", "bert-tiny", "--corpus", tiny_corpus, *TINY_WORDS, "--out"]
    assert "add --resume" in complaint(*start, tiny_run)
    assert "is not a run" in complaint(*start, tmp_path / "full")
    train = ["tokenizer", "train", tiny_text_file, "--out"]
    assert "already holds a tokenizer" in complaint(*train, tiny_tokenizer)
    build = ["corpus", "build", tiny_text_file, "--tokenizer", tiny_tokenizer, "--out"]
    assert "is not a corpus" in complaint(*build, tmp_path / "full")
    for verb in (start, train, build):
        assert "cannot be written" in complaint(*verb, tmp_path / "file")
        assert "cannot be written" in complaint(*verb, tmp_path / "file" / "inside")
    assert os.listdir(tmp_path / "full") == ["thesis.doc"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_out_without_permission(complaint, tiny_text_file, tmp_path):
    (tmp_path / "closed").mkdir(mode=0o500)
    assert "cannot be written" in complaint("tokenizer", "train", tiny_text_file, "--out", tmp_path / "closed" / "x")


@pytest.mark.parametrize("verb", [["tokenizer", "train"], ["corpus", "build"]], ids="-".join)
@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty.txt", b"", "no document could be read"),
        ("blank.txt", b"\n \n\t\n", "no document could be read"),
        ("zeros.txt", bytes(2000), "no document could be read"),
        ("torn.txt.gz", b"\x1f\x8b\x08torn", "no document could be read"),
        ("torn.parquet", b"PAR1torn", "no document could be read"),
        ("letter.docx", b"x", "has an unknown extension"),
        ("folder/picture.png", b"x", "no text files in"),
        (None, None, "does not exist"),
    ],
)
def test_files_without_text(complaint, tmp_path, tiny_tokenizer, verb, name, content, expected):
    path = tmp_path / (name or "none.txt")
    path.parent.mkdir(exist_ok=True)
    if name:
        path.write_bytes(content)
    given = path.parent if path.parent != tmp_path else path
    extra = ["--tokenizer", tiny_tokenizer, "--workers", "0"] if verb[0] == "corpus" else []
    assert expected in complaint(*verb, given, "--out", tmp_path / "out", *extra)
    assert not (tmp_path / "out" / "tokenizer.json").exists() or verb[0] == "corpus"
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_tokenizer_commands_refuse(complaint, tmp_path, tiny_text_file, tiny_tokenizer):
    train = ["tokenizer", "train", tiny_text_file, "--out", tmp_path / "out"]
    assert "a vocabulary of 3 cannot hold" in complaint(*train, "--vocab-size", 3)
    assert "kind 'nonsense' is unknown: use one of" in complaint(*train, "--kind", "nonsense")
    extend = ["tokenizer", "extend", tiny_tokenizer, tiny_text_file, "--out", tmp_path / "out"]
    assert "at least 1, not 0" in complaint(*extend, "--words", 0)
    assert "at least 1, not -1" in complaint(*extend, "--words", -1)
    assert "no such file" in complaint(*extend, "--word-list", tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x80")
    assert "is not UTF-8 text" in complaint(*extend, "--word-list", tmp_path / "binary")
    (tmp_path / "words").write_text("lantern\n\nmachine learning\n")
    assert "'machine learning' is not one word" in complaint(*extend, "--word-list", tmp_path / "words")
    both = complaint(*extend, "--word-list", tmp_path / "words", "--words", 3)
    assert "--words has no effect with --word-list" in both
    assert not (tmp_path / "out").exists()


def test_corpus_build_refuses(complaint, tmp_path, tiny_text_file, tiny_tokenizer, tiny_corpus):
    build = ["corpus", "build", tiny_text_file, "--out", tmp_path / "out"]
    (tmp_path / "folder").mkdir()
    assert "no tokenizer.json and no vocab.txt" in complaint(*build, "--tokenizer", tmp_path / "folder")
    assert "is a file" in complaint(*build, "--tokenizer", tiny_text_file)
    build += ["--tokenizer", tiny_tokenizer]
    assert "--documents must be" in complaint(*build, "--documents", "pages")
    assert "--clean must be" in complaint(*build, "--clean", "soap")
    assert "--workers must be at least 0" in complaint(*build, "--workers", -1)
    (tmp_path / "other.txt").write_text("another text")
    other = ["corpus", "build", tmp_path / "other.txt", "--tokenizer", tiny_tokenizer, "--out", tiny_corpus]
    assert "already holds another corpus" in complaint(*other)


def test_show_says_that_a_preset_is_not_a_model(complaint):
    assert "bert-tiny is a preset, not a model" in complaint("show", "masking", "bert-tiny", "a text")


def test_models_refuse(complaint, hornbook, tmp_path, tiny_run, tiny_corpus, tiny_tokenizer):
    assert "the text has no mask: write [MASK]" in complaint("fill-mask", tiny_run, "no mask")
    assert "the text has no mask" in complaint("fill-mask", tiny_run, "")
    assert "--top-k must be at least 1, not 0" in complaint("fill-mask", tiny_run, "the [MASK]", "--top-k", 0)
    assert "more than the model's maximum of 512" in complaint("fill-mask", tiny_run, "the [MASK] " * 300)
    assert "a model pre-trained to predict the next sentence" in complaint("next-sentence", "One.", "Two.")
    assert "is a folder: give a text after it" in complaint("score", tiny_run)
    assert "more than the model's maximum of 512" in complaint("next-sentence", tiny_run, "a " * 400, "b " * 400)
    assert "lone surrogate" in complaint("fill-mask", tiny_run, "[MASK] \udcff")
    for folder in (tiny_corpus, tiny_tokenizer, tmp_path):
        assert "is not a model folder" in complaint("fill-mask", folder, "the [MASK]")
    assert "is a file" in complaint("fill-mask", tiny_run / "model.safetensors", "the [MASK]")
    assert "could be downloaded" in complaint("fill-mask", "bert-base-that-is-not-there", "the [MASK]")


def test_info_and_report_refuse(complaint, tmp_path, tiny_run, tiny_corpus, tiny_text_file):
    assert "does not exist" in complaint("info", tmp_path / "none")
    assert "has none of" in complaint("info", tmp_path)
    assert "is a text file" in complaint("info", tiny_text_file)
    assert "is a file: pass its folder" in complaint("info", tiny_run / "run.json")
    (tmp_path / "reviews.csv").write_text("text,label\n")
    assert "'hornbook check " in complaint("info", tmp_path / "reviews.csv")
    for path in (tmp_path, tmp_path / "none", tiny_corpus, tiny_text_file):
        assert "is not a run" in complaint("report", path)
    shutil.copytree(tiny_run, tmp_path / "run")
    for content in ("{", "[]", "{}"):
        (tmp_path / "run" / "run.json").write_text(content)
        complaint("info", tmp_path / "run")
        complaint("report", tmp_path / "run")


def test_a_fault_of_the_program_keeps_its_traceback(monkeypatch, tiny_run):
    def fails(path):
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr("hornbook.report.info.describe", fails)
    monkeypatch.setattr(sys, "argv", ["hornbook", "info", str(tiny_run)])
    with pytest.raises(RuntimeError):
        cli.main()


def test_a_folder_that_is_no_model_is_named_for_what_it_is(complaint, tmp_path, tiny_run, tiny_tokenizer, tiny_corpus):
    assert "is not a model folder, but a tokenizer" in complaint("fill-mask", tiny_tokenizer, "the [MASK]")
    assert "is not a model folder, but a corpus" in complaint("fill-mask", tiny_corpus, "the [MASK]")
    (tmp_path / "runs").mkdir()
    shutil.copytree(tiny_run, tmp_path / "runs" / "first")
    error = complaint("predict", tmp_path / "runs", "a text")
    assert f"is not a model folder, but holds {tmp_path / 'runs' / 'first'}: give one of them" in error


def test_a_name_below_an_existing_folder_is_a_path(complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    assert (
        complaint("fill-mask", "runs/rev1", "the [MASK]") == "hornbook: there is no folder runs/rev1: check the path\n"
    )
