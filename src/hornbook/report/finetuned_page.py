"""The report page of a fine-tuning run: scores, curves, error analysis, data and settings."""

from functools import cache
from html import escape
from pathlib import Path

from hornbook.files import write_text
from hornbook.metrics.breakdown import Confusion, Fragment, Mistake
from hornbook.report import usage, wording
from hornbook.report.confusion import confusion_png, heads_png, scatter_png
from hornbook.report.curves import curves_png
from hornbook.report.drawing import write_png
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.learning import has_curves, learning_png
from hornbook.report.markup import events, page, picture, row, section, settings, table, tiles
from hornbook.report.run import NOT_LOSSES, RunRecord, number
from hornbook.report.several_page import several_sections
from hornbook.report.stages import Stage

MOST_TALLIES = 60
MOST_MISTAKES = 12


def write_finetuned_page(record: RunRecord) -> Path:
    """Writes `report.html` into the folder of a fine-tuning run and returns its path.

    Where there is data for them, also writes `curves.png` and `confusion.png` (`scatter.png` for regression).
    """
    run = FinetunedRun(record)
    path = run.folder / "report.html"
    sections = [
        _head(run),
        _warning(run),
        tiles(_tiles(run)),
        section("Scores", _scores(run)),
        *(section(stage.title.capitalize(), _stage(stage)) for stage in run.earlier_stages),
        section(_curves_title(run), _curves(run)),
        *several_sections(run.folder),
        section("Errors on dev", _breakdown(run)),
        section("Worst errors on dev", _mistakes(run)),
        section("Attention", _attention(run)),
        section("Model and data", _data(run)),
        section("Events", events(record)),
        section("Usage", _usage(run)),
        section("Settings", settings(record)),
    ]
    write_text(path, page(f"{run.name}, {run.state_in_words}", sections))
    return path


def _head(run: FinetunedRun) -> str:
    start = "trained from random weights, architecture of" if run.is_from_scratch else "fine-tuned from"
    parameters, trained = run.run.get("parameters"), run.run.get("trained_parameters")
    size = f"{wording.amount(parameters)} parameters" if parameters else ""
    if parameters and trained is not None and trained != parameters:
        size += f", {wording.amount(trained)} of them trained"
    version = f"hornbook {run.run['hornbook']}" if "hornbook" in run.run else ""
    distilled = f"distilled from {run.record.teacher}" if run.record.teacher else ""
    about = " · ".join(filter(None, (f"{start} {run.model}", distilled, size, version, str(run.folder))))
    kind = "finished" if run.is_finished else "unfinished"
    badge = f'<span class="badge {kind}">{escape(run.state_in_words)}</span>'
    return f'<header>\n<h1>{escape(run.name)} {badge}</h1>\n<p class="soft small path">{escape(about)}</p>\n</header>'


def _warning(run: FinetunedRun) -> str:
    if not run.degenerate:
        return ""
    return (
        f'<p class="warning">This run is degenerate: {escape(str(run.degenerate))}. Its scores say nothing about the '
        "model; try other seeds (--restarts) or learning rates (--search).</p>"
    )


def _tiles(run: FinetunedRun) -> list[tuple[str, str, str]]:
    out = []
    dev = run.splits.get("dev", {})
    for name in sorted(dev, key=lambda name: name != run.decided_by)[:3]:
        found = dev[name]
        low, high = (run.score_in_words(name, found.get(end)) for end in ("low", "high"))
        note = f"on dev; 95% interval {low} to {high}"
        out.append((wording.measure(name), run.score_in_words(name, found.get("value")), note))
    best, record = run.best_validation, run.record
    if best is not None:
        note = f"by dev score, of {record.step:,}" + ("; the run keeps its weights" if run.is_finished else " so far")
        out.append(("best step", f"{best['step']:,}", note))
    examples = run.train_examples
    if examples is not None:
        available = (run.data.get("examples") or {}).get("train")
        note = f"of {available:,} in the data" if available and available != examples else "the whole training split"
        note += f", and {run.copies_in_words}" if run.copies_in_words else ""
        out.append(("trained on", f"{examples:,}", f"examples, {note}"))
    if run.seconds:
        stages = f" in {run.num_stages} stages" if run.earlier_stages else ""
        out.append(("time", wording.duration(run.seconds), f"of training, validation and saving{stages}"))
    out.append(("device", record.device, str((run.run.get("runtime") or {}).get("reason", ""))))
    return out


