"""What is decided once, when an experiment begins, and written down in `OUT/experiment.json`: the FLOPs that every arm
gets, and what they come to in steps.

The FLOPs are those of the file or, with `--minutes-each M`, measured: a few steps of every arm are timed on the device
that is there, and the slowest arm's FLOPs a second times M minutes, less 3% for validating and saving, is what each arm
gets. So every pre-training ends within M minutes on that device, and the faster ones earlier. A number that is written
down is never measured again: on another device the same FLOPs take as long as they take.

An arm's steps are the FLOPs over those of a step: the FLOPs a token (`model` convention, at the length limit) times the
tokens that its batches really hold, counted over some of them. Layouts fill their sequences differently, and arms
would else differ by some percent of compute. What was spent is counted by all tokens in the end.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import hornbook
from hornbook import config as configuration
from hornbook.experiments.definition import Arm, Experiment, experiment_in
from hornbook.files import read_json, write_json
from hornbook.pretraining.batches import BatchMaker, Corpora, folder_and_weight, open_corpora
from hornbook.pretraining.run import measured_pace
from hornbook.pretraining.settings import PretrainSettings

FILE = "experiment.json"
NUM_COUNTED = 128  # batches of each length whose tokens are counted: to about a thousandth
SAME_FLOPS = 1e-4  # relative: a number that was read off a page is the one that was given
SPARE = 0.97  # of the minutes; the rest goes to validating and saving
DECIDE_PIECES = ("equal", "arms", "tasks", "sentences")  # of an experiment; the rest only judges and shows
NAMED = ("arms", "tasks")  # of which pieces are done one by one
FREE = ("label", "panels", "published", "seed_deviation", "flops", "seeds", "places")  # may change on the way


@dataclass(frozen=True)
class ArmBudget:
    """An arm's share of the whole: the same FLOPs in its own number of steps."""

    steps: int
    step_flops: float
    step_tokens: float

    def step_at(self, share: float) -> int:
        """The step at which this share of the FLOPs is spent."""
        return max(1, round(share * self.steps))

    def flops_at(self, share: float) -> float:
        return self.step_at(share) * self.step_flops


@dataclass(frozen=True)
class ResolvedExperiment:
    experiment: Experiment
    flops: float
    arms: dict[str, ArmBudget]
    minutes_each: float | None
    compile: str | None  # of every arm's runtime.compile; none: as the file says
    measured: dict[str, float]  # seconds a step, where they were measured
    device: str

    def changes_of(self, arm: Arm) -> dict[str, Any]:
        """All settings of an arm's pre-training that are not its preset's."""
        budget, equal = self.arms[arm.name], self.experiment.equal
        own = {
            "checkpoint.keep": 1,
            "checkpoint.keep_optimizer": False,
            "runtime.tensorboard": False,
            **equal.pretraining,
            **arm.settings,
            "schedule.steps": budget.steps,
            "checkpoint.keep_at": tuple(sorted({budget.step_at(share) for share in equal.checkpoints})),
        }
        return own if self.compile is None else own | {"runtime.compile": self.compile}


