"""The rule of each verdict, on made-up numbers."""

import dataclasses
import math

import numpy as np
import pytest
from made_up_jobs import decided_for, leave
from smallest import write_smallest

from hornbook.evaluation.experiments.definition import Claim, Condition, read_experiment
from hornbook.evaluation.experiments.jobs import ExperimentJob
from hornbook.evaluation.experiments.results import write_results
from hornbook.evaluation.experiments.scores import (
    FAILS,
    HOLDS,
    UNDECIDED,
    Measurement,
    Scores,
    _seeds_needed,
    judge,
    measured,
    verdict_of_interval,
)
from hornbook.files import read_json, write_json
from hornbook.metrics.confidence_intervals import NORMAL_95, difference_interval

ALL = ("reviews",)
BETTER = Condition(description="better", arm="detecting", minus="nsp", min=0.0)


@pytest.fixture
def experiment(tmp_path):
    return read_experiment(write_smallest(tmp_path))


def with_equal(experiment, **overrides):
    return dataclasses.replace(experiment, equal=dataclasses.replace(experiment.equal, **overrides))


def judged(out, experiment, means, *conditions, spread=0.1, **more) -> dict:
    decided = decided_for(experiment)
    leave(out, decided, means, spread, **more)
    claim = Claim("claim", "A claim.", would_decide="more seeds", conditions=conditions or (BETTER,))
    return judge(claim, Scores(out, decided, ALL))


@pytest.mark.parametrize(
    ("low", "high", "minimum", "maximum", "verdict"),
    [
        (0.1, 2.0, 0.0, None, HOLDS),
        (-2.0, -0.1, 0.0, None, FAILS),
        (-0.1, 2.0, 0.0, None, UNDECIDED),
        (0.0, 0.0, 0.0, None, FAILS),  # no difference at all is not better
        (-0.4, 0.9, -0.5, 1.0, HOLDS),
        (-0.6, 0.9, -0.5, 1.0, UNDECIDED),
        (-0.4, 1.1, -0.5, 1.0, UNDECIDED),
        (1.1, 1.2, -0.5, 1.0, FAILS),
        (-3.0, -0.6, -0.5, 1.0, FAILS),
        (35.0, 35.0, None, 50.0, HOLDS),
        (65.0, 65.0, None, 50.0, FAILS),
    ],
)
def test_where_an_interval_lies(low, high, minimum, maximum, verdict):
    assert verdict_of_interval(low, high, minimum, maximum) == verdict


@pytest.mark.parametrize(("difference", "verdict"), [(5.0, HOLDS), (-5.0, FAILS), (0.3, UNDECIDED)])
def test_a_difference_of_scores_decides(tmp_path, experiment, difference, verdict):
    found = judged(tmp_path, experiment, {"nsp": 60.0, "detecting": 60.0 + difference})
    assert found["verdict"] == verdict
    condition = found["conditions"][0]
    assert condition["low"] < condition["value"] < condition["high"]
    assert abs(condition["value"] - difference) < 0.5
    assert (found["would_decide"] != "") == (verdict == UNDECIDED)
    if verdict == UNDECIDED:
        assert found["would_decide"].startswith("more seeds; about ")


def test_the_deviation_between_seeds_is_counted_in_where_one_was_trained(tmp_path, experiment):
    means = {"nsp": 60.0, "detecting": 61.0}
    widths = {}
    for deviation in (0.0, 0.5):
        found = judged(tmp_path / str(deviation), with_equal(experiment, seed_deviation=deviation), means, spread=0.01)
        condition = found["conditions"][0]
        widths[deviation] = (condition["high"] - condition["low"]) / 2
    assert widths[0.5] == pytest.approx(math.hypot(widths[0.0], NORMAL_95 * math.sqrt(2) * 0.5))
    several = with_equal(experiment, seeds=(0, 1, 2), seed_deviation=50.0)
    found = judged(tmp_path / "several", several, means, spread=0.01)
    assert found["verdict"] == HOLDS  # three seeds say it themselves


def test_several_seeds_of_pretraining_are_what_is_drawn(tmp_path, experiment):
    """Fine-tunings of one pre-training are no independent draws of it: the mean of each counts once."""
    decided = decided_for(with_equal(experiment, seeds=(0, 1)))
    leave(tmp_path, decided, {"nsp": 60.0, "detecting": 61.0}, 0.5)
    scores = Scores(tmp_path, decided, ALL)
    assert len(scores.mean_scores("nsp", 1.0)) == len(scores.mean_scores("nsp", 1.0, ["reviews"])) == 2
    of_one = [scores.values["nsp", 1.0, "reviews", 1, place] for place in (0, 1)]
    assert scores.mean_scores("nsp", 1.0)[1] == pytest.approx(sum(of_one) / 2)


