"""The report page of any folder: `write_report`; and those of a pre-training run and of a fine-tuning run."""

import shlex
from operator import itemgetter
from pathlib import Path

import numpy as np

from hornbook.files import read_json_if_exists, refusing_damage
from hornbook.lifecycle.run_folder import SCORES
from hornbook.metrics.breakdown import Confusion
from hornbook.metrics.formatting import number
from hornbook.report import finetuned, formatting
from hornbook.report.experiment import RESULTS, write_experiment_page
from hornbook.report.finetuned import ReportedTaskRun, load_run
from hornbook.report.measured import COMPARISON_FILE, write_comparison_page
from hornbook.report.plots.drawing import Plot, render_png
from hornbook.report.plots.run import (
    finetuning_curves,
    pretraining_curves,
    scatter_figure,
    thresholds_figure,
)
from hornbook.report.prompting import write_prompted_page
from hornbook.report.rendering import Table, write_page
from hornbook.report.run_files import NOT_LOSSES, ReportedRun, mask_token, split_sample
from hornbook.report.run_list import find_runs
from hornbook.report.side_by_side import write_runs_page
from hornbook.report.trials import is_several, several_sections

MAX_TALLIES = 60
MAX_MISTAKES = 12
NUM_LIKELIEST = 3
ENDS = ("start", "end")


def write_report(folder: str | Path) -> Path:
    """Writes `report.html` and, once there are metrics, `curves.png` into a run folder; returns the page's path.

    >>> import hornbook
    >>> hornbook.write_report("runs/reviews").name
    'report.html'

    Fine-tuning runs, trials, label curves, experiments, prompted tasks, comparisons and folders with several runs have
    their own pages and plots.
    """
    folder = Path(folder)
    with refusing_damage(folder, "restore its JSON files, or create the folder again"):
        if (folder / COMPARISON_FILE).is_file():
            return write_comparison_page(folder)
        if read_json_if_exists(folder / RESULTS).get("kind") == "experiment":
            return write_experiment_page(folder)
        if read_json_if_exists(folder / SCORES).get("kind") == "prompt":
            return write_prompted_page(folder)
        if is_several(folder):
            return write_page(folder, "several.html", f"several runs in {folder}", **several_sections(folder))
        if folder.is_dir() and (runs := find_runs(folder)) and runs != [folder]:
            return write_runs_page(folder, runs)
        run = load_run(folder)
        return _write_task_page(run) if isinstance(run, ReportedTaskRun) else _write_run_page(run)


def _write_run_page(run: ReportedRun) -> Path:
    curves = None
    if run.train or run.validations:
        alt = "Losses, accuracy, learning rate and speed by step"
        curves = render_png(pretraining_curves(run), alt, run.folder / "curves.png")
    mask = mask_token(run.folder)
    samples = [split_sample(sample, mask) for sample in run.samples]
    is_right = [[token == sample["answer"] for token, _ in sample["guesses"]] for sample in samples]
    return write_page(
        run.folder,
        "run.html",
        f"{run.preset}, {run.status}",
        run=run,
        curves=curves,
        last=run.last_validation,
        best=run.best_validation,
        has_best_folder=(run.folder / "best").is_dir(),
        mask=mask,
        samples=samples,
        num_first=sum(any(of_sample[:1]) for of_sample in is_right),
        num_listed=sum(map(any, is_right)),
        commands=_commands(run, mask),
    )


def _commands(run: ReportedRun, mask: str) -> list[tuple[str, str]]:
    sentence = f"The {mask} sat on the mat."
    commands = [] if run.is_finished else [("Resume from the last checkpoint", run.resume_command)]
    can_fill = "mlm" in run.record.get("heads", ["mlm"]) or run.record.get("family") == "electra"
    if can_fill and ((run.folder / "model.safetensors").is_file() or run.is_finished):
        fill = shlex.join(["hornbook", "fill-mask", str(run.folder), sentence])
        code = f"import hornbook\n\nmodel = hornbook.load({str(run.folder)!r})\nmodel.fill_mask({sentence!r})"
        commands += [("Predict a masked word", fill), ("The same in Python", code)]
    return commands