def decide(
    out: Path,
    experiment: Experiment,
    corpora: list[str],
    data: dict[str, str],
    minutes_each: float | None,
    log: Callable[[str], None],
    options: Mapping[str, Any] | None = None,
) -> ResolvedExperiment:
    """Decided now and written down, or as it was written down. Arms and tasks may be added later, not changed. `data`
    has the fingerprint of each task's."""
    opened = {name: open_for(experiment.settings_of(experiment.arm(name)), corpora) for name in _names(experiment)}
    read_from = next(iter(opened.values()))
    fingerprints, weights = [corpus.fingerprint for corpus, _ in read_from], [weight for _, weight in read_from]
    written = read_json(out / FILE) if (out / FILE).exists() else None
    if written is not None:
        _refuse_other_corpora(out, written, fingerprints, weights)
        _refuse_other(out, written, experiment, minutes_each)
        _refuse_other_data(out, written, data)
        flops, measured, compile_, device = (written[name] for name in ("flops", "measured", "compile", "device"))
        minutes_each = written["minutes_each"]
    elif minutes_each is not None:
        flops, measured, compile_, device = _measured(experiment, opened, corpora, minutes_each, log)
    else:
        flops, measured, compile_, device = experiment.equal.flops, {}, None, ""
    if not flops:
        raise ValueError("the experiment does not say equal.flops: give --minutes-each, or set them in its file")
    arms = {name: ArmBudget(**each) for name, each in (written["arms"] if written else {}).items()}
    for name in _names(experiment):
        if name not in arms:
            step_flops, step_tokens = flops_per_step(experiment.settings_of(experiment.arm(name)), opened[name])
            arms[name] = ArmBudget(max(1, round(flops / step_flops)), step_flops, step_tokens)
    decided = ResolvedExperiment(experiment, flops, arms, minutes_each, compile_, measured, device)
    about = _about(decided, written or {}) | {"corpora": fingerprints, "corpus_weights": weights}
    about["data"] = (written or {}).get("data", {}) | data
    about["options"] = dict(options or {})
    if written != about:
        write_json(out / FILE, about)
    return decided


def _names(experiment: Experiment) -> list[str]:
    return [arm.name for arm in experiment.arms]


def open_for(settings: PretrainSettings, corpora: list[str]) -> Corpora:
    return open_corpora([folder_and_weight(str(each)) for each in corpora], settings)