def _scores(run: FinetunedRun) -> str:
    names = list(dict.fromkeys(name for scores in run.splits.values() for name in scores))
    rows = []
    for name in sorted(names, key=lambda name: name != run.decided_by):
        cells = [
            (split, run.interval_in_words(name, scores[name]) if name in scores else "")
            for split, scores in run.splits.items()
        ]
        rows.append(row(wording.measure(name) + (" (model selection)" if name == run.decided_by else ""), cells))
    if not rows:
        return ""
    note = "Each score with its 95% bootstrap interval over the examples of the split."
    note += (
        " The step was chosen by its dev score, so the dev scores are slightly optimistic."
        if run.best_validation
        else ""
    )
    return table(("", *map(escape, run.splits)), rows, amounts_from=1) + f'<p class="soft small">{note}</p>'


def _stage(stage: Stage) -> str:
    record = stage.record
    summary = f'<p class="soft small">{escape(stage.took)}</p>'
    if not record.train:
        return summary
    draw = cache(lambda is_dark, is_narrow: curves_png(record, is_dark, 1 if is_narrow else 2))
    write_png(record.folder / "curves.png", draw(False, False))
    return summary + picture(draw, f"Curves of {stage.title}", has_narrow=True)


def _curves_title(run: FinetunedRun) -> str:
    if not run.earlier_stages:
        return "Learning curves"
    terms = [name for name in (run.record.train or [{}])[0] if name not in NOT_LOSSES]
    return f"Stage {run.num_stages} of {run.num_stages}" + (f": {', '.join(terms)}" if terms else "")


def _curves(run: FinetunedRun) -> str:
    if not has_curves(run):
        return ""
    draw = cache(lambda is_dark, is_narrow: learning_png(run, is_dark, 1 if is_narrow else 2))
    write_png(run.folder / "curves.png", draw(False, False))
    return picture(draw, "Training loss, dev loss and dev scores by step", has_narrow=True)


def _breakdown(run: FinetunedRun) -> str:
    parts = []
    found = run.task_kind.confusion(run.judged)
    if found is not None:
        write_png(run.folder / "confusion.png", confusion_png(found))
        parts.append(_confusion_table(found))
    if run.task_kind.label_kind == "number" and run.predictions:
        draw = cache(lambda is_dark: scatter_png(run, is_dark))
        write_png(run.folder / "scatter.png", draw(False))
        image = picture(draw, "Predicted against gold values on dev")
        parts.append(f'<div class="picture">{image}</div>')
    parts.append(_tally_table(run))
    if run.predictions:
        parts.append(_length_table(run))
    return "".join(parts)


