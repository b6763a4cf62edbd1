"""The definition of an experiment in TOML: what is equal in all arms, what varies, what is measured, and the rule for
each claim. `docs/experiments.md` describes the format; `equal-compute.toml` is the shipped experiment.

experiment = read_experiment("equal-compute")      # a shipped name, or a path to a TOML file
experiment.arms[0].name
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hornbook.config import LARGEST_SEED, ValidatedSettings, check_name, from_dict, setting, with_overrides
from hornbook.data.sequences import SENTENCE_LAYOUTS
from hornbook.evaluation.minimal_pairs import DIRECTIONS
from hornbook.files import read_toml, shipped_or_file
from hornbook.runs.finetuning.published import settings_for
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.tasks.datasets import find_task
from hornbook.tasks.task import RegisteredTask

SHIPPED = Path(__file__).parent
MINIMAL_PAIRS = "minimal-pairs"  # the task of a set of pairs that models are scored on without training
SET_BY_RUNNER = ("schedule.steps", "checkpoint.keep_at", "runtime.seed", "model.vocab_size")


@dataclass(frozen=True)
class Equal(ValidatedSettings):
    """Settings shared by all arms."""

    flops: float = setting(
        0.0,
        "pre-training FLOPs of each arm, in the model convention; 0: measured (minutes_each=)",
        low=0,
        high=1e30,
    )
    words: float = setting(
        0.0,
        "words, separated by white space, that each arm reads in all, each as often as it is read; instead of flops",
        low=0,
        high=1e15,
    )
    corpus_words: float = setting(
        0.0, "most words, separated by white space, that the corpora may have; 0: any number", low=0, high=1e15
    )
    seeds: tuple[int, ...] = setting(
        (0,), "pre-training seeds; every arm is trained once with each", low=0, high=LARGEST_SEED
    )
    checkpoints: tuple[float, ...] = setting(
        (1.0,), "fractions of the FLOPs at which checkpoints are evaluated, ascending to 1", above=0, high=1
    )
    seed_deviation: float = setting(
        0.0,
        "standard deviation of the mean score between pre-training seeds, added to intervals if there is one seed",
        low=0,
        high=100,
    )
    pretraining: dict = field(default_factory=dict, metadata={"doc": "pre-training settings by dotted name"})
    finetuning: dict = field(default_factory=dict, metadata={"doc": "fine-tuning settings by dotted name"})

    def __post_init__(self) -> None:
        super().__post_init__()
        fractions = self.checkpoints
        if not fractions or sorted(set(fractions)) != list(fractions) or fractions[-1] != 1:
            raise ValueError(
                f"equal.checkpoints must ascend from above 0 to 1, such as [0.25, 0.5, 1.0], not {fractions}"
            )
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"equal.seeds must be one or more distinct seeds, not {self.seeds}")
        if self.flops and self.words:
            raise ValueError("equal.flops and equal.words both set the length of the training: give one of them")
        if taken := [name for name in SET_BY_RUNNER if name in self.pretraining]:
            raise ValueError(f"equal.pretraining cannot set {taken[0]}, which the experiment computes: leave it out")


@dataclass(frozen=True)
class Arm(ValidatedSettings):
    """One pre-training method: a preset with overrides, applied after those in `equal`."""

    name: str = setting("", "name of the arm, used in claims")
    preset: str = setting("", "preset of hornbook pretrain")
    label: str = setting("", "label in plots; defaults to the name")
    panels: tuple[str, ...] = setting(("Mean score",), "titles of the plot panels that show this arm")
    published: str = setting("", "published score to compare with, and its source")
    directions: dict = field(
        default_factory=dict,
        metadata={"doc": "how a hybrid arm reads the pairs of a task: causal (the default), bidirectional, or fused"},
    )
    settings: dict = field(default_factory=dict, metadata={"doc": "pre-training settings by dotted name"})

    @property
    def title(self) -> str:
        return self.label or self.name


@dataclass(frozen=True)
class TaskPlan(ValidatedSettings):
    """A task that every checkpoint is fine-tuned on, or minimal pairs that it is scored on without training."""

    name: str = setting("", "name of the task, used in results")
    task: str = setting("", "task of hornbook finetune, or minimal-pairs; defaults to the name")
    paths: tuple[str, ...] = setting((), "candidate paths under the folder of the data; the first that exists is used")
    metric: str = setting("", "metric that counts; defaults to the first metric of the task")
    seeds: tuple[int, ...] = setting((0, 1, 2), "fine-tuning seeds", low=0, high=LARGEST_SEED)
    split: Literal["as published", "by article"] = setting(
        "as published", "by article: train on half of the articles of the dev set, score on the other half"
    )
    settings: dict = field(
        default_factory=dict, metadata={"doc": "fine-tuning settings by dotted name, in addition to those in equal"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.paths:
            raise ValueError(f"task '{self.name}' has no paths: list where its data may be under the data folder")
        if self.is_zero_shot:
            if self.metric or self.settings or self.split != "as published":
                raise ValueError(f"task '{self.name}' is not fine-tuned on: remove metric, settings and split")
            object.__setattr__(self, "seeds", (0,))
            return
        if len(set(self.seeds)) < max(2, len(self.seeds)):
            raise ValueError(f"task '{self.name}' needs 2 or more distinct seeds for an interval, not {self.seeds}")
        if self.metric and self.metric not in self.registered.metrics:
            names = ", ".join(self.registered.metrics)
            raise ValueError(f"task '{self.name}' has no metric '{self.metric}': use one of {names}")
        if self.split == "by article" and not self.registered.task_class.example.kept_together:
            raise ValueError(f"task '{self.name}' has no articles: remove split, or set it to 'as published'")

    @property
    def is_zero_shot(self) -> bool:
        """Whether the models are scored as they are, by minimal pairs."""
        return self.task == MINIMAL_PAIRS

    @property
    def registered(self) -> RegisteredTask:
        return find_task(self.task or self.name)

    @property
    def metric_for_best(self) -> str:
        return "accuracy" if self.is_zero_shot else self.metric or self.registered.metrics[0]


@dataclass(frozen=True)
class Sentences(ValidatedSettings):
    """Held-out segment pairs for evaluating sentence heads, also on the task that a head was not trained for."""

    pairs: int = setting(0, "number of pairs per sentence task; 0: none", low=0, high=10_000_000)
    fit_pairs: int = setting(8192, "training pairs for the shared-word classifier", low=1, high=10_000_000)


@dataclass(frozen=True)
class Condition(ValidatedSettings):
    """Bounds on a metric. The condition holds if the interval of the metric is inside the bounds, does not hold if
    it is outside, and is not decided if the interval contains a bound."""

    description: str = setting("", "the condition in words")
    metric: Literal["score-difference", "score", "minutes", "sentence-head", "shared-words", "parameters"] = setting(
        "score-difference",
        "score difference, score, minutes of training and scoring, accuracy of the sentence head or of the shared-word "
        "classifier, or parameters in percent",
    )
    arm: str = setting("", "arm that the condition is about")
    minus: str = setting("", "score-difference: arm to compare with")
    over: str = setting("", "parameters: arm that counts as 100 percent")
    task: str = setting("", "score-difference and score: use this task only; default: the mean over all tasks")
    pairs: Literal["nsp", "sop"] = setting("nsp", "sentence-head and shared-words: kind of pairs")
    min: float | None = setting(None, "lower bound, exclusive; scores are in points out of 100")
    max: float | None = setting(None, "upper bound, exclusive")
    premise: bool = setting(
        False, "if this does not hold, other conditions of the claim on the same arm are not decided"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.min is None and self.max is None:
            raise ValueError(f"the condition '{self.description}' has no bound: set min, max, or both")
        needed = {"score": ("arm",), "minutes": ("arm",), "sentence-head": ("arm",), "shared-words": ()}
        needed |= {"score-difference": ("arm", "minus"), "parameters": ("arm", "over")}
        for name in ("arm", "minus", "over"):
            if bool(getattr(self, name)) != (name in needed[self.metric]):
                expected = " and ".join(needed[self.metric]) or "none of arm, minus and over"
                raise ValueError(f"the condition '{self.description}' has metric {self.metric}: set {expected}")

    @property
    def arms(self) -> set[str]:
        return {self.arm, self.minus, self.over} - {""}


@dataclass(frozen=True)
class Claim(ValidatedSettings):
    """A published claim. It holds if all its conditions hold. It does not hold if a condition other than a
    premise fails, unless a premise on its arm does not hold."""

    name: str = setting("", "short name")
    description: str = setting("", "the claim in one sentence")
    published: str = setting("", "published numbers behind the claim, with their source")
    would_decide: str = setting("", "what would decide the claim, reported if it is not decided")
    conditions: tuple[Condition, ...] = setting((), "conditions that must all hold")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.conditions:
            raise ValueError(f"the claim '{self.name}' has no conditions: add [[claims.conditions]]")

    @property
    def arms(self) -> set[str]:
        return set().union(*(each.arms for each in self.conditions))


@dataclass(frozen=True)
class Experiment(ValidatedSettings):
    name: str = setting("", "name of the experiment, used in file names")
    title: str = setting("", "title of the report page")
    about: str = setting("", "description of the comparison, in a few sentences")
    equal: Equal = field(default_factory=Equal)
    arms: tuple[Arm, ...] = setting((), "pre-training methods to compare")
    tasks: tuple[TaskPlan, ...] = setting((), "tasks that every checkpoint is fine-tuned on")
    sentences: Sentences = field(default_factory=Sentences)
    claims: tuple[Claim, ...] = setting((), "claims to judge")

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, group in (("arms", self.arms), ("tasks", self.tasks), ("claims", self.claims)):
            names = [each.name for each in group]
            for name in names:
                check_name(name, f" in {what}")
            if twice := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"{what} has the name '{twice[0]}' twice: use distinct names")
        check_name(self.name)
        if len(self.arms) < self.fewest_arms:
            raise ValueError("an experiment needs at least two arms: add [[arms]]")
        tasks = {task.name: task for task in self.tasks}
        for arm in self.arms:
            if unknown := [name for name in arm.directions if name not in tasks or not tasks[name].is_zero_shot]:
                raise ValueError(f"arm '{arm.name}' reads '{unknown[0]}', which is no task with task = minimal-pairs")
            if unknown := [each for each in arm.directions.values() if each not in DIRECTIONS]:
                raise ValueError(f"arm '{arm.name}' reads '{unknown[0]}': use {', '.join(DIRECTIONS)}")
            self.settings_of(arm)  # raises for unknown settings
        self._refuse_unknown_arms()

    @property
    def fewest_arms(self) -> int:
        """Two, which are compared, unless the score of an arm is compared with a fixed bound."""
        return 1 if any(each.metric == "score" for claim in self.claims for each in claim.conditions) else 2

    def _refuse_unknown_arms(self) -> None:
        arms, tasks = {arm.name for arm in self.arms}, {task.name for task in self.tasks}
        for condition in (condition for claim in self.claims for condition in claim.conditions):
            subject = f"the condition '{condition.description}'"
            for name in sorted(condition.arms - arms):
                raise ValueError(f"{subject} names an unknown arm '{name}': use {', '.join(sorted(arms))}")
            if condition.task and condition.task not in tasks:
                raise ValueError(f"{subject} names an unknown task '{condition.task}'")
            if condition.metric in ("sentence-head", "shared-words") and not self.sentences.pairs:
                raise ValueError(f"{subject} needs pairs: set pairs in [sentences]")
            if (
                condition.metric == "sentence-head"
                and self.settings_of(self.arm(condition.arm)).layout not in SENTENCE_LAYOUTS
            ):
                raise ValueError(f"{subject} needs a sentence head, but {condition.arm} has none")

    def with_arms(self, names: Sequence[str]) -> "Experiment":
        """The experiment with only these arms, in file order, and the claims about them; `about` lists the others."""
        known_arms = [arm.name for arm in self.arms]
        if unknown := [name for name in names if name not in known_arms]:
            raise ValueError(f"there is no arm '{unknown[0]}' in {self.name}: use {', '.join(known_arms)}")
        arms = tuple(arm for arm in self.arms if arm.name in names)
        if len(arms) < self.fewest_arms:
            raise ValueError("an experiment needs at least two arms: name another one")
        claims = tuple(claim for claim in self.claims if claim.arms <= set(names))
        left_out = [name for name in known_arms if name not in names]
        not_judged = [claim.name for claim in self.claims if claim not in claims]
        note = f"Arms left out: {', '.join(left_out)}." if left_out else ""
        note += f" Claims that need them are not judged: {', '.join(not_judged)}." if not_judged else ""
        return dataclasses.replace(self, arms=arms, claims=claims, about=_append(self.about, note))

    def with_settings(self, overrides: Mapping[str, Any]) -> "Experiment":
        """The experiment with overrides of the pre-training settings of every arm; `about` lists them."""
        note = f"Overrides for every arm: {', '.join(f'{name}={value}' for name, value in overrides.items())}."
        about = _append(self.about, note)
        if len(self.arms) == 1:
            arm = dataclasses.replace(self.arms[0], settings=self.arms[0].settings | dict(overrides))
            return dataclasses.replace(self, arms=(arm,), about=about)
        for arm in self.arms:
            if taken := [name for name in overrides if name in arm.settings]:
                raise ValueError(
                    f"{taken[0]} is set by arm {arm.name} and cannot be overridden: change it in a copy of the file"
                )
        return with_overrides(self, {"equal.pretraining": self.equal.pretraining | dict(overrides), "about": about})

    def on_device(self, device: str) -> "Experiment":
        """The experiment with pre-training and fine-tuning on this device."""
        override = {"runtime.device": device}
        pretraining, finetuning = self.equal.pretraining | override, self.equal.finetuning | override
        return with_overrides(self, {"equal.pretraining": pretraining, "equal.finetuning": finetuning})

    def with_seeds(self, num: int) -> "Experiment":
        """The experiment with `num` pre-training seeds: those of the file, then the smallest unused numbers."""
        more = (seed for seed in itertools.count() if seed not in self.equal.seeds)
        return with_overrides(self, {"equal.seeds": (*self.equal.seeds, *itertools.islice(more, num))[:num]})

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def task(self, name: str) -> TaskPlan:
        return next(task for task in self.tasks if task.name == name)

    def settings_of(self, arm: Arm) -> PretrainSettings:
        """The pre-training settings of an arm, without the number of steps."""
        return preset_settings(arm.preset, self.equal.pretraining | arm.settings)


def read_experiment(name: str | Path) -> Experiment:
    """Reads a shipped experiment by name, or one from a TOML file."""
    path = shipped_or_file(name, SHIPPED, "experiment")
    return parse_experiment(read_toml(path), str(path))


def _append(about: str, note: str) -> str:
    return f"{about.strip()} {note}".strip()


def parse_experiment(values: Mapping[str, Any], where: str) -> Experiment:
    """Builds an experiment from parsed TOML and validates all names and settings; errors start with `where`."""
    try:
        experiment = from_dict(Experiment, dict(_flat_settings(values)))
        for task in (task for task in experiment.tasks if not task.is_zero_shot):
            settings_for(task.registered, None, experiment.equal.finetuning | task.settings)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: {error}") from None
    return experiment


def _flat_settings(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Flattens groups of settings to dotted names, because TOML parses `model.width = 256` as nested tables."""
    for name, value in values.items():
        if name in ("settings", "pretraining", "finetuning") and isinstance(value, Mapping):
            yield name, dict(_dotted(value))
        elif isinstance(value, Mapping):
            yield name, dict(_flat_settings(value))
        elif isinstance(value, list) and all(isinstance(each, Mapping) for each in value):
            yield name, [dict(_flat_settings(each)) for each in value]
        else:
            yield name, value


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _dotted(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
