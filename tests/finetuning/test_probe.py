"""Frozen features into a separate model: each kind of task learns a rule of words."""

import json
from functools import partial

import numpy as np
import pytest
import word_rules
from sklearn.linear_model import RidgeCV
from word_rules import FAST, tiny_encoder

from hornbook.cli.overwriting import RUN, refuse_foreign
from hornbook.evaluation.baselines import probe as tagger
from hornbook.evaluation.baselines.baseline import baseline
from hornbook.evaluation.baselines.linear import MAX_FOR_ALPHA, fit_logistic, fit_multi_label, fit_ridge
from hornbook.evaluation.baselines.probe import probe
from hornbook.evaluation.label_curve import label_curve
from hornbook.train.job import Outcome, Stopped


@pytest.fixture(scope="module")
def encoder(tmp_path_factory, tiny_tokenizer):
    return str(tiny_encoder(tmp_path_factory.mktemp("probe") / "model", tiny_tokenizer))


@pytest.mark.parametrize("pooling", ["cls", "mean", None])
def test_a_class(tmp_path, encoder, pooling):
    found = probe(encoder, word_rules.keyword_rule(), "classification", tmp_path, pooling=pooling, overrides=FAST)
    assert found.metric_for_best == "accuracy"
    assert found.score >= 0.9
    assert found.degenerate is None


def test_files_in_the_folder(tmp_path, encoder):
    found = probe(encoder, word_rules.keyword_rule(), "classification", tmp_path, layers="1,-1", overrides=FAST)
    scores = json.loads((tmp_path / "scores.json").read_text())
    assert scores.keys() == {"metric_for_best", "degenerate", "splits"}
    accuracy = scores["splits"]["dev"]["accuracy"]
    assert accuracy["low"] <= accuracy["value"] <= accuracy["high"]
    run = json.loads((tmp_path / "run.json").read_text())
    assert (run["command"], run["train_examples"], run["fitted"]["width"]) == ("probe", 80, 64)
    assert run["request"]["layers"] == "1,-1"
    rows = [json.loads(line) for line in (tmp_path / "predictions-dev.jsonl").read_text().splitlines()]
    assert np.mean([row["gold"] == row["label"] for row in rows]) == accuracy["value"] == found.score


def test_several_classes_pairs_numbers_and_choices(tmp_path, encoder):
    def score(rows, task: str, **arguments) -> float:
        return probe(encoder, rows, task, tmp_path / f"{task}-{len(arguments)}", overrides=FAST, **arguments).score

    assert score(word_rules.three_classes(), "classification") >= 0.9
    assert score(word_rules.several_words(), "multi-label", label="labels") >= 0.85
    assert score(word_rules.how_many(), "regression") >= 0.8
    assert score(word_rules.choices(), "choice") >= 0.8


def test_pairs_apart(tmp_path, encoder):
    overrides = FAST | {"task.pair_encoding": "separate"}
    found = probe(
        encoder, word_rules.same_words(200), "classification", tmp_path, layers="embeddings", overrides=overrides
    )
    assert found.score >= 0.75
    assert json.loads((tmp_path / "run.json").read_text())["fitted"]["width"] == 4 * 32


def test_tags_by_logistic_regression(tmp_path, encoder):
    folder = word_rules.write_tags(tmp_path / "tags")
    found = probe(encoder, str(folder), "tagging", tmp_path / "out", overrides=FAST)
    assert found.metric_for_best == "entity_f1"
    assert found.score >= 0.95


def test_tags_by_the_bilstm(tmp_path, encoder, monkeypatch):
    """The tag is that of the word after the keyword: embeddings alone do not suffice, the BiLSTM carries it over."""
    monkeypatch.setattr(tagger, "WIDTH", 24)
    folder = word_rules.write_tags(tmp_path / "tags", num_train=120, follows=True)
    overrides = FAST | {"epochs": 10, "batch_size": 8, "optimizer.lr": 1e-2}
    arguments = {"layers": "embeddings", "method": "bilstm", "overrides": overrides}
    found = probe(encoder, str(folder), "tagging", tmp_path / "out", **arguments)
    assert found.score >= 0.95
    apart = probe(encoder, str(folder), "tagging", tmp_path / "logistic", layers="embeddings", overrides=FAST)
    assert apart.score < 0.6
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    assert run["fitted"]["layers"] == 2
    assert not (tmp_path / "out" / "words.npy").exists()
    again = probe(encoder, str(folder), "tagging", tmp_path / "out", **arguments)
    assert again == found


