"""`hornbook prompt`: its files, resuming after a kill, and errors."""

import html
import json
import os
import sys
import time
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from forked import begun
from small_prompting import CONTEXT, QUESTION, WRITING, saved_small_gpt, write_colours, write_rows, write_task
from tiny import tiny_text

import hornbook
from hornbook import cli
from hornbook.evaluation.prompting import prompt as running
from hornbook.evaluation.prompting.scores import degenerate
from hornbook.files import read_json, read_json_lines
from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.report import info
from hornbook.text.training import train_tokenizer


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    return saved_small_gpt(tmp_path_factory.mktemp("gpt"))


@pytest.fixture
def task(tmp_path):
    return write_task(tmp_path / "colour.toml", QUESTION)


@pytest.fixture
def data(tmp_path):
    return write_colours(tmp_path / "data")


@pytest.fixture
def verb(monkeypatch, capsys):
    def of(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hornbook", "prompt", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return of


def quiet(words: str) -> None:
    pass


@pytest.mark.pictures
def test_what_a_run_leaves(gpt, task, data, tmp_path):
    out, watched = tmp_path / "out", []
    found = hornbook.prompt(
        gpt, task, data, out, shots=(0, 1, 3), seeds=2, on_progress=lambda *each: watched.append(each), log=quiet
    )
    names = {file.stem for file in (out / "predictions").iterdir()}
    assert names == {"shots-0-seed-0", *(f"shots-{num}-seed-{seed}" for num in (1, 3) for seed in (0, 1))}
    assert read_json(out / "scores.json") == json.loads(json.dumps(found))
    assert (out / "report.html").exists() and (out / "score-by-shots.png").exists()
    assert watched[-1][:2] == (45, 45) and watched[-1][2] == "3 shots, seed 1"
    for point in found["points"]:
        lines = [
            read_json_lines(out / "predictions" / f"shots-{point['shots']}-seed-{s}.jsonl") for s in point["seeds"]
        ]
        right = [np.mean([line["answer"] in line["answers"] for line in its]) for its in lines]
        score = point["scores"]["accuracy"]
        assert score["seeds"] == pytest.approx([100 * share for share in right])
        assert score["value"] == pytest.approx(100 * np.mean(right)) and score["low"] <= score["value"] <= score["high"]
        for line in lines[0]:
            assert line["prompt"].startswith("Say which colour it is.\n\n") and line["prompt"].endswith(" is")
            assert line["prompt"].count("train") == line["examples"] == point["shots"]
            assert line["prompt"].count("test") == 1
            assert line["answer"] == line["choices"][int(np.argmax(line["scores"]))]
    said = dict(info.describe(out)["lines"])
    assert said["what"].startswith("prompted task in ") and said["state"] == "finished"
    assert said["examples in the prompt"] == "0, 1, 3, sampled with 2 seeds" and said["data"].endswith(", 9 questions")
    assert said["as written, 1 example"].startswith("accuracy ") and said["chance"] == "accuracy 50.0%"
    assert found["baselines"]["chance"]["accuracy"]["value"] == 50
    assert found["baselines"]["commonest answer"]["accuracy"]["value"] == pytest.approx(100 * 5 / 9)


def test_resume_after_kill(gpt, task, data, tmp_path):
    whole, out = tmp_path / "whole", tmp_path / "out"
    expected = hornbook.prompt(gpt, task, data, whole, shots=(0, 1, 2), seeds=2, log=quiet)
    code = (
        "import time\nfrom hornbook.evaluation.prompting import prompt as run\n"
        "from hornbook.evaluation.prompting.evaluator import PromptEvaluator\n"
        "ask = PromptEvaluator.ask\n"
        "def slow(self, items, prompts, seed, progress):\n"
        "    if 'train' in prompts[0].text and seed: time.sleep(600)\n"
        "    return ask(self, items, prompts, seed, progress)\n"
        "PromptEvaluator.ask = slow\n"
        f"run.prompt({str(gpt)!r}, {str(task)!r}, {str(data)!r}, {str(out)!r}, shots=(0, 1, 2), seeds=2,"
        " log=lambda words: None)\n"
    )
    process = begun(code)
    wanted = out / "predictions" / "shots-1-seed-0.jsonl"
    deadline = time.monotonic() + 120
    while not wanted.exists() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.kill()
    process.join()
    done = sorted((out / "predictions").glob("*.jsonl"))
    assert [file.stem for file in done] == ["shots-0-seed-0", "shots-1-seed-0"] and not (out / "scores.json").exists()
    before = {file: os.stat(file).st_mtime_ns for file in done}
    said = []
    found = hornbook.prompt(gpt, task, data, out, shots=(0, 1, 2), seeds=2, resume=True, log=said.append)
    assert said[0] == "2 of 5 runs are already finished"
    assert {file: os.stat(file).st_mtime_ns for file in done} == before
    assert found["points"] == expected["points"]


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [('"key"', "", "8 valid lines for 9 questions"), ('"statistics"', '"statistica"', "lacks 'statistics'")],
)
def test_damaged_predictions_are_refused(gpt, task, data, tmp_path, old, new, words):
    hornbook.prompt(gpt, task, data, tmp_path / "out", shots=(0,), seeds=1, log=quiet)
    (file,) = (tmp_path / "out" / "predictions").iterdir()
    file.write_text(file.read_text().replace(old, new, 1))
    (tmp_path / "out" / "scores.json").unlink()
    with pytest.raises(ValueError, match=f"is damaged .*{words}.* and resume"):
        hornbook.prompt(gpt, task, data, tmp_path / "out", shots=(0,), seeds=1, resume=True, log=quiet)


