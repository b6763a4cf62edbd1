"""The report of a run: one HTML file that needs nothing beside it, and the curves as a picture of their own."""

import base64
import math
import shlex
from html import escape
from pathlib import Path

from hornbook.files import read_json, replacing, write_text
from hornbook.report import wording
from hornbook.report.curves import curves_png
from hornbook.report.run import RunRecord, number
from hornbook.report.style import CSS

NARROW = "(max-width: 640px)"
IS_DARK = "(prefers-color-scheme: dark)"


def write_report(folder: str | Path) -> Path:
    """Writes `report.html` and, once there are metrics, `curves.png` into a run folder; answers the page's path."""
    record = RunRecord.load(folder)
    curves = ""
    if record.train or record.validations:
        picture = curves_png(record)
        with replacing(record.folder / "curves.png") as temporary:
            temporary.write_bytes(picture)
        curves = _picture(record, picture)
    path = record.folder / "report.html"
    write_text(path, _page(record, curves))
    return path


def _page(record: RunRecord, curves: str) -> str:
    sections = [
        _head(record),
        _tiles(record)
        if curves
        else '<p class="card">This run has no metrics yet: they come with its first steps.</p>',
        _section("Curves", curves),
        _section("Filling in hidden words", _samples(record)),
        _section("Text it was trained on", _data(record)),
        _section("What happened on the way", _events(record)),
        _section("How to go on", _commands(record)),
        _section("Settings", _settings(record)),
    ]
    title = f"{escape(record.preset)}, {escape(record.state_in_words)}"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, sections))
        + "\n</main>\n</body>\n</html>\n"
    )


def _section(title: str, content: str) -> str:
    return f'<section>\n<h2>{title}</h2>\n<div class="card">{content}</div>\n</section>' if content else ""


def _head(record: RunRecord) -> str:
    parameters = record.run.get("parameters")
    size = f"{wording.amount(parameters)} parameters" if parameters else ""
    start = f"goes on from {record.run['from']}" if record.run.get("from") else "trained from scratch"
    version = f"hornbook {record.run['hornbook']}" if "hornbook" in record.run else ""
    about = " · ".join(filter(None, (size, start, version, str(record.folder))))
    kind = "finished" if record.is_finished else "unfinished"
    badge = f'<span class="badge {kind}">{escape(record.state_in_words)}</span>'
    return (
        f'<header>\n<h1>{escape(record.preset)} {badge}</h1>\n<p class="soft small path">{escape(about)}</p>\n</header>'
    )


