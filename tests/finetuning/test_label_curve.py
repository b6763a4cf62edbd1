"""The label curve: more labels help, every run is done once, and the intervals are correct."""

import json

import numpy as np
import pytest
import word_rules
from scipy import stats
from word_rules import FAST, tiny_encoder

from hornbook.evaluation import label_curve as curve
from hornbook.evaluation.label_curve import chosen_sizes, label_curve
from hornbook.report.info import describe
from hornbook.report.page import write_report

CHANGES = FAST | {"epochs": 1, "batch_size": 16}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tiny_tokenizer):
    return str(tiny_encoder(tmp_path_factory.mktemp("curve") / "model", tiny_tokenizer))


def points_of(found: dict) -> dict:
    return {(point["method"], point["examples"]): point for point in found["points"]}


def test_every_method_has_its_points(tmp_path, encoder):
    rows = word_rules.three_classes(90, 45)
    said = []
    found = label_curve(
        encoder, rows, "classification", tmp_path, sizes=(8, "all"), seeds=2, overrides=CHANGES, log=said.append
    )
    points = points_of(found)
    assert set(points) == {
        (method, size) for method in ("from-scratch", "features", "finetune", "tfidf") for size in (8, 90)
    }
    assert found["metric_for_best"] == "accuracy"
    assert found["finished"]
    assert json.loads((tmp_path / "curve.json").read_text()) == found
    for method in ("tfidf", "features"):
        assert points[method, 8]["score"] < points[method, 90]["score"]
    assert points["tfidf", 90]["score"] == 1.0
    for point in found["points"]:
        assert point["low"] <= point["score"] <= point["high"]
        assert len(point["seeds"]) == 2
    assert said[-1] == "16 of 16: tfidf, 90 examples, seed 1"
    assert ("TF-IDF, 90 labels", "100.0% (92.1% to 100.0%)") in describe(tmp_path)["lines"]
    page = write_report(tmp_path).read_text()
    assert all(name in page for name in ("fine-tuning", "frozen features", "from scratch", "TF-IDF", "100.0%"))
    assert not list((tmp_path / "jobs").rglob("*.safetensors"))
    run = json.loads((tmp_path / "jobs" / "finetune-8-seed-1" / "run.json").read_text())
    assert (run["train_examples"], run["settings"]["runtime"]["seed"]) == (8, 1)
    assert json.loads((tmp_path / "jobs" / "from-scratch-8-seed-1" / "run.json").read_text())["request"]["from_scratch"]


def test_resume_continues_where_it_stopped(tmp_path, encoder, monkeypatch):
    rows = word_rules.keyword_rule()
    done = []
    real = curve.baseline_labelled

    def counted(method, folder, *arguments, **more):
        done.append(folder.name)
        if len(done) == 3:
            raise KeyboardInterrupt
        return real(method, folder, *arguments, **more)

    monkeypatch.setattr(curve, "baseline_labelled", counted)
    asked = {"sizes": (8, 32), "methods": ("tfidf",), "seeds": 2, "overrides": FAST}
    with pytest.raises(KeyboardInterrupt):
        label_curve(encoder, rows, "classification", tmp_path, **asked)
    part = json.loads((tmp_path / "curve.json").read_text())
    assert not part["finished"]
    assert [point["examples"] for point in part["points"]] == [8]
    found = label_curve(encoder, rows, "classification", tmp_path, **asked)
    assert done == ["tfidf-8-seed-0", "tfidf-8-seed-1", "tfidf-32-seed-0", "tfidf-32-seed-0", "tfidf-32-seed-1"]
    assert found["finished"]
    assert label_curve(encoder, rows, "classification", tmp_path, **asked) == found
    assert len(done) == 5
    more = label_curve(encoder, rows, "classification", tmp_path, **asked | {"sizes": (8, 16, 32), "seeds": 3})
    assert len(done) == 5 + 5  # three seeds of the new size, and the third seed of both others
    assert points_of(more)["tfidf", 8]["seeds"][:2] == points_of(found)["tfidf", 8]["seeds"]


