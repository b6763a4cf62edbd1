"""A fine-tuning run: the files that only such runs write (scores, predictions, task, attention), its description for
`hornbook info`, and commands and code for using it."""

import math
import shlex
from functools import cached_property
from pathlib import Path
from typing import Self

from hornbook.files import read_json, read_json_if_exists, read_json_lines
from hornbook.metrics.breakdown import Judged
from hornbook.metrics.formatting import number
from hornbook.report import formatting
from hornbook.report.rendering import render
from hornbook.report.run_files import ReportedRun, ReportedStage, read_stages
from hornbook.report.usage_code import HUB_TASKS, PIPELINE_ARGUMENTS, WITH_PIPELINE, sample_input
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.kinds.classification import THRESHOLD
from hornbook.tasks.task import Task


def _json_file(name: str) -> cached_property:
    """The property of a run that is the content of this file; empty if it is missing."""
    return cached_property(lambda run: read_json_if_exists(run.folder / name))


class ReportedTaskRun(ReportedRun):
    """A fine-tuning run, finished or not, as reports read it. Values whose file or key is missing are empty."""

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        run = super().load(folder)
        if not run.is_of_task:
            raise ValueError(
                f"{folder} is not a fine-tuning run: its run.json was written by '{run.record.get('command')}'"
            )
        return run

    scores = _json_file("scores.json")
    task = _json_file("task.json")
    config = _json_file("config.json")
    attention = _json_file("attention.json")

    @cached_property
    def illustrations(self) -> list[dict]:
        """A few dev examples with the probabilities of their tokens."""
        return read_json_if_exists(self.folder / "illustrations.json").get("examples") or []

    @cached_property
    def earlier_stages(self) -> list[ReportedStage]:
        """In task distillation, the stages before the last one; the last one is the run itself."""
        return read_stages(self.folder)

    @property
    def num_stages(self) -> int:
        return self.earlier_stages[0].num_stages if self.earlier_stages else 1

    @property
    def seconds(self) -> float:
        """Duration of all stages in seconds."""
        return super().seconds + sum(stage.run.seconds for stage in self.earlier_stages)

    @cached_property
    def predictions(self) -> list[dict]:
        """The rows of predictions-dev.jsonl that have a gold answer."""
        return [row for row in read_json_lines(self.folder / "predictions-dev.jsonl") if row.get("gold") is not None]

    @cached_property
    def judged(self) -> Judged:
        has_entities = "entity_f1" in (self.task.get("metrics") or self.splits.get("dev", {}))
        return Judged(self.predictions, self.labels, self.allows_no_answer, has_entities)

    @property
    def name(self) -> str:
        return str(self.record.get("task", "a task"))

    @property
    def kind(self) -> str:
        return str(self.record.get("kind") or self.task.get("kind") or "")

    @property
    def task_kind(self) -> type[Task]:
        """The kind of task; the base class if the record does not name one that is known."""
        return KINDS.get(self.kind, Task)

    @property
    def kind_description(self) -> str:
        return self.task_kind.description or self.kind

    @property
    def model(self) -> str:
        return str(self.record.get("model", "a model"))

    @property
    def is_from_scratch(self) -> bool:
        return bool((self.record.get("request") or {}).get("from_scratch"))

    @property
    def labels(self) -> list[str]:
        return [str(label) for label in self.record.get("labels") or []]

    @property
    def data(self) -> dict:
        return self.inputs.get("data") or {}

    @property
    def splits(self) -> dict[str, dict[str, dict]]:
        """Scores by split and metric, each with value, low and high."""
        return self.scores.get("splits") or {}

    @property
    def metric_for_best(self) -> str:
        return str(self.scores.get("metric_for_best") or self.record.get("metric_for_best") or "")

    @property
    def dev_score(self) -> dict:
        """The dev score used for model selection: value, low, high; empty before the run is scored."""
        return self.splits.get("dev", {}).get(self.metric_for_best, {})

    @property
    def degenerate(self) -> str | None:
        return self.scores.get("degenerate")

    @property
    def allows_no_answer(self) -> bool:
        return bool(self.task.get("allows_no_answer"))

    @property
    def label_threshold(self) -> float | None:
        """Minimum probability of a predicted label in a multi-label task, if one was chosen on dev; else None."""
        threshold = self.task.get("threshold") if self.task_kind.problem_type == "multi_label_classification" else None
        return threshold if isinstance(threshold, float) and threshold != THRESHOLD else None

    @property
    def is_pair(self) -> bool:
        return any("pair" in row for row in self.predictions[:1])

    @property
    def sample_input(self) -> object:
        """An example input of the task, as `predict` takes it."""
        return sample_input(self.task_kind, self.is_pair)

    @property
    def has_transformers_class(self) -> bool:
        """Whether `transformers` has a class with the same head."""
        head = self.config.get("hornbook_head") or {}
        has_class = "For" in self.hf_class or self.has_double_heads
        has_class = has_class and self.config.get("model_type") != "hornbook-ernie"  # only Hornbook opens it
        return has_class and not head.get("has_answer_classifier") and head.get("layers", "linear") == "linear"

    @property
    def hf_class(self) -> str:
        """The `transformers` class that loads the folder."""
        return str((self.config.get("architectures") or [""])[0])

    @property
    def has_double_heads(self) -> bool:
        """GPT's DoubleHeadsModel has a multiple-choice head; there is no `ForMultipleChoice` class."""
        return self.hf_class.endswith("DoubleHeadsModel")

    @property
    def best_validation(self) -> dict | None:
        """The validation whose weights are the final weights of the run."""
        return next((line for line in reversed(self.validations) if line.get("best")), None)

    @property
    def train_examples(self) -> int | None:
        return self.record.get("train_examples") or (self.data.get("examples") or {}).get("train")

    @property
    def copies_note(self) -> str:
        """For example `1,450 augmented copies of them`; empty if there are none."""
        count = self.record.get("augmented_examples")
        return f"{count:,} augmented {'copy' if count == 1 else 'copies'} of them" if count else ""

    @property
    def is_finished(self) -> bool:
        return bool(self.scores)

    @property
    def status(self) -> str:
        stages = self.earlier_stages
        if not self.is_finished and stages and not self.step:
            where = "after" if stages[-1].run.is_finished else "in"
            return f"not finished: {where} stage {stages[-1].number} of {self.num_stages}"
        if not self.is_finished:
            return "trained, not scored yet" if super().is_finished else super().status
        if self.ended_early:
            return super().status
        steps = [*(stage.run.step for stage in stages), self.step]
        return f"finished after {' and '.join(f'{step:,}' for step in steps)} steps"

    @property
    def graph(self) -> str | None:
        """The folder of the knowledge graph whose paths the model reads."""
        return ((self.record.get("settings") or {}).get("reason") or {}).get("graph")

    @property
    def parameters(self) -> str:
        """For example `22.7 million`, or `22.7 million, 4,096 of them trained`."""
        parameters, trained = (self.record.get(name) for name in ("parameters", "trained_parameters"))
        if not parameters:
            return ""
        rest = "" if trained in (None, parameters) else f", {formatting.amount(trained)} of them trained"
        return f"{formatting.amount(parameters)}{rest}"

    @property
    def facts(self) -> list[tuple[str, str]]:
        """What was trained, on what: (label, text), an empty text where there is none. `hornbook info`, the page and
        the model card show them."""
        data, best_step = self.data, (self.best_validation or {}).get("step")
        is_subset = self.train_examples != (data.get("examples") or {}).get("train")
        trained_on = f"{self.train_examples:,} examples" if is_subset or self.copies_note else ""
        return [
            ("task", f"{self.name}: {self.kind_description}"),
            ("model", self.model + (", trained from random weights" if self.is_from_scratch else "")),
            ("teacher", self.teacher or ""),
            ("graph", self.graph or ""),
            ("parameters", self.parameters),
            ("labels", format_labels(self.labels)),
            ("data", ", ".join(data.get("files") or []) or str(data.get("path") or "passed in memory")),
            *((f"{split} examples", f"{num:,}") for split, num in (data.get("examples") or {}).items()),
            ("trained on", " and ".join(filter(None, (trained_on, self.copies_note)))),
            *(
                (f"truncated texts of {split}", f"{num:,}")
                for split, num in (self.record.get("truncated_texts") or {}).items()
                if num
            ),
            *formatting.problem_rows(data.get("problems")),
            *((f"stage {number}", stage.summary) for number, stage in enumerate(self.earlier_stages, 1)),
            ("best step", f"{best_step:,}" if best_step is not None else ""),
            ("time", formatting.duration(self.seconds)),
            ("device", self.device_and_reason),
        ]

    @property
    def dev_score_text(self) -> str:
        if not math.isfinite(number(self.dev_score.get("value"))):
            return ""
        name = self.metric_for_best
        return f"{formatting.metric_label(name)} {formatting.score_with_interval(name, self.dev_score)}"


