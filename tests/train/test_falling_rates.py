"""The way down from the peak rate: a power or half a cosine, to 0 or to a floor."""

import math

import pytest

from hornbook.train.settings import ScheduleSettings


def test_half_a_cosine_to_a_floor():
    schedule = ScheduleSettings(steps=110, warmup_steps=10, fall="cosine", floor=0.1)
    assert schedule.rate(10) == pytest.approx(1.0) and schedule.rate(60) == pytest.approx(0.1 + 0.9 / 2)
    assert schedule.rate(35) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert 0.1 < schedule.rate(109) < 0.101
    assert all(schedule.rate(step) > schedule.rate(step + 1) for step in range(10, 109))


def test_a_line_is_what_it_was():
    schedule = ScheduleSettings(steps=110, warmup_steps=10)
    assert [schedule.rate(step) for step in (0, 10, 60, 109)] == [1 / 11, 1.0, 0.5, 0.01]


def test_a_floor_above_the_peak_is_refused():
    with pytest.raises(ValueError, match=r"schedule\.floor"):
        ScheduleSettings(floor=1.5)
