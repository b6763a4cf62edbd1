"""Model cards: the metadata that the Hub reads, and agreement with the files."""

import ast
import json
import re

import pytest
import torch
import yaml
from made_up_tasks import KINDS, REGRESSION_ROWS, write_task_run

from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.head_config import HeadConfig
from hornbook.report.card import with_yaml_header, write_card
from hornbook.report.finetuned import ReportedTaskRun, python_code, transformers_code
from hornbook.text.tokenizer import Tokenizer


@pytest.fixture
def make_card(tmp_path):
    """(what the head holds, the text) of the card of a made-up run."""

    def make(kind="classification", name="run", **overrides):
        folder = write_task_run(tmp_path / name, kind, **(KINDS[kind] | overrides))
        path = write_card(folder)
        assert path == folder / "README.md"
        _, head, text = path.read_text(encoding="utf-8").split("---\n", 2)
        return yaml.safe_load(head), text

    return make


def test_the_head(make_card):
    head, _ = make_card()
    assert head == {
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "base_model": "owner/small-encoder",
        "tags": ["hornbook", "bert", "reviews", "classification"],
        "metrics": ["accuracy", "f1"],
    }


def test_settings_that_had_no_effect_are_left_out(make_card):
    schedule = {"warmup_fraction": 0.1, "warmup_steps": None}
    _, text = make_card(settings={"schedule": schedule}, unused=["schedule.warmup_steps"])
    assert "| warmup fraction | 0.1 |" in text and "warmup steps" not in text


@pytest.mark.parametrize(
    ("kind", "tag"),
    [
        ("regression", "text-classification"),
        ("spans", "question-answering"),
        ("tagging", "token-classification"),
        ("choice", "multiple-choice"),
    ],
)
def test_each_kind_has_its_pipeline(make_card, kind, tag):
    head, text = make_card(kind)
    assert head["pipeline_tag"] == tag and head["library_name"] == "transformers"
    assert "## Limits" in text and "not scored on a test split" in text


def test_the_text(make_card):
    _, text = make_card()
    for words in (
        "`owner/small-encoder`, fine-tuned on 1,500 examples for the task `reviews`",
        "| dev | accuracy | 75.0% (70.0% to 80.0%) |",
        "| dev | F1 | 50.0% (45.0% to 55.0%) |",
        "best accuracy on dev (step 40)",
        "data: /data/reviews/train.csv",
        "train examples: 4,000",
        "trained on: 1,500 examples",
        "problem: 7 empty texts (first: train.csv row 9)",
        "truncated texts of train: 11",
        "| learning rate | 0.0002 |",
        "| seed | 3 |",
        "time: 1 min 35 s",
        "device: cpu (no GPU was found)",
        "hornbook predict",
    ):
        assert words in text, words
    assert "Warning" not in text


def test_a_degenerate_run_is_stated_at_the_top(make_card):
    _, text = make_card(degenerate="it answers 'good' whatever the text")
    assert text.index("**Warning**: it answers 'good'") < text.index("## Scores")


def test_a_test_part_that_was_scored_is_no_longer_a_limit(make_card, tmp_path):
    make_card()
    file = tmp_path / "run" / "scores.json"
    found = json.loads(file.read_text())
    found["splits"]["test"] = found["splits"]["dev"]
    file.write_text(json.dumps(found))
    text = write_card(tmp_path / "run").read_text(encoding="utf-8")
    assert "| test | accuracy |" in text and "not scored on a test split" not in text


@pytest.mark.parametrize(
    "config",
    [
        {"architectures": ["BertModel"], "hornbook_head": {"layers": "cnn"}},
        {"hornbook_head": {"layers": "linear", "has_answer_classifier": True}},
    ],
)
def test_a_head_of_our_own_claims_nothing_of_transformers(make_card, config):
    head, text = make_card(config=config)
    assert "library_name" not in head and "pipeline(" not in text and "loads in hornbook only" in text