def test_sentence_heads_of_several_seeds_are_reported_together(tmp_path, experiment):
    decided = decided_for(with_equal(experiment, seeds=(0, 1)))
    jobs = leave(tmp_path, decided, {"nsp": 60.0, "detecting": 61.0})
    second = ExperimentJob("sentence-head", "nsp", 1)
    write_json(second.file(tmp_path), second.result(tmp_path) | {"nsp": {"value": 80.0, "low": 78.0, "high": 82.0}})
    accuracies = write_results(tmp_path, decided, jobs, ALL)["arms"]["nsp"]["sentence_head"]
    assert accuracies["nsp"] == {"value": 85.0, "low": 78.0, "high": 91.5}  # of the first 90, 88.5 and 91.5
    head = Condition(description="it", metric="sentence-head", arm="nsp", pairs="nsp", min=70.0)
    assert measured(head, Scores(tmp_path, decided, ALL)).low == 78.0


def test_missing_runs_leave_a_claim_undecided_however_large_the_difference(tmp_path, experiment):
    means = {"nsp": 60.0, "detecting": 90.0}
    three_seeds = tuple(dataclasses.replace(task, seeds=(0, 1, 2)) for task in experiment.tasks)
    experiment = dataclasses.replace(experiment, tasks=three_seeds)
    found = judged(tmp_path / "some", experiment, means, missing=("detecting-0-at-1-reviews-1",))
    assert found["conditions"][0]["low"] > 20  # of the two that are there
    assert found["verdict"] == UNDECIDED and "because 1 fine-tuning run of detecting is missing" in found["reason"]
    assert found["would_decide"].startswith("the missing jobs")
    found = judged(tmp_path / "none", experiment, means, missing=("detecting",))
    assert found["verdict"] == UNDECIDED and found["conditions"][0]["value"] is None


def test_all_conditions_must_hold(tmp_path, experiment):
    means = {"nsp": 60.0, "detecting": 65.0}
    worse = dataclasses.replace(BETTER, description="worse", min=None, max=0.0)
    unsure = dataclasses.replace(BETTER, description="by five", min=5.0)
    for conditions, verdict in (
        ((BETTER, BETTER), HOLDS),
        ((BETTER, worse), FAILS),
        ((BETTER, unsure), UNDECIDED),
        ((worse, unsure), FAILS),
        ((dataclasses.replace(worse, premise=True), BETTER), UNDECIDED),  # without it the other says nothing
        ((dataclasses.replace(worse, premise=True), worse), UNDECIDED),
        ((dataclasses.replace(unsure, premise=True), worse), UNDECIDED),
        ((dataclasses.replace(BETTER, premise=True), worse), FAILS),
    ):
        assert judged(tmp_path, experiment, means, *conditions)["verdict"] == verdict


