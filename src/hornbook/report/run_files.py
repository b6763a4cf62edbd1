"""The files of a run: settings, metrics, progress, and sample predictions (`samples.json` of a pre-training run:
held-out sentences with a masked word, and the model's predictions for it).

RUN/stages/1/stage.json    a stage of task distillation before the last one: its number, its loss terms, its settings
"""

import json
import math
import shlex
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from hornbook.files import read_json, read_json_if_exists, refusing_damage
from hornbook.lifecycle.run_folder import is_task_run, read_metrics
from hornbook.metrics.formatting import number
from hornbook.report import formatting
from hornbook.report.measured import EXPORT_FILE

TOKENS = {"mlm": "masked token", "clm": "next token"}  # loss terms that predict tokens, and which tokens
RESULTS_OF = {  # the results of commands that train no model of their own, so that their run has no curves
    "baseline": "scores.json",
    "probe": "scores.json",
    "label-curve": "curve.json and curve.png",
    "prompt": "scores.json",
    "reproduce": "results.json",
}
STAGES, STAGE_FILE = "stages", "stage.json"
NOT_LOSSES = {"kind", "step", "loss", "grad_norm", "lr", "tokens", "tokens_per_second", "seconds"}


@dataclass(frozen=True)
class ReportedRun:
    """A run as reports read it from its folder. `record`: content of run.json; `metrics`: lines of metrics.jsonl;
    `state`: state of the newest checkpoint (empty if none)."""

    folder: Path
    record: dict
    metrics: list[dict] = field(default_factory=list)
    samples: list[dict] = field(default_factory=list)
    state: dict = field(default_factory=dict)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        folder = Path(folder)
        if (folder / EXPORT_FILE).is_file():
            raise ValueError(f"{folder} is an exported model, not a run: describe it with hornbook info {folder}")
        if not (folder / "run.json").is_file():
            raise ValueError(f"{folder} is not a run: it has no run.json; give the folder of a run")
        record = read_json(folder / "run.json")
        if (command := record.get("command")) in RESULTS_OF:
            raise ValueError(
                f"{folder} is a {command} without training curves: see its {RESULTS_OF[command]}, or run hornbook info "
                f"{folder}"
            )
        if not isinstance(record.get("settings"), dict):
            raise ValueError(f"{folder} is not a run: its run.json has no settings and was not written by hornbook")
        return cls(folder, record, read_metrics(folder), read_samples(folder), newest_state(folder))

    @property
    def is_of_task(self) -> bool:
        """Whether this is a fine-tuning run, with or without a teacher."""
        return is_task_run(self.record)

    @property
    def is_of_text(self) -> bool:
        """Whether this run fine-tuned a language model on several tasks in text form."""
        return self.record.get("command") == "finetune-text"

    @property
    def predicted_tokens(self) -> dict[str, str]:
        """The loss terms that predict tokens, and which tokens; for tasks in text form the answer tokens, unless the
        loss is over all tokens."""
        learns_answers = self.is_of_text and self.settings.get("learns") == "answer"
        return TOKENS | ({"clm": "answer token"} if learns_answers else {})

    def lines(self, kind: str) -> list[dict]:
        return [line for line in self.metrics if line["kind"] == kind]

    train = cached_property(lambda run: run.lines("train"))
    validations = cached_property(lambda run: run.lines("validation"))
    events = cached_property(lambda run: run.lines("event"))

    @property
    def terms(self) -> list[str]:
        """Names of the loss terms, such as mlm, nsp, sop or clm."""
        return _loss_terms([*self.train[:1], *self.validations[:1]])

    @property
    def num_steps(self) -> int:
        return int(self.settings.get("schedule", {}).get("steps", 0))

    @property
    def step(self) -> int:
        return max(
            [int(self.state.get("step", 0)), *(line["step"] for line in self.train[-1:] + self.validations[-1:])]
        )

    @property
    def ended_early(self) -> bool:
        """Whether the run ended before its last step, because validation stopped improving."""
        if self.state:
            return bool(self.state.get("ended_early"))
        return any(line.get("event") == "ended_early" for line in self.events)

    @property
    def is_finished(self) -> bool:
        """Judged by the newest checkpoint, like a resume; by the metrics if the checkpoints were deleted."""
        return self.ended_early or 0 < self.num_steps <= (self.state.get("step", 0) if self.state else self.step)

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
        """Loss and accuracy of the unigram baseline: `mlm` and `mlm_accuracy`, or those of `clm`; may be empty."""
        return self.record.get("unigram_baseline") or {}

    @property
    def settings(self) -> dict:
        return self.record["settings"]

    @property
    def setting_groups(self) -> dict[str, dict[str, str]]:
        """The settings as texts, by group and full name, without those listed as unused in run.json."""
        unused, groups = set(self.record.get("unused") or []), {}
        ungrouped = {name: value for name, value in self.settings.items() if not isinstance(value, dict)}
        for group, values in {**self.settings, "other": ungrouped}.items():
            if isinstance(values, dict) and group not in unused:
                named = values if group == "other" else {f"{group}.{name}": value for name, value in values.items()}
                groups[group] = {name: formatting.setting(value) for name, value in named.items() if name not in unused}
        return {group: values for group, values in groups.items() if values}

    @property
    def inputs(self) -> dict:
        """What the run reads: corpora or labelled data, and its teacher."""
        return self.record.get("inputs") or {}

    @property
    def preset(self) -> str:
        """The preset or, of a run on text tasks, the names of the tasks."""
        if self.is_of_text:
            tasks = (self.inputs.get("data") or {}).get("tasks") or []
            return ", ".join(str(task.get("task")) for task in tasks)
        return str(self.record.get("preset", "a model"))

    @property
    def recipe(self) -> str:
        """`published` or `budget`, of pre-training without a teacher; otherwise empty."""
        return str(self.record.get("recipe") or "") if self.record.get("command") == "pretrain" else ""

    @property
    def seed(self) -> int | None:
        return (self.settings.get("runtime") or self.settings).get("seed")

    @property
    def title(self) -> str:
        """What tells runs of an experiment apart, for example `bert-tiny, budget recipe, seed 1`."""
        recipe = f"{self.recipe} recipe" if self.recipe else ""
        return ", ".join(filter(None, (self.preset, recipe, "" if self.seed is None else f"seed {self.seed}")))

    @property
    def teacher(self) -> str | None:
        return (self.inputs.get("teacher") or {}).get("name")

    @property
    def device(self) -> str:
        return str(self.record.get("runtime", {}).get("device", "unknown"))

    @property
    def corpora(self) -> list[dict]:
        """The corpora in run.json, each with `epochs`: the number of passes over it so far."""
        corpora = self.inputs.get("corpora") or []
        total_weight = sum(corpus.get("weight", 1.0) for corpus in corpora) or 1.0
        tokens = [self.tokens * corpus.get("weight", 1.0) / total_weight for corpus in corpora]
        return [
            {**corpus, "epochs": seen / max(1, corpus.get("tokens", 0))}
            for corpus, seen in zip(corpora, tokens, strict=True)
        ]

    @property
    def about(self) -> str:
        """The folder, and the version of Hornbook that wrote it."""
        version = f" · hornbook {self.record['hornbook']}" if "hornbook" in self.record else ""
        return f"{self.folder}{version}"

    @property
    def status(self) -> str:
        """Progress of the run; a running run and a stopped one look the same on disk."""
        if self.ended_early:
            return f"ended early, after {self.step:,} of {self.num_steps:,} steps"
        if self.is_finished:
            return f"finished after {formatting.counted(self.step, 'step')}"
        return f"not finished: step {self.step:,} of {self.num_steps:,}"

    @property
    def resume_command(self) -> str:
        if self.is_of_text:
            data = (self.inputs.get("data") or {}).get("path", "TASKS.toml")
            arguments = ["finetune", str(self.record.get("from", "MODEL")), "--task", "text", "--data", data]
            return shlex.join(["hornbook", *arguments, "--out", str(self.folder), "--resume"])
        corpora = []
        for corpus in self.inputs.get("corpora") or []:
            weight = corpus.get("weight", 1.0)
            corpora += ["--corpus", corpus.get("folder", "CORPUS") + ("" if weight == 1 else f":{weight:g}")]
        command = ["distill", self.teacher, "--student", self.preset] if self.teacher else ["pretrain", self.preset]
        return shlex.join(["hornbook", *command, *corpora, "--out", str(self.folder), "--resume"])

    @property
    def device_and_reason(self) -> str:
        reason = (self.record.get("runtime") or {}).get("reason")
        return self.device + (f" ({reason})" if reason else "")

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was trained, on what, and its losses: (label, text), an empty text where there is none. `hornbook info`
        and the page show them."""
        start, speed, flops = self.record.get("from"), self.tokens_per_second, self.record.get("planned_flops")
        sizes = [self.record.get(name) for name in ("parameters", "kept_parameters")]
        facts = [
            ("tasks" if self.is_of_text else "preset", self.preset + (f", initialised from {start}" if start else "")),
            ("teacher", self.teacher or ""),
            ("recipe", self.recipe),
            ("seed", "" if self.seed is None else str(self.seed)),
            ("parameters", formatting.parameters(*sizes)),
            ("planned FLOPs", f"{flops:.3g}" if flops else ""),
            ("tokens seen", formatting.amount(self.tokens)),
            ("time", formatting.duration(self.seconds) + (f", {speed:,.0f} tokens per second" if speed else "")),
            ("device", self.device_and_reason),
        ]
        for corpus in self.corpora:
            counts = f"{corpus.get('documents', 0):,} documents, {formatting.amount(corpus.get('tokens', 0))} tokens"
            read = f"weight {corpus.get('weight', 1):g}, read {formatting.times(corpus['epochs'])}"
            facts.append(("data", f"{corpus.get('folder')}: {counts}, {read}"))
        return [
            *facts,
            ("last training loss", _losses(self.train[-1] if self.train else None)),
            ("last validation", _losses(self.last_validation)),
            ("best validation", _losses(self.best_validation)),
            *(
                ("unigram baseline", f"{term} {formatting.loss(self.baseline[term])}")
                for term in TOKENS
                if term in self.baseline
            ),
        ]

    def column(self, kind: str, name: str) -> np.ndarray:
        """The value `name` in all lines of a kind, as float64; NaN where it is missing or infinite."""
        lines = {"train": self.train, "validation": self.validations}[kind]
        values = np.array([number(line.get(name)) for line in lines], dtype=np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    def _furthest(self, name: str) -> float:
        logged = [number(line.get(name)) for line in self.train[-1:]]
        return max([0.0, *(value for value in (number(self.state.get(name)), *logged) if math.isfinite(value))])


def _loss_terms(lines: list[dict]) -> list[str]:
    names = dict.fromkeys(name for line in lines for name in line if name not in NOT_LOSSES | {"best"})
    return [name for name in names if not any(name.startswith(f"{term}_") for term in names)]


def _losses(line: dict | None) -> str:
    """For example `3.456 at step 2,000 (mlm 3.1, ...)`."""
    if line is None:
        return "none yet"
    terms = _loss_terms([line])
    names = (*terms, *(f"{term}_accuracy" for term in terms))
    parts = [
        f"{name.replace('_', ' ')} {(formatting.percent if name.endswith('accuracy') else formatting.loss)(line[name])}"
        for name in names
        if name in line
    ]
    return f"{formatting.loss(line.get('loss'))} at step {line['step']:,}" + (f" ({', '.join(parts)})" if parts else "")


def newest_state(folder: Path) -> dict:
    """The state.json of the newest checkpoint; empty if there is none."""
    for path in sorted(folder.glob("checkpoints/step-*/state.json"), reverse=True):
        try:
            return read_json(path)
        except FileNotFoundError:  # a running process has just replaced it
            continue
    return {}


@dataclass(frozen=True)
class ReportedStage:
    number: int
    num_stages: int
    terms: tuple[str, ...]
    run: ReportedRun

    @property
    def title(self) -> str:
        return f"stage {self.number} of {self.num_stages}: {', '.join(self.terms)}"

    @property
    def took(self) -> str:
        """For example `1,500 steps at learning rate 5e-05, 42 s`."""
        run = self.run
        steps = formatting.counted(run.step, "step")
        steps += "" if run.is_finished else f" of {run.num_steps:,} so far"
        return f"{steps} at learning rate {run.settings['optimizer']['lr']:g}, {formatting.duration(run.seconds)}"

    @property
    def summary(self) -> str:
        return f"{', '.join(self.terms)}; {self.took}"


def read_stages(run: Path) -> list[ReportedStage]:
    """The earlier stages that have started, in order; empty if the run has only one stage."""
    stages = []
    for file in Path(run).glob(f"{STAGES}/*/{STAGE_FILE}"):
        stage, folder = read_json(file), file.parent
        terms = tuple(stage["terms"])
        metrics = [_trained_terms(line, terms) for line in read_metrics(folder)]
        run = ReportedRun(folder, stage, metrics, state=newest_state(folder))
        stages.append(ReportedStage(stage["number"], stage["num_stages"], terms, run))
    return sorted(stages, key=lambda stage: stage.number)


def _trained_terms(line: dict, terms: tuple[str, ...]) -> dict:
    """Removes the scores of heads that this stage does not train from a validation line."""
    if line["kind"] != "validation":
        return line
    return {name: value for name, value in line.items() if name in {*terms, "kind", "step", "loss", "best"}}


# ---- samples


def read_samples(folder: Path) -> list[dict]:
    """The samples of a run as they are stored; none if it wrote none."""
    path = Path(folder) / "samples.json"
    if not path.is_file():
        return []
    with refusing_damage(path, "delete it; the report does not need it"):
        return [dict(sample) for sample in json.loads(path.read_text(encoding="utf-8"))]


def split_sample(sample: dict, mask: str) -> dict:
    """The text split at the mask, the masked word, and (token, probability) of each prediction.

    >>> guesses = [{"token": "river", "probability": 0.5}]
    >>> split_sample({"text": "the [MASK] is wide", "answer": "river", "guesses": guesses}, "[MASK]")
    {'parts': ['the ', ' is wide'], 'answer': 'river', 'guesses': [('river', 0.5)]}
    """
    guesses = [
        (_bare(guess["token"]), guess["probability"] if math.isfinite(guess["probability"]) else 0.0)
        for guess in sample["guesses"]
    ]
    return {"parts": sample["text"].split(mask), "answer": _bare(sample["answer"]), "guesses": guesses}


def mask_token(folder: Path) -> str:
    """The mask token in the samples of a run."""
    token = read_json_if_exists(Path(folder) / "tokenizer_config.json").get("mask_token")
    return (token.get("content") if isinstance(token, dict) else token) or "[MASK]"


def _bare(token: str) -> str:
    """A token without the word-boundary marker (Ġ or ▁) of some tokenizers."""
    return token.lstrip("Ġ▁ ").rstrip() or token