def _confusion_table(found: Confusion) -> str:
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in found.names)
    rows = []
    for name, counts, shares in zip(found.names, found.counts.tolist(), found.shares.tolist(), strict=True):
        cells = "".join(
            f'<td style="--share:{share:.3f}" title="{wording.percent(share)} of the row">{count:,}</td>'
            for count, share in zip(counts, shares, strict=True)
        )
        rows.append(f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>')
    note = f"Rows: gold labels. Columns: predictions. Counts of dev {found.of}; the colour is the fraction of the row."
    body = f'<table class="heat"><thead><tr><th></th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<p class="soft small">{note}</p>{body}'


def _tally_table(run: FinetunedRun) -> str:
    found = run.task_kind.tallies(run.judged)
    if not found:
        return ""
    what = run.task_kind.counted(run.judged)
    names = ("precision", "recall", "F1", "gold", "predicted")
    rows = []
    for each in found[:MOST_TALLIES]:
        shares = [wording.percent(value) for value in (each.precision, each.recall, each.f1)]
        counts = [f"{each.num_gold:,}", f"{each.num_predicted:,}"]
        rows.append(row(each.name, list(zip(names, shares + counts, strict=True))))
    left = len(found) - MOST_TALLIES
    note = f'<p class="soft small">and {left} less frequent</p>' if left > 0 else ""
    return f"<h3>By {what}</h3>" + table((what, *names), rows, amounts_from=1) + note


def _length_table(run: FinetunedRun) -> str:
    names = ("questions", "no word in common", "fraction")
    rows = [
        row(length, [(names[0], f"{num:,}"), (names[1], f"{missed:,}"), (names[2], wording.percent(missed / num))])
        for length, num, missed in run.task_kind.by_length(run.predictions)
    ]
    parts = []
    if run.or_none and isinstance(run.task.get("threshold"), int | float):
        parts.append(
            f"<p>The model abstains when the no-answer score is above {run.task['threshold']:.3f}, the threshold with "
            "the best F1 on dev. Questions with and without an answer are also scored separately above.</p>"
        )
    if rows:
        parts.append("<h3>By length of the gold answer</h3>")
        parts.append(table(("gold answer", *names), rows, amounts_from=1))
    return "".join(parts)


def _mistakes(run: FinetunedRun) -> str:
    order, found = run.task_kind.mistakes(run.predictions, MOST_MISTAKES)
    if not found:
        return "<p>No errors on dev.</p>" if run.predictions and order else ""
    has_labels = any(each.gold or each.predicted for each in found)  # not if the errors are marked in the text
    rows = []
    for each in found:
        labels = "" if not has_labels else f'<td data-label="gold">{escape(each.gold)}</td>'
        labels += "" if not has_labels else f'<td data-label="predicted">{escape(each.predicted)}</td>'
        rows.append(f'<tr><td>{_texts(each)}</td>{labels}<td class="soft small">{escape(each.note)}</td></tr>')
    titles = ("text", "") if not has_labels else ("text", "gold", "predicted", "")
    return f'<p class="soft small">{escape(order[:1].upper() + order[1:])}.</p>' + table(titles, rows)


def _texts(mistake: Mistake) -> str:
    key = f'<div class="soft small">{escape(mistake.key)}</div>' if mistake.key else ""
    return key + "".join(f"<p>{' '.join(map(_fragment, text))}</p>" for text in mistake.texts)


def _fragment(fragment: Fragment) -> str:
    if not fragment.error:
        return escape(fragment.text)
    return f'<mark>{escape(fragment.text)}</mark> <span class="wrong">{escape(fragment.error)}</span>'


def _attention(run: FinetunedRun) -> str:
    found = run.attention
    tokens, mean = found.get("tokens") or [], found.get("mean") or []
    if not tokens or len(mean) != len(tokens):
        return ""
    heads = "".join(f'<th scope="col">{escape(str(token))}</th>' for token in tokens)
    most = max((number(weight) for weights in mean for weight in weights), default=1.0) or 1.0
    rows = []
    for token, weights in zip(tokens, mean, strict=True):
        cells = "".join(
            f'<td style="--share:{number(weight) / most:.3f}" '
            f'title="{escape(f"{token} → {other}")}: {wording.percent(number(weight))}"></td>'
            for other, weight in zip(tokens, weights, strict=False)
        )
        rows.append(f'<tr><th scope="row">{escape(str(token))}</th>{cells}</tr>')
    layer = f"layer {found.get('layer')} of {found.get('num_layers')}"
    note = (
        f"One example, {escape(layer)}: attention of each row token to the column tokens, mean over "
        f"{len(found.get('heads') or [])} heads; the darkest cell is {wording.percent(most)}."
    )
    body = f'<table class="looks"><thead><tr><th></th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<p class="soft small">{note}</p>{body}{_heads(found)}'


def _heads(found: dict) -> str:
    heads = found.get("heads") or []
    if not heads:
        return ""
    image = picture(lambda is_dark: heads_png(heads, is_dark), "Attention of each head")
    return f"<details><summary>each head</summary>{image}</details>"


def _data(run: FinetunedRun) -> str:
    data = run.data
    rows = [("model", run.model), ("task", f"{run.name}: {run.kind_in_words}")]
    if run.record.teacher:
        rows.insert(1, ("teacher", run.record.teacher))
    if run.labels:
        names = ", ".join(run.labels[:40]) + (f" and {len(run.labels) - 40} more" if len(run.labels) > 40 else "")
        rows.append((f"{len(run.labels)} labels", names))
    files = data.get("files") or []
    rows += [("file", str(file)) for file in files] or [("data", str(data.get("path") or "passed in memory"))]
    for split, num in (data.get("examples") or {}).items():
        rows.append((f"{split} examples", f"{num:,}"))
    for split, num in (run.run.get("cut_texts") or {}).items():
        if num:
            rows.append((f"truncated in {split}", f"{num:,} texts were longer than the maximum length"))
    cells = [
        f'<tr><td>{escape(label)}</td><td class="path" data-label="{escape(label)}">{escape(value)}</td></tr>'
        for label, value in rows
    ]
    return table((), cells) + _list("Notes from reading the data", data.get("said") or []) + _problems(run)


def _problems(run: FinetunedRun) -> str:
    lines = []
    for kind, problem in (run.data.get("problems") or {}).items():
        example = next(iter(problem.get("examples") or []), {})
        where = " ".join(str(example[name]) for name in ("file", "place", "detail") if example.get(name))
        count = problem.get("count", 0)
        lines.append(f"{count:,} {problem.get('what', kind)}" + (f" (first: {where})" if where else ""))
    return _list("Problems in the data", lines)


def _list(title: str, lines: list[str]) -> str:
    items = "".join(f'<li class="path">{escape(str(line))}</li>' for line in lines)
    return f"<h3>{title}</h3><ul>{items}</ul>" if lines else ""


def _usage(run: FinetunedRun) -> str:
    if not run.is_finished:
        return "<p>Run the same command again to resume the run.</p>"
    parts = [
        ("On the command line", usage.predict_command(run)),
        ("In Python", usage.python_code(run)),
        ("In transformers", usage.transformers_code(run)),
    ]
    return "".join(f"<p>{title}:</p><pre>{escape(code)}</pre>" for title, code in parts if code)
