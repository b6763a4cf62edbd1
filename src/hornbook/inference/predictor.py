"""Predicting and evaluating with fine-tuned models: labels with probabilities, numbers, answer spans, tags, choices.

predictor = load_predictor("runs/reviews")
predictor.predict(["a fine film", "a bore"])[0].label
predictor.evaluate("reviews/test.csv")["splits"]["test"]["accuracy"]

Several runs form an ensemble: class probabilities, predicted numbers, and the start and end logits of spans are
averaged. The ensemble's no-answer threshold is the mean of its members'.
"""

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch

from hornbook.devices import chosen_device, device_of, inference_autocast
from hornbook.files import is_file
from hornbook.inference.loaded_model import BATCH_TOKENS
from hornbook.inference.task_model import SIMILARITY, TaskModel, load_task_model
from hornbook.tasks.datasets import find_task
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.evaluation import run_model, score_tables, with_intervals
from hornbook.tasks.kinds.marked import with_entities
from hornbook.tasks.overlap import in_training_texts, shown
from hornbook.tasks.prediction_files import is_frame, with_predictions
from hornbook.tasks.reading.inputs import InputRow, as_examples
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.reader import ReadingOptions
from hornbook.tasks.records import DataSet, Example
from hornbook.tasks.spec import TaskSpec
from hornbook.tasks.task import Task

EXAMPLES_AT_ONCE = 10_000  # examples tokenized at once
DIAGNOSTIC = "diagnostic"
FULL_DIAGNOSTIC = {"text": "Premise", "pair": "Hypothesis", "label": "Label"}  # columns of diagnostic-full.tsv


class PredictedExamples(NamedTuple):
    predictions: list  # one per example; None for an input that cannot be used
    num_truncated: int  # texts


