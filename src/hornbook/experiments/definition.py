"""An experiment as a person writes it down: what is equal, what varies, what is measured, and by which rule each claim
is judged. `docs/experiments.md` goes through the one that is shipped, `equal-compute.toml`.

experiment = read_experiment("equal-compute")      # by its name, or a path to a file of one's own
experiment.arms[0].name
"""

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from hornbook.config import LARGEST_SEED, Typed, from_dict, setting
from hornbook.data.examples import LABELLED
from hornbook.finetuning.settings import settings_for
from hornbook.pretraining.settings import PretrainSettings, preset_settings
from hornbook.tasks.datasets import KnownDataSet, known

SHIPPED = Path(__file__).parent
NAME = re.compile(r"[a-z0-9]+(?:[.-][a-z0-9]+)*")  # of an arm or task: it becomes a part of file names
OF_THE_RUNNER = ("schedule.steps", "checkpoint.keep_at", "runtime.seed", "model.vocab_size")


@dataclass(frozen=True)
class Equal(Typed):
    """What is the same in every arm."""

    flops: float = setting(
        0.0, "of each pre-training, in the model convention; 0 leaves it to --minutes-each", low=0, high=1e30
    )
    seeds: tuple[int, ...] = setting(
        (0,), "of pre-training: every arm is trained once with each", low=0, high=LARGEST_SEED
    )
    checkpoints: tuple[float, ...] = setting(
        (1.0,), "shares of the FLOPs at which the weights are measured; the last 1", above=0, high=1
    )
    seed_deviation: float = setting(
        0.0,
        "deviation of the mean score between pre-training seeds, counted in where only one seed was trained",
        low=0,
        high=100,
    )
    pretraining: dict = field(default_factory=dict, metadata={"doc": "settings of pre-training by dotted name"})
    finetuning: dict = field(default_factory=dict, metadata={"doc": "settings of fine-tuning by dotted name"})

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = self.checkpoints
        if not shares or sorted(set(shares)) != list(shares) or shares[0] <= 0 or shares[-1] != 1:
            raise ValueError(f"equal.checkpoints must rise from above 0 to 1, such as [0.25, 0.5, 1.0], not {shares}")
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"equal.seeds must name one seed or more, each once, not {self.seeds}")
        if self.flops < 0:
            raise ValueError(f"equal.flops must be above 0, not {self.flops:g}")
        if taken := [name for name in OF_THE_RUNNER if name in self.pretraining]:
            raise ValueError(f"equal.pretraining cannot set {taken[0]}, which follows from the rest: leave it out")


@dataclass(frozen=True)
class Arm(Typed):
    """One way of pre-training: a preset and what is changed in it, after what is equal."""

    name: str = setting("", "by which claims speak of it")
    preset: str = setting("", "of hornbook pretrain")
    label: str = setting("", "in pictures; none: its name")
    panels: tuple[str, ...] = setting(("Mean score",), "titles of the pictures in which it is a line")
    published: str = setting("", "a figure to stand beside, and whose it is")
    settings: dict = field(default_factory=dict, metadata={"doc": "settings of pre-training by dotted name"})

    @property
    def words(self) -> str:
        return self.label or self.name


