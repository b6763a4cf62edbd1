"""With --minutes the batch fits the minutes: a slow machine makes smaller batches, and enough steps."""

import time
from types import SimpleNamespace

import pytest
from tiny import TINY_MODEL
from tiny_runs import same

from hornbook.files import read_json
from hornbook.runs.pretraining import minutes
from hornbook.runs.pretraining import pretrain as running
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.pretrain import pretrain
from hornbook.train.job import Stopped

TINY = TINY_MODEL | {"data.held_out_fraction": 0.5}


@pytest.fixture
def slow(monkeypatch):
    """A machine that needs a thousandth of a second for each token. Nothing is measured."""
    monkeypatch.setattr(minutes, "_seconds_per_token", lambda *about: 0.001)
    monkeypatch.setattr(minutes, "mean_seconds_per_step", lambda *about: 2.56)
    monkeypatch.setattr(minutes, "steps_in", lambda *about: (4, 2))


def begun(out, corpus, overrides=None, recipe="published", **more) -> tuple[dict, list[str]]:
    said = []
    options = {"minutes": 16, "recipe": recipe, "log": said.append} | more
    pretrain("bert-tiny", corpus, out, overrides=TINY | (overrides or {}), **options)
    return read_json(out / "run.json")["settings"], said


def test_the_batch_shrinks_until_enough_steps_fit(slow, tmp_path, tiny_corpus):
    settings, said = begun(tmp_path / "run", tiny_corpus)
    tokens = settings["batch"]["tokens"]
    assert tokens == 4096  # 16 x 60 s / 200 steps / 0.001 s = 4,800 tokens
    (words,) = [each for each in said if "instead of the published" in each]
    assert "4,096 tokens instead of the published 131,072" in words and "batch_tokens= of 131072 keeps" in words


def test_the_batch_does_not_shrink_below_that_of_the_budget_recipe(slow, tmp_path, tiny_corpus):
    settings, _ = begun(tmp_path / "run", tiny_corpus, minutes=1)
    assert settings["batch"]["tokens"] == 2048