def _tiles(record: RunRecord) -> str:
    tiles = [*_quality_tiles(record), *_effort_tiles(record)]
    cells = [
        f'<div class="tile"><div class="label">{escape(label)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
        for label, value, note in tiles
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def _quality_tiles(record: RunRecord) -> list[tuple[str, str, str]]:
    """(label, value, note) of what the model can do, from the last validation."""
    last, best = record.last_validation, record.best_validation
    if last is None:
        line = record.train[-1]
        return [
            ("training loss", wording.loss(number(line.get("loss"))), f"at step {line['step']:,}; not validated yet")
        ]
    tiles = [("validation loss", wording.loss(number(last.get("loss"))), f"the last, at step {last['step']:,}")]
    if best is not None:
        kept = "; its weights are in best/" if (record.folder / "best").is_dir() else ""
        tiles.append(("best validation loss", wording.loss(best["loss"]), f"at step {best['step']:,}{kept}"))
    baseline = record.baseline
    if "mlm" in last:
        mlm = number(last["mlm"])
        tiles.append(
            ("perplexity", wording.perplexity(mlm), f"of masked tokens: e to the mlm loss of {wording.loss(mlm)}")
        )
        if "mlm" in baseline and math.isfinite(mlm):
            below = baseline["mlm"] - mlm
            words = "below" if below >= 0 else "above"
            note = f"guessing by word frequency has an mlm loss of {wording.loss(baseline['mlm'])}"
            tiles.append(("against guessing", f"{abs(below):.2f} {words}", note))
    if "mlm_accuracy" in last:
        note = "of masked tokens are named right"
        if "mlm_accuracy" in baseline:
            note += f"; always naming the commonest: {wording.percent(baseline['mlm_accuracy'])}"
        tiles.append(("masked-token accuracy", wording.percent(number(last["mlm_accuracy"])), note))
    if "nsp_accuracy" in last:
        note = "whether two segments follow each other; a coin gets 50%"
        tiles.append(("next-sentence accuracy", wording.percent(number(last["nsp_accuracy"])), note))
    return tiles


def _effort_tiles(record: RunRecord) -> list[tuple[str, str, str]]:
    speed = record.tokens_per_second
    runtime = record.run.get("runtime", {})
    return [
        ("tokens seen", wording.amount(record.tokens), f"in {record.step:,} of {record.num_steps:,} steps"),
        ("time", wording.duration(record.seconds), "of training, validation and saving"),
        ("speed", f"{speed:,.0f}" if speed else "unknown", "tokens a second, over the whole run"),
        ("device", record.device, str(runtime.get("reason", ""))),
    ]


def _picture(record: RunRecord, wide: bytes) -> str:
    """The curves drawn for each kind of screen: the browser takes the first that fits."""
    sources = [
        (f"{NARROW} and {IS_DARK}", curves_png(record, dark=True, columns=1)),
        (NARROW, curves_png(record, columns=1)),
        (IS_DARK, curves_png(record, dark=True)),
    ]
    others = "".join(f'<source media="{media}" srcset="{_inline(png)}">' for media, png in sources)
    return (
        f'<picture>{others}<img src="{_inline(wide)}" alt="Curves of the losses, accuracy, rate and speed"></picture>'
    )


def _inline(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def _samples(record: RunRecord) -> str:
    if not record.samples:
        return ""
    mask = _mask_token(record)
    rows, first, among = [], 0, 0
    for sample in record.samples:
        answer = _bare(sample.get("answer", ""))
        guesses = [each for each in sample.get("guesses", []) if isinstance(each, dict)]
        right = [_bare(each.get("token", "")) == answer for each in guesses]
        first, among = first + any(right[:1]), among + any(right)
        text = f"<mark>{escape(mask)}</mark>".join(escape(part) for part in str(sample.get("text", "")).split(mask))
        shown = "".join(_guess(each, answer) for each in guesses)
        rows.append(f'<tr><td>{text}</td><td data-label="hidden"><b>{escape(answer)}</b></td><td>{shown}</td></tr>')
    note = (
        f"Sentences that were not trained on: of {len(rows)} hidden words, {first} are the first guess "
        f"and {among} are among the guesses."
    )
    return f'<p class="soft small">{note}</p>' + _table(("sentence", "hidden word", "guesses"), rows)


def _guess(guess: dict, answer: str) -> str:
    token, share = _bare(guess.get("token", "")), number(guess.get("probability"))
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    hit, tick = (" hit", " ✓") if token == answer else ("", "")
    return (
        f'<div class="guess{hit}"><div class="bar" style="width:{100 * share:.1f}%"></div>'
        f"<span>{escape(token)}{tick}</span><span>{wording.percent(share)}</span></div>"
    )


def _bare(token: object) -> str:
    """A token without the mark that some tokenizers set before a word."""
    return str(token).lstrip("Ġ▁ ").rstrip() or str(token)


def _mask_token(record: RunRecord) -> str:
    path = record.folder / "tokenizer_config.json"
    stated = read_json(path).get("mask_token") if path.is_file() else None
    return (stated.get("content") if isinstance(stated, dict) else stated) or "[MASK]"


def _data(record: RunRecord) -> str:
    rows = []
    for corpus in record.corpora:
        cells = [
            ("documents", f"{corpus.get('documents', 0):,}"),
            ("tokens", wording.amount(corpus.get("tokens", 0))),
            ("weight", f"{corpus.get('weight', 1):g}"),
            ("read about", wording.times(corpus["epochs"])),
        ]
        numbers = "".join(f'<td class="amount" data-label="{label}">{escape(value)}</td>' for label, value in cells)
        rows.append(f'<tr><td class="path">{escape(str(corpus.get("folder", "")))}</td>{numbers}</tr>')
    return _table(("corpus", "documents", "tokens", "weight", "read about"), rows, amounts_from=1) if rows else ""


def _events(record: RunRecord) -> str:
    items = [
        f"<li>{escape(str(event.get('words', event.get('event', ''))))} "
        f'<span class="soft small">(noted at step {event["step"]:,})</span></li>'
        for event in record.events
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def _commands(record: RunRecord) -> str:
    mask = _mask_token(record)
    sentence = f"The {mask} sat on the mat."
    parts = []
    if not record.is_finished:
        parts.append(f"<p>Go on from the last checkpoint:</p><pre>{escape(record.resume_command)}</pre>")
    if (record.folder / "model.safetensors").is_file() or record.is_finished:
        fill = shlex.join(["hornbook", "fill-mask", str(record.folder), sentence])
        code = f"import hornbook\n\nmodel = hornbook.load({str(record.folder)!r})\nmodel.fill_mask({sentence!r})"
        parts.append(f"<p>Fill in a word:</p><pre>{escape(fill)}</pre>")
        parts.append(f"<p>The same in Python:</p><pre>{escape(code)}</pre>")
    return "".join(parts)


def _settings(record: RunRecord) -> str:
    groups = {name: group for name, group in record.settings.items() if isinstance(group, dict)}
    plain = {name: value for name, value in record.settings.items() if name not in groups}
    groups |= {"other": plain} if plain else {}
    tables = []
    for name, group in groups.items():
        rows = [
            f"<tr><td><code>{escape(f'{name}.{key}' if name != 'other' else key)}</code></td>"
            f"<td><code>{escape(_setting(value))}</code></td></tr>"
            for key, value in group.items()
        ]
        tables.append(f"<details><summary>{escape(name)}</summary>{_table((), rows)}</details>")
    return "".join(tables)


def _setting(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _table(titles: tuple[str, ...], rows: list[str], amounts_from: int = 99) -> str:
    body = f"<tbody>{''.join(rows)}</tbody></table>"
    if not titles:
        return "<table>" + body
    kinds = ["amount" if place >= amounts_from else "word" for place in range(len(titles))]
    heads = "".join(f'<th class="{kind}">{title}</th>' for kind, title in zip(kinds, titles, strict=True))
    return f'<table class="stacked"><thead><tr>{heads}</tr></thead>{body}'
