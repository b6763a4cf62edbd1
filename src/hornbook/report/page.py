"""The report of a run: a self-contained HTML page, and the curves as a separate PNG."""

import math
import shlex
from functools import cache
from html import escape
from pathlib import Path

from hornbook.files import read_json, refusing_damage, write_text
from hornbook.report import wording
from hornbook.report.comparison import is_comparison, write_comparison_page
from hornbook.report.curves import curves_png
from hornbook.report.drawing import write_png
from hornbook.report.experiment import is_experiment, write_experiment_page
from hornbook.report.finetuned_page import write_finetuned_page
from hornbook.report.markup import events, page, picture, section, settings, table, tiles
from hornbook.report.prompted import is_prompted, write_prompted_page
from hornbook.report.run import RunRecord, number
from hornbook.report.several import is_several
from hornbook.report.several_page import write_several_page


def write_report(folder: str | Path) -> Path:
    """Writes `report.html` and, once there are metrics, `curves.png` into a run folder; returns the page's path.

    >>> import hornbook
    >>> hornbook.write_report("runs/reviews").name
    'report.html'

    Fine-tuning runs, searches, restarts, label curves, experiments, prompted tasks and comparisons have their own pages
    and plots.
    """
    with refusing_damage(Path(folder), "restore its JSON files, or create the folder again"):
        return _written_report(folder)


def _written_report(folder: str | Path) -> Path:
    if is_comparison(folder):
        return write_comparison_page(folder)
    if is_experiment(folder):
        return write_experiment_page(folder)
    if is_prompted(folder):
        return write_prompted_page(folder)
    if is_several(folder):
        return write_several_page(folder)
    record = RunRecord.load(folder)
    if record.is_of_task:
        return write_finetuned_page(record)
    curves = ""
    if record.train or record.validations:
        draw = cache(lambda is_dark, is_narrow: curves_png(record, is_dark, 1 if is_narrow else 2))
        write_png(record.folder / "curves.png", draw(False, False))
        curves = picture(draw, "Losses, accuracy, learning rate and speed by step", has_narrow=True)
    path = record.folder / "report.html"
    write_text(path, _page(record, curves))
    return path


def _page(record: RunRecord, curves: str) -> str:
    sections = [
        _head(record),
        _tiles(record)
        if curves
        else '<p class="card">This run has no metrics yet: it has not logged its first steps.</p>',
        section("Curves", curves),
        section("Masked-word predictions", _samples(record)),
        section("Training data", _data(record)),
        section("Events", events(record)),
        section("Next steps", _commands(record)),
        section("Settings", settings(record)),
    ]
    return page(f"{record.preset}, {record.state_in_words}", sections)


def _head(record: RunRecord) -> str:
    size = wording.parameters(record.run.get("parameters"), record.run.get("kept_parameters"), " parameters")
    start = f"initialised from {record.run['from']}" if record.run.get("from") else "trained from scratch"
    start = f"distilled from {record.teacher}" if record.teacher else start
    version = f"hornbook {record.run['hornbook']}" if "hornbook" in record.run else ""
    about = " · ".join(filter(None, (size, start, version, str(record.folder))))
    kind = "finished" if record.is_finished else "unfinished"
    badge = f'<span class="badge {kind}">{escape(record.state_in_words)}</span>'
    return (
        f'<header>\n<h1>{escape(record.preset)} {badge}</h1>\n<p class="soft small path">{escape(about)}</p>\n</header>'
    )


def _tiles(record: RunRecord) -> str:
    return tiles([*_quality_tiles(record), *_effort_tiles(record)])


def _quality_tiles(record: RunRecord) -> list[tuple[str, str, str]]:
    """(label, value, note) of the quality of the model at the last validation."""
    last, best = record.last_validation, record.best_validation
    if last is None:
        line = record.train[-1]
        return [
            ("training loss", wording.loss(number(line.get("loss"))), f"at step {line['step']:,}; not validated yet")
        ]
    tiles = [("validation loss", wording.loss(number(last.get("loss"))), f"latest, at step {last['step']:,}")]
    if best is not None:
        kept = "; its weights are in best/" if (record.folder / "best").is_dir() else ""
        tiles.append(("best validation loss", wording.loss(best["loss"]), f"at step {best['step']:,}{kept}"))
    for term, tokens in record.predicted_tokens.items():
        tiles += _token_tiles(term, tokens, last, record.baseline)
    if "nsp_accuracy" in last:
        note = "whether the second segment follows the first; chance is 50%"
        tiles.append(("next-sentence accuracy", wording.percent(number(last["nsp_accuracy"])), note))
    if "sop_accuracy" in last:
        note = "whether two segments are in order or swapped; chance is 50%"
        tiles.append(("sentence-order accuracy", wording.percent(number(last["sop_accuracy"])), note))
    if replaced := number(last.get("rtd_replaced", 0.0)):
        note = f"recall on tokens replaced by the generator, which are {wording.percent(replaced)} of all tokens"
        tiles.append(("replaced tokens found", wording.percent(number(last["rtd_found"]) / replaced), note))
    return tiles