@pytest.mark.parametrize(("given", "left"), [(2, "3 steps in the 1 min 18 s"), (0.5, "1 step in the 0.0 s")])
def test_slow_steps_are_measured_once(monkeypatch, tmp_path, tiny_corpus, given, left):
    """If the first measurement takes more than its share of the minutes, its result is used for the steps too."""
    clock = SimpleNamespace(now=0.0)

    def seconds_per_token(*_):
        clock.now += 40
        return 0.01

    monkeypatch.setattr(minutes, "_seconds_per_token", seconds_per_token)
    monkeypatch.setattr(minutes.time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(minutes, "mean_seconds_per_step", lambda *_: pytest.fail("measured again"))
    _, said = begun(tmp_path / "run", tiny_corpus, minutes=given)
    assert f"a step takes 20.5 s: {left} left of {given} min" in said
    assert f"note: a model learns little in {left.partition(' in ')[0]}; use more minutes= or a smaller preset" in said
    assert said.index("measuring how long a step takes ...") < said.index(said[-1])


def test_the_expected_time_of_a_long_run_of_steps_is_logged(monkeypatch, tmp_path, tiny_corpus):
    monkeypatch.setattr(minutes, "_seconds_per_token", lambda *about: 0.001)
    for is_long in (False, True):
        monkeypatch.setattr(running, "takes_a_minute", lambda settings, is_long=is_long: is_long)
        _, said = begun(tmp_path / str(is_long), tiny_corpus, minutes=None, steps=1, batch_tokens=512)
        assert is_long == ("expected time: about 0.6 s for 1 step" in said)


def test_a_preset_that_takes_months_is_refused_unless_a_duration_is_given(monkeypatch, tmp_path, tiny_corpus):
    monkeypatch.setattr(minutes, "_seconds_per_token", lambda *about: 1.0)
    with pytest.raises(ValueError, match=r"steps of the preset would take about .* days .* here: give minutes="):
        begun(tmp_path / "preset", tiny_corpus, minutes=None)
    assert not (tmp_path / "preset").exists()
    with pytest.raises(Stopped):
        begun(tmp_path / "steps", tiny_corpus, minutes=None, steps=1_000_000, on_progress=lambda status: True)


def test_a_given_batch_size_is_kept(slow, tmp_path, tiny_corpus):
    for number, how in enumerate(({"overrides": {"batch.tokens": 512}}, {"batch_tokens": 512})):
        settings, said = begun(tmp_path / str(number), tiny_corpus, **how)
        assert settings["batch"]["tokens"] == 512 and not [each for each in said if "published" in each]


def test_a_fast_machine_keeps_the_published_batch(monkeypatch, tmp_path, tiny_corpus):
    monkeypatch.setattr(minutes, "_seconds_per_token", lambda *about: 1e-6)
    monkeypatch.setattr(running, "with_steps_in", lambda minutes, run, *about: run.settings)
    monkeypatch.setattr(running, "warnings_of", lambda *about: {}["no steps are needed here"])
    with pytest.raises(KeyError):
        begun(tmp_path / "run", tiny_corpus)
    assert read_json(tmp_path / "run" / "run.json")["settings"]["batch"]["tokens"] == 131_072


def test_validation_shrinks_with_it(slow, monkeypatch, tmp_path, tiny_corpus):
    monkeypatch.setattr(minutes, "_seconds_per_token", lambda *about: 0.1)
    settings, said = begun(tmp_path / "run", tiny_corpus, {"batch.tokens": 512})
    assert settings["validation"]["tokens"] < 262_144 and any("; validation.tokens=262144" in each for each in said)
    settings, _ = begun(tmp_path / "asked", tiny_corpus, {"batch.tokens": 512, "validation.tokens": 262_144})
    assert settings["validation"]["tokens"] == 262_144


def test_what_was_chosen_is_used_again_on_resume(slow, monkeypatch, tmp_path, tiny_corpus):
    settings, _ = begun(tmp_path / "whole", tiny_corpus)
    with pytest.raises(Stopped):
        begun(tmp_path / "stopped", tiny_corpus, on_progress=lambda status: status.step >= 2)
    monkeypatch.setattr(minutes, "_seconds_per_token", lambda *about: 1e-6)  # the machine is fast now
    again, _ = begun(tmp_path / "stopped", tiny_corpus, resume=True)
    assert again == settings and same(tmp_path / "whole", tmp_path / "stopped")


def test_the_speed_is_measured(tmp_path, tiny_corpus, monkeypatch):
    monkeypatch.setattr(minutes, "steps_in", lambda *about: (2, 1))
    settings, said = begun(tmp_path / "run", tiny_corpus, minutes=0.05)
    assert settings["batch"]["tokens"] < 131_072
    assert any("instead of the published" in each for each in said)


def test_the_budget_recipe_takes_batch_and_learning_rate_from_the_speed(slow, tmp_path, tiny_corpus):
    settings, logged = begun(tmp_path / "slow", tiny_corpus, recipe=None)
    assert settings["batch"]["tokens"] == 2048 and settings["optimizer"]["name"] == "muon"
    (line,) = [each for each in logged if "recipe budget" in each]
    assert "muon at 0.004, batches of 2,048 tokens" in line and "recipe='published'" in line


def test_more_tokens_make_larger_batches(monkeypatch, tmp_path, tiny_corpus):
    monkeypatch.setattr(minutes, "_seconds_per_token", lambda *about: 2e-5)
    monkeypatch.setattr(minutes, "mean_seconds_per_step", lambda *about: 2e-5 * 16_384)
    monkeypatch.setattr(minutes, "steps_in", lambda *about: (1, 1))
    monkeypatch.setattr(running, "warnings_of", lambda *about: {}["no steps are needed here"])
    with pytest.raises(KeyError):
        begun(tmp_path / "fast", tiny_corpus, recipe="budget")
    settings = read_json(tmp_path / "fast" / "run.json")["settings"]
    assert settings["batch"]["tokens"] == 16_384  # 16 x 60 s / 2e-5 s = 48 million tokens, a 2,500th of them
    assert settings["optimizer"]["lr"] == 4e-3


@pytest.mark.parametrize("has_default_duration", [True, False])
def test_a_long_run_says_what_makes_it_shorter_unless_its_length_was_given(has_default_duration, slow):
    settings = SimpleNamespace(schedule=SimpleNamespace(steps=3000), batch=SimpleNamespace(mean_tokens=1000))
    said = []
    minutes.log_expected_time(SimpleNamespace(settings=settings), has_default_duration, said.append)
    assert said[1].startswith("expected time: about 55 min")
    assert [line for line in said if "shorter" in line] == said[2:] and len(said[2:]) == has_default_duration


@pytest.mark.parametrize("growing", [{}, {"batch.first_tokens": 1024, "batch.growth_fraction": 1.0}])
def test_the_time_of_validations_does_not_depend_on_how_batches_grow(monkeypatch, growing):
    """It follows from the seconds per token, here 0.01, and the 1,000 tokens of a forward pass."""
    settings = preset_settings("gpt2-tiny", {"batch.tokens": 65536, **growing})
    prepared = SimpleNamespace(settings=settings, num_held_out_tokens=1000)
    seconds = []
    monkeypatch.setattr(minutes, "steps_in", lambda left, step, validation, every: seconds.append(validation) or (9, 9))
    minutes.with_steps_in(60, prepared, time.monotonic(), lambda message: None, token_seconds=0.01)
    assert seconds == [pytest.approx(0.01 * 1000 / 3)]
