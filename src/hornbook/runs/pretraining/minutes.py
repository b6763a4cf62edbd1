"""Sizing a run by `--minutes`: the batch size, steps and validations that fit, from measured step times."""

import dataclasses
import time

from hornbook import config as configuration
from hornbook.lifecycle.run_folder import Log
from hornbook.report.formatting import counted, duration
from hornbook.runs.pretraining.assembly import PreparedRun
from hornbook.runs.pretraining.batches import BatchMaker
from hornbook.runs.pretraining.recipes import SMALLEST_BATCH, Recipe, with_budget_batch
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.resolve import VALIDATING_FRACTION, num_validations, steps_between
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.train.step_timing import (
    FORWARD_FRACTION,
    LONG_RUN,
    MEASURING,
    NUM_TIMED,
    num_to_time,
    seconds_per_step,
)

MEASURED_FRACTION = 0.05  # largest fraction of the minutes for timing steps, per sequence length
FEW_STEPS, ENOUGH_STEPS = 100, 200
CPU_PROBE_TOKENS = 2048  # larger batches are no faster per token on a CPU
MIN_VALIDATION_TOKENS = 2048
MONTH = 30 * 24 * 3600.0  # seconds
TIMED_SECONDS = 5.0  # largest time for measuring the expected duration of a run


def with_batch_that_fits(
    prepared: PreparedRun, request: PretrainRequest, recipe: Recipe, log: Log
) -> tuple[PreparedRun, float | None]:
    """Sets the batch of the budget recipe, or halves the published one until about `ENOUGH_STEPS` steps fit in the
    minutes, and halves the validation tokens until two validations fit in `VALIDATING_FRACTION` of the time. Settings
    that the user set are not changed; every change is logged. Returns the run, and the seconds per token if measuring
    steps again would take too long, else None."""
    minutes, requested = request.minutes, request.all_overrides()
    log(MEASURING)
    if {"batch.tokens", "validation.tokens"} <= requested.keys() and recipe == "published":
        return prepared, None
    began = time.monotonic()
    token_seconds = _seconds_per_token(prepared, MEASURED_FRACTION * minutes * 60)
    has_time = time.monotonic() - began <= MEASURED_FRACTION * minutes * 60 or prepared.runtime.device.type != "cpu"
    overrides = {}
    if recipe == "budget":
        prepared = prepared.with_settings(with_budget_batch(prepared.settings, minutes * 60 / token_seconds, requested))
    elif "batch.tokens" not in requested:
        published = prepared.settings.batch.tokens
        min_tokens = max(SMALLEST_BATCH, *prepared.settings.lengths)
        fitting = _halved(published, minutes * 60 / ENOUGH_STEPS / token_seconds, min_tokens)
        if fitting < published:
            overrides["batch.tokens"] = fitting
            log(
                f"batches of {fitting:,} tokens instead of the published {published:,}, for more steps in "
                f"{minutes:g} min; batch_tokens= of {published} keeps the published size"
            )
    default = prepared.settings.validation.tokens
    max_tokens = VALIDATING_FRACTION * minutes * 60 / 2 / (token_seconds * FORWARD_FRACTION)
    fitting = _halved(default, max_tokens, MIN_VALIDATION_TOKENS)
    if "validation.tokens" not in requested and fitting < min(default, prepared.num_held_out_tokens):
        overrides["validation.tokens"] = fitting
        log(f"validation on {fitting:,} tokens; validation.tokens={default} restores the default")
    prepared = prepared.with_settings(configuration.with_overrides(prepared.settings, overrides))
    return prepared, None if has_time else token_seconds


def _halved(tokens: int, max_tokens: float, min_tokens: int) -> int:
    """`tokens` halved until they are at most `max_tokens`, but never below `min_tokens`.

    >>> _halved(131_072, 5000, min_tokens=512), _halved(131_072, 5, min_tokens=512)
    (4096, 512)
    """
    while tokens > max_tokens and tokens // 2 >= min_tokens:
        tokens //= 2
    return tokens