# ---- fine-tuning


def _write_task_page(run: ReportedTaskRun) -> Path:
    """Writes `report.html` into the folder of a fine-tuning run and returns its path.

    Where there is data for them, also writes `curves.png`, `scatter.png` for regression, and `thresholds.png` for
    questions that may have no answer.
    """
    order, mistakes = run.task_kind.worst_mistakes(run.predictions, MAX_MISTAKES)
    curves, stages = None, []
    if run.validations or any(np.isfinite(run.column("train", "loss"))):
        alt = "Training loss, dev loss and dev scores by step"
        curves = render_png(finetuning_curves(run), alt, run.folder / "curves.png")
    for stage in run.earlier_stages:
        file = stage.run.folder / "curves.png"
        plot = render_png(pretraining_curves(stage.run), f"Curves of {stage.title}", file) if stage.run.train else None
        stages.append((stage, plot))
    return write_page(
        run.folder,
        "finetuned.html",
        f"{run.name}, {run.status}",
        run=run,
        dev_scores=sorted(run.splits.get("dev", {}).items(), key=lambda item: item[0] != run.metric_for_best)[:3],
        scores=_scores(run),
        stages=stages,
        curves_title=_curves_title(run),
        curves=curves,
        order=order,
        mistakes=mistakes,
        has_labels=any(mistake.gold or mistake.predicted for mistake in mistakes),  # errors may be marked in the text
        attention=_attention(run),
        illustrations=[_illustration(run, example) for example in run.illustrations],
        commands=finetuned.usage(run) if run.is_finished else [],
        **_errors(run),
        **several_sections(run.folder),
    )


def _scores(run: ReportedTaskRun) -> Table:
    names = dict.fromkeys(name for scores in run.splits.values() for name in scores)
    rows = [
        (
            formatting.metric_label(name) + (" (model selection)" if name == run.metric_for_best else ""),
            *(
                formatting.score_with_interval(name, scores[name]) if name in scores else ""
                for scores in run.splits.values()
            ),
        )
        for name in sorted(names, key=lambda name: name != run.metric_for_best)
    ]
    return Table(("", *run.splits), rows)


def _curves_title(run: ReportedTaskRun) -> str:
    if not run.earlier_stages:
        return "Learning curves"
    terms = [name for name in (run.train or [{}])[0] if name not in NOT_LOSSES]
    return f"Stage {run.num_stages} of {run.num_stages}" + (f": {', '.join(terms)}" if terms else "")


def _errors(run: ReportedTaskRun) -> dict[str, object]:
    """The errors on dev: confusion matrix, scatter plot, counts per class, missed answers."""
    kind, scatter = run.task_kind, None
    confusion = kind.confusion(run.judged)
    if kind.problem_type == "regression" and run.predictions:
        scatter = render_png(scatter_figure(run), "Predicted against gold values on dev", run.folder / "scatter.png")
    tallies = kind.tallies(run.judged)
    rows = [
        (
            tally.name,
            *map(formatting.percent, (tally.precision, tally.recall, tally.f1)),
            *(f"{count:,}" for count in (tally.num_gold, tally.num_predicted)),
        )
        for tally in tallies[:MAX_TALLIES]
    ]
    threshold = run.task.get("threshold") if run.predictions and run.allows_no_answer else None
    threshold = threshold if isinstance(threshold, int | float) else None
    lengths = [
        (length, f"{count:,}", f"{missed:,}", formatting.percent(missed / count))
        for length, count, missed in kind.by_length(run.predictions)
    ]
    return {
        "confusion": confusion,
        "confusion_rows": _confusion_rows(confusion) if confusion else [],
        "scatter": scatter,
        "tallies": Table((kind.tally_noun(run.judged), "precision", "recall", "F1", "gold", "predicted"), rows),
        "num_tallies_left": len(tallies) - MAX_TALLIES,
        "threshold": threshold,
        "thresholds": None if threshold is None else _thresholds(run, threshold),
        "lengths": Table(("gold answer", "questions", "no word in common", "fraction"), lengths),
    }


