"""What a run wrote to disk: its settings, its metrics, how far it came, and the sentences it filled in."""

import json
import math
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from hornbook.files import read_json, read_json_lines
from hornbook.report import wording
from hornbook.report.exported import is_exported

TOKENS = {"mlm": "masked token", "clm": "next token"}  # terms that predict tokens, and which as a rule
NOT_LOSSES = {"kind", "step", "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "seconds"}


@dataclass(frozen=True)
class RunRecord:
    """One run folder. `metrics` are the lines of metrics.jsonl, `state` is the newest checkpoint's (empty if none)."""

    folder: Path
    run: dict
    metrics: list[dict] = field(default_factory=list)
    samples: list[dict] = field(default_factory=list)
    state: dict = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | Path) -> "RunRecord":
        folder = Path(folder)
        if is_exported(folder):
            raise ValueError(f"{folder} is an exported model and no run: hornbook info {folder} says what it takes")
        if not (folder / "run.json").is_file():
            raise ValueError(f"{folder} is not a run: it has no run.json; give the --out folder of a run")
        run = read_json(folder / "run.json")
        if run.get("command") in ("baseline", "probe", "label-curve"):
            what = "curve.json and curve.png" if run["command"] == "label-curve" else "scores.json"
            raise ValueError(
                f"{folder} is a {run['verb']}, which is told by its {what} and by hornbook info, and has no report"
            )
        if not isinstance(run.get("settings"), dict):
            raise ValueError(f"{folder} is not a run: its run.json has no settings, so something else wrote it")
        return cls(folder, run, read_metrics(folder), _read_samples(folder), read_state(folder))

    @property
    def is_of_task(self) -> bool:
        """Whether it learned a task: a fine-tuning run, with a teacher or without."""
        verb = self.run.get("command")
        return verb == "finetune" or (verb == "distill" and "task" in self.run)

    @property
    def is_of_text(self) -> bool:
        """Whether it learned several tasks as text."""
        return self.run.get("command") == "finetune-text"

    @property
    def predicted_tokens(self) -> dict[str, str]:
        """The terms that predict tokens, and which: of tasks as text those of the answers, unless it learns all."""
        learns_answers = self.is_of_text and self.settings.get("learns") == "answer"
        return TOKENS | ({"clm": "answer token"} if learns_answers else {})

    def lines(self, kind: str) -> list[dict]:
        return [line for line in self.metrics if line["kind"] == kind]

    @cached_property
    def train(self) -> list[dict]:
        return self.lines("train")

    @cached_property
    def validations(self) -> list[dict]:
        return self.lines("validation")

    @cached_property
    def events(self) -> list[dict]:
        return self.lines("event")

    @property
    def terms(self) -> list[str]:
        """Names of the parts of the loss, such as mlm and nsp or sop, or clm."""
        found = [*self.train[:1], *self.validations[:1]]
        names = dict.fromkeys(name for line in found for name in line if name not in NOT_LOSSES | {"best"})
        return [name for name in names if not any(name.startswith(f"{term}_") for term in names)]

    @property
    def num_steps(self) -> int:
        return int(self.settings.get("schedule", {}).get("steps", 0))

    @property
    def step(self) -> int:
        return max(
            [int(self.state.get("step", 0)), *(line["step"] for line in self.train[-1:] + self.validations[-1:])]
        )

    @property
    def is_finished(self) -> bool:
        """By the newest checkpoint, as a resume sees it; by the metrics where the checkpoints were deleted."""
        return 0 < self.num_steps <= (self.state.get("step", 0) if self.state else self.step)

    @property
    def tokens(self) -> int:
        return int(self._furthest("tokens"))

    @property
    def seconds(self) -> float:
        return self._furthest("seconds")

    @property
    def tokens_per_second(self) -> float | None:
        return self.tokens / self.seconds if self.seconds > 0 else None

    @property
    def last_validation(self) -> dict | None:
        return self.validations[-1] if self.validations else None

    @property
    def best_validation(self) -> dict | None:
        scored = [line for line in self.validations if math.isfinite(number(line.get("loss")))]
        return min(scored, key=lambda line: line["loss"]) if scored else None

    @property
    def baseline(self) -> dict:
        """What guessing by word frequency gets: `mlm` and `mlm_accuracy`, the same of `clm`, or nothing."""
        return self.run.get("frequency_baseline") or {}

    @property
    def settings(self) -> dict:
        return self.run["settings"]

    @property
    def read_settings(self) -> dict:
        """The settings without those that nothing reads in such a run, as far as it says which."""
        unused = set(self.run.get("unused") or [])
        found = {}
        for name, value in self.settings.items():
            if isinstance(value, dict):
                value = {key: each for key, each in value.items() if f"{name}.{key}" not in unused}
            if value != {} and name not in unused:
                found[name] = value
        return found

    @property
    def preset(self) -> str:
        return str(self.run.get("preset", "a model"))

    @property
    def teacher(self) -> str | None:
        """The model that it learned from, if there was one."""
        return (self.run.get("teacher") or {}).get("name")

    @property
    def device(self) -> str:
        return str(self.run.get("runtime", {}).get("device", "unknown"))

    @property
    def corpora(self) -> list[dict]:
        """The corpora as run.json lists them, each with `epochs`: how often the run has read it so far."""
        listed = self.run.get("corpora") or []
        weights = sum(each.get("weight", 1.0) for each in listed) or 1.0
        share = [each.get("weight", 1.0) / weights for each in listed]
        return [
            {**each, "epochs": self.tokens * part / max(1, each.get("tokens", 0))}
            for each, part in zip(listed, share, strict=True)
        ]

    @property
    def state_in_words(self) -> str:
        """A run that still goes and one that was stopped look the same on disk."""
        if self.is_finished:
            return f"finished after {wording.counted(self.step, 'step')}"
        if not self.step:
            return f"at the start of {wording.counted(self.num_steps, 'step')}"
        return f"not finished: step {self.step:,} of {self.num_steps:,}"

    @property
    def resume_command(self) -> str:
        if self.is_of_text:
            data = (self.run.get("data") or {}).get("path", "TASKS.toml")
            words = ["finetune", str(self.run.get("from", "MODEL")), "--task", "text", "--data", data]
            return shlex.join(["hornbook", *words, "--out", str(self.folder), "--resume"])
        named = []
        for each in self.run.get("corpora") or []:
            weight = each.get("weight", 1.0)
            named += ["--corpus", each.get("folder", "CORPUS") + ("" if weight == 1 else f":{weight:g}")]
        what = ["distill", self.teacher, "--student", self.preset] if self.teacher else ["pretrain", self.preset]
        return shlex.join(["hornbook", *what, *named, "--out", str(self.folder), "--resume"])

    def column(self, kind: str, name: str) -> np.ndarray:
        """One value of all lines of a kind, as float64; NaN where a line lacks it or it is infinite."""
        lines = {"train": self.train, "validation": self.validations}[kind]
        values = np.array([number(line.get(name)) for line in lines], dtype=np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    def _furthest(self, name: str) -> float:
        logged = [number(line.get(name)) for line in self.train[-1:]]
        return max([0.0, *(value for value in (number(self.state.get(name)), *logged) if math.isfinite(value))])


def number(value: object) -> float:
    """The value as a float; NaN for what is none."""
    return float(value) if isinstance(value, int | float) else math.nan


def read_metrics(folder: Path) -> list[dict]:
    """The lines of a run's metrics.jsonl that say what they are and of which step."""
    lines = read_json_lines(Path(folder) / "metrics.jsonl")
    return [line for line in lines if isinstance(line.get("step"), int) and "kind" in line]


def _read_samples(folder: Path) -> list[dict]:
    path = folder / "samples.json"
    if not path.is_file():
        return []
    try:
        samples = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is not valid JSON ({error}): delete it, the report does without") from None
    return [each for each in samples if isinstance(each, dict)] if isinstance(samples, list) else []


def read_state(folder: Path) -> dict:
    """Of the newest checkpoint."""
    for path in sorted(folder.glob("checkpoints/step-*/state.json"), reverse=True):
        try:
            return read_json(path)
        except FileNotFoundError:  # a run that is still going has just replaced it
            continue
    return {}
