import pytest

from hornbook.files import write_json
from hornbook.metrics.glue import OFFICIAL, glue_average, read_glue_scores


def test_two_measures_are_averaged_within_the_task_first():
    scores = {
        "rte": {"accuracy": 0.7},
        "mrpc": {"accuracy": 0.8, "f1": 0.9},
        "mnli": {"accuracy": 0.84, "accuracy_mismatched": 0.82},
        "sts-b": {"pearson": 0.6, "spearman": 0.5, "mean_squared_error": 9.0},
        "cola": {"matthews": -0.1, "accuracy": 0.9},
    }
    average, counted = glue_average(scores)
    assert average == pytest.approx((0.7 + 0.85 + 0.83 + 0.55 - 0.1) / 5)
    assert counted == ("cola", "mrpc", "sts-b", "mnli", "rte")


def test_all_nine_tasks():
    scores = {task: dict.fromkeys(metrics, 80.0) for task, metrics in OFFICIAL.items()}
    assert glue_average(scores) == (80.0, tuple(OFFICIAL))
    assert len(OFFICIAL) == 9


def test_invalid_inputs_are_refused():
    with pytest.raises(ValueError, match="'mnli' has no 'accuracy_mismatched'"):
        glue_average({"mnli": {"accuracy": 0.8}})
    with pytest.raises(ValueError, match="there are no scores of GLUE's tasks"):
        glue_average({})


def test_one_complete_run_of_each_task(tmp_path):
    for name, task in (("one", "rte"), ("two", "rte"), ("three", "mnli")):
        (tmp_path / name).mkdir()
        write_json(tmp_path / name / "task.json", {"task": task})
        write_json(tmp_path / name / "scores.json", {"splits": {"dev": {"accuracy": {"value": 0.5}}}})
    assert read_glue_scores([tmp_path / "one"]) == {"rte": {"accuracy": 0.5}}
    with pytest.raises(ValueError, match="two is a second run of rte: give one run of each task"):
        read_glue_scores([tmp_path / "one", tmp_path / "two"])
    with pytest.raises(ValueError, match=r"three has no scores of dev-mismatched: add dev_mismatched.tsv"):
        read_glue_scores([tmp_path / "three"])