@pytest.mark.parametrize("model", ["/models/my encoder", "./here", "a/b/c", "~/x", "tests"])
def test_a_folder_is_no_base_model_of_the_hub(make_card, model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    head, text = make_card(model=model)
    assert "base_model" not in head and f"`{model}`" in text


def test_random_weights_have_no_base_model(make_card):
    head, text = make_card(request={"from_scratch": True})
    assert "base_model" not in head and "trained from random weights" in text


ODD = "a: b\n# \"c\" 'd' \\ [e] {f} | & * ! % @ `g`\t---\n\x00\x1b\x7f\x85\u2028\ufeff 한국 😀 \ud800"


def test_odd_names_leave_the_head_valid(make_card):
    data = {"files": [ODD.replace("\ud800", "")], "examples": {"train": 1, "a|b": 2}}
    head, text = make_card(task=ODD, model=ODD, inputs={"data": data}, labels=["<b>", "x`y", "a|b"])
    assert head["tags"][2] == ODD.replace("\ud800", "\ufffd") and "base_model" not in head
    assert "labels: 3: \\<b\\>, x\\`y, a|b" in text


def test_whatever_is_in_the_head_is_read_back(random):
    everything = [
        chr(code) for code in (*range(0x300), 0x2028, 0x2029, 0xFEFF, 0xFFFD, 0xFFFE, 0xFFFF, 0x1F600, 0xE000)
    ]
    for _ in range(200):
        text = "".join(random.choice(everything, 12))
        _, head, _ = re.split(r"^---\n", with_yaml_header("text", tags=[text]), maxsplit=2, flags=re.MULTILINE)
        assert yaml.safe_load(head) == {"tags": [text]}


OUTPUTS = {
    "classification": HeadConfig("sequence", 3, ("good", "bad", "other")),
    "regression": HeadConfig("sequence", 1, ("score",), "regression"),
    "spans": HeadConfig("spans", 2),
    "tagging": HeadConfig("tokens", 5, ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")),
    "choice": HeadConfig("choice"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_runs(tmp_path, tiny_tokenizer, kind):
    """The code on the card runs on a tiny model with random weights: both variants open and agree."""
    folder = write_task_run(tmp_path / "it's a run", kind, **KINDS[kind])
    tokenizer = Tokenizer.load(tiny_tokenizer)
    config = BertConfig(tokenizer.vocab_size, 1, 16, 2, 32, 64, init_std=0.3)
    model = Bert(config, Bert.heads_for(OUTPUTS[kind]), OUTPUTS[kind])
    model.initialize(torch.Generator().manual_seed(2))
    save_model(folder, model)
    tokenizer.save(folder, config.max_positions)
    (folder / "task.json").write_text(json.dumps({"task": kind, "kind": kind, "num_choices": 2}))
    run = ReportedTaskRun.load(folder)
    assert run.has_transformers_class
    ours, theirs = (last_value(code) for code in (python_code(run), transformers_code(run)))
    if kind == "classification":
        assert theirs[0]["label"] == ours[0].label and theirs[0]["score"] == pytest.approx(ours[0].probability)
    elif kind == "regression":
        found = theirs[0] if isinstance(theirs, list) else theirs
        assert found["score"] == pytest.approx(ours[0], abs=1e-5)
    elif kind == "choice":
        assert theirs[0].tolist() == pytest.approx(list(ours[0].probabilities), abs=1e-5)
    else:
        assert theirs is not None and len(ours) == 1
    card = write_card(folder).read_text(encoding="utf-8")
    assert len(re.findall(r"^```$", card, re.MULTILINE)) == 3 and python_code(run) in card


def last_value(code):
    """Runs code, and gives what its last line is."""
    *first, last = ast.parse(code).body
    names = {}
    exec(compile(ast.Module(first, []), "card", "exec"), names)
    return eval(compile(ast.Expression(last.value), "card", "eval"), names)


def test_pairs_are_given_as_pairs(make_card):
    _, text = make_card("regression", rows=REGRESSION_ROWS)
    assert "'text_pair'" in text and 'function_to_apply="none"' in text


@pytest.mark.parametrize("missing", ["task.json", "config.json", "predictions-dev.jsonl", "metrics.jsonl"])
def test_missing_files_do_not_break_the_card(make_card, missing):
    _, text = make_card(leave_out=(missing,))
    assert "75.0%" in text and "nan" not in text.split()


@pytest.mark.parametrize(("name", "value"), [("labels", 1.5), ("truncated_texts", 3)])
def test_a_damaged_record_is_refused(make_card, tmp_path, name, value):
    make_card()
    record = next(tmp_path.rglob("run.json"))
    record.write_text(json.dumps(json.loads(record.read_text()) | {name: value}))
    with pytest.raises(ValueError, match=r"run\.json is damaged"):
        write_card(record.parent)


def test_an_unfinished_run_has_no_card(tmp_path):
    folder = write_task_run(tmp_path / "run", "choice", **KINDS["choice"], leave_out=("scores.json",))
    with pytest.raises(ValueError, match=r"no scores\.json yet"):
        write_card(folder)
