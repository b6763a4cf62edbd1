"""From text to a report on the command line, each command with --json."""

import json
from pathlib import Path

import pytest
from tiny import TINY_WORDS

from hornbook.cli.pretraining import report_outcome
from hornbook.config import iter_settings
from hornbook.runs.pretraining.settings import settings_in
from hornbook.train.job import Outcome


def test_end_to_end(hornbook, tmp_path, tiny_text_file):
    vocabulary, larger, corpus, run = (tmp_path / name for name in ("vocabulary", "larger", "corpus", "run"))
    said = hornbook("tokenizer", "train", tiny_text_file, "--out", vocabulary, "--vocab-size", 150, "--json")
    assert said.answer["vocab_size"] <= 150
    (tmp_path / "words").write_text("lanternish\nbridgely\nthe\n")
    said = hornbook(
        "tokenizer", "extend", vocabulary, tiny_text_file, "--word-list", tmp_path / "words", "--out", larger, "--json"
    )
    assert said.answer["added"] == 2
    said = hornbook(
        "corpus", "build", tiny_text_file, "--tokenizer", vocabulary, "--out", corpus, "--workers", 0, "--json"
    )
    assert said.answer["totals"]["documents"] == 200
    said = hornbook("corpus", "build", tiny_text_file, "--tokenizer", vocabulary, "--out", corpus, "--json")
    assert "is already built" in said.out
    assert said.answer["totals"]["documents"] == 200
    command = ["pretrain", "bert-tiny", "--corpus", f"{corpus}:2", "--out", run, *TINY_WORDS, "--steps", 2, "--json"]
    command += ["--recipe", "published"]  # with next-sentence prediction
    said = hornbook(*command, "--resume")  # with nothing there, it starts
    assert said.answer["ended"] == "finished"
    assert said.answer["step"] == 2
    assert said.out.count("step 2 of 2") == 1
    before = (run / "model.safetensors").read_bytes()
    said = hornbook("pretrain", "--out", run, "--resume", "--json")  # the preset is that of the run
    assert (said.status, said.answer["ended"]) == (0, "already finished")
    assert (run / "model.safetensors").read_bytes() == before
    assert len(hornbook("fill-mask", run, "the [MASK] of [MASK].", "--top-k", 3, "--json").answer["masks"]) == 2
    assert 0 < hornbook("next-sentence", run, "the river.", "a bridge.", "--json").answer["is_next"] < 1
    for folder, kind in ((run, "run"), (corpus, "corpus"), (vocabulary, "tokenizer"), (run / "best", "model")):
        assert hornbook("info", folder, "--json").answer["kind"] == kind
    assert Path(hornbook("report", run, "--json").answer["page"]).is_file()
    assert hornbook("pretrain", "bert-tiny", "--show", "--json").answer["model.width"] == 128


def test_long_words_do_not_widen_the_table_of_a_vocabulary(hornbook, tmp_path):
    text = tmp_path / "laughter.txt"
    text.write_text("so funny\n" * 50 + "hu" * 45 + "\n", encoding="utf-8")
    said = hornbook("tokenizer", "train", text, "--out", tmp_path / "vocabulary", "--vocab-size", 60)
    rows = said.out.splitlines()
    assert any(row.startswith("huhu") for row in rows) and max(map(len, rows)) < 180


def test_show_lists_what_is_read(hornbook, tiny_run):
    gpt, bert = (hornbook("pretrain", preset, "--show", "--json").answer for preset in ("gpt2-small", "bert-tiny"))
    assert "data.crosses_documents" in gpt.keys() - bert.keys()
    assert {"masking.probability", "data.layout", "data.single_segment_probability"} <= bert.keys() - gpt.keys()
    on_task = hornbook("finetune", tiny_run, "--task", "mrpc", "--show", "--json").answer
    assert "epochs" in on_task and not {"schedule.steps", "batch.tokens", "validation.tokens"} & on_task.keys()


