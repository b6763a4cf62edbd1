"""The time left of what is prepared before training."""

import math

import pytest

from hornbook.train import job
from hornbook.train.job import preparation_progress


def test_the_time_left_follows_from_what_was_done_since_the_start(monkeypatch):
    clock = iter((100.0, 100.0, 104.0, 108.0, 200.0, 203.0))
    monkeypatch.setattr(job.time, "monotonic", lambda: next(clock))
    shown = []
    show = preparation_progress(shown.append, "caching: batch", first=10)
    show(10, 30)
    show(20, 30, 80)
    show(30, 30, 160)
    assert [(each.step, each.num_steps, each.unit) for each in shown[1:2]] == [(20, 30, "caching: batch")]
    assert [each.seconds_left for each in shown] == [math.inf, pytest.approx(4.0), 0.0]
    assert [each.tokens_per_second for each in shown[1:]] == [20.0, 20.0]
    show(5, 20)  # other data, after 3 seconds
    assert shown[-1].seconds_left == pytest.approx(9.0)
