"""`task.class_weights` in a distillation counts in every stage that has labels or logits."""

import json
from pathlib import Path

import pytest
from distillation.lessons import ONCE, QUIET, SMALL
from finetuning import rules

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.runs.distillation.distill import distill
from hornbook.runs.finetuning.finetune import finetune

TWO_STAGES = json.dumps([{"matches": [{"quantity": "logits"}], "hard_label_weight": 1}] * 2)


def rows() -> list[dict]:
    """Nine of ten are of one class."""
    return [{"text": rules.PLACES[i % 4], "label": "rare" if i % 10 == 0 else "usual"} for i in range(60)]


@pytest.fixture(scope="module")
def teacher(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    encoder = rules.random_encoder(folder / "encoder")
    return finetune(encoder, rows(), out=folder / "run", epochs=1, overrides=dict(ONCE), **QUIET).out


def first_losses(folder: Path) -> dict:
    line = next(line for line in read_metrics(folder) if line["kind"] == "train")
    return {term: line[term] for term in ("task", "logits")}


def test_they_count_in_the_first_stage_as_in_the_last(tmp_path, teacher):
    """With the same recipe and weights in both stages, and a rate that changes nothing, losses are the same."""
    found = {}
    for weighted in (False, True):
        out = tmp_path / str(weighted)
        shape = {f"model.{name}": value for name, value in SMALL.items()} | {
            "model.num_heads": 4,
            "model.dropout": 0.0,
            "model.attention_dropout": 0.0,
        }
        overrides = (
            ONCE | shape | {"task.class_weights": weighted, "objective.recipe": TWO_STAGES, "stages.1.epochs": 1}
        )
        words = {"task": "classification", "data": rows(), "epochs": 1, "lr": 1e-12, "overrides": overrides}
        distill(teacher, "bert-tiny", out, **words, **QUIET)
        found[weighted] = first_losses(out / "stages" / "1")
        assert found[weighted] == pytest.approx(first_losses(out), rel=1e-4), "the two stages do not weigh alike"
    assert all(abs(found[True][term] / found[False][term] - 1) > 1e-3 for term in found[True])