def welch(number: int, deviation: float) -> tuple[float, float]:
    """The interval of a difference of means with this number of scores each and this standard deviation."""
    scores = np.array([-1.0, 1.0] * (number // 2) + [0.0] * (number % 2))
    scores = list(deviation * scores / np.std(scores, ddof=1))
    return difference_interval(scores, scores)


def test_how_many_seeds_would_decide(tmp_path, experiment):
    """As many as narrow Welch's interval to the bound, whatever the existing few show."""
    equal, a, b = with_equal(experiment, seed_deviation=0.6), [60.0, 60.2], [60.4, 60.6]
    scores = Scores(tmp_path, decided_for(equal), ALL)
    deviation = scores.deviation(a, b)
    assert deviation == pytest.approx(math.hypot(0.6, math.sqrt(0.02 / 2)))
    found = Measurement(-0.4, -2.0, 1.2, deviation=deviation)
    number = _seeds_needed(BETTER, found)
    half = [(high - low) / 2 for low, high in (welch(number, deviation), welch(number - 1, deviation))]
    assert half[0] <= 0.4 < half[1]
    assert _seeds_needed(BETTER, Measurement(1.0, -1.0, 3.0, deviation=0.6)) == 5  # by normal deviations it would be 3
    several = Scores(tmp_path, decided_for(with_equal(experiment, seeds=(0, 1), seed_deviation=50.0)), ALL)
    assert several.deviation(a, b) == pytest.approx(math.sqrt(0.02))


def test_one_task_deviates_more_than_the_mean(tmp_path, experiment):
    (task,) = experiment.tasks
    tasks = (task, dataclasses.replace(task, name="others"))
    experiment = with_equal(dataclasses.replace(experiment, tasks=tasks), seed_deviation=0.6)
    scores = Scores(tmp_path, decided_for(experiment), ("reviews", "others"))
    a, b = [60.0, 60.0], [61.0, 61.0]
    of_mean, of_one = (scores.difference(a, b, tasks) for tasks in (None, ["reviews"]))
    assert of_one[2] - of_one[1] == pytest.approx(math.sqrt(2) * (of_mean[2] - of_mean[1]))


def test_a_mean_over_fewer_tasks_than_planned_deviates_more(tmp_path, experiment):
    (task,) = experiment.tasks
    experiment = dataclasses.replace(experiment, tasks=(task, dataclasses.replace(task, name="others")))
    experiment = with_equal(experiment, seed_deviation=0.6)
    found = judged(tmp_path, experiment, {"nsp": 60.0, "detecting": 62.0}, spread=0.0)
    condition = found["conditions"][0]
    assert (condition["high"] - condition["low"]) / 2 == pytest.approx(NORMAL_95 * 2 * 0.6)
    assert "+2.0 points (-0.4 to +4.4) over 1 of 2 tasks" in found["reason"]


@pytest.mark.parametrize(("num_idle", "verdict"), [(0, HOLDS), (1, HOLDS), (2, UNDECIDED)])
def test_arms_that_learned_nothing_are_not_alike(tmp_path, experiment, num_idle, verdict):
    """A small difference is no result where neither arm has learned anything."""
    decided = decided_for(with_equal(experiment, seed_deviation=0.1))
    leave(tmp_path, decided, {"nsp": 60.0, "detecting": 60.0}, 0.0)
    for seed in range(num_idle):
        file = tmp_path / "jobs" / f"finetune-detecting-0-at-1-reviews-{seed}.json"
        write_json(file, read_json(file) | {"degenerate": "it answers 'yes' whatever the text"})
    little = Claim("claim", "A claim.", conditions=(dataclasses.replace(BETTER, min=-2.0),))
    found = judge(little, Scores(tmp_path, decided, ALL))
    assert found["verdict"] == verdict
    assert ("most fine-tuning runs of detecting are no better than chance" in found["reason"]) == (verdict == UNDECIDED)


def test_a_premise_is_one_of_its_arm_alone(tmp_path, experiment):
    """Counting words fails whatever a head has learned."""
    words = {"description": "it", "metric": "sentence-head", "arm": "nsp"}
    unlearned = Condition(**words, pairs="nsp", min=95.0, premise=True)
    head = Condition(**words, pairs="sop", min=60.0)
    counting = Condition(description="it", metric="shared-words", pairs="nsp", min=90.0)
    means = {"nsp": 60.0, "detecting": 65.0}
    for conditions, verdict in (((unlearned, head), UNDECIDED), ((unlearned, head, counting), FAILS)):
        assert judged(tmp_path, experiment, means, *conditions)["verdict"] == verdict


def test_no_number_of_seeds_decides_what_stands_on_a_premise_that_fails(tmp_path, experiment):
    unsure, means = dataclasses.replace(BETTER, min=5.0), {"nsp": 60.0, "detecting": 65.0}
    for minimum, says_how_many in ((-10.0, True), (10.0, False)):
        premise = dataclasses.replace(BETTER, min=minimum, premise=True)
        words = judged(tmp_path, experiment, means, premise, unsure)["would_decide"]
        assert words.startswith("more seeds") and ("pre-training seeds per arm" in words) == says_how_many


def test_accuracies_and_parameters(tmp_path, experiment):
    means = {"nsp": 60.0, "detecting": 65.0}
    conditions = {
        Condition(description="shared words", metric="shared-words", pairs="nsp", min=70.0): HOLDS,
        Condition(description="shared words", metric="shared-words", pairs="nsp", min=77.0): UNDECIDED,
        Condition(description="shared words", metric="shared-words", pairs="sop", max=55.0): HOLDS,
        Condition(description="head", metric="sentence-head", arm="nsp", pairs="sop", max=55.0): HOLDS,
        Condition(description="head", metric="sentence-head", arm="nsp", pairs="sop", min=60.0): FAILS,
        Condition(description="fewer", metric="parameters", arm="detecting", over="nsp", max=50.0): FAILS,
    }
    for condition, verdict in conditions.items():
        assert judged(tmp_path, experiment, means, condition)["verdict"] == verdict
    write_json(tmp_path / "jobs" / "pretrain-detecting-0.json", {"parameters": 4_700_000, "seconds": 1.0})
    decided = decided_for(experiment)
    fewer = Claim("fewer", "Fewer.", conditions=(list(conditions)[-1],))
    found = judge(fewer, Scores(tmp_path, decided, ALL))
    assert found["verdict"] == HOLDS and "35.1%" in found["reason"]
    waiting = judged(tmp_path / "later", experiment, means, list(conditions)[-1], missing=("pretrain-nsp",))
    assert waiting["verdict"] == UNDECIDED and "nsp is not pre-trained yet" in waiting["reason"]
