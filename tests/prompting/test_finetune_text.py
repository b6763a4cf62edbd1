"""One GPT that learns several tasks as text, and is scored by the same task files."""

import json

import numpy as np
import pytest
from small_prompting import QUESTION, bytes_tokenizer, saved_small_gpt, write_rows, write_task

import hornbook
from hornbook.files import read_json
from hornbook.interop.folder import read_weights
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.report.plots.run import pretraining_curves
from hornbook.report.run_files import ReportedRun
from hornbook.runs.finetuning import finetune_text as text_run
from hornbook.runs.finetuning.finetune_text import documents, finetune_text, read_mixture
from hornbook.train.checkpoint import Checkpoints
from hornbook.train.job import Stopped

SIZE = """
example = "How large is {text}?"
gold = "label"
metrics = ["exact"]
[generation]
max_new_tokens = 8
"""
JOINT = """
[[tasks]]
task = "colour.toml"
data = "colours"
[[tasks]]
task = "size.toml"
data = "sizes"
examples = 40
"""
COLOURS, SIZES = ("river", "garden"), ("bridge", "letters", "bread")
QUICK = {"epochs": 12, "batch_size": 8, "optimizer.lr": 3e-3, "runtime.threads": 1}


def quiet(words: str) -> None:
    pass


@pytest.fixture(scope="module")
def tasks(tmp_path_factory):
    """The thing determines the colour in one task and the size in the other; numbers make the texts differ."""
    folder = tmp_path_factory.mktemp("tasks")
    write_task(folder / "colour.toml", QUESTION)
    write_task(folder / "size.toml", SIZE)
    write_task(folder / "joint.toml", JOINT)
    for name, things, labels in (("colours", COLOURS, "rg"), ("sizes", SIZES, ("small", "large", "tiny"))):
        (folder / name).mkdir()
        for split, first, num in (("train", 0, 60), ("test", 60, 12)):
            rows = [
                {"text": f"the {things[i % len(things)]} {i}", "label": labels[i % len(things)]}
                for i in range(first, first + num)
            ]
            write_rows(folder / name / f"{split}.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    return saved_small_gpt(tmp_path_factory.mktemp("gpt"))


@pytest.fixture(scope="module")
def taught(tasks, gpt, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "taught"
    return finetune_text(gpt, tasks / "joint.toml", out, overrides=QUICK, log=quiet), out


def score(model, tasks, name, data, out) -> float:
    found = hornbook.prompt(model, tasks / f"{name}.toml", tasks / data, out, shots=(0,), log=quiet)
    return found["points"][0]["scores"][found["metric_for_best"]]["value"]


@pytest.mark.pictures
def test_it_learns_both_tasks(taught, tasks, gpt, tmp_path):
    outcome, out = taught
    assert outcome.ended == "finished"
    for name, data, at_first in (("colour", "colours", 80), ("size", "sizes", 10)):
        assert score(gpt, tasks, name, data, tmp_path / f"{name}-before") <= at_first
        assert score(out, tasks, name, data, tmp_path / name) == 100
    assert [each["examples"] for each in read_json(out / "run.json")["inputs"]["data"]["tasks"]] == [57, 38]
    page = write_report(out).read_text(encoding="utf-8")
    assert (
        "colour, size" in page and "of answer tokens: exp of the clm loss" in page and "answer-token accuracy" in page
    )
    assert "next token" not in page and "next-token" not in page
    titles = [axes.get_title(loc="left") for axes in pretraining_curves(ReportedRun.load(out)).axes]
    assert "Loss on answer tokens (clm)" in titles


@pytest.mark.parametrize("learns", ["answer", "all"])
def test_what_has_a_loss(tasks, learns):
    tokenizer = bytes_tokenizer()
    found = documents(read_mixture(tasks / "joint.toml"), tokenizer, 160, learns, quiet)
    for ids, wanted in zip(found.train.ids, found.train.token_labels, strict=True):
        is_learned = wanted >= 0
        assert (wanted[:-1][is_learned[:-1]] == ids[1:][is_learned[:-1]]).all() and wanted[-1] == tokenizer.eos_id
        text = tokenizer.decode(ids.tolist())
        answer = tokenizer.decode(wanted[is_learned].tolist())
        if learns == "answer":
            assert answer.strip() in ("red", "dark green", "small", "large", "tiny") and text.endswith(answer)
        else:
            assert is_learned.all() and text.endswith(answer)
    assert tokenizer.decode(found.train.ids[0].tolist()).startswith("Say which colour it is.\n\nthe ")


def test_test_questions_are_not_trained_on(tasks, tmp_path):
    folder = tmp_path / "tasks"
    folder.mkdir()
    write_task(folder / "colour.toml", QUESTION)
    write_task(folder / "joint.toml", '[[tasks]]\ntask = "colour.toml"\ndata = "."\n')
    rows = [{"text": f"thing {i}", "label": "r"} for i in range(9)]
    write_rows(folder / "train.jsonl", rows)
    write_rows(folder / "test.jsonl", [{"text": "Thing  4", "label": "r"}])
    said = []
    found = documents(read_mixture(folder / "joint.toml"), bytes_tokenizer(), 160, "answer", said.append)
    texts = [bytes_tokenizer().decode(ids.tolist()) for split in (found.train, found.dev) for ids in split.ids]
    assert len(texts) == 8 and not any("thing 4" in text for text in texts)
    assert said[0] == "colour: 1 training examples are also in the test split: dropped"
    write_rows(folder / "test.jsonl", rows)
    with pytest.raises(ValueError, match="has 0 training examples of colour that are not also in its test split"):
        documents(read_mixture(folder / "joint.toml"), bytes_tokenizer(), 160, "answer", quiet)


def test_long_documents_keep_their_answer(tasks):
    context = 24
    found = documents(read_mixture(tasks / "joint.toml"), bytes_tokenizer(), context, "answer", quiet)
    assert max(map(len, found.train.ids)) <= context
    for wanted in found.train.token_labels:
        assert (wanted >= 0).sum() > 1 and wanted[-1] == bytes_tokenizer().eos_id


def test_stopped_and_gone_on_with_it_ends_the_same(taught, tasks, gpt, tmp_path):
    out = tmp_path / "out"
    stop = {"on_progress": lambda status: status.step == 7, "log": quiet}
    with pytest.raises(Stopped):
        finetune_text(gpt, tasks / "joint.toml", out, overrides=QUICK, **stop)
    with pytest.raises(ValueError, match="add resume=True"):
        finetune_text(gpt, tasks / "joint.toml", out, overrides=QUICK, log=quiet)
    with pytest.raises(ValueError, match=r"started with other settings: epochs is 12.0, not 3"):
        finetune_text(gpt, tasks / "joint.toml", out, overrides=QUICK | {"epochs": 3}, resume=True, log=quiet)
    write_task(tasks / "other.toml", QUESTION.replace("which colour", "what colour"))
    other = write_task(tasks / "others.toml", JOINT.replace("colour.toml", "other.toml"))
    with pytest.raises(ValueError, match=r"is not what .* was started with"):
        finetune_text(gpt, other, out, overrides=QUICK, resume=True, log=quiet)
    command = write_report(out).read_text(encoding="utf-8")
    assert "--task text --data" in command
    for ended in ("finished", "already finished"):
        outcome = finetune_text(gpt, None, out, overrides={"epochs": QUICK["epochs"]}, resume=True, log=quiet)
        assert (outcome.ended, outcome.step) == (ended, taught[0].step)
        ours, theirs = read_weights(out), read_weights(taught[1])
        assert all(np.array_equal(ours[name], theirs[name]) for name in theirs)
        validations = [each["step"] for each in ReportedRun.load(out).metrics if each["kind"] == "validation"]
        assert len(set(validations)) == len(validations)
        Checkpoints(out).keep_only_state()  # as `hornbook runs clean` does


def test_the_best_weights_are_kept(tasks, gpt, tmp_path, monkeypatch):
    losses = iter(range(100))
    monkeypatch.setattr(text_run, "validate", lambda *_: {"loss": float(next(losses))})  # each worse than the last
    overrides = QUICK | {"epochs": 2}
    outcome = finetune_text(gpt, tasks / "joint.toml", tmp_path / "run", overrides=overrides, log=quiet)
    ours, best = read_weights(tmp_path / "run"), read_weights(tmp_path / "run" / "best")
    last = read_weights(max((tmp_path / "run" / "checkpoints").glob("step-*")))
    assert outcome.best_step < outcome.step
    assert all(np.array_equal(ours[name], best[name]) for name in ours)
    assert not all(np.array_equal(ours[name], last[name]) for name in ours)


@pytest.mark.parametrize("name", ["schedule.steps", "batch.tokens", "validation.tokens"])
def test_settings_without_effect_are_refused(tasks, gpt, tmp_path, name):
    with pytest.raises(ValueError, match=f"{name} would have no effect"):
        finetune_text(gpt, tasks / "joint.toml", tmp_path / "run", overrides={name: 8}, log=quiet)


def test_command_and_its_errors(tasks, gpt, tmp_path, capsys, monkeypatch):
    import sys

    from hornbook import cli

    def verb(*words) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["hornbook", "finetune", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    short = ("--epochs", 1, "--set", "runtime.threads=1", "--json")
    status, out, log = verb(gpt, "--task", "text", "--data", tasks / "joint.toml", "--out", tmp_path / "run", *short)
    assert status == 0 and json.loads(out)["ended"] == "finished"
    assert f"hornbook prompt {tmp_path / 'run'} --task NAME --data PATH --shots 0 --out SCORES" in log
    assert dict(describe(tmp_path / "run")["lines"])["tasks"].endswith(f", initialised from {gpt}")
    assert hornbook.load(tmp_path / "run").generate("the", 3)
    _, _, error = verb(gpt, "--task", "text", "--data", "joint.toml", "--seeds", 3, "--label", "x", "--head", "cnn")
    assert "--label and --seeds and --head have no effect with --task text: leave them out" in error
    status, out, _ = verb(gpt, "--task", "text", "--show")
    assert status == 0 and "learns" in out
    for text, words in (
        ("[[tasks]]\ntask = 'size.toml'\n", "lacks its task or its data"),
        ("", "there are no"),
        ("[[tasks]]\ntask = 'size.toml'\ndata = 'sizes/test.jsonl'\n", "no training split for size"),
        ("[[tasks]]\ntask = 'size.toml'\ndata = 'sizes'\nexamples = 1\n", "must be at least 2"),
    ):
        file = write_task(tasks / "wrong.toml", text)
        status, _, error = verb(gpt, "--task", "text", "--data", file, "--out", tmp_path / "no")
        assert status == 2 and words in error and error.count("\n") == 1
    status, _, error = verb(gpt, "--task", "text", "--data", tasks, "--out", tmp_path / "no")
    assert status == 2 and "is not a .toml file" in error
    status, _, error = verb(gpt, "--task", "text", "--data", tasks / "none.toml", "--out", tmp_path / "no")
    assert status == 2 and "none.toml does not exist" in error