def test_what_is_shown_is_what_runs(hornbook, tmp_path, tiny_corpus):
    """The vocabulary of the corpus, the steps of --tokens, the shorter warmup and the interval of validations."""
    run = tmp_path / "run"
    words = ["pretrain", "roberta-base", "--corpus", tiny_corpus, "--tokens", 4000, *TINY_WORDS, "--json"]
    words += ["--recipe", "published"]
    shown = hornbook(*words, "--show").answer
    assert hornbook(*words, "--out", run).status == 0
    resumed = hornbook("pretrain", "roberta-base", "--out", run, "--resume", "--show", "--json").answer
    recorded = json.loads((run / "run.json").read_text())
    values = {each.name: each.value for each in iter_settings(settings_in(recorded))}
    assert shown == resumed == json.loads(json.dumps({name: values[name] for name in shown}))
    assert values.keys() - shown.keys() == set(recorded["unused"])
    assert shown["schedule.warmup_steps"] < 24_000 and shown["validation.every_steps"]


def test_pretrain_from_a_model_with_an_extended_vocabulary(hornbook, tmp_path, tiny_run, tiny_text_file):
    (tmp_path / "words").write_text("lanternish\nbridgely\n")
    vocabulary, corpus = tmp_path / "vocabulary", tmp_path / "corpus"
    hornbook("tokenizer", "extend", tiny_run, tiny_text_file, "--word-list", tmp_path / "words", "--out", vocabulary)
    hornbook("corpus", "build", tiny_text_file, "--tokenizer", vocabulary, "--out", corpus, "--workers", 0)
    said = hornbook(
        *["pretrain", "bert-tiny", "--from", tiny_run, "--corpus", corpus, "--out", tmp_path / "run"],
        *["--steps", 1, *TINY_WORDS, "--json"],
    )
    assert said.answer["ended"] == "finished", said
    assert "2 new words" in said.out
    assert hornbook("fill-mask", tmp_path / "run", "the [MASK]").status == 0


def test_lines_in_a_pipe_are_whole(hornbook, tiny_run):
    said = hornbook("info", tiny_run)
    assert f"run in {tiny_run}" in said.out
    assert "accuracy" in next(line for line in said.out.splitlines() if line.startswith("last validation"))


def test_signs_of_markup_are_text(hornbook, tiny_run):
    said = hornbook("fill-mask", tiny_run, "[/b] [red]the[/] [MASK] :smile:", "--top-k", 1)
    assert said.status == 0
    assert "[/b] [red]the[/] " in said.out
    assert ":smile:" in said.out


def test_notes_on_problems_are_words(hornbook, tmp_path, tiny_tokenizer):
    (tmp_path / "rows.jsonl").write_text('{"text": "the river of bread"}\n{nope\n{"other": 3}\n')
    out = hornbook(
        *["corpus", "build", tmp_path / "rows.jsonl", "--tokenizer", tiny_tokenizer],
        *["--out", tmp_path / "corpus", "--workers", 0],
    ).out
    assert "note: lines that are not a JSON object, dropped: 1 (" in out
    assert "rows.jsonl line 2" in out
    assert "{'" not in out


@pytest.mark.parametrize(("last", "is_noted"), [(3.72, True), (3.70, False)])
def test_a_validation_loss_that_has_risen_is_noted(tiny_run, capsys, last, is_noted):
    report_outcome(tiny_run, Outcome("finished", 100, 6400, 5.0, {"validation_loss": last}, best=3.695, best_step=60))
    best = tiny_run / "best"
    note = f"the validation loss was lowest at step 60, whose weights are in {best}, and has risen to 3.720 since"
    assert (note in capsys.readouterr().err) == is_noted


def test_built_in_models_have_their_names_everywhere(hornbook, complaint):
    said = hornbook("info", "ko", "--json")
    assert said.answer["folder"] == "ko" and said.answer["model_type"] == "electra"
    assert complaint("generate", "en", "A text.").startswith("hornbook: en is an electra")
    assert complaint("next-sentence", "en", "One.", "Two.").startswith("hornbook: en has no sentence head")
    texts = ["The cat sat.", "Sat cat the."]
    assert hornbook("score", *texts, "--json").answer == hornbook("score", "en", *texts, "--json").answer
    for command in (["generate"], ["perplexity"], ["lm-eval"], ["next-sentence"], ["show", "answer"]):
        assert "built-in" not in hornbook(*command, "--help").out, command


def test_search_without_a_network_names_models_that_need_none(complaint, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a text\n", encoding="utf-8")
    error = complaint("embed", "texts.txt", "--out", "index")
    assert error.endswith(
        "give the path of a folder as --model, or use --model en or --model ko, which need no download\n"
    )