def _thresholds(run: ReportedTaskRun, threshold: float) -> Plot | None:
    points = run.task_kind.by_threshold(run.predictions, str(run.task.get("rules")))
    if not points:
        return None
    alt = "Exact match and F1 on dev by no-answer threshold"
    return render_png(thresholds_figure(points, threshold), alt, run.folder / "thresholds.png")


def _illustration(run: ReportedTaskRun, example: dict) -> dict[str, object]:
    """A question, its answers, the likeliest tokens, and the passage in pieces of (text, style, title, whether it is
    in the predicted answer); text between tokens has no style. A token is (start, stop, probability that the answer
    starts there, and that it ends there)."""
    passage, tokens = example["passage"], example["tokens"]
    pieces, done = [], 0
    for start, stop, *probabilities in tokens:
        pieces.append((passage[done:start], "", "", False))
        named = dict(zip(ENDS, probabilities, strict=True))
        style = ";".join(f"--{name}:{probability:.3f}" for name, probability in named.items())
        title = ", ".join(f"{name} {formatting.percent(probability)}" for name, probability in named.items())
        is_answer = bool(example["answer"]) and example["start"] <= start and stop <= example["end"]
        pieces.append((passage[start:stop], style, title, is_answer))
        done = stop
    pieces.append((passage[done:], "", "", False))
    likeliest = []
    for i, name in enumerate(ENDS, 2):
        best = sorted(tokens, key=itemgetter(i), reverse=True)[:NUM_LIKELIEST]
        texts = (f"{passage[token[0] : token[1]].strip()} {formatting.percent(token[i])}" for token in best)
        likeliest.append((name, ", ".join(texts)))
    if run.allows_no_answer:
        score = f"no-answer score {example['no_answer_score']:.2f}"
        if not (run.config.get("hornbook_head") or {}).get("has_answer_classifier"):
            start, end = map(formatting.percent, example["none"])
            score = f"start {start}, end {end}; {score}"
        likeliest.append(("no answer", score))
    gold = " / ".join(dict.fromkeys(example["gold"])) or "no answer"
    answer = example["answer"] or "no answer"
    return example | {"pieces": pieces, "likeliest": likeliest, "gold": gold, "answer": answer}


def _confusion_rows(confusion: Confusion) -> list[tuple[str, list[tuple[str, float, str]]]]:
    """(gold label, (count, fraction of the row, title) of each cell)"""
    return [
        (
            name,
            [
                (f"{count:,}", fraction, f"{formatting.percent(fraction)} of the row")
                for count, fraction in zip(counts, fractions, strict=True)
            ],
        )
        for name, counts, fractions in zip(
            confusion.names, confusion.counts.tolist(), confusion.shares.tolist(), strict=True
        )
    ]


def _attention(run: ReportedTaskRun) -> dict[str, object] | None:
    tokens, mean = [str(token) for token in run.attention.get("tokens") or []], run.attention.get("mean") or []
    if not tokens or len(mean) != len(tokens):
        return None
    largest = max((number(weight) for weights in mean for weight in weights), default=1.0) or 1.0
    rows = []
    for token, weights in zip(tokens, mean, strict=True):
        cells = [
            ("", number(weight) / largest, f"{token} → {other}: {formatting.percent(number(weight))}")
            for other, weight in zip(tokens, weights, strict=False)
        ]
        rows.append((token, cells))
    return {"tokens": tokens, "rows": rows, "largest": largest, "num_heads": len(run.attention.get("heads") or [])}
