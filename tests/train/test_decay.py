"""Learning-rate decay: polynomial or cosine, to 0 or to a minimum."""

import math

import pytest

from hornbook.train.settings import ScheduleSettings


def test_cosine_decay_to_a_minimum():
    schedule = ScheduleSettings(steps=110, warmup_steps=10, decay="cosine", min_lr_ratio=0.1)
    assert schedule.lr_ratio(10) == pytest.approx(1.0) and schedule.lr_ratio(60) == pytest.approx(0.1 + 0.9 / 2)
    assert schedule.lr_ratio(35) == pytest.approx(0.1 + 0.9 * (1 + math.cos(math.pi / 4)) / 2)
    assert 0.1 < schedule.lr_ratio(109) < 0.101
    assert all(schedule.lr_ratio(step) > schedule.lr_ratio(step + 1) for step in range(10, 109))


def test_linear_decay():
    schedule = ScheduleSettings(steps=110, warmup_steps=10)
    assert [schedule.lr_ratio(step) for step in (0, 10, 60, 109)] == [1 / 11, 1.0, 0.5, 0.01]


def test_a_minimum_above_the_peak_is_refused():
    with pytest.raises(ValueError, match=r"schedule\.min_lr_ratio"):
        ScheduleSettings(min_lr_ratio=1.5)


@pytest.mark.parametrize("decay_in_warmup", [False, True])
def test_at_its_minimum_before_the_end(decay_in_warmup):
    """As if the run ended there, and then no lower (GPT-3: 260 of 300 billion tokens)."""
    schedule = ScheduleSettings(
        100, warmup_steps=10, decay="cosine", min_lr_ratio=0.1, decay_fraction=0.6, decay_in_warmup=decay_in_warmup
    )
    shorter = ScheduleSettings(60, warmup_steps=10, decay="cosine", min_lr_ratio=0.1, decay_in_warmup=decay_in_warmup)
    assert [schedule.lr_ratio(step) for step in range(60)] == pytest.approx(
        [shorter.lr_ratio(step) for step in range(60)]
    )
    assert [schedule.lr_ratio(step) for step in range(60, 100)] == pytest.approx([0.1] * 40)
    with pytest.raises(ValueError, match=r"schedule\.decay_fraction"):
        ScheduleSettings(decay_fraction=0.0)