class Predictor:
    """One fine-tuned model, or an ensemble."""

    def __init__(self, members: Sequence[TaskModel]):
        check_agreement(members)
        self.members = list(members)
        self.tokenizer, self.spec = members[0].tokenizer, members[0].spec
        self.max_length = min(member.max_length for member in members)
        self.spec = replace(self.spec, task=self.spec.task.ensembled([member.spec.task for member in members]))

    @property
    def task(self) -> Task:
        return self.spec.task

    @property
    def labels(self) -> tuple[str, ...]:
        return self.task.head_config.labels

    @property
    def device(self) -> torch.device:
        return device_of(self.members[0].model)

    def to(self, device: str | torch.device) -> "Predictor":
        for member in self.members:
            member.model.to(device)
        return self

    # ---- predicting

    def predict(self, items: Any, on_progress: Callable[[int], None] | None = None) -> Any:
        """Returns one prediction per item, in the same order; None for an item without text.

        An item is a text, a (text, pair), a (question, passage), a sentence or its words, a (context, choices), a
        dictionary of these by name, or an `Example`. For a data frame (pandas or polars) a data frame is returned: its
        columns followed by those of the predictions. `on_progress` is called with the number of items done.
        """
        if isinstance(items, Path) or (isinstance(items, str) and is_file(items)):
            raise ValueError(f"{items} is a file: give its texts as a list or a data frame, not its path")
        examples = [example.without_label() for example in self._examples(items)]
        usable = [each for each in examples if not each.reason_unusable]
        predicted = iter(self.predict_examples(usable, on_progress).predictions)
        predictions = [None if each.reason_unusable else next(predicted) for each in examples]
        if not is_frame(items):
            return predictions
        return with_predictions(items, self.describe(items, predictions))

    def predict_all(self, items: Sequence[Any]) -> list:
        """Like `predict`, for items that all have text; raises a `ValueError` for one without."""
        predictions = self.predict(items)
        if None in predictions:
            raise ValueError(f"input {predictions.index(None) + 1} of {len(items)} has no words: leave it out")
        return predictions

    def predict_examples(
        self, examples: Sequence[Example], on_progress: Callable[[int], None] | None = None, at_once: int | None = None
    ) -> PredictedExamples:
        """One prediction per example, also of those without text, `at_once` (by default a limited number) together."""
        predictions: list[Any] = [None] * len(examples)
        num_truncated = num_done = 0
        for task, indices in self._groups(examples, at_once or EXAMPLES_AT_ONCE):
            num, before = len(indices), num_done
            report = on_progress and (lambda part, before=before, num=num: on_progress(before + int(part * num)))
            predicted = self._predict(task, [examples[i] for i in indices], report)
            for i, prediction in zip(indices, predicted.predictions, strict=True):
                predictions[i] = prediction
            num_truncated += predicted.num_truncated
            num_done += num
        return PredictedExamples(predictions, num_truncated)

    def num_mismatched(self, examples: Sequence[Example]) -> int:
        """The number of single texts if the model was trained on pairs, or the reverse."""
        has_pairs = self.spec.has_pairs
        return sum(has_pairs is not None and each.has_pair not in (None, has_pairs) for each in examples)

    def _examples(self, items: Any) -> list[Example]:
        return as_examples(items, self.task.kind, self.spec.roles)

    def _groups(self, examples: Sequence[Example], at_once: int) -> Iterator[tuple[Task, list[int]]]:
        """Yields the task and the indices of examples to predict together: `at_once` at most, equally many choices."""
        by_task: dict[Task, list[int]] = defaultdict(list)
        for i, example in enumerate(examples):
            by_task[self.task.for_example(example)].append(i)
        for task, indices in by_task.items():
            for start in range(0, len(indices), at_once):
                yield task, indices[start : start + at_once]

    def _predict(
        self, task: Task, examples: list[Example], report: Callable[[float], None] | None
    ) -> PredictedExamples:
        """One prediction per example; `report` gets the fraction done."""
        unlinked: EncodedExamples | None = None  # the examples for members without a graph
        outputs = []
        for i, member in enumerate(self.members):
            if member.linker is not None:
                linked = with_entities(examples, member.linker, member.model.has_vector)
                encoded = task.encode(linked, self.tokenizer, self.max_length)
            else:
                encoded = unlinked = unlinked or task.encode(examples, self.tokenizer, self.max_length)
            total = encoded.num_groups * len(self.members)
            before = i * encoded.num_groups
            on_groups = report and (lambda done, before=before, total=total: report((before + done) / total))
            grounded = encoded if member.grounder is None else member.grounder.attach(encoded, examples)
            outputs.append(run_model(member.model, grounded, self.autocast, BATCH_TOKENS, on_groups).outputs)
        predictions = task.decode(combine(task, outputs), encoded, examples)
        if self.spec.scheme is None:
            predictions = [task.in_hornbook_scheme(each) for each in predictions]
        return PredictedExamples(predictions, encoded.num_truncated)

    def autocast(self) -> contextlib.AbstractContextManager:
        return inference_autocast(self.device)

    def predict_rows(
        self, rows: Sequence[InputRow], on_progress: Callable[[int], None] | None = None
    ) -> PredictedExamples:
        """One prediction per input row of a file; None for rows that cannot be used."""
        usable = [row.example.without_label() for row in rows if row.is_usable]
        predicted = self.predict_examples(usable, on_progress)
        rest = iter(predicted.predictions)
        return predicted._replace(predictions=[next(rest) if row.is_usable else None for row in rows])

    def describe(self, items: Any, predictions: Sequence[Any]) -> list[dict[str, Any]]:
        """Returns one dictionary per item for JSON or CSV: the input and its prediction, if it has one. Tags use the
        tagging scheme of the run's training files."""
        examples = self._examples(items)
        rows = [
            example.inputs if prediction is None else self.task.describe(example, prediction)
            for example, prediction in zip(examples, predictions, strict=True)
        ]
        return [self.task.in_file_scheme(row, self.spec.scheme) for row in rows] if self.spec.scheme else rows

    # ---- evaluating

    def read(self, data: Any, **reading: Unpack[ReadingOptions]) -> tuple[TaskSpec, DataSet]:
        """Reads data in the layout of the run's task, without holding out a split; returns the task and the data.

        The task is the run's own, except that an MNLI run also reads GLUE's diagnostic set, which has its own metrics.
        The column names given to the run are used unless any is given here.
        """
        columns = {role: reading.pop(role, None) for role in ("text", "pair", "label")}
        if not any(columns.values()):
            columns = self.members[0].columns
        spec = self.spec
        if spec.name == "mnli" and _is_diagnostic(data):
            metrics = tuple(dict.fromkeys([*find_task(DIAGNOSTIC).metrics, *spec.task.metrics]))
            spec = replace(spec, name=DIAGNOSTIC, task=replace(spec.task, metrics=metrics))
            if not columns and "full" in Path(data).name:
                columns = FULL_DIAGNOSTIC
        trained_columns = spec.roles if spec is self.spec else None
        options = {"trained_columns": trained_columns, "held_out": 0, "default_split": "dev"}
        return spec, read(spec.name, data, **columns, **reading, **options)

    def _training_data_note(self, examples: Sequence[Example]) -> list[str]:
        """A warning if the run was trained on some of the examples of a split."""
        known = in_training_texts(self.members[0].folder, examples)
        if not known:
            return []
        trained_on = f"the run was trained on {len(known):,} of these {len(examples):,} examples"
        if 2 * len(known) > len(examples):
            return [
                f"{trained_on}, so the score does not measure generalisation; see the run's own dev score, which is "
                "of other examples"
            ]
        return [f"{trained_on}, such as {shown(known[0])}, so the score is too optimistic"]

    def evaluate(
        self,
        data: Any,
        *,
        split: str | None = None,
        on_progress: Callable[[int], None] | None = None,
        **reading: Unpack[ReadingOptions],
    ) -> dict[str, Any]:
        """Computes the task's standard metrics with 95% intervals on every labelled split but train (on train if it is
        the only one), or on the given `split`. Under `tables`: precision, recall and F1 of each class, and the
        confusion matrix (rows are the gold labels, columns the predicted ones).

        A label unknown to the model counts as an error. Examples without a label are not scored, nor are those without
        text, as `predict` gives them no prediction; their number is under `unlabelled`. Where questions may be
        unanswerable, the scores are also computed with the no-answer threshold tuned on the split itself, which is how
        development scores are published. `reading` are the options of `read`.
        """
        spec, data_set = self.read(data, **reading)
        scores: dict[str, Any] = {
            "task": spec.name,
            "metric_for_best": spec.task.metrics[0],
            "splits": {},
            "tables": {},
            "examples": {},
            "unlabelled": {},
            "truncated_texts": {},
            "unknown_labels": [],
            "messages": list(data_set.messages),
            "problems": data_set.problems.to_dict(),
            "notes": [],
        }
        unknown: set[str] = set()
        for name in _chosen_splits(data_set, split):
            examples = [each for each in data_set.splits[name] if spec.task.is_scored(each, spec.task.allows_no_answer)]
            scores["unlabelled"][name] = len(data_set.splits[name]) - len(examples)
            if not examples:
                continue
            scores["notes"] += self._training_data_note(examples) if name != "train" else []
            if spec.task.has_labels:
                labels = {label for each in examples for label in each.label_names}
                _refuse_other_labels(labels, self.labels)
                unknown |= labels - set(self.labels)
            unlabelled = [each.without_label() for each in examples]
            at_once = len(examples) if spec.task.compares_examples(examples) else None
            predictions, scores["truncated_texts"][name] = self.predict_examples(unlabelled, on_progress, at_once)
            scores["examples"][name] = len(examples)
            scores["splits"][name] = with_intervals(spec.task, examples, predictions)
            scores["tables"][name] = score_tables(spec.task, examples, predictions)
            if spec.task.allows_no_answer:
                best = spec.task.with_best_threshold(examples, predictions)
                tuned_scores = with_intervals(best, examples, best.apply_threshold(predictions))
                scores["splits"][f"{name}, threshold chosen on it"] = tuned_scores
        if not scores["splits"]:
            splits = ", ".join(scores["unlabelled"])
            raise ValueError(
                f"there are no labels in {splits}, so nothing can be scored: give labelled data, or use predict"
            )
        return scores | {"unknown_labels": sorted(unknown)}


