"""The result goes to stdout, everything else to stderr."""

import json

import pytest
from tiny import TINY_WORDS


@pytest.fixture
def training(tiny_corpus, tmp_path) -> list:
    out = tmp_path / "run"
    return ["pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", out, *TINY_WORDS, "--steps", 2]


def test_the_log_goes_to_stderr(hornbook, training):
    said = hornbook(*training)
    assert said.status == 0
    assert "step 2 of 2" in said.stderr and "hornbook report" in said.stderr
    assert said.stdout.count("\n") == 1 and ": finished, 2 steps" in said.stdout


def test_the_next_commands_can_be_pasted(hornbook, tiny_corpus, tmp_path):
    out = tmp_path / "my run"
    said = hornbook("pretrain", "bert-tiny", "--corpus", tiny_corpus, "--out", out, *TINY_WORDS, "--steps", 1)
    assert f"hornbook report '{out}'      hornbook fill-mask '{out}' " in " ".join(said.stderr.split("\n"))


def test_json_is_all_of_stdout(hornbook, training, tiny_run):
    said = hornbook(*training, "--json")
    assert json.loads(said.stdout)["ended"] == "finished"
    assert "step 2 of 2" in said.stderr and "finished," not in said.stderr
    for command in (["info", tiny_run], ["fill-mask", tiny_run, "the [MASK]"], ["pretrain", "bert-tiny", "--show"]):
        said = hornbook(*command, "--json")
        assert json.loads(said.stdout) and said.stderr == ""
    said = hornbook("info", tiny_run)
    assert "run in" in said.stdout and said.stderr == "", "--json holds for one command"


@pytest.mark.parametrize("place", ["before", "after"])
@pytest.mark.parametrize("option", ["--quiet", "-q"])
def test_quiet_leaves_the_result(hornbook, training, place, option):
    said = hornbook(option, *training) if place == "before" else hornbook(*training, option)
    assert said.stderr == "" and ": finished, 2 steps" in said.stdout


def test_quiet_leaves_json_and_errors(hornbook, training, tmp_path, tiny_text_file):
    said = hornbook(*training, "-q", "--json")
    assert json.loads(said.stdout)["ended"] == "finished" and said.stderr == ""
    said = hornbook("tokenizer", "train", tmp_path / "none.txt", "--out", tmp_path / "vocabulary", "-q")
    assert said.status == 2 and said.stderr.startswith("hornbook: ") and said.stdout == ""
    words = ["tokenizer", "train", tiny_text_file, "--out", tmp_path / "vocabulary", "--vocab-size", 150]
    assert "150 tokens" in hornbook(*words, "-q").stdout
