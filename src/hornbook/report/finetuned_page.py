"""The report page of a fine-tuning run: scores, curves, error analysis, data and settings."""

from pathlib import Path

from hornbook.metrics.breakdown import Confusion
from hornbook.metrics.words import number
from hornbook.report import finetuned, wording
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.plots.drawing import Plot, picture
from hornbook.report.plots.errors import confusion_figure, heads_figure, scatter_figure, thresholds_figure
from hornbook.report.plots.learning import curves_figure, has_curves, learning_figure
from hornbook.report.rendering import Table, write_page
from hornbook.report.run import NOT_LOSSES, ReportedStage
from hornbook.report.trials import several_sections

MAX_TALLIES = 60
MAX_MISTAKES = 12
NUM_LIKELIEST = 3
ENDS = ("start", "end")


def write_finetuned_page(run: FinetunedRun) -> Path:
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
        about=_about(run),
        dev_scores=sorted(run.splits.get("dev", {}).items(), key=lambda item: item[0] != run.metric_for_best)[:3],
        examples=run.data.get("examples") or {},
        scores=_scores(run),
        stages=[(stage, _stage_curves(stage)) for stage in run.earlier_stages],
        curves_title=_curves_title(run),
        curves=_curves(run),
        order=order,
        mistakes=mistakes,
        has_labels=any(each.gold or each.predicted for each in mistakes),  # not if errors are marked in the text
        attention=_attention(run),
        illustrations=[_illustration(run, each) for each in run.illustrations],
        data_notes={
            "Notes from reading the data": run.data.get("messages") or [],
            "Problems in the data": _problems(run),
        },
        commands=finetuned.usage(run) if run.is_finished else [],
        **_errors(run),
        **several_sections(run.folder),
    )


def _about(run: FinetunedRun) -> str:
    start = "trained from random weights, architecture of" if run.is_from_scratch else "fine-tuned from"
    size = finetuned.format_parameters(run.run.get("parameters"), run.run.get("trained_parameters"), " parameters")
    version = f"hornbook {run.run['hornbook']}" if "hornbook" in run.run else ""
    distilled = f"distilled from {run.teacher}" if run.teacher else ""
    return " · ".join(filter(None, (f"{start} {run.model}", distilled, size, version, str(run.folder))))


def _scores(run: FinetunedRun) -> Table:
    names = dict.fromkeys(name for scores in run.splits.values() for name in scores)
    rows = [
        (
            wording.metric_label(name) + (" (model selection)" if name == run.metric_for_best else ""),
            *(run.format_interval(name, found[name]) if name in found else "" for found in run.splits.values()),
        )
        for name in sorted(names, key=lambda name: name != run.metric_for_best)
    ]
    return Table(("", *run.splits), rows)


def _stage_curves(stage: ReportedStage) -> Plot | None:
    record = stage.record
    if not record.train:
        return None
    return picture(curves_figure(record), f"Curves of {stage.title}", record.folder / "curves.png")


def _curves_title(run: FinetunedRun) -> str:
    if not run.earlier_stages:
        return "Learning curves"
    terms = [name for name in (run.train or [{}])[0] if name not in NOT_LOSSES]
    return f"Stage {run.num_stages} of {run.num_stages}" + (f": {', '.join(terms)}" if terms else "")


def _curves(run: FinetunedRun) -> Plot | None:
    if not has_curves(run):
        return None
    alt, path = "Training loss, dev loss and dev scores by step", run.folder / "curves.png"
    return picture(learning_figure(run), alt, path)


def _errors(run: FinetunedRun) -> dict[str, object]:
    """What is known about the errors on dev: confusion matrix, scatter plot, counts per class, missed answers."""
    kind, scatter = run.task_kind, None
    found = kind.confusion(run.judged)
    if found is not None:
        picture(confusion_figure(found), "Confusion matrix", run.folder / "confusion.png")
    if kind.label_kind == "number" and run.predictions:
        scatter = picture(scatter_figure(run), "Predicted against gold values on dev", run.folder / "scatter.png")
    tallies = kind.tallies(run.judged)
    rows = [
        (
            each.name,
            *map(wording.percent, (each.precision, each.recall, each.f1)),
            *(f"{num:,}" for num in (each.num_gold, each.num_predicted)),
        )
        for each in tallies[:MAX_TALLIES]
    ]
    threshold = run.task.get("threshold") if run.predictions and run.allows_no_answer else None
    lengths = [
        (length, f"{num:,}", f"{missed:,}", wording.percent(missed / num))
        for length, num, missed in kind.by_length(run.predictions)
    ]
    return {
        "confusion": found,
        "confusion_rows": _confusion_rows(found) if found else [],
        "scatter": scatter,
        "tallies": Table((kind.counted(run.judged), "precision", "recall", "F1", "gold", "predicted"), rows),
        "num_tallies_left": len(tallies) - MAX_TALLIES,
        "threshold": threshold if isinstance(threshold, int | float) else None,
        "thresholds": _thresholds(run, threshold) if isinstance(threshold, int | float) else None,
        "lengths": Table(("gold answer", "questions", "no word in common", "fraction"), lengths),
    }