def test_a_stopped_run_has_the_scores_of_what_is_done(gpt, task, data, tmp_path, monkeypatch):
    out, ask = tmp_path / "out", running.PromptEvaluator.ask

    def stopping(self, items, prompts, *rest):
        if prompts[0].num_examples:
            raise KeyboardInterrupt
        return ask(self, items, prompts, *rest)

    monkeypatch.setattr(running.PromptEvaluator, "ask", stopping)
    with pytest.raises(KeyboardInterrupt):
        hornbook.prompt(gpt, task, data, out, shots=(0, 1), seeds=1, log=quiet)
    assert [point["shots"] for point in read_json(out / "scores.json")["points"]] == [0]
    assert "1 of 2 runs" in (out / "report.html").read_text(encoding="utf-8")
    assert (
        dict(info.describe(out)["lines"])["state"] == "1 of 2 runs done; run the same command with --resume to continue"
    )


def test_a_stopped_command_prints_how_to_resume(verb, gpt, task, data, tmp_path, monkeypatch):
    monkeypatch.setattr(running.PromptEvaluator, "ask", Mock(side_effect=KeyboardInterrupt))
    status, _, error = verb(gpt, "--task", task, "--data", data, "--out", tmp_path / "out")
    assert status == 130 and error.endswith("rerun with --resume\n")


def test_shots_and_seeds_may_be_added_later_and_nothing_else(gpt, task, data, tmp_path):
    out = tmp_path / "out"
    hornbook.prompt(gpt, task, data, out, shots=(0,), log=quiet)
    with pytest.raises(ValueError, match="already holds a run: add resume=True"):
        hornbook.prompt(gpt, task, data, out, shots=(0,), log=quiet)
    hornbook.prompt(gpt, task, data, out, shots=(2,), seeds=2, resume=True, log=quiet)
    (out / "predictions" / "shots-2-seed-1.jsonl").unlink()  # as if it had been stopped before it
    found = hornbook.prompt(gpt, task, data, out, shots=(0,), resume=True, log=quiet)
    assert [(point["shots"], len(point["seeds"])) for point in found["points"]] == [(0, 1), (2, 3)]
    for changed, words in (
        ({"limit": 3}, "started with other settings: limit is not set, not 3"),
        ({"normalize": "sum"}, "started with other settings: task.choices.normalize is token, not sum"),
        ({"model": saved_small_gpt(tmp_path / "other", context=64)}, "the model .* is not what .* was started with"),
    ):
        arguments = {"model": gpt, "task": task, "data": data, "out": out} | changed
        with pytest.raises(ValueError, match=words):
            hornbook.prompt(**arguments, resume=True, log=quiet)
    write_colours(data, num_train=13)
    with pytest.raises(ValueError, match=r"training examples in .* is not what .* was started with"):
        hornbook.prompt(gpt, task, data, out, shots=(2,), resume=True, log=quiet)


