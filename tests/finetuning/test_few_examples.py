"""Own data of few examples is read more often than published."""

from dataclasses import replace

import pytest
from finetuned import encoder, labelled_texts

import hornbook
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import builtin_folder
from hornbook.models.electra import Electra
from hornbook.runs.finetuning.published import settings_for
from hornbook.tasks.datasets import find_task


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
    assert settings_for(find_task("classification"), None, overrides, num_examples=num_examples).epochs == epochs
    named = settings_for(find_task("mrpc"), None, overrides, num_examples=num_examples)
    assert named.epochs == overrides.get("epochs", 3)


def test_a_run_logs_it(tmp_path, tiny_tokenizer):
    logged = []
    model = encoder(tmp_path / "model", tiny_tokenizer)
    settings = {"overrides": {"runtime.threads": 1}, "progress": False, "log": logged.append}
    result = hornbook.finetune(model, labelled_texts(40), out=tmp_path / "run", **settings)
    assert any("10 epochs: more than the published 3" in line for line in logged)
    assert result.outcome.step == 20  # 36 examples in batches of 32
    assert "note: dev has only 4 examples" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.parametrize(
    ("task", "num_examples", "lr", "epochs"),
    [
        ("sst-2", 67_349, 2e-4, 3),
        ("cola", 8_551, 1e-4, 3),
        ("mrpc", 3_668, 1e-4, 10),
        ("classification", 3_668, 1e-4, 3),
    ],
)
def test_an_electra_between_the_published_sizes_has_measured_settings(task, num_examples, lr, epochs):
    builtin, _ = load_folder(builtin_folder("en"))
    found = settings_for(find_task(task), builtin, {}, num_examples=num_examples)
    assert (found.optimizer.lr, found.epochs) == (lr, epochs)
    changed = settings_for(find_task(task), builtin, {"optimizer.lr": 5e-5, "epochs": 2}, num_examples=num_examples)
    assert (changed.optimizer.lr, changed.epochs) == (5e-5, 2)


@pytest.mark.parametrize(("dropout", "bias_correction"), [(0.1, False), (0.0, True)])
def test_a_published_size_has_the_published_settings_but_for_bias_correction_without_dropout(dropout, bias_correction):
    config = load_folder(builtin_folder("en"))[0].config
    small = Electra(replace(config, width=256, num_heads=4, dropout=dropout))
    found = settings_for(find_task("cola"), small, {}, num_examples=8_551)
    assert (found.optimizer.lr, found.optimizer.bias_correction) == (3e-4, bias_correction)
    changed = settings_for(find_task("cola"), small, {"optimizer.bias_correction": False}, num_examples=8_551)
    assert not changed.optimizer.bias_correction


def test_one_number_cannot_be_validated_on(tmp_path, tiny_tokenizer):
    model = encoder(tmp_path / "model", tiny_tokenizer)
    rows = [{"text": f"the river {i}", "score": i / 2} for i in range(9)]
    for splits in (
        {"train": rows[:8], "dev": rows[8:]},
        {"train": rows[:7], "dev": [rows[8], {"text": "a", "score": ""}]},
    ):
        with pytest.raises(ValueError, match="dev has 1 example with a label, and regression is scored on at least 2"):
            hornbook.finetune(model, splits, "regression", tmp_path / "run", label="score", log=[].append)


@pytest.mark.parametrize("task", ["classification", "multi-label"])
def test_training_without_any_label(tmp_path, tiny_tokenizer, task):
    """The column that holds them has no name, or its cells are empty."""
    model = encoder(tmp_path / "model", tiny_tokenizer)
    name = "" if task == "classification" else "labels"
    rows = [{"text": f"the river {i}", name: "ab"[i % 2] if name == "" else ""} for i in range(20)]
    with pytest.raises(ValueError, match="no training example has a label"):
        hornbook.finetune(model, rows, task, tmp_path / "run", log=[].append)
