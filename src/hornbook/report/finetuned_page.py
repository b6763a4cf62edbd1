"""The report of a fine-tuning run: what was learned from what, how well, and where it goes wrong."""

from functools import cache
from html import escape
from pathlib import Path

from hornbook.files import write_text
from hornbook.metrics.breakdown import Confusion, confusion, tallies
from hornbook.report import usage, wording
from hornbook.report.breakdown import by_length
from hornbook.report.confusion import confusion_png, heads_png, scatter_png
from hornbook.report.curves import curves_png
from hornbook.report.drawing import write_png
from hornbook.report.finetuned import FinetunedRun
from hornbook.report.learning import has_curves, learning_png
from hornbook.report.markup import events, page, picture, row, section, settings, table, tiles
from hornbook.report.mistakes import Mistake, Piece, worst_mistakes
from hornbook.report.run import NOT_LOSSES, RunRecord, number
from hornbook.report.several_page import several_sections
from hornbook.report.stages import Stage

MOST_TALLIES = 60


def write_finetuned_page(record: RunRecord) -> Path:
    """Writes `report.html` and, as far as there is something to draw, `curves.png` and `confusion.png` or, of numbers,
    `scatter.png` into the folder of a fine-tuning run; answers the page's path."""
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
        section("Where it goes wrong on dev", _breakdown(run)),
        section("Worst mistakes on dev", _mistakes(run)),
        section("What it looks at", _attention(run)),
        section("What it was fine-tuned on", _data(run)),
        section("What happened on the way", events(record)),
        section("How to use it", _usage(run)),
        section("Settings", settings(record)),
    ]
    write_text(path, page(f"{run.name}, {run.state_in_words}", sections))
    return path


def _head(run: FinetunedRun) -> str:
    start = "the same network from random weights, of" if run.is_from_scratch else "fine-tuned from"
    parameters, trained = run.run.get("parameters"), run.run.get("trained_parameters")
    size = f"{wording.amount(parameters)} parameters" if parameters else ""
    if parameters and trained is not None and trained != parameters:
        size += f", {wording.amount(trained)} of them trained"
    version = f"hornbook {run.run['hornbook']}" if "hornbook" in run.run else ""
    taught = f"learned from {run.record.teacher}" if run.record.teacher else ""
    about = " · ".join(filter(None, (f"{start} {run.model}", taught, size, version, str(run.folder))))
    kind = "finished" if run.is_finished else "unfinished"
    badge = f'<span class="badge {kind}">{escape(run.state_in_words)}</span>'
    return f'<header>\n<h1>{escape(run.name)} {badge}</h1>\n<p class="soft small path">{escape(about)}</p>\n</header>'


def _warning(run: FinetunedRun) -> str:
    if not run.degenerate:
        return ""
    return (
        f'<p class="warning">This run is degenerate: {escape(str(run.degenerate))}. Its scores say nothing about what '
        "the model can learn; try another seed (--restarts) or another learning rate (--search).</p>"
    )


def _tiles(run: FinetunedRun) -> list[tuple[str, str, str]]:
    shown = []
    dev = run.parts.get("dev", {})
    for name in sorted(dev, key=lambda name: name != run.decided_by)[:3]:
        found = dev[name]
        low, high = (run.score_in_words(name, found.get(end)) for end in ("low", "high"))
        note = f"on dev; 95% interval {low} to {high}"
        shown.append((wording.measure(name), run.score_in_words(name, found.get("value")), note))
    best, record = run.best_validation, run.record
    if best is not None:
        note = f"by dev score, of {record.step:,}" + ("; its weights are the run's" if run.is_finished else " so far")
        shown.append(("best step", f"{best['step']:,}", note))
    examples = run.train_examples
    if examples is not None:
        all_of_them = (run.data.get("examples") or {}).get("train")
        note = f"of {all_of_them:,} in the data" if all_of_them and all_of_them != examples else "all of the train part"
        note += f", and {run.copies_in_words}" if run.copies_in_words else ""
        shown.append(("trained on", f"{examples:,}", f"examples, {note}"))
    if run.seconds:
        stages = f" in {run.num_stages} stages" if run.earlier_stages else ""
        shown.append(("time", wording.duration(run.seconds), f"of training, validation and saving{stages}"))
    shown.append(("device", record.device, str((run.run.get("runtime") or {}).get("reason", ""))))
    return shown