@dataclass(frozen=True)
class TaskPlan(Typed):
    """A task that every checkpoint is fine-tuned on."""

    name: str = setting("", "by which the results speak of it")
    task: str = setting("", "as hornbook finetune takes it; none: the name")
    places: tuple[str, ...] = setting((), "where under --data it may lie; the first that is there is taken")
    measure: str = setting("", "the score that counts; none: the task's own first")
    seeds: tuple[int, ...] = setting((0, 1, 2), "of fine-tuning", low=0, high=LARGEST_SEED)
    parts: Literal["as published", "by article"] = setting(
        "as published", "by article: trained on half of the dev set's articles, scored on the others"
    )
    settings: dict = field(
        default_factory=dict, metadata={"doc": "settings of fine-tuning by dotted name, beside those that are equal"}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.places:
            raise ValueError(f"task '{self.name}' has no places: name the folder under --data that holds it")
        if len(set(self.seeds)) < max(2, len(self.seeds)):
            raise ValueError(f"task '{self.name}' needs 2 seeds or more, each once, for an interval; not {self.seeds}")
        if self.measure and self.measure not in self.known.measures:
            there = ", ".join(self.known.measures)
            raise ValueError(f"task '{self.name}' has no measure '{self.measure}': it is scored by {there}")
        if self.parts == "by article" and self.known.kind != "spans":
            raise ValueError(f"task '{self.name}' has no articles: leave out parts, or set it to 'as published'")

    @property
    def known(self) -> KnownDataSet:
        return known(self.task or self.name)

    @property
    def decided_by(self) -> str:
        return self.measure or self.known.measures[0]


@dataclass(frozen=True)
class Sentences(Typed):
    """Pairs of held-out text on which sentence heads are tried, also on the task that they were not trained for."""

    pairs: int = setting(0, "how many of each kind; 0 leaves it out", low=0, high=10_000_000)
    fit_pairs: int = setting(
        8192, "training pairs that the classifier by word overlap is fitted to", low=1, high=10_000_000
    )


@dataclass(frozen=True)
class Condition(Typed):
    """A quantity and where it must lie. With its interval inside the bounds the condition holds, outside it does not,
    and across a bound it is not decided."""

    words: str = setting("", "what it says, for a person")
    quantity: Literal["score", "crossed", "overlap", "parameters"] = setting(
        "score", "mean score, accuracy of an arm's sentence head, of word overlap, or percent of parameters"
    )
    of: str = setting("", "the arm")
    minus: str = setting("", "score: the arm that it is compared with")
    over: str = setting("", "parameters: the arm whose are 100 percent")
    task: str = setting("", "score: of this task alone; none: the mean over all")
    pairs: Literal["nsp", "sop"] = setting("nsp", "crossed and overlap: the kind of pairs")
    least: float | None = setting(None, "it must be above; scores are in points of 100")
    most: float | None = setting(None, "it must be below")
    premise: bool = setting(False, "where it does not hold, what the claim says of the same arm is not decided")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.least is None and self.most is None:
            raise ValueError(f"the condition '{self.words}' has no bound: set least, most, or both")
        needed = {"score": ("of", "minus"), "crossed": ("of",), "overlap": (), "parameters": ("of", "over")}
        for name in ("of", "minus", "over"):
            if bool(getattr(self, name)) != (name in needed[self.quantity]):
                wants = " and ".join(needed[self.quantity]) or "no arm"
                raise ValueError(f"the condition '{self.words}' is about {self.quantity}, which takes {wants}")


@dataclass(frozen=True)
class Claim(Typed):
    """What the field says. It holds where all its conditions do, and does not where one of them does not that is no
    premise, and whose premise holds."""

    name: str = setting("", "short")
    words: str = setting("", "the claim in a sentence")
    published: str = setting("", "the figures that it rests on, and where they stand")
    would_decide: str = setting("", "what would decide it, where it is not decided")
    conditions: tuple[Condition, ...] = setting((), "all must hold")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.conditions:
            raise ValueError(f"the claim '{self.name}' has no conditions: add [[claims.conditions]]")

    @property
    def arms(self) -> set[str]:
        """Those that its conditions name."""
        named = {name for each in self.conditions for name in (each.of, each.minus, each.over)}
        return named - {""}


@dataclass(frozen=True)
class Experiment(Typed):
    name: str = setting("", "of the files that it leaves")
    title: str = setting("", "of its page")
    about: str = setting("", "what is compared, in a few sentences")
    equal: Equal = field(default_factory=Equal)
    arms: tuple[Arm, ...] = setting((), "what varies")
    tasks: tuple[TaskPlan, ...] = setting((), "what every checkpoint is fine-tuned on")
    sentences: Sentences = field(default_factory=Sentences)
    claims: tuple[Claim, ...] = setting((), "what is judged")

    def __post_init__(self) -> None:
        super().__post_init__()
        for what, group in (("arms", self.arms), ("tasks", self.tasks), ("claims", self.claims)):
            names = [each.name for each in group]
            for name in names:
                if not NAME.fullmatch(name):
                    raise ValueError(f"'{name}' in {what} is no name: use small letters, digits and hyphens")
            if twice := [name for name in names if names.count(name) > 1]:
                raise ValueError(f"{what} name '{twice[0]}' twice: give each a name of its own")
        if not NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is no name of an experiment: use small letters, digits and hyphens")
        if len(self.arms) < 2:
            raise ValueError("an experiment compares at least two arms: add [[arms]]")
        for arm in self.arms:
            self.settings_of(arm)  # refuses what is no setting
        self._refuse_unknown_arms()

    def _refuse_unknown_arms(self) -> None:
        arms, tasks = {arm.name for arm in self.arms}, {task.name for task in self.tasks}
        for condition in (condition for claim in self.claims for condition in claim.conditions):
            for name in filter(None, (condition.of, condition.minus, condition.over)):
                if name not in arms:
                    raise ValueError(f"the condition '{condition.words}' names the arm '{name}', which is not there")
            if condition.task and condition.task not in tasks:
                raise ValueError(f"the condition '{condition.words}' names the task '{condition.task}', not there")
            if condition.quantity in ("crossed", "overlap") and not self.sentences.pairs:
                raise ValueError(f"the condition '{condition.words}' needs pairs: set pairs in [sentences]")
            if condition.quantity == "crossed" and self.settings_of(self.arm(condition.of)).layout not in LABELLED:
                raise ValueError(f"the condition '{condition.words}' needs a sentence head, which {condition.of} lacks")

    def of_arms(self, names: Sequence[str]) -> "Experiment":
        """These arms alone, in the file's order, and the claims that are about no other. It says so of itself."""
        there = [arm.name for arm in self.arms]
        if unknown := [name for name in names if name not in there]:
            raise ValueError(f"there is no arm '{unknown[0]}' in {self.name}: it has {', '.join(there)}")
        arms = tuple(arm for arm in self.arms if arm.name in names)
        if len(arms) < 2:
            raise ValueError("an experiment compares at least two arms: name another one")
        claims = tuple(claim for claim in self.claims if claim.arms <= set(names))
        left_out = [name for name in there if name not in names]
        not_judged = [claim.name for claim in self.claims if claim not in claims]
        said = f"Arms left out here: {', '.join(left_out)}." if left_out else ""
        said += f" Claims not judged without them: {', '.join(not_judged)}." if not_judged else ""
        return dataclasses.replace(self, arms=arms, claims=claims, about=_with(self.about, said))

    def with_settings(self, overrides: Mapping[str, Any]) -> "Experiment":
        """Other settings of every arm's pre-training than the file's. It says so of itself."""
        for arm in self.arms:
            if own := [name for name in overrides if name in arm.settings]:
                raise ValueError(f"{own[0]} is what varies, arm {arm.name} has its own: change it in a file of yours")
        equal = dataclasses.replace(self.equal, pretraining=self.equal.pretraining | dict(overrides))
        said = (
            f"Set for every arm, beside the file: {', '.join(f'{name}={value}' for name, value in overrides.items())}."
        )
        return dataclasses.replace(self, equal=equal, about=_with(self.about, said))

    def on_device(self, device: str) -> "Experiment":
        """The same with pre-training and fine-tuning on this device."""
        place = {"runtime.device": device}
        pretraining, finetuning = self.equal.pretraining | place, self.equal.finetuning | place
        return dataclasses.replace(
            self, equal=dataclasses.replace(self.equal, pretraining=pretraining, finetuning=finetuning)
        )

    def with_seeds(self, number: int) -> "Experiment":
        """So many seeds of pre-training: the file's, then the next numbers."""
        more = (seed for seed in itertools.count() if seed not in self.equal.seeds)
        seeds = tuple(itertools.islice(itertools.chain(self.equal.seeds, more), number))
        return dataclasses.replace(self, equal=dataclasses.replace(self.equal, seeds=seeds))

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def task(self, name: str) -> TaskPlan:
        return next(task for task in self.tasks if task.name == name)

    def settings_of(self, arm: Arm) -> PretrainSettings:
        """Of its pre-training, but for the number of steps."""
        return preset_settings(arm.preset, self.equal.pretraining | arm.settings)


def read_experiment(name: str | Path) -> Experiment:
    """The experiment that is shipped under a name, or the one in a file."""
    path = Path(name)
    if (shipped := SHIPPED / f"{name}.toml").is_file() and path.suffix != ".toml":
        path = shipped
    elif not path.is_file() and path.suffix == ".toml":
        raise ValueError(f"{path} does not exist: give the file of an experiment")
    elif not path.is_file():
        names = ", ".join(sorted(file.stem for file in SHIPPED.glob("*.toml")))
        raise ValueError(f"there is no experiment '{name}': the shipped ones are {names}; or give a .toml file")
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    return experiment_in(values, str(path))


def _with(about: str, said: str) -> str:
    return f"{about.strip()} {said}".strip()


def experiment_in(values: Mapping[str, Any], where: str) -> Experiment:
    """The experiment that a file holds, every name and setting in it checked."""
    try:
        experiment = from_dict(Experiment, dict(_flat_settings(values)))
        for task in experiment.tasks:
            settings_for(task.known, None, experiment.equal.finetuning | task.settings)
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{where}: {error}") from None
    return experiment


def _flat_settings(values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Groups of settings by dotted names: TOML makes tables of `model.width = 256`."""
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