def _thresholds(run: FinetunedRun, threshold: float) -> Plot | None:
    points = run.task_kind.by_threshold(run.predictions, str(run.task.get("rules")))
    if not points:
        return None
    alt = "Exact match and F1 on dev by no-answer threshold"
    return picture(thresholds_figure(points, threshold), alt, run.folder / "thresholds.png")


def _illustration(run: FinetunedRun, found: dict) -> dict[str, object]:
    """A question, its answers, the likeliest tokens, and the passage in pieces of (text, style, title, whether it is
    in the predicted answer); text between tokens has no style."""
    passage, tokens = found["passage"], found["tokens"]
    pieces, done = [], 0
    for start, stop, *chances in tokens:
        pieces.append((passage[done:start], "", "", False))
        shares = (f"--{name}:{chance:.3f}" for name, chance in zip(ENDS, chances, strict=True))
        title = ", ".join(f"{name} {wording.percent(chance)}" for name, chance in zip(ENDS, chances, strict=True))
        is_answer = bool(found["answer"]) and found["start"] <= start and stop <= found["end"]
        pieces.append((passage[start:stop], ";".join(shares), title, is_answer))
        done = stop
    pieces.append((passage[done:], "", "", False))
    likeliest = []
    for which, name in ((2, "start"), (3, "end")):
        best = sorted(tokens, key=lambda token, which=which: -token[which])[:NUM_LIKELIEST]
        said = ", ".join(f"{passage[token[0] : token[1]].strip()} {wording.percent(token[which])}" for token in best)
        likeliest.append((name, said))
    if run.allows_no_answer and not (run.config.get("hornbook_head") or {}).get("answerable"):
        start, end = map(wording.percent, found["none"])
        score = f"no-answer score {found['no_answer_score']:.2f}"
        likeliest.append(("no answer", f"start {start}, end {end}; {score}"))
    elif run.allows_no_answer:
        likeliest.append(("no answer", f"no-answer score {found['no_answer_score']:.2f}"))
    gold = " / ".join(dict.fromkeys(found["gold"])) or "no answer"
    return found | {"pieces": pieces, "likeliest": likeliest, "gold": gold, "answer": found["answer"] or "no answer"}


def _confusion_rows(found: Confusion) -> list[tuple[str, list[tuple[str, float, str]]]]:
    """(gold label, (count, fraction of the row, title) of each cell)"""
    return [
        (
            name,
            [
                (f"{count:,}", share, f"{wording.percent(share)} of the row")
                for count, share in zip(counts, shares, strict=True)
            ],
        )
        for name, counts, shares in zip(found.names, found.counts.tolist(), found.shares.tolist(), strict=True)
    ]


def _attention(run: FinetunedRun) -> dict[str, object] | None:
    found = run.attention
    tokens, mean = [str(token) for token in found.get("tokens") or []], found.get("mean") or []
    if not tokens or len(mean) != len(tokens):
        return None
    largest = max((number(weight) for weights in mean for weight in weights), default=1.0) or 1.0
    rows = []
    for token, weights in zip(tokens, mean, strict=True):
        cells = [
            ("", number(weight) / largest, f"{token} → {other}: {wording.percent(number(weight))}")
            for other, weight in zip(tokens, weights, strict=False)
        ]
        rows.append((token, cells))
    heads = found.get("heads") or []
    image = picture(heads_figure(heads), "Attention of each head") if heads else None
    return {"tokens": tokens, "rows": rows, "largest": largest, "num_heads": len(heads), "heads": image}


def _problems(run: FinetunedRun) -> list[str]:
    lines = []
    for kind, problem in (run.data.get("problems") or {}).items():
        example = next(iter(problem.get("examples") or []), {})
        where = " ".join(str(example[name]) for name in ("file", "place", "detail") if example.get(name))
        count = problem.get("count", 0)
        lines.append(f"{count:,} {problem.get('what', kind)}" + (f" (first: {where})" if where else ""))
    return lines