def _scores(run: FinetunedRun) -> str:
    names = list(dict.fromkeys(name for part in run.parts.values() for name in part))
    rows = []
    for name in sorted(names, key=lambda name: name != run.decided_by):
        cells = [
            (part, run.interval_in_words(name, found[name]) if name in found else "")
            for part, found in run.parts.items()
        ]
        rows.append(row(wording.measure(name) + (" (decides)" if name == run.decided_by else ""), cells))
    if not rows:
        return ""
    note = "Each score with its 95% interval, from a bootstrap over the examples of the part."
    note += " The step was chosen by the dev score, so dev flatters a little." if run.best_validation else ""
    return table(("", *map(escape, run.parts)), rows, amounts_from=1) + f'<p class="soft small">{note}</p>'


def _stage(stage: Stage) -> str:
    record = stage.record
    shown = f'<p class="soft small">{escape(stage.took)}</p>'
    if not record.train:
        return shown
    draw = cache(lambda is_dark, is_narrow: curves_png(record, is_dark, 1 if is_narrow else 2))
    write_png(record.folder / "curves.png", draw(False, False))
    return shown + picture(draw, f"Curves of {stage.title}", has_narrow=True)


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
    return picture(draw, "Curves of the loss in training and on dev, and of the scores on dev", has_narrow=True)


def _breakdown(run: FinetunedRun) -> str:
    parts = []
    found = confusion(run.judged)
    if found is not None:
        write_png(run.folder / "confusion.png", confusion_png(found))
        parts.append(_confusion_table(found))
    if run.kind == "regression" and run.predictions:
        draw = cache(lambda is_dark: scatter_png(run, is_dark))
        write_png(run.folder / "scatter.png", draw(False))
        shown = picture(draw, "Each dev example at what is right and was said")
        parts.append(f'<div class="picture">{shown}</div>')
    parts.append(_tally_table(run))
    if run.kind == "spans" and run.predictions:
        parts.append(_span_table(run))
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
    note = f"Rows: what is right. Columns: what was said. In {found.of} of dev; the colour is the share of the row."
    body = f'<table class="heat"><thead><tr><th></th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<p class="soft small">{note}</p>{body}'


def _tally_table(run: FinetunedRun) -> str:
    found = tallies(run.judged)
    if not found:
        return ""
    what = run.judged.counted
    names = ("precision", "recall", "F1", "in dev", "said")
    rows = []
    for each in found[:MOST_TALLIES]:
        shares = [wording.percent(value) for value in (each.precision, each.recall, each.f1)]
        counts = [f"{each.num_gold:,}", f"{each.num_predicted:,}"]
        rows.append(row(each.name, list(zip(names, shares + counts, strict=True))))
    left = len(found) - MOST_TALLIES
    note = f'<p class="soft small">and {left} rarer ones</p>' if left > 0 else ""
    return f"<h3>By {what}</h3>" + table((what, *names), rows, amounts_from=1) + note


def _span_table(run: FinetunedRun) -> str:
    names = ("questions", "no word right", "share")
    rows = [
        row(words, [(names[0], f"{num:,}"), (names[1], f"{missed:,}"), (names[2], wording.percent(missed / num))])
        for words, num, missed in by_length(run)
    ]
    parts = []
    if run.or_none and isinstance(run.task.get("threshold"), int | float):
        parts.append(
            f"<p>A question is left unanswered when its no-answer score is above {run.task['threshold']:.3f}, the "
            "threshold with the best F1 on dev. The scores above are apart for questions with and without answer.</p>"
        )
    if rows:
        parts.append("<h3>By length of the right answer</h3>")
        parts.append(table(("right answer", *names), rows, amounts_from=1))
    return "".join(parts)