def log_expected_time(prepared: PreparedRun, has_default_duration: bool, log: Log) -> None:
    """Logs the expected time of the run. If no duration was given (`has_default_duration`), a long one is logged with
    what makes it shorter, and one of over a month raises a `ValueError`."""
    log(MEASURING)
    steps = prepared.settings.schedule.steps
    token_seconds = _seconds_per_token(prepared, TIMED_SECONDS, num_to_time(steps))
    seconds = token_seconds * prepared.settings.batch.mean_tokens * steps * (1 + VALIDATING_FRACTION)
    if seconds > MONTH and has_default_duration:
        raise ValueError(
            f"the {counted(steps, 'step')} of the preset would take about {duration(seconds)} here: give minutes=, "
            "steps= or tokens="
        )
    log(f"expected time: about {duration(seconds)} for {counted(steps, 'step')}")
    if seconds >= LONG_RUN and has_default_duration:
        log("minutes=, steps= or a smaller batch_tokens= make the run shorter")


def _seconds_per_token(prepared: PreparedRun, max_seconds: float, num_timed: int = NUM_TIMED) -> float:
    """Measured on part of a batch: one micro-batch on a GPU, a few sequences on a CPU."""
    batch = prepared.settings.batch
    micro_tokens = CPU_PROBE_TOKENS if prepared.runtime.device.type == "cpu" else batch.micro_tokens
    tokens = min(batch.tokens, max(*prepared.settings.lengths, micro_tokens))
    small = configuration.with_overrides(prepared.settings, {"batch.tokens": tokens, "batch.first_tokens": None})
    job = dataclasses.replace(prepared.job, make_batch=BatchMaker(small, prepared.corpora))
    return (
        mean_seconds_per_step(dataclasses.replace(prepared, settings=small, job=job), max_seconds, num_timed) / tokens
    )


def with_steps_in(
    minutes: float, prepared: PreparedRun, began: float, log: Log, token_seconds: float | None = None
) -> PretrainSettings:
    """Measures a few steps at each sequence length, unless the seconds per token are given. Returns the settings with
    the number of steps and the steps between validations with which the run fits in the minutes that remain since
    `began` (`time.monotonic()`)."""
    settings = prepared.settings
    if token_seconds is None:
        mean = mean_seconds_per_step(prepared, MEASURED_FRACTION * minutes * 60)
    else:
        mean = token_seconds * settings.batch.mean_tokens
    left = 0.97 * max(0.0, minutes * 60 - (time.monotonic() - began))  # about 3% goes to checkpoints
    validation_seconds = mean * prepared.num_held_out_tokens / settings.batch.mean_tokens * FORWARD_FRACTION
    steps, every = steps_in(left, mean, validation_seconds, settings.validation.every_steps)
    log(f"a step takes {mean:.3g} s: {counted(steps, 'step')} in the {duration(left)} left of {minutes:g} min")
    if steps < FEW_STEPS:
        advice = "more minutes= or a smaller preset"
        if settings.batch.tokens > SMALLEST_BATCH:
            advice = f"more minutes=, a smaller preset or fewer batch_tokens= (now {settings.batch.tokens:,})"
        log(f"note: a model learns little in {counted(steps, 'step')}; use {advice}")
    return configuration.with_overrides(settings, {"schedule.steps": steps, "validation.every_steps": every})


def steps_in(
    seconds: float, step_seconds: float, validation_seconds: float, every: int | None = None
) -> tuple[int, int]:
    """(steps, steps between validations) of a run that takes `seconds` in all.

    >>> steps_in(90, step_seconds=0.5, validation_seconds=0), steps_in(90, step_seconds=0.5, validation_seconds=3)
    ((180, 9), (162, 54))
    """
    if every is not None:
        return max(1, int(seconds / (step_seconds + validation_seconds / every))), every
    num = num_validations(seconds, validation_seconds)
    steps = max(1, int((seconds - num * validation_seconds) / step_seconds))
    return steps, steps_between(steps, num)


def mean_seconds_per_step(prepared: PreparedRun, max_seconds: float, num_timed: int = NUM_TIMED) -> float:
    """Mean over the two sequence lengths, on `num_timed` of the largest batches, in at most `max_seconds` each."""
    settings, data, num_steps = prepared.settings, prepared.settings.data, prepared.settings.schedule.steps
    switch = data.num_short_steps(num_steps)
    grown = round(settings.batch.growth_fraction * num_steps) if settings.batch.grows else 0

    def seconds_from(first: int) -> float:
        return seconds_per_step(prepared.job, settings, prepared.runtime, range(first, first + num_timed), max_seconds)

    short = seconds_from(max(0, min(grown, switch - num_timed))) if data.short_fraction > 0 else 0.0
    long = seconds_from(max(switch, grown)) if data.short_fraction < 1 else 0.0
    mean = data.short_fraction * short + (1 - data.short_fraction) * long
    return mean * settings.batch.mean_tokens / settings.batch.tokens
