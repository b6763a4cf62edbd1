"""Every kind of task learns a small rule almost to the end, from random weights in seconds: a broken head, loss,
encoding or decoding could not."""

import json
import random as chance
from collections.abc import Callable
from pathlib import Path

import pytest
import rules

from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.single_run import FinetuneResult, open_and_run

LEARNED = 0.95
NUM_DEV = 100


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    """Of one layer, which most of the rules need."""
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder", num_layers=1)


@pytest.fixture(scope="module")
def deeper_encoder(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder")


@pytest.fixture(scope="module")
def smoother_encoder(tmp_path_factory) -> Path:
    """Smaller weights, so that the pooler's tanh is not at its ends from the start."""
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder", num_layers=1, init_std=0.1)


def data_of(folder: Path, rule: Callable, number: int) -> Path:
    draw = chance.Random(1)
    return rules.write_rows(folder / "data", [rule(draw) for _ in range(number + NUM_DEV)], NUM_DEV)


def learned(folder: Path, encoder: Path, task: str, data: Path, **overrides) -> FinetuneResult:
    settings = {"optimizer.lr": 3e-3, "runtime.threads": 1, "validation.every_steps": 10_000}
    settings |= {name.replace("__", "."): value for name, value in overrides.items()}
    request = FinetuneRequest(str(encoder), task, str(data), seed=0, overrides=settings)
    result = open_and_run(folder / "run", request, data, lambda status: None, lambda words: None)
    assert isinstance(result, FinetuneResult)
    return result


def dev_score(result: FinetuneResult, name: str) -> float:
    return result.scores["dev"][name]["value"]


@pytest.fixture(scope="module", params=["albert", "roberta"])
def other_encoder(request, tmp_path_factory) -> Path:
    """Of another family: no task knows of it."""
    narrow = {"albert": {"embedding_width": 32, "head_dropout": 0.0}}.get(request.param, {})
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder", request.param, **narrow)


@pytest.mark.parametrize("head", ["linear", "mlp", "cnn", "bilstm", "attention"])
def test_a_text_to_a_class(tmp_path, encoder, deeper_encoder, head):
    data = data_of(tmp_path, rules.keyword_pair, 500)
    model = deeper_encoder if head == "cnn" else encoder
    result = learned(tmp_path, model, "classification", data, epochs=3, task__head=head)
    assert dev_score(result, "accuracy") >= LEARNED
    assert result.degenerate is None


def test_a_text_to_a_class_in_every_family(tmp_path, other_encoder):
    data = data_of(tmp_path, rules.keyword_pair, 500)
    result = learned(tmp_path, other_encoder, "classification", data, epochs=3)
    assert dev_score(result, "accuracy") >= LEARNED


@pytest.mark.parametrize("other_encoder", ["roberta"], indirect=True)
def test_a_place_or_none_in_another_family(tmp_path, other_encoder):
    data = data_of(tmp_path, rules.place_if_told, 800)
    result = learned(tmp_path, other_encoder, "spans-or-none", data, epochs=8)
    assert dev_score(result, "exact") >= LEARNED


def test_shuffled_labels_are_not_learned(tmp_path, encoder):
    """The same texts with random labels: the scores that the other tests require cannot be reached by chance."""
    data = data_of(tmp_path, rules.keyword_pair, 500)
    for name in ("train", "dev"):
        rows = [json.loads(line) for line in (data / f"{name}.jsonl").read_text().splitlines()]
        labels = [row["label"] for row in rows]
        chance.Random(0).shuffle(labels)
        shuffled = [json.dumps(row | {"label": label}) + "\n" for row, label in zip(rows, labels, strict=True)]
        (data / f"{name}.jsonl").write_text("".join(shuffled))
    result = learned(tmp_path, encoder, "classification", data, epochs=5)
    assert dev_score(result, "accuracy") < 0.75


def test_a_pair_to_a_class(tmp_path, deeper_encoder):
    """Whether the second text contains the word that the first names: neither suffices alone."""
    result = learned(tmp_path, deeper_encoder, "classification", data_of(tmp_path, rules.named_word, 1000), epochs=8)
    assert dev_score(result, "accuracy") >= LEARNED


def test_a_pair_encoded_apart(tmp_path, smoother_encoder):
    data = data_of(tmp_path, rules.same_kind, 500)
    result = learned(tmp_path, smoother_encoder, "classification", data, epochs=3, task__pair_encoding="separate")
    assert dev_score(result, "accuracy") >= LEARNED


def test_several_classes(tmp_path, encoder):
    data = data_of(tmp_path, rules.things_there, 500)
    result = learned(tmp_path, encoder, "multi-label", data, epochs=5)
    assert dev_score(result, "exact_match") >= LEARNED


def test_a_number(tmp_path, encoder):
    data = data_of(tmp_path, rules.count_of_lamps, 500)
    result = learned(tmp_path, encoder, "regression", data, epochs=4)
    assert dev_score(result, "pearson") >= LEARNED


@pytest.mark.parametrize(("start", "unit"), [(0.0, 50_000.0), (2000.0, 5.0), (0.5, 0.001)], ids=str)
def test_a_number_of_any_size(tmp_path, encoder, start, unit):
    """Prices, years and small fractions are learned in their own units, which the saved weights have too."""

    def rule(draw: chance.Random) -> dict:
        row = rules.count_of_lamps(draw)
        return row | {"score": start + unit * row["score"]}

    result = learned(tmp_path, encoder, "regression", data_of(tmp_path, rule, 500), epochs=4)
    assert dev_score(result, "pearson") >= LEARNED
    assert dev_score(result, "mean_absolute_error") < 0.5 * unit
    assert result.evaluate(tmp_path / "data")["splits"]["dev"]["pearson"]["value"] >= LEARNED


def test_a_place(tmp_path, encoder):
    """The answer is the place of the person in the question; the place of another person is in the passage too."""
    data = data_of(tmp_path, rules.place_told, 400)
    result = learned(tmp_path, encoder, "spans", data, epochs=8)
    assert dev_score(result, "exact") >= LEARNED


@pytest.mark.parametrize("no_answer", ["span", "classifier"])
def test_a_place_or_none(tmp_path, deeper_encoder, no_answer):
    data = data_of(tmp_path, rules.place_if_told, 600)
    result = learned(tmp_path, deeper_encoder, "spans-or-none", data, epochs=8, task__no_answer=no_answer)
    assert dev_score(result, "exact") >= LEARNED
    assert dev_score(result, "NoAns_exact") >= 0.9 and dev_score(result, "HasAns_exact") >= 0.9


def test_tags(tmp_path, smoother_encoder):
    """A name after a title is a person, and the same name elsewhere is none."""
    data = data_of(tmp_path, rules.titled_names, 500)
    result = learned(tmp_path, smoother_encoder, "tagging", data, epochs=10)
    assert dev_score(result, "entity_f1") >= LEARNED


def test_one_of_several_choices(tmp_path, encoder):
    data = data_of(tmp_path, rules.choice_with_the_thing, 400)
    result = learned(tmp_path, encoder, "choice", data, epochs=4)
    assert dev_score(result, "accuracy") >= LEARNED
