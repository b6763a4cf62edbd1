"""A fine-tuned run continues on more data: which heads are kept, and what is logged of them."""

import random as chance
from dataclasses import replace

import numpy as np
import pytest
import rules
import torch

from hornbook.batch import pack
from hornbook.interop.folder import load_model, read_weights
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.head_config import HeadConfig
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.layers import keeps_head, with_head
from hornbook.runs.finetuning.settings import TaskSettings

HEADS = {"classification": "classifier", "spans": "qa_outputs"}
STILL = {"runtime.threads": 1, "optimizer.weight_decay": 0.0}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder")


def rows(task: str, yes: str = "yes", number: int = 40) -> list[dict]:
    draw, made = chance.Random(3), []
    for _ in range(number):
        words = [*draw.choices(rules.FILLERS, k=4), draw.choice(rules.PLACES)]
        if task == "spans":
            made.append({"question": "Where is Mary ?", "passage": " ".join(words), "answer": words[-1]})
        else:
            made.append({"text": " ".join(words), "label": yes if words[-1] in rules.PLACES[:2] else "no"})
    return made


def trained(model, task, out, lr=1e-12, said=None, data=None, **overrides):
    log = (lambda words: None) if said is None else said.append
    return finetune(model, data or rows(task), task, out, epochs=1, lr=lr, overrides=STILL | overrides, log=log).out


def head_of(folder, task) -> torch.Tensor:
    return read_weights(folder)[f"{HEADS[task]}.weight"]


@pytest.mark.parametrize("task", HEADS)
def test_a_head_for_the_same_labels_is_kept_and_logged(task, tmp_path, encoder):
    first = trained(encoder, task, tmp_path / "first", lr=1e-3)
    said: list[str] = []
    second = trained(first, task, tmp_path / "second", said=said, **{"runtime.seed": 5})
    assert torch.allclose(head_of(second, task), head_of(first, task), atol=1e-6)
    kind = {"spans": "span"}.get(task, task)
    assert any(words.startswith(f"keeping the {kind} head of {first}") for words in said)
    fresh = trained(first, task, tmp_path / "fresh", said=said, **{"task.new_head": True})
    assert not torch.allclose(head_of(fresh, task), head_of(first, task), atol=1e-3)
    assert said[-1] and any("head is newly initialised" in words for words in said)


def test_a_head_for_other_labels_is_newly_initialised_and_logged(tmp_path, encoder):
    first = trained(encoder, "classification", tmp_path / "first", lr=1e-3)
    said: list[str] = []
    data = rows("classification", yes="positive")
    second = trained(first, "classification", tmp_path / "second", said=said, data=data)
    assert not torch.allclose(head_of(second, "classification"), head_of(first, "classification"), atol=1e-3)
    (words,) = [words for words in said if "newly initialised" in words]
    assert str(first) in words and "other labels" in words


def test_nothing_is_logged_of_a_head_where_there_was_none(tmp_path, encoder):
    said: list[str] = []
    trained(encoder, "classification", tmp_path / "run", said=said)
    assert not [words for words in said if "head" in words]


def test_a_classifier_of_answerability_is_added_to_a_span_head():
    model = Bert(BertConfig(70, num_layers=1, width=16, num_heads=2, inner_width=32), (), HeadConfig("spans"))
    model.initialize(torch.Generator().manual_seed(7))
    wanted = HeadConfig("spans", has_answer_classifier=True)
    assert keeps_head(model, wanted, TaskSettings())
    found, _ = with_head(model, wanted, 0, keeps_head=True)
    assert torch.equal(found.task.out.weight, model.task.out.weight)
    assert found.task.answerable.weight.std() > 0


def test_a_kept_head_predicts_the_same_numbers_in_another_unit():
    head_config = HeadConfig("sequence", 1, ("score",), "regression")
    model = Bert(BertConfig(70, num_layers=1, width=16, num_heads=2, inner_width=32), ("pooler",), head_config).eval()
    model.initialize(torch.Generator().manual_seed(7))
    found, _ = with_head(model, replace(head_config, scale=1024.0), 0, keeps_head=True)
    batch = pack([np.array([2, 30, 3])])
    with torch.no_grad():
        assert torch.equal(found.eval().outputs(batch), model.outputs(batch))


@pytest.mark.parametrize(
    "other",
    [
        HeadConfig("sequence", 2, ("b", "a")),
        HeadConfig("sequence", 3, ("a", "b", "c")),
        HeadConfig("sequence", 2, ("a", "b"), problem_type="multi_label_classification"),
        HeadConfig("sequence", 2, ("a", "b"), layers="mlp"),
        HeadConfig("tokens", 2, ("a", "b")),
    ],
)
def test_what_does_not_fit(other):
    assert not other.fits(HeadConfig("sequence", 2, ("a", "b")))
    assert HeadConfig("sequence", 2, ("a", "b")).fits(HeadConfig("sequence", 2, ("a", "b")))


def test_a_run_that_transformers_wrote_has_a_span_head_that_fits(tmp_path, encoder):
    import transformers

    first = trained(encoder, "spans", tmp_path / "first", lr=1e-3)
    transformers.AutoModelForQuestionAnswering.from_pretrained(first).save_pretrained(tmp_path / "theirs")
    assert HeadConfig("spans").fits(load_model(tmp_path / "theirs").head_config)