def test_prompts_that_do_not_fit_are_reported_and_recorded(gpt, task, tmp_path):
    data, said = write_colours(tmp_path / "data", num_train=40), []
    found = hornbook.prompt(gpt, task, data, tmp_path / "out", shots=(20,), seeds=1, log=said.append)
    shown = found["points"][0]["shown"]
    assert 0 < shown["fewest"] <= shown["mean"] < 20 and shown["whole"] == 0
    (warning,) = [words for words in said if words.startswith("warning")]
    assert f"do not fit the context of {CONTEXT} tokens for 9 of 9 questions" in warning
    assert f"{shown['mean']:.3g} were shown on average, at least {shown['fewest']}" in warning
    assert "examples fitted the context on average" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def test_limit_asks_the_same_questions(gpt, task, data, tmp_path):
    runs = [hornbook.prompt(gpt, task, data, tmp_path / name, shots=(0,), limit=4, log=quiet) for name in "ab"]
    keys = [
        [line["key"] for line in read_json_lines(tmp_path / name / "predictions" / "shots-0-seed-0.jsonl")]
        for name in "ab"
    ]
    assert keys[0] == keys[1] and len(keys[0]) == 4 and runs[0]["questions"] == 4


def test_variants_baselines_and_drawn_answers(gpt, tmp_path):
    text = WRITING.replace("[generation]", "[generation]\ntemperature = 1.0\ntop_k = 3").replace(
        '["exact", "f1"]', '["rouge1"]'
    )
    text += '[baseline]\nkinds = ["lead-3"]\nfield = "text"\n[[variants]]\nname = "bare"\nexample = "{text}"\n'
    rows = [{"text": f"One {i}. Two. Three. Four.", "label": f"one {i} two three"} for i in range(4)]
    data = write_rows(tmp_path / "test.jsonl", rows)
    found = hornbook.prompt(
        gpt, write_task(tmp_path / "sum.toml", text), data, tmp_path / "out", shots=(0,), seeds=2, log=quiet
    )
    assert [(p["variant"], p["seeds"]) for p in found["points"]] == [("as written", [0, 1]), ("bare", [0, 1])]
    assert found["baselines"]["lead-3"]["rouge1"]["value"] == pytest.approx(100)
    prompts = {
        name: read_json_lines(tmp_path / "out" / "predictions" / f"{name}shots-0-seed-0.jsonl")[0]["prompt"]
        for name in ("", "bare-")
    }
    assert prompts == {"": "One 0. Two. Three. Four. is", "bare-": "One 0. Two. Three. Four."}


def test_refusals(gpt, task, data, tmp_path, monkeypatch):
    def refused(words: str, **changed) -> None:
        arguments = {"model": gpt, "task": task, "data": data, "out": tmp_path / "no"} | changed
        with pytest.raises(ValueError, match=words) as error:
            hornbook.prompt(**arguments, log=quiet)
        assert "\n" not in str(error.value) and not (tmp_path / "no").exists()

    tokenizer = train_tokenizer(tiny_text(60).split("\n\n"), vocab_size=200)
    size = {"num_layers": 1, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": 32}
    bert = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **size), ("mlm",))
    bert.initialize(torch.Generator().manual_seed(0))
    (tmp_path / "bert").mkdir()
    save_model(tmp_path / "bert", bert)
    tokenizer.save(tmp_path / "bert")
    refused("is an encoder and cannot continue a prompt", model=tmp_path / "bert")
    refused("there is no file .*no.toml: check", task=tmp_path / "no.toml")
    refused("a shipped one; did you mean sst-2-question", task="sst2-question")
    refused("no training split", data=data / "test.jsonl", shots=(1,))
    refused("fewer than the 13", shots=(13,))
    refused("shots must be at least 0, not -1", shots=(-1,))
    refused("shots takes numbers", shots=())
    refused("seeds must be at least 1", seeds=0)
    refused("limit must be at least 1", limit=0)
    refused("dictionary is for tasks", dictionary=task)
    refused("must be one of token, byte, sum, answer", normalize="length")
    refused("names the field {txt}", task=write_task(tmp_path / "a.toml", QUESTION.replace("{text}", "{txt}")))
    baseline = '[baseline]\nkinds = ["lead-3"]\nfield = "y"\n'
    refused("baseline.field names the field 'y'", task=write_task(tmp_path / "c.toml", QUESTION + baseline))
    refused("shorten names the field 'x'", task=write_task(tmp_path / "b.toml", 'shorten = "x"\n' + QUESTION))
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    refused("needs the package sacrebleu", task="translation-pairs")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note.txt").write_text("mine")
    with pytest.raises(ValueError, match="exists and is not a run"):
        hornbook.prompt(gpt, task, data, tmp_path / "full", shots=(0,), log=quiet)


