"""The report page of a fine-tuning run: scores, curves, error analysis, data and settings."""

from operator import itemgetter
from pathlib import Path

from hornbook.metrics.breakdown import Confusion
from hornbook.metrics.formatting import number
from hornbook.report import finetuned, formatting
from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.plots.drawing import Plot, picture
from hornbook.report.plots.errors import confusion_figure, heads_figure, scatter_figure, thresholds_figure
from hornbook.report.plots.learning import curves_figure, has_curves, learning_figure
from hornbook.report.rendering import Table, write_page
from hornbook.report.run_files import NOT_LOSSES, ReportedStage
from hornbook.report.trials import several_sections

MAX_TALLIES = 60
MAX_MISTAKES = 12
NUM_LIKELIEST = 3
ENDS = ("start", "end")


def write_finetuned_page(run: ReportedTaskRun) -> Path:
    """Writes `report.html` into the folder of a fine-tuning run and returns its path.

    Where there is data for them, also writes `curves.png` and `confusion.png` (`scatter.png` for regression), and
    `thresholds.png` for questions that may have no answer.
    """
    order, mistakes = run.task_kind.mistakes(run.predictions, MAX_MISTAKES)
    return write_page(
        run.folder,
        "finetuned.html",
        f"{run.name}, {run.status}",
        run=run,
        about=_subtitle(run),
        dev_scores=sorted(run.splits.get("dev", {}).items(), key=lambda item: item[0] != run.metric_for_best)[:3],
        examples=run.data.get("examples") or {},
        scores=_scores(run),
        stages=[(stage, _stage_curves(stage)) for stage in run.earlier_stages],
        curves_title=_curves_title(run),
        curves=_curves(run),
        order=order,
        mistakes=mistakes,
        has_labels=any(mistake.gold or mistake.predicted for mistake in mistakes),  # errors may be marked in the text
        attention=_attention(run),
        illustrations=[_illustration(run, example) for example in run.illustrations],
        data_notes={
            "Notes from reading the data": run.data.get("messages") or [],
            "Problems in the data": _problems(run),
        },
        commands=finetuned.usage(run) if run.is_finished else [],
        **_errors(run),
        **several_sections(run.folder),
    )


def _subtitle(run: ReportedTaskRun) -> str:
    start = "trained from random weights, architecture of" if run.is_from_scratch else "fine-tuned from"
    size = finetuned.format_parameters(
        run.record.get("parameters"), run.record.get("trained_parameters"), " parameters"
    )
    version = f"hornbook {run.record['hornbook']}" if "hornbook" in run.record else ""
    distilled = f"distilled from {run.teacher}" if run.teacher else ""
    return " · ".join(filter(None, (f"{start} {run.model}", distilled, size, version, str(run.folder))))


def _scores(run: ReportedTaskRun) -> Table:
    names = dict.fromkeys(name for scores in run.splits.values() for name in scores)
    rows = [
        (
            formatting.metric_label(name) + (" (model selection)" if name == run.metric_for_best else ""),
            *(run.format_interval(name, scores[name]) if name in scores else "" for scores in run.splits.values()),
        )
        for name in sorted(names, key=lambda name: name != run.metric_for_best)
    ]
    return Table(("", *run.splits), rows)


def _stage_curves(stage: ReportedStage) -> Plot | None:
    run = stage.run
    if not run.train:
        return None
    return picture(curves_figure(run), f"Curves of {stage.title}", run.folder / "curves.png")


def _curves_title(run: ReportedTaskRun) -> str:
    if not run.earlier_stages:
        return "Learning curves"
    terms = [name for name in (run.train or [{}])[0] if name not in NOT_LOSSES]
    return f"Stage {run.num_stages} of {run.num_stages}" + (f": {', '.join(terms)}" if terms else "")


def _curves(run: ReportedTaskRun) -> Plot | None:
    if not has_curves(run):
        return None
    return picture(learning_figure(run), "Training loss, dev loss and dev scores by step", run.folder / "curves.png")


def _errors(run: ReportedTaskRun) -> dict[str, object]:
    """The errors on dev: confusion matrix, scatter plot, counts per class, missed answers."""
    kind, scatter = run.task_kind, None
    confusion = kind.confusion(run.judged)
    if confusion is not None:
        picture(confusion_figure(confusion), "Confusion matrix", run.folder / "confusion.png")
    if kind.problem_type == "regression" and run.predictions:
        scatter = picture(scatter_figure(run), "Predicted against gold values on dev", run.folder / "scatter.png")
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
        "tallies": Table((kind.counted(run.judged), "precision", "recall", "F1", "gold", "predicted"), rows),
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
    return picture(thresholds_figure(points, threshold), alt, run.folder / "thresholds.png")


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
    heads = run.attention.get("heads") or []
    image = picture(heads_figure(heads), "Attention of each head") if heads else None
    return {"tokens": tokens, "rows": rows, "largest": largest, "num_heads": len(heads), "heads": image}


def _problems(run: ReportedTaskRun) -> list[str]:
    lines = []
    for kind, problem in (run.data.get("problems") or {}).items():
        example = next(iter(problem.get("examples") or []), {})
        where = " ".join(str(example[name]) for name in ("file", "place", "detail") if example.get(name))
        count = problem.get("count", 0)
        lines.append(f"{count:,} {problem.get('what', kind)}" + (f" (first: {where})" if where else ""))
    return lines