def test_the_published_tagger_has_two_layers_of_768():
    head_config = tagger.HeadConfig("tokens", 5, tuple("abcde"))
    model = tagger.Tagger(np.zeros((3, 8), np.float32), head_config, tagger.WIDTH)
    assert model.lstm.bidirectional
    assert (model.lstm.hidden_size, model.lstm.num_layers, model.out.in_features) == (768, 2, 2 * 768)


def test_fewer_examples_and_the_seed(tmp_path, encoder):
    overrides = FAST | {"examples": 16}
    probe(encoder, word_rules.keyword_rule(), "classification", tmp_path, overrides=overrides)
    assert json.loads((tmp_path / "run.json").read_text())["train_examples"] == 16


def test_what_is_finished_is_not_done_again(tmp_path, encoder, monkeypatch):
    rows = word_rules.keyword_rule()
    first = probe(encoder, rows, "classification", tmp_path, overrides=FAST)
    monkeypatch.setattr("hornbook.evaluation.baselines.probe.frozen_sequences", None)
    assert probe(encoder, rows, "classification", tmp_path, overrides=FAST) == first
    with pytest.raises(ValueError, match="layers is last4, not last"):
        probe(encoder, rows, "classification", tmp_path, layers="last", overrides=FAST)
    with pytest.raises(ValueError, match="the data in memory is not what"):
        probe(encoder, word_rules.three_classes(), "classification", tmp_path, overrides=FAST)


def test_paths_are_recorded_whole_so_that_they_hold_in_any_working_directory(tmp_path, encoder, monkeypatch):
    rows = ["text\tlabel", *(f"{'teacher' if i % 2 else 'tree'} {i}\t{i % 2}" for i in range(20))]
    (tmp_path / "rows.tsv").write_text("\n".join(rows), encoding="utf-8")
    (tmp_path / "vectors.txt").write_text("teacher 0.5 1\ntree 1 0\n", encoding="utf-8")
    commands = {
        "probe": partial(probe, encoder, task="classification", overrides=FAST),
        "baseline": partial(baseline, "vectors", task="classification", overrides=FAST),
        "curve": partial(
            label_curve, encoder, task="classification", methods=["vectors"], sizes=[8], seeds=1, overrides=FAST
        ),
    }
    for name, command in commands.items():
        options = {} if name == "probe" else {"word_vectors": "vectors.txt"}
        monkeypatch.chdir(tmp_path)
        first = command(data="rows.tsv", out=tmp_path / name, **options)
        run = json.loads((tmp_path / name / "run.json").read_text())
        assert run["request"]["data"] == run["inputs"]["data"]["path"] == str(tmp_path / "rows.tsv")
        monkeypatch.chdir(tmp_path / name)
        elsewhere = {option: f"../{file}" for option, file in options.items()}
        assert command(data="../rows.tsv", out=tmp_path / name, **elsewhere) == first
        if options:
            assert run["request"]["word_vectors"] == str(tmp_path / "vectors.txt")


@pytest.mark.parametrize(
    ("task", "arguments", "words"),
    [
        ("classification", {"method": "bilstm"}, "logistic"),
        ("classification", {"method": "tree"}, "one of logistic, bilstm"),
        ("classification", {"pooling": "none"}, "cls, lasttoken or mean"),
        ("spans", {}, "layers.frozen=-1"),
    ],
)
def test_bad_requests_say_what_to_do(tmp_path, encoder, task, arguments, words):
    question = {"question": "who", "context": "the teacher", "answer": "teacher"}
    rows = word_rules.keyword_rule() if task != "spans" else {"train": [question] * 4, "dev": [question]}
    with pytest.raises(ValueError, match=words):
        probe(encoder, rows, task, tmp_path, overrides=FAST, **arguments)


def test_a_class_that_training_lacks_is_never_predicted(random):
    rows = random.normal(size=(40, 3)).astype(np.float32)
    numbers = np.where(rows[:, 0] > 0, 3, 1)
    scores = fit_logistic(rows, numbers, 5, seed=0).decision_function(rows)
    assert scores.shape == (40, 5)
    assert (scores.argmax(1) == numbers).mean() > 0.9
    assert scores[:, [0, 2, 4]].max() < scores[:, [1, 3]].min()
    assert fit_logistic(rows, np.full(40, 2), 5, seed=0).decision_function(rows).argmax(1).tolist() == [2] * 40