def load_run(folder: str | Path) -> ReportedRun:
    """The run in a folder: a `ReportedTaskRun` if it learned a task."""
    run = ReportedRun.load(folder)
    return ReportedTaskRun.load(folder) if run.is_of_task else run


# ---- hornbook info


def describe_finetuned(run: ReportedTaskRun) -> dict:
    scores = {name: formatting.named_scores(values) for name, values in run.splits.items()}
    lines = [*run.facts, ("state", run.status), ("warning", run.degenerate or ""), *_score_lines(scores)]
    return {
        "kind": "fine-tuned run",
        "title": f"{run.name} from {run.model}" + (f", teacher {run.teacher}" if run.teacher else ""),
        "task": run.name,
        "task_kind": run.kind,
        "model": run.model,
        "teacher": run.teacher,
        "graph": run.graph,
        "from_scratch": run.is_from_scratch,
        "labels": run.labels,
        "parameters": run.record.get("parameters"),
        "trained_parameters": run.record.get("trained_parameters"),
        "finished": run.is_finished,
        "state": run.status,
        "step": run.step,
        "num_steps": run.num_steps,
        "best_step": (run.best_validation or {}).get("step"),
        "earlier_stages": [stage.summary for stage in run.earlier_stages],
        "seconds": run.seconds,
        "device": run.device,
        "data": {name: run.data.get(name) for name in ("path", "files", "examples", "problems")},
        "train_examples": run.train_examples,
        "metric_for_best": run.metric_for_best,
        "scores": run.splits,
        "result": run.dev_score_text.partition(" (")[0],
        "degenerate": run.degenerate,
        "opens_in_transformers": run.has_transformers_class,
        "lines": lines,
    }