def load_predictor(
    runs: str | Path | Sequence[str | Path],
    device: str = "auto",
    graph: str | Path | None = None,
    task: str | None = None,
) -> Predictor:
    """Loads a fine-tuned run for prediction.

    Args:
        runs: A run, a fine-tuned folder that `transformers` wrote, an exported folder, or a Hugging Face name; several
            form an ensemble.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        graph: For runs that read entities: the folder of their graph, if it was moved.
        task: `similarity` for a model without a task head, whose vectors are compared.

    >>> import hornbook
    >>> predictor = hornbook.load_predictor("runs/reviews")
    >>> sorted(predictor.predict("A charming journey.")[0].probabilities)
    ['bad', 'good']
    """
    names = [runs] if isinstance(runs, str | Path) else list(runs)
    if not names:
        raise ValueError("no run was given: give at least one fine-tuned run")
    if task not in (None, SIMILARITY):
        raise ValueError(f"only {SIMILARITY} needs no training, not {task}: leave out task=, or fine-tune the model")
    return Predictor([load_task_model(name, graph, task) for name in names]).to(chosen_device(device))


def evaluate(
    run: str | Path | list[str | Path],
    data: Any,
    *,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    split: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    device: str = "auto",
    graph: str | Path | None = None,
    task: str | None = None,
) -> dict[str, Any]:
    """Computes the task's standard metrics of a fine-tuned run on labelled data, with 95% intervals.

    Args:
        run: A fine-tuned run or folder, or several, which form an ensemble.
        data: A file, a folder, a data frame or a list of dictionaries.
        text, pair, label: Column names; default to those of the run, or are inferred.
        split: The split to score; defaults to every labelled split but train.
        delimiter, encoding: Of a text file; inferred by default.
        strict: Raise a `ValueError` at the first bad row.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        graph: For runs that read entities: the folder of their graph, if it was moved.
        task: `similarity` for a model without a task head, whose vectors are compared.

    Returns:
        A dictionary: `splits` (value, low and high by split and metric), `tables` (the scores of each class and the
        confusion matrix), `task`, `metric_for_best`, the numbers of `examples`, `unlabelled` and `truncated_texts` by
        split, `unknown_labels`, `messages`, `notes` and `problems`.

    >>> import hornbook
    >>> scores = hornbook.evaluate("runs/reviews", "reviews.csv")
    >>> scores["examples"], sorted(scores["tables"]["dev"]["classes"])
    ({'dev': 24}, ['bad', 'good'])
    """
    reading = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    return load_predictor(run, device, graph, task).evaluate(data, **reading, split=split, strict=strict)