def test_a_class_that_never_or_always_holds(random):
    rows = random.normal(size=(60, 3)).astype(np.float32)
    holds = np.stack([rows[:, 0] > 0, np.zeros(60), np.ones(60)], 1).astype(int)
    scores = fit_multi_label(rows, holds, seed=0).decision_function(rows)
    assert ((scores > 0) == holds).mean(0).tolist() == pytest.approx([1, 1, 1], abs=0.1)
    assert ((scores[:, 1:] > 0) == holds[:, 1:]).all()


def test_c_follows_the_data(random):
    """Labels of chance want weights near 0; labels of a rule do not."""
    rows = random.normal(size=(200, 20)).astype(np.float32)
    rule, noise = (rows[:, 0] > 0).astype(int), random.integers(0, 2, 200)
    assert fit_logistic(rows, noise, 2, seed=0).params["C"] < fit_logistic(rows, rule, 2, seed=0).params["C"]


def test_alpha_is_chosen_on_some_of_many_examples_and_all_are_fitted(random, monkeypatch):
    """Choosing it on 20,000 examples took hours."""
    fitted = []
    monkeypatch.setattr(RidgeCV, "fit", lambda self, x, y, fit=RidgeCV.fit: fitted.append(len(y)) or fit(self, x, y))
    rows = random.normal(size=(2 * MAX_FOR_ALPHA, 3)).astype(np.float32)
    model = fit_ridge(rows, rows[:, 0] + random.normal(size=len(rows)), seed=0)
    assert fitted == [MAX_FOR_ALPHA]
    effects = model.decision_function(np.eye(3)) - model.decision_function(np.zeros((1, 3)))
    assert effects[:, 0].tolist() == pytest.approx([1, 0, 0], abs=0.06)


def test_where_matthews_decides_one_class_for_all_is_not_chosen(random):
    """One in eight is of the rare class and hardly separable: the likelihood keeps the predictions at the majority."""
    numbers = (np.arange(320) % 8 == 0).astype(int)
    rows = random.normal(size=(320, 200)).astype(np.float32)
    rows[:, 0] += 1.2 * numbers
    assert (
        fit_logistic(rows, numbers, 2, seed=0).params["C"] < fit_logistic(rows, numbers, 2, 0, "matthews").params["C"]
    )


def test_the_steps_of_the_bilstm_are_not_captured(tmp_path, encoder, monkeypatch):
    """They fetch features from the host, and a captured step would use those of its first batch for ever."""
    seen = []

    def stopped(out, job, *others):
        seen.append(job.objective.is_capturable)
        raise Stopped(Outcome("stopped", 0, 0, 0.0, {}, None))

    monkeypatch.setattr(tagger, "train", stopped)
    monkeypatch.setattr(tagger, "WIDTH", 8)
    folder = word_rules.write_tags(tmp_path / "tags")
    with pytest.raises(Stopped):
        probe(encoder, str(folder), "tagging", tmp_path / "out", method="bilstm", overrides=FAST)
    assert seen == [False]


def test_overwrite_replaces_what_a_stopped_bilstm_left(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(tagger, "WIDTH", 8)
    folder = word_rules.write_tags(tmp_path / "tags")
    options = {"method": "bilstm", "overrides": FAST, "on_progress": lambda progress: True}
    with pytest.raises(Stopped):
        probe(encoder, str(folder), "tagging", tmp_path / "out", **options)
    refuse_foreign(tmp_path / "out", RUN)


def test_the_bilstm_scores_what_has_tags(tmp_path, encoder, monkeypatch):
    monkeypatch.setattr(tagger, "WIDTH", 8)
    rows = [{"words": ["the", "river"], "tags": ["O", "B-A" if n % 2 else "O"]} for n in range(12)]
    data = {"train": rows, "dev": rows[:6], "test": [*rows[:5], {"words": ["a", "bridge"], "tags": None}]}
    overrides = FAST | {"epochs": 1}
    found = probe(encoder, data, "tagging", tmp_path, method="bilstm", layers="last", overrides=overrides)
    assert found.scores["test"].keys() == found.scores["dev"].keys()
    assert json.loads((tmp_path / "run.json").read_text())["not_scored"] == {"test": 1}
