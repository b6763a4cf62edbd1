"""Own data of few examples is read more often than published."""

import pytest
from finetuned import encoder, labelled_texts

import hornbook
from hornbook.runs.finetuning.settings import settings_for
from hornbook.tasks.datasets import known


@pytest.mark.parametrize(
    ("num_examples", "overrides", "epochs"),
    [
        (130, {}, 10),
        (1920, {}, 5),
        (100_000, {}, 3),
        (130, {"epochs": 2.0}, 2),
        (100_000, {"examples": 130}, 10),
        (1920, {"batch_size": 64}, 10),
    ],
)
def test_epochs(num_examples, overrides, epochs):
    assert settings_for(known("classification"), None, overrides, num_examples=num_examples).epochs == epochs
    named = settings_for(known("mrpc"), None, overrides, num_examples=num_examples)
    assert named.epochs == overrides.get("epochs", 3)


def test_a_run_logs_it(tmp_path, tiny_tokenizer):
    logged = []
    model = encoder(tmp_path / "model", tiny_tokenizer)
    settings = {"overrides": {"runtime.threads": 1}, "progress": False, "log": logged.append}
    result = hornbook.finetune(model, labelled_texts(40), out=tmp_path / "run", **settings)
    assert any("10 epochs: more than the published 3" in line for line in logged)
    assert result.outcome.step == 20  # 36 examples in batches of 32