def combine(task: Task, outputs: list[list[np.ndarray]]) -> list[np.ndarray]:
    """Averages the outputs of several models: returns logits that decode to the mean of their probabilities."""
    if len(outputs) == 1:
        return outputs[0]
    return [task.average(np.stack(answers).astype(np.float64)) for answers in zip(*outputs, strict=True)]


def _is_diagnostic(data: Any) -> bool:
    if not isinstance(data, str | Path):
        return False
    path = Path(data).expanduser()
    has_file = (path / f"{DIAGNOSTIC}.tsv").is_file() and not (path / "dev_matched.tsv").is_file()
    return has_file or path.name.lower().startswith(DIAGNOSTIC)


def _chosen_splits(data: DataSet, split: str | None) -> list[str]:
    if split is None:
        return [name for name in data.splits if name != "train"] or list(data.splits)
    if split not in data.splits:
        raise ValueError(f"the data has no split '{split}'; it has {', '.join(data.splits)}")
    return [split]


def _refuse_other_labels(of_data: set[str], of_model: tuple[str, ...]) -> None:
    if of_data and of_data.isdisjoint(of_model):
        first, known = ", ".join(sorted(of_data)[:5]), ", ".join(of_model[:5])
        raise ValueError(f"none of the labels of the data ({first}) is a label of the model ({known})")


SHARED_BY_MEMBERS: dict[str, Callable[[TaskModel], Any]] = {  # what the members of an ensemble must share
    "their task kind": lambda member: member.spec.task.kind,
    "their labels": lambda member: member.spec.task.head_config.labels,
    "their problem type": lambda member: member.spec.task.head_config.problem_type,
    "how they encode pairs": lambda member: member.spec.task.head_config.pair_encoding,
    "how they detect unanswerable questions": lambda member: member.spec.task.head_config.has_answer_classifier,
    "whether they may give no answer": lambda member: getattr(member.spec.task, "allows_no_answer", False),
    "the knowledge graph whose entities they read": lambda member: (member.spec.graph or {}).get("fingerprint"),
    "how they read a knowledge graph": lambda member: member.spec.task.head_config.graph,
    "their tokenizer": lambda member: member.tokenizer.fingerprint,
}


def check_agreement(members: Sequence[TaskModel]) -> None:
    """Raises unless all members have the same task, outputs and tokenizer."""
    first = members[0]
    for other in members[1:]:
        for name, value_of in SHARED_BY_MEMBERS.items():
            if (ours := value_of(first)) != (theirs := value_of(other)):
                detail = "" if "graph" in name or "tokenizer" in name else f" ({_text(ours)}, and {_text(theirs)})"
                raise ValueError(
                    f"{first.folder} and {other.folder} cannot form an ensemble: they differ in {name}{detail}; give "
                    "runs with the same task, tokenizer and graph"
                )


def _text(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    text = ", ".join(value[:8]) or "none"
    return f"{text}, … ({len(value)})" if len(value) > 8 else text
