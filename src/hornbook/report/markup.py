"""HTML building blocks of the report pages. Text from a run is escaped here, or by the caller where markup is
passed."""

import base64
from collections.abc import Callable
from html import escape

from hornbook.report.run import RunRecord
from hornbook.report.style import CSS

NARROW = "(max-width: 640px)"
IS_DARK = "(prefers-color-scheme: dark)"


def page(title: str, sections: list[str]) -> str:
    """A self-contained HTML file; empty sections are left out."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(filter(None, sections))
        + "\n</main>\n</body>\n</html>\n"
    )


def section(title: str, content: str) -> str:
    return f'<section>\n<h2>{title}</h2>\n<div class="card">{content}</div>\n</section>' if content else ""


def tiles(items: list[tuple[str, str, str]]) -> str:
    """A box for each (label, value, note)."""
    cells = [
        f'<div class="tile"><div class="label">{escape(label)}</div><div class="value">{escape(value)}</div>'
        f'<div class="note">{escape(note)}</div></div>'
        for label, value, note in items
    ]
    return f'<div class="tiles">{"".join(cells)}</div>'


def picture(draw: Callable[..., bytes], alt: str, has_narrow: bool = False) -> str:
    """A `<picture>` with variants for dark and, with `has_narrow`, narrow screens.

    `draw` returns a PNG: `draw(is_dark)`, or `draw(is_dark, is_narrow)` with `has_narrow`.
    """
    screens = [(f"{NARROW} and {IS_DARK}", (True, True)), (NARROW, (False, True))] if has_narrow else []
    screens.append((IS_DARK, (True, False) if has_narrow else (True,)))
    others = "".join(f'<source media="{media}" srcset="{inline(draw(*kind))}">' for media, kind in screens)
    wide = draw(*((False, False) if has_narrow else (False,)))
    return f'<picture>{others}<img src="{inline(wide)}" alt="{escape(alt)}"></picture>'


def inline(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def events(record: RunRecord) -> str:
    items = [
        f"<li>{escape(str(event.get('words', event.get('event', ''))))} "
        f'<span class="soft small">(logged at step {event["step"]:,})</span></li>'
        for event in record.events
    ]
    return f"<ul>{''.join(items)}</ul>" if items else ""


def settings(record: RunRecord) -> str:
    used = record.read_settings
    groups = {name: group for name, group in used.items() if isinstance(group, dict)}
    plain = {name: value for name, value in used.items() if name not in groups}
    groups |= {"other": plain} if plain else {}
    tables = []
    for name, group in groups.items():
        rows = [
            f"<tr><td><code>{escape(f'{name}.{key}' if name != 'other' else key)}</code></td>"
            f"<td><code>{escape(_setting(value))}</code></td></tr>"
            for key, value in group.items()
        ]
        tables.append(f"<details><summary>{escape(name)}</summary>{table((), rows)}</details>")
    return "".join(tables)


def _setting(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def table(titles: tuple[str, ...], rows: list[str], amounts_from: int = 99) -> str:
    body = f"<tbody>{''.join(rows)}</tbody></table>"
    if not titles:
        return "<table>" + body
    kinds = ["amount" if place >= amounts_from else "word" for place in range(len(titles))]
    heads = "".join(f'<th class="{kind}">{title}</th>' for kind, title in zip(kinds, titles, strict=True))
    return f'<table class="stacked"><thead><tr>{heads}</tr></thead>{body}'


def row(first: str, amounts: list[tuple[str, str]], last: str | None = None) -> str:
    """A table row: a text cell, (label, value) cells with numbers, and optionally another text cell; all escaped."""
    cells = "".join(f'<td class="amount" data-label="{escape(label)}">{escape(value)}</td>' for label, value in amounts)
    end = "" if last is None else f"<td>{escape(last)}</td>"
    return f'<tr><td class="path">{escape(first)}</td>{cells}{end}</tr>'