def _token_tiles(term: str, tokens: str, last: dict, baseline: dict) -> list[tuple[str, str, str]]:
    """(label, value, note) of token prediction, compared with the unigram baseline."""
    tiles = []
    if term in last:
        loss = number(last[term])
        tiles.append(
            ("perplexity", wording.perplexity(loss), f"of {tokens}s: exp of the {term} loss, {wording.loss(loss)}")
        )
        if term in baseline and math.isfinite(loss):
            below = baseline[term] - loss
            side = "below" if below >= 0 else "above"
            note = f"{term} loss; the unigram baseline has {wording.loss(baseline[term])}"
            tiles.append(("against the unigram baseline", f"{abs(below):.2f} {side}", note))
    if f"{term}_accuracy" in last:
        note = f"of {tokens}s are predicted correctly"
        if f"{term}_accuracy" in baseline:
            note += f"; always the most frequent token: {wording.percent(baseline[f'{term}_accuracy'])}"
        name = f"{tokens.replace(' ', '-')} accuracy"
        tiles.append((name, wording.percent(number(last[f"{term}_accuracy"])), note))
    return tiles


def _effort_tiles(record: RunRecord) -> list[tuple[str, str, str]]:
    speed = record.tokens_per_second
    runtime = record.run.get("runtime", {})
    return [
        ("tokens seen", wording.amount(record.tokens), f"in {record.step:,} of {record.num_steps:,} steps"),
        ("time", wording.duration(record.seconds), "of training, validation and saving"),
        ("speed", f"{speed:,.0f}" if speed else "unknown", "tokens per second, over the whole run"),
        ("device", record.device, str(runtime.get("reason", ""))),
    ]


def _samples(record: RunRecord) -> str:
    if not record.samples:
        return ""
    mask = _mask_token(record)
    rows, num_first, num_listed = [], 0, 0
    for sample in record.samples:
        answer = _bare(sample.get("answer", ""))
        guesses = [each for each in sample.get("guesses", []) if isinstance(each, dict)]
        right = [_bare(each.get("token", "")) == answer for each in guesses]
        num_first, num_listed = num_first + any(right[:1]), num_listed + any(right)
        text = f"<mark>{escape(mask)}</mark>".join(escape(part) for part in str(sample.get("text", "")).split(mask))
        bars = "".join(_guess(each, answer) for each in guesses)
        rows.append(f'<tr><td>{text}</td><td data-label="masked"><b>{escape(answer)}</b></td><td>{bars}</td></tr>')
    note = (
        f"Held-out sentences: of {len(rows)} masked words, {num_first} are the top prediction and {num_listed} are "
        "among the listed predictions."
    )
    return f'<p class="soft small">{note}</p>' + table(("sentence", "masked word", "predictions"), rows)


def _guess(guess: dict, answer: str) -> str:
    token, share = _bare(guess.get("token", "")), number(guess.get("probability"))
    share = min(1.0, max(0.0, share)) if math.isfinite(share) else 0.0
    hit, tick = (" hit", " ✓") if token == answer else ("", "")
    return (
        f'<div class="guess{hit}"><div class="bar" style="width:{100 * share:.1f}%"></div>'
        f"<span>{escape(token)}{tick}</span><span>{wording.percent(share)}</span></div>"
    )


def _bare(token: object) -> str:
    """A token without the word-boundary marker (Ġ or ▁) of some tokenizers."""
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
            ("read", wording.times(corpus["epochs"])),
        ]
        numbers = "".join(f'<td class="amount" data-label="{label}">{escape(value)}</td>' for label, value in cells)
        rows.append(f'<tr><td class="path">{escape(str(corpus.get("folder", "")))}</td>{numbers}</tr>')
    return table(("corpus", "documents", "tokens", "weight", "read"), rows, amounts_from=1) if rows else ""


def _commands(record: RunRecord) -> str:
    mask = _mask_token(record)
    sentence = f"The {mask} sat on the mat."
    parts = []
    if not record.is_finished:
        parts.append(f"<p>Resume from the last checkpoint:</p><pre>{escape(record.resume_command)}</pre>")
    can_fill = "mlm" in record.run.get("heads", ["mlm"]) or record.run.get("family") == "electra"
    if can_fill and ((record.folder / "model.safetensors").is_file() or record.is_finished):
        fill = shlex.join(["hornbook", "fill-mask", str(record.folder), sentence])
        code = f"import hornbook\n\nmodel = hornbook.load({str(record.folder)!r})\nmodel.fill_mask({sentence!r})"
        parts.append(f"<p>Predict a masked word:</p><pre>{escape(fill)}</pre>")
        parts.append(f"<p>The same in Python:</p><pre>{escape(code)}</pre>")
    return "".join(parts)