def _mistakes(run: FinetunedRun) -> str:
    order, found = worst_mistakes(run)
    if not found:
        return "<p>No mistake on dev.</p>" if run.predictions and order else ""
    is_tagging = run.kind == "tagging"
    rows = []
    for each in found:
        beside = "" if is_tagging else f'<td data-label="right">{escape(each.right)}</td>'
        beside += "" if is_tagging else f'<td data-label="said">{escape(each.said)}</td>'
        rows.append(f'<tr><td>{_texts(each)}</td>{beside}<td class="soft small">{escape(each.note)}</td></tr>')
    titles = ("text", "") if is_tagging else ("text", "right", "said", "")
    return f'<p class="soft small">{escape(order[:1].upper() + order[1:])}.</p>' + table(titles, rows)


def _texts(mistake: Mistake) -> str:
    key = f'<div class="soft small">{escape(mistake.key)}</div>' if mistake.key else ""
    return key + "".join(f"<p>{' '.join(map(_piece, text))}</p>" for text in mistake.texts)


def _piece(piece: Piece) -> str:
    if not piece.wrong:
        return escape(piece.words)
    return f'<mark>{escape(piece.words)}</mark> <span class="wrong">{escape(piece.wrong)}</span>'


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
        f"One example in {escape(layer)}: each row shares out its attention over the columns; the mean "
        f"over {len(found.get('heads') or [])} heads, darkest at {wording.percent(most)}."
    )
    body = f'<table class="looks"><thead><tr><th></th>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    return f'<p class="soft small">{note}</p>{body}{_heads(found)}'


def _heads(found: dict) -> str:
    heads = found.get("heads") or []
    if not heads:
        return ""
    shown = picture(lambda is_dark: heads_png(heads, is_dark), "The attention of each head")
    return f"<details><summary>each head</summary>{shown}</details>"


def _data(run: FinetunedRun) -> str:
    data = run.data
    rows = [("model", run.model), ("task", f"{run.name}: {run.kind_in_words}")]
    if run.record.teacher:
        rows.insert(1, ("teacher", run.record.teacher))
    if run.labels:
        shown = ", ".join(run.labels[:40]) + (f" and {len(run.labels) - 40} more" if len(run.labels) > 40 else "")
        rows.append((f"{len(run.labels)} labels", shown))
    files = data.get("files") or []
    rows += [("file", str(file)) for file in files] or [("data", str(data.get("path") or "handed over in memory"))]
    for part, num in (data.get("examples") or {}).items():
        rows.append((f"{part} examples", f"{num:,}"))
    for part, num in (run.run.get("cut_texts") or {}).items():
        if num:
            rows.append((f"cut in {part}", f"{num:,} texts were longer than the model takes, and were cut"))
    cells = [
        f'<tr><td>{escape(label)}</td><td class="path" data-label="{escape(label)}">{escape(words)}</td></tr>'
        for label, words in rows
    ]
    return table((), cells) + _list("Said while reading", data.get("said") or []) + _problems(run)


def _problems(run: FinetunedRun) -> str:
    lines = []
    for kind, problem in (run.data.get("problems") or {}).items():
        example = next(iter(problem.get("examples") or []), {})
        where = " ".join(str(example[name]) for name in ("file", "place", "detail") if example.get(name))
        count = problem.get("count", 0)
        lines.append(f"{count:,} {problem.get('what', kind)}" + (f" (first: {where})" if where else ""))
    return _list("Problems counted in the data", lines)


def _list(title: str, lines: list[str]) -> str:
    items = "".join(f'<li class="path">{escape(str(line))}</li>' for line in lines)
    return f"<h3>{title}</h3><ul>{items}</ul>" if lines else ""


def _usage(run: FinetunedRun) -> str:
    if not run.is_finished:
        return "<p>The same command goes on with the run.</p>"
    parts = [
        ("On the command line", usage.predict_command(run)),
        ("In Python", usage.python_code(run)),
        ("In transformers", usage.transformers_code(run)),
    ]
    return "".join(f"<p>{title}:</p><pre>{escape(code)}</pre>" for title, code in parts if code)