def flops_per_step(settings: PretrainSettings, opened: Corpora) -> tuple[float, float]:
    """(FLOPs, tokens) of a mean step: what its batches really hold, at the FLOPs of the length limit."""
    settings = configuration.with_overrides(settings, {"model.vocab_size": opened[0][0].tokenizer.vocab_size})
    data, flops, tokens = settings.data, 0.0, 0.0
    for length, examples in BatchMaker(settings, opened).examples.items():
        is_only = data.short_length == data.length
        share = 1.0 if is_only else data.short_fraction if length == data.short_length else 1 - data.short_fraction
        num_sequences = max(1, settings.batch.tokens // length)
        held = float(np.mean([examples.batch(number, num_sequences).num_tokens for number in range(NUM_COUNTED)]))
        held *= settings.batch.mean_tokens / settings.batch.tokens
        flops += share * held * settings.flops_per_token(length)
        tokens += share * held
    return flops, tokens


def _measured(
    experiment: Experiment, opened: dict[str, Corpora], corpora: list[str], minutes: float, log: Callable[[str], None]
) -> tuple[float, dict[str, float], str, str]:
    """(FLOPs that fit, seconds a step of each arm, whether they compile, device)."""
    seconds, rates, runtime = {}, {}, None
    for number, arm in enumerate(experiment.arms, 1):
        log(f"measuring how fast {arm.name} trains ({number} of {len(experiment.arms)}) ...")
        overrides = experiment.equal.pretraining | arm.settings
        seconds[arm.name], runtime = measured_pace(arm.preset, corpora, minutes, overrides)
        step_flops, _ = flops_per_step(experiment.settings_of(arm), opened[arm.name])
        rates[arm.name] = step_flops / seconds[arm.name]
    slowest = min(rates, key=rates.get)
    flops = float(f"{SPARE * minutes * 60 * rates[slowest]:.3g}")
    log(f"{flops:.3g} FLOPs each: what {slowest}, the slowest, does in {minutes:g} minutes")
    return flops, seconds, "yes" if runtime.compiles else "no", runtime.reason


def _about(decided: ResolvedExperiment, written: dict) -> dict[str, Any]:
    """What is decided, as it is written down. Arms and tasks that the file no longer has stay: their pieces do too."""
    experiment = configuration.to_dict(decided.experiment)
    return {
        "hornbook": hornbook.__version__,
        "experiment": experiment,
        "left_out": {group: _left_out(group, written, experiment) for group in NAMED},
        "flops": decided.flops,
        "minutes_each": decided.minutes_each,
        "measured": decided.measured,
        "compile": decided.compile,
        "device": decided.device,
        "arms": {name: vars(budget) for name, budget in decided.arms.items()},
    }


def _left_out(group: str, written: dict, now: dict) -> list[dict]:
    """Of those that were ever in the file, the ones that are not."""
    before = [*written.get("experiment", {}).get(group, []), *written.get("left_out", {}).get(group, [])]
    return list({each["name"]: each for each in before if each["name"] not in {e["name"] for e in now[group]}}.values())


def _refuse_other_corpora(out: Path, written: dict, fingerprints: list[str], weights: list[float]) -> None:
    if fingerprints != written["corpora"]:
        raise ValueError(
            f"--corpus is not the corpus that {out} began with: put that one back, or choose another --out"
        )
    before = written.get("corpus_weights", weights)
    if [each / sum(before) for each in before] != [each / sum(weights) for each in weights]:
        shown = ":".join(f"{each:g}" for each in before)
        raise ValueError(f"{out} was begun with corpora mixed {shown}: give them so, or choose another --out")


def _refuse_other(out: Path, written: dict, experiment: Experiment, minutes_each: float | None) -> None:
    """Pieces that are done stay right: all that decides them is the same."""
    if minutes_each is not None and minutes_each != written["minutes_each"]:
        began = (
            f"--minutes-each {written['minutes_each']:g}" if written["minutes_each"] else _as_option(written["flops"])
        )
        raise ValueError(f"{out} was begun with {began}: leave --minutes-each out, or choose another --out")
    every = {group: [*written["experiment"][group], *written.get("left_out", {}).get(group, [])] for group in NAMED}
    before = configuration.to_dict(experiment_in(written["experiment"] | every, str(out / FILE)))
    now = configuration.to_dict(experiment)
    if written["minutes_each"] is None and not math.isclose(
        now["equal"]["flops"], written["flops"], rel_tol=SAME_FLOPS
    ):
        began = _as_option(written["flops"])
        raise ValueError(
            f"{out} was begun with {began}, not {now['equal']['flops']:g}: give {began}, or choose another --out"
        )
    for group in DECIDE_PIECES:
        pairs = (
            [(before[group], now[group])] if isinstance(now[group], dict) else _same_names(before[group], now[group])
        )
        for old, new in pairs:
            for name in new:
                if name not in FREE and old[name] != new[name]:
                    whose = f"{group} '{new['name']}'" if "name" in new else group
                    raise ValueError(
                        f"of {whose} {_difference(name, old[name], new[name])}, as {out} was begun with: keep it, name "
                        "a new one beside it, or choose another --out"
                    )


def _as_option(flops: float) -> str:
    return f"--flops {flops:g}"


def _difference(name: str, old: Any, new: Any) -> str:
    """`pretraining optimizer.lr is 0.002 and not 0.001`, of the first setting that differs."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return f"{name} is {new} and not {old}"
    key = next(each for each in [*old, *new] if old.get(each) != new.get(each))
    return f"{name} {key} is {new.get(key, 'not said')} and not {old.get(key, 'left unsaid')}"


def _refuse_other_data(out: Path, written: dict, data: dict[str, str]) -> None:
    """Scores of one task are of one set of examples."""
    for name, now in data.items():
        if written.get("data", {}).get(name, now) != now:
            raise ValueError(
                f"the data of {name} is not what {out} began with: put that back under --data, or choose another --out"
            )


def _same_names(before: tuple[dict, ...], now: tuple[dict, ...]) -> list[tuple[dict, dict]]:
    old = {each["name"]: each for each in before}
    return [(old[each["name"]], each) for each in now if each["name"] in old]
