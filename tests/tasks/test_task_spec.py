"""A task made from data, saved and loaded."""

import json

import pytest

from hornbook.models.head_config import HeadConfig
from hornbook.tasks.datasets import find_task
from hornbook.tasks.kinds.spans import Spans
from hornbook.tasks.reading.read import read
from hornbook.tasks.spec import TaskSpec, head_config_for, load_task, make_task, save_task


def made(task: str, labels) -> TaskSpec:
    rows = [{"sentence1": f"a {n}", "sentence2": "b", "label": label} for n, label in enumerate(labels)]
    data = read(task, rows)
    return make_task(find_task(task), data, head_config_for(data))


@pytest.mark.parametrize(
    ("task", "labels", "metrics"),
    [
        ("classification", "abab", ("accuracy", "macro_f1", "matthews")),
        ("multi-label", ["a|b", "b", "a|b", "b"], ("micro_f1", "macro_f1", "exact_match")),
        ("mrpc", "0101", ("f1", "accuracy")),
        ("mrpc", "abab", ("macro_f1", "accuracy")),  # with no class to count alone
    ],
)
def test_metrics_are_named_for_what_they_are(tmp_path, task, labels, metrics):
    spec = made(task, labels)
    assert spec.task.metrics == metrics
    save_task(tmp_path, spec)
    assert load_task(tmp_path, spec.task.head_config) == spec


def test_how_long_sequences_were_is_kept(tmp_path):
    spec = TaskSpec("squad", Spans(HeadConfig("spans", 2)), max_length=192)
    save_task(tmp_path, spec)
    assert load_task(tmp_path, spec.task.head_config).max_length == 192
    old = json.loads((tmp_path / "task.json").read_text())
    del old["max_length"]
    (tmp_path / "task.json").write_text(json.dumps(old))
    assert load_task(tmp_path, spec.task.head_config).max_length is None


@pytest.mark.parametrize("damaged", [[None], ["x"], "x", ["accuracy", []]])
def test_unknown_measures_are_refused(tmp_path, damaged):
    (tmp_path / "task.json").write_text(json.dumps({"kind": "classification", "metrics": damaged}))
    with pytest.raises(ValueError, match=r"task.json is damaged \(its metrics are not those of classification\)"):
        load_task(tmp_path, HeadConfig("sequence", labels=("a", "b")))