def test_the_same_answer_to_every_question_is_reported(verb, gpt, task, tmp_path):
    """In sum the shorter choice is the likelier one, whatever the question."""
    data, out = write_colours(tmp_path / "data", num_test=41), tmp_path / "out"
    status, _, said = verb(gpt, "--task", task, "--data", data, "--normalize", "sum", "--shots", "0,1", "--out", out)
    words = "it answers 'red' to 100.0% of the questions"
    whole = f"with 0 examples {words}, with 1 example {words}: a score near 51.2%, the score of always choosing the "
    assert status == 0 and f"note: {whole}most frequent answer, then means little\n" in said
    assert f"W{whole[1:]}" in html.unescape((out / "report.html").read_text(encoding="utf-8"))
    assert dict(info.describe(out)["lines"])["warning"].startswith(whole)


def answered(said: str, right: str, choices: str = "abc", shift: int = 0) -> list[dict]:
    """Lines of predictions: the answer to each question and the gold answer, with the choices rotated each time."""
    lines = []
    for number, pair in enumerate(zip(said, right, strict=True)):
        start = number * shift % len(choices)
        moved = choices[start:] + choices[:start]
        lines.append({"choices": list(moved), "answer": pair[0], "answers": [pair[1]]})
    return lines


@pytest.mark.parametrize(
    ("several", "words"),
    [
        ([answered("a" * 40, "ab" * 20)], "it answers 'a' to 100.0% of the questions"),
        ([answered("a" * 39 + "b", "ab" * 20)], "it answers 'a' to 97.5% of the questions"),
        ([answered("a" * 37 + "bbb", "ab" * 20)], None),
        ([answered("a" * 40, "a" * 40)], None),  # as is right
        ([answered("a" * 39 + "b", "a" * 39 + "b")], None),
        ([answered("a" * 40, "a" * 39 + "b")], "it answers 'a' to 100.0% of the questions"),
        ([answered("a" * 10, "ab" * 5)], None),  # by chance
        ([answered("abc" * 10, "aab" * 10, shift=1)], "it takes choice 1 for 100.0% of the questions"),
        ([answered("a" * 30, "abc" * 10, shift=1)], None),
        (
            [answered("a" * 40, "ab" * 20), answered("b" * 40, "ab" * 20)],
            "it gives the same answer to 100.0% of the questions, a different one for each seed",
        ),
        ([answered("a" * 40, "ab" * 20), answered("ab" * 20, "ab" * 20)], None),
    ],
)
def test_what_shows_that_the_question_does_not_matter(several, words):
    assert degenerate(several) == words


def test_command(verb, gpt, task, data, tmp_path):
    words = [gpt, "--task", task, "--data", data, "--out", tmp_path / "o", "--shots", "0,2"]
    status, out, _ = verb(*words)
    assert status == 0 and "examples" in out and "95% intervals by bootstrap over questions and seeds" in out
    answer = json.loads(verb(*words, "--resume", "--json")[1])
    assert [point["shots"] for point in answer["points"]] == [0, 2]
    status, out, _ = verb("--list")
    assert status == 0 and "lambada-paper" in out and "translation-say" in out
    assert max(map(len, out.splitlines())) <= 100 and "as in GPT-2's paper" in " ".join(out.split())
    status, out, _ = verb("--task", task, "--data", data, "--shots", "1", "--show")
    assert status == 0 and "--- examples: 1\nSay which colour it is.\n\ntrain" in out and "answers:  red" in out
    for words, said in (
        ((gpt, "--task", task, "--data", data, "--out", tmp_path / "p", "--shots", "0,x"), "not '0,x'"),
        ((gpt, "--data", data), "needs --task"),
        (("--task", task, "--data", data, "--out", tmp_path / "p"), "needs MODEL"),
        ((gpt, "--task", task, "--data", data), "needs --out"),
    ):
        status, _, error = verb(*words)
        assert status == 2 and said in error and error.count("\n") == 1
