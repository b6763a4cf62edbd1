"""Values resolved once, when an experiment starts, and recorded in `OUT/run.json`: the FLOPs of every arm, and the
number of steps that this gives.

The FLOPs come from the file or, with `--minutes-each M`, from a measurement: a few steps of every arm are timed on the
current device, and each arm gets the FLOPs per second of the slowest arm times M minutes, less 3% for validation and
saving. So every pre-training run ends within M minutes on that device, the faster ones earlier. Stored FLOPs are never
measured again: on another device the same FLOPs may take a different time.

The steps of an arm are the FLOPs divided by the FLOPs of one step: FLOPs per token (`model` convention, at the maximum
length) times the actual number of tokens per batch, averaged over some batches. Layouts fill their sequences
differently, and arms would otherwise differ by some percent of compute. The FLOPs actually spent are computed from all
tokens at the end.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hornbook import config as configuration
from hornbook.evaluation.experiments.definition import Arm, Experiment, parse_experiment
from hornbook.lifecycle.requests import changed_values
from hornbook.lifecycle.run_folder import RECORD, Log, RunFolder, require
from hornbook.runs.pretraining.batches import BatchMaker, Corpora, open_corpora
from hornbook.runs.pretraining.pretrain import measured_pace
from hornbook.runs.pretraining.settings import PretrainSettings

NUM_COUNTED_BATCHES = 128  # per length, to estimate tokens per batch to about 0.1%
SAME_FLOPS = 1e-4  # relative tolerance, so that a rounded number from a report counts as the same
USABLE_FRACTION = 0.97  # of the minutes; the rest is for validation and saving
NAMED_GROUPS = ("arms", "tasks")  # groups whose entries may be added and removed
MAY_CHANGE = ("label", "panels", "published", "seed_deviation", "flops", "seeds", "paths", "corpus_words")  # settings


@dataclass(frozen=True)
class ArmBudget:
    """The number of steps in which an arm spends the FLOPs, and the mean FLOPs and tokens per step."""

    steps: int
    step_flops: float
    step_tokens: float
    step_words: float = 0.0  # separated by white space; 0 if the corpora do not record them

    def step_at(self, fraction: float) -> int:
        """The step at which this fraction of the FLOPs is spent."""
        return max(1, round(fraction * self.steps))

    def flops_at(self, fraction: float) -> float:
        return self.step_at(fraction) * self.step_flops


@dataclass(frozen=True)
class ResolvedExperiment:
    experiment: Experiment
    flops: float
    arms: dict[str, ArmBudget]
    minutes_each: float | None
    compile: str | None  # runtime.compile of every arm; None: as in the file
    device: str

    @property
    def amount(self) -> str:
        """Describes the length of each pre-training run, such as `1e+15 FLOPs`."""
        if self.experiment.equal.words:
            return f"{self.experiment.equal.words:,.0f} words"
        return f"{self.flops:.3g} FLOPs"

    def overrides_for(self, arm: Arm) -> dict[str, Any]:
        """All overrides of the preset for the pre-training of an arm."""
        budget, equal = self.arms[arm.name], self.experiment.equal
        overrides = {
            "checkpoint.keep": 1,
            "checkpoint.keep_optimizer": False,
            "runtime.tensorboard": False,
            **equal.pretraining,
            **arm.settings,
            "schedule.steps": budget.steps,
            "checkpoint.keep_at": tuple(sorted({budget.step_at(fraction) for fraction in equal.checkpoints})),
        }
        return overrides if self.compile is None else overrides | {"runtime.compile": self.compile}


def check_record(run: dict[str, Any]) -> None:
    """Reads the values that a resumed experiment needs."""
    require(run, "settings.arms", "measured", "compile", "device", "minutes_each", "inputs.corpus_weights")
    run["request"].items(), float(run["flops"]), list(run["inputs"]["corpora"]), run["inputs"]["data"].items()
    {name: ArmBudget(**each) for name, each in run["arms"].items()}


def resolve(
    folder: RunFolder,
    run: dict[str, Any] | None,
    experiment: Experiment,
    corpora: list[str],
    data: dict[str, str],
    minutes_each: float | None,
    log: Log,
    options: Mapping[str, Any] | None = None,
) -> ResolvedExperiment:
    """Resolves the experiment and records it, with the values in the record `run` of an experiment to resume.

    Arms and tasks may be added later but not changed. `data`: fingerprint of the data of each task.
    """
    corpora_of = {arm.name: open_corpora(corpora, experiment.settings_of(arm)) for arm in experiment.arms}
    first = next(iter(corpora_of.values()))
    fingerprints, weights = [corpus.fingerprint for corpus, _ in first], [weight for _, weight in first]
    before = {} if run is None else run["inputs"]
    words = words_per_token(experiment, first)
    if minutes_each is not None and experiment.equal.words:
        raise ValueError("minutes_each measures FLOPs, but equal.words sets the length of the training: leave it out")
    if run is not None:
        _refuse_other_inputs(folder, before, fingerprints, weights, data)
        _refuse_changes(folder.path, run, experiment, minutes_each)
        decided = {name: run[name] for name in ("flops", "minutes_each", "measured", "compile", "device")}
    elif minutes_each is not None:
        decided = _measured(experiment, corpora_of, corpora, minutes_each, log)
    else:
        decided = {"flops": experiment.equal.flops, "minutes_each": None, "measured": {}, "compile": None, "device": ""}
    flops = decided["flops"]
    if not flops and not experiment.equal.words:
        raise ValueError(
            "the training FLOPs of an arm are not set: give flops= or minutes_each=, or set equal.flops in the file of "
            "the experiment"
        )
    arms = {name: ArmBudget(**each) for name, each in (run["arms"] if run else {}).items()}
    for arm in experiment.arms:
        if arm.name not in arms:
            arms[arm.name] = _budget(experiment, arm, corpora_of[arm.name], flops, words)
        _refuse_too_many_words(experiment, arm, arms[arm.name])
    now = asdict(experiment)
    folder.write_record(
        dict(options or {}),
        {"corpora": fingerprints, "corpus_weights": weights, "data": before.get("data", {}) | data},
        experiment,
        # Arms and tasks that were removed from the file are kept, as are their jobs.
        left_out={group: _left_out(group, run or {}, now) for group in NAMED_GROUPS},
        **decided,
        arms={name: vars(budget) for name, budget in arms.items()},
    )
    return ResolvedExperiment(experiment, flops, arms, decided["minutes_each"], decided["compile"], decided["device"])


def _budget(experiment: Experiment, arm: Arm, corpora: Corpora, flops: float, words: float) -> ArmBudget:
    """The steps of an arm that spend the FLOPs, or read the words of the experiment; `words` are those per token."""
    step_flops, step_tokens = flops_per_step(experiment.settings_of(arm), corpora)
    step_words = step_tokens * words
    # Never more than the words that are allowed.
    steps = int(experiment.equal.words / step_words) if experiment.equal.words else round(flops / step_flops)
    return ArmBudget(max(1, steps), step_flops, step_tokens, step_words)


def words_per_token(experiment: Experiment, corpora: Corpora) -> float:
    """Words, separated by white space, per token of the corpora, without special tokens; 0 if they are not recorded and
    not needed. Raises if the corpora have more words than the experiment allows."""
    equal = experiment.equal
    try:
        words = [corpus.num_words for corpus, _ in corpora]
    except ValueError:
        if equal.words or equal.corpus_words:
            raise
        return 0.0
    if equal.corpus_words and sum(words) > equal.corpus_words:
        raise ValueError(
            f"the corpora have {sum(words):,} words, more than the {equal.corpus_words:,.0f} of equal.corpus_words: "
            "build a smaller corpus"
        )
    weights = np.array([weight for _, weight in corpora])
    per_token = np.array([num / corpus.num_tokens for num, (corpus, _) in zip(words, corpora, strict=True)])
    return float(weights @ per_token / weights.sum())


def _refuse_too_many_words(experiment: Experiment, arm: Arm, budget: ArmBudget) -> None:
    allowed, read = experiment.equal.words, budget.steps * budget.step_words
    if allowed and read > allowed * (1 + SAME_FLOPS):
        raise ValueError(
            f"{arm.name} would read {read:,.0f} words in {budget.steps:,} steps, more than the {allowed:,.0f} of "
            "equal.words: lower batch.tokens, or raise equal.words in a copy of the file"
        )


def flops_per_step(settings: PretrainSettings, corpora: Corpora) -> tuple[float, float]:
    """(FLOPs, tokens) of a step on average: actual tokens per batch, at the FLOPs per token of the maximum length."""
    settings = configuration.with_overrides(settings, {"model.vocab_size": corpora[0][0].tokenizer.vocab_size})
    data, flops, tokens = settings.data, 0.0, 0.0
    for length, sampler in BatchMaker(settings, corpora).samplers.items():
        is_only = data.short_length == data.length
        fraction = 1.0 if is_only else data.short_fraction if length == data.short_length else 1 - data.short_fraction
        num_sequences = max(1, settings.batch.tokens // length)
        counts = [sampler.batch(i, num_sequences).num_tokens for i in range(NUM_COUNTED_BATCHES)]
        num_tokens = float(np.mean(counts)) * settings.batch.mean_tokens / settings.batch.tokens
        flops += fraction * num_tokens * settings.flops_per_token(length)
        tokens += fraction * num_tokens
    return flops, tokens


def _measured(
    experiment: Experiment,
    corpora_of: dict[str, Corpora],
    corpora: list[str],
    minutes: float,
    log: Log,
) -> dict[str, Any]:
    """The FLOPs that fit into the minutes, as recorded: with the seconds per step of each arm (`measured`)."""
    seconds, rates, runtime = {}, {}, None
    for index, arm in enumerate(experiment.arms, 1):
        log(f"measuring the training speed of {arm.name} ({index} of {len(experiment.arms)}) ...")
        overrides = experiment.equal.pretraining | arm.settings
        seconds[arm.name], runtime = measured_pace(arm.preset, corpora, minutes, overrides)
        step_flops, _ = flops_per_step(experiment.settings_of(arm), corpora_of[arm.name])
        rates[arm.name] = step_flops / seconds[arm.name]
    slowest = min(rates, key=rates.get)
    flops = float(f"{USABLE_FRACTION * minutes * 60 * rates[slowest]:.3g}")
    log(f"{flops:.3g} FLOPs per arm: what the slowest arm, {slowest}, does in {minutes:g} minutes")
    compile_ = "yes" if runtime.compiles else "no"
    return {
        "flops": flops,
        "minutes_each": minutes,
        "measured": seconds,
        "compile": compile_,
        "device": runtime.description,
    }


def _left_out(group: str, record: dict, now: dict) -> list[dict]:
    """The entries that were in an earlier version of the file and are not in it now."""
    current = {entry["name"] for entry in now[group]}
    before = {entry["name"]: entry for entry in _recorded_entries(group, record)}
    return [entry for name, entry in before.items() if name not in current]


def _recorded_entries(group: str, record: dict) -> list[dict]:
    """The entries of a group in the record, also those that were removed from the file since."""
    return [*record.get("settings", {}).get(group, []), *record.get("left_out", {}).get(group, [])]


def _refuse_other_inputs(
    folder: RunFolder, recorded: dict, fingerprints: list[str], weights: list[float], data: dict[str, str]
) -> None:
    """Raises if the corpora or the data of a task changed: all scores must be on the same examples."""
    folder.refuse_other_input("the corpus", recorded["corpora"], fingerprints)
    before = recorded["corpus_weights"]
    if [each / sum(before) for each in before] != [each / sum(weights) for each in weights]:
        ratio = ":".join(f"{each:g}" for each in before)
        raise ValueError(f"{folder.path} was started with corpus weights {ratio}: pass those, or choose another folder")
    for name, now in data.items():
        folder.refuse_other_input(f"the data of {name}", recorded["data"].get(name, now), now)


def _refuse_changes(out: Path, record: dict, experiment: Experiment, minutes_each: float | None) -> None:
    """Raises if a setting changed that finished jobs depend on."""
    if minutes_each is not None and minutes_each != record["minutes_each"]:
        minutes, flops = record["minutes_each"], record["flops"]
        started = f"{minutes:g} minutes for each arm" if minutes else f"{flops:g} FLOPs"
        raise ValueError(f"{out} was started with {started}: leave out minutes_each=, or choose another folder")
    all_entries = {group: _recorded_entries(group, record) for group in NAMED_GROUPS}
    before = parse_experiment(record["settings"] | all_entries, str(out / RECORD))
    if record["minutes_each"] is None and not math.isclose(experiment.equal.flops, record["flops"], rel_tol=SAME_FLOPS):
        started, now = f"{record['flops']:g} FLOPs", experiment.equal.flops
        raise ValueError(
            f"{out} was started with {started}, not {now:g}: give "
            f"{record['flops']:g} as flops=, or choose another folder"
        )
    fixed, now = _fixed_settings(before), _fixed_settings(experiment)
    changes = changed_values(fixed, {name: group for name, group in now.items() if name in fixed})
    if changes:
        name, old, new = changes[0]
        raise ValueError(
            f"{name} is {'not set' if new is None else new}, not {'unset' if old is None else old} as in {out}: "
            "restore it, add a new entry, or choose another folder"
        )


def _fixed_settings(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """The settings that determine the results of jobs; the others only affect verdicts and reports. An arm or a task
    is a group of its own, so that it may be added or removed."""
    values = asdict(experiment)
    groups = {"equal": values["equal"], "sentences": values["sentences"]}
    groups |= {f"{group}.{each['name']}": each for group in NAMED_GROUPS for each in values[group]}
    fixed = {name: {key: each[key] for key in each if key not in MAY_CHANGE} for name, each in groups.items()}
    return json.loads(json.dumps(fixed))  # with lists for tuples, as recorded