def test_other_words_in_the_same_folder_are_refused(tmp_path, encoder):
    rows = word_rules.keyword_rule()
    asked = {"sizes": (8,), "methods": ("majority",), "seeds": 1}
    label_curve(encoder, rows, "classification", tmp_path, overrides=FAST, **asked)
    with pytest.raises(ValueError, match=r"other settings: overrides\..* and is now left out"):
        label_curve(encoder, rows, "classification", tmp_path, overrides={}, **asked)
    with pytest.raises(ValueError, match="the data in memory is not what"):
        label_curve(encoder, word_rules.keyword_rule(70), "classification", tmp_path, overrides=FAST, **asked)


def test_each_seed_samples_its_examples_and_all_methods_get_the_same(tmp_path, encoder, monkeypatch):
    step_inputs = {}

    scores = {"metric_for_best": "accuracy", "splits": {"dev": {"accuracy": {"value": 1.0, "low": 1.0, "high": 1.0}}}}

    def remember(method, folder, request, inputs, **_):
        step_inputs[folder.name] = [example.key for example in inputs.train]
        folder.mkdir(parents=True)
        (folder / "scores.json").write_text(json.dumps(scores))

    monkeypatch.setattr(curve, "baseline_labelled", remember)
    asked = {"sizes": (8, 16), "methods": ("tfidf", "majority"), "seeds": 2, "overrides": FAST}
    label_curve(encoder, word_rules.keyword_rule(), "classification", tmp_path, **asked)
    assert step_inputs["tfidf-8-seed-0"] == step_inputs["majority-8-seed-0"] != step_inputs["tfidf-8-seed-1"]
    assert set(step_inputs["tfidf-8-seed-0"]) < set(step_inputs["tfidf-16-seed-0"])


def test_few_examples_train_for_enough_steps(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(curve, "MIN_STEPS", 12)
    overrides = FAST | {"batch_size": 16}
    label_curve(
        encoder, word_rules.keyword_rule(), "classification", tmp_path, sizes=(16,), methods=("finetune",), seeds=1,
        overrides=overrides,
    )  # fmt: skip
    settings = json.loads((tmp_path / "jobs" / "finetune-16-seed-0" / "run.json").read_text())["settings"]
    assert settings["schedule"]["steps"] == 12
    assert settings["validation"]["every_steps"] == 4


def test_the_interval_over_seeds():
    each = [{"value": value, "low": value - 0.5, "high": value + 0.5} for value in (0.7, 0.8, 0.75)]
    found = curve._interval(each, "accuracy")
    expected = stats.t.interval(0.95, 2, np.mean([0.7, 0.8, 0.75]), stats.sem([0.7, 0.8, 0.75]))
    assert (found["low"], found["high"]) == pytest.approx(expected)
    assert found["seeds"] == [0.7, 0.8, 0.75]
    apart = [{"value": value, "low": 0.0, "high": 1.0} for value in (0.1, 0.9)]
    clipped = curve._interval(apart, "accuracy")
    assert (clipped["low"], clipped["high"]) == (0.0, 1.0)  # clipped to the range of the metric
    assert curve._interval(apart, "matthews")["low"] == -1.0
    for alone in (each[:1], each[:1] * 3):
        clipped = curve._interval(alone, "accuracy")
        assert (clipped["low"], clipped["high"]) == (0.7 - 0.5, 0.7 + 0.5)


def test_sizes():
    assert chosen_sizes(None, 10_000) == [32, 128, 512, 2048, 8192, 10_000]
    assert chosen_sizes(None, 20) == [20]
    assert chosen_sizes(("all", 64, "32", 99_999), 1000) == [32, 64, 1000]
    for wrong in ((0,), ("many",), (), (1.5,), ("²",)):
        with pytest.raises(ValueError, match="size"):
            chosen_sizes(wrong, 1000)


@pytest.mark.parametrize(
    ("arguments", "words"), [({"methods": ("magic",)}, "features, finetune"), ({"seeds": 0}, "at least 1")]
)
def test_bad_requests_say_what_to_do(tmp_path, encoder, arguments, words):
    with pytest.raises(ValueError, match=words):
        label_curve(encoder, word_rules.keyword_rule(), "classification", tmp_path, **arguments)