def describe_baseline(folder: Path) -> dict:
    run, recorded = read_json(folder / "run.json"), read_json_if_exists(folder / "scores.json")
    splits = recorded["splits"] if recorded else {}
    request, data = run.get("request", {}), run.get("inputs", {}).get("data", {})
    method, model, task = request.get("baseline") or request.get("method"), request.get("model"), request.get("task")
    scores = {split: formatting.named_scores(values) for split, values in splits.items()}
    return {
        "kind": run["command"],
        "title": f"{task}: {method or ''} {run['command']}" + (f" of {model}" if model else ""),
        "method": method,
        "model": model or None,
        "task": task,
        "data": data.get("path"),
        "finished": bool(recorded),
        "scores": splits,
        "result": next(iter(scores.get("dev") or ()), "").partition(" (")[0],  # without the interval
        "lines": [
            ("method", method or ""),
            ("task", task or ""),
            ("model", model or ""),
            ("data", str(data.get("path") or "passed in memory")),
            ("state", "finished" if recorded else "no scores yet; run the same command again"),
            *_score_lines(scores),
        ],
    }


def _score_lines(scores: dict[str, list[str]]) -> list[tuple[str, str]]:
    return [(f"{split} scores", "; ".join(texts)) for split, texts in scores.items()]


def format_labels(labels: list[str], most: int = 40) -> str:
    more = f" and {len(labels) - most:,} more" if len(labels) > most else ""
    return f"{len(labels)}: {', '.join(labels[:most])}{more}" if labels else ""


# ---- usage


def usage(run: ReportedTaskRun) -> list[tuple[str, str]]:
    """(title, command or code); `transformers` only if it has a class for the head."""
    snippets = [("On the command line", predict_command(run)), ("In Python", python_code(run))]
    if code := transformers_code(run):
        snippets.append(("In transformers", code))
    if run.task_kind.output == "vectors":
        code = f"SentenceTransformer({str(run.folder)!r}).encode(['How do I reset my password?'])"
        code = f"from sentence_transformers import SentenceTransformer\n\n{code}"
        snippets.append(("In sentence-transformers", code))
    return snippets


def predict_command(run: ReportedTaskRun) -> str:
    """A `hornbook predict` command; inputs other than a single text are read from a file."""
    inputs = [run.sample_input] if isinstance(run.sample_input, str) else ["--file", "inputs.jsonl"]
    return shlex.join(["hornbook", "predict", str(run.folder), *inputs])


def python_code(run: ReportedTaskRun) -> str:
    return (
        f"import hornbook\n\npredictor = hornbook.load_predictor({str(run.folder)!r})\n"
        f"predictor.predict([{run.sample_input!r}])"
    )


def transformers_code(run: ReportedTaskRun) -> str:
    """Code that runs the model in `transformers`; empty if it has no class for the head."""
    kind = run.task_kind
    if not run.has_transformers_class or kind.output not in HUB_TASKS:
        return ""
    pipeline = HUB_TASKS[kind.output] if kind.output in WITH_PIPELINE else None
    code = {"pipeline": pipeline, "arguments": PIPELINE_ARGUMENTS.get(kind.problem_type, "")}
    return render("transformers.txt", run=run, kind=kind, folder=repr(str(run.folder)), **code).strip()
