"""Renders pages and Markdown files from the jinja2 templates in `templates/`; HTML is escaped there."""

import base64
import math
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError, select_autoescape
from matplotlib.figure import Figure

from hornbook.files import write_text
from hornbook.report import wording
from hornbook.report.plots import drawing
from hornbook.report.run import number

NARROW = "(max-width: 640px)"
IS_DARK = "(prefers-color-scheme: dark)"


class Table(NamedTuple):
    """The first cell of a row is a name, or (name, note); a column without a title has text, the others numbers."""

    titles: tuple[str, ...]
    rows: list[tuple]


class Picture(NamedTuple):
    """A plot as data URLs: for light, wide screens, and (media query, URL) for the others."""

    alt: str
    address: str
    others: list[tuple[str, str]]


def render(template: str, **values: object) -> str:
    try:
        return _environment().get_template(template).render(values)
    except UndefinedError as error:  # a value that the files of a run lack
        raise KeyError(str(error)) from error


def write_page(folder: Path, template: str, title: str, **values: object) -> Path:
    """Writes the template as `report.html` into the folder; returns its path."""
    path = folder / "report.html"
    write_text(path, render(template, folder=folder, title=title, **values))
    return path


def picture(draw: Callable[..., Figure], alt: str, path: Path | None = None, has_narrow: bool = False) -> Picture:
    """Draws a figure for light and dark and, with `has_narrow`, wide and narrow screens: `draw(colours)`, or
    `draw(colours, columns)` with `has_narrow`. The light, wide one is also written to `path`."""
    wide, narrow = ((2,), (1,)) if has_narrow else ((), ())
    screens = [(f"{NARROW} and {IS_DARK}", drawing.DARK, narrow), (NARROW, drawing.LIGHT, narrow)] if has_narrow else []
    screens.append((IS_DARK, drawing.DARK, wide))
    others = [(media, _address(drawing.as_png(draw(colours, *columns)))) for media, colours, columns in screens]
    png = drawing.as_png(draw(drawing.LIGHT, *wide))
    if path is not None:
        drawing.write_png(path, png)
    return Picture(alt, _address(png), others)


def _address(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()


def plain(text: object) -> str:
    """The text on one line, with Markdown special characters escaped."""
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", _on_one_line(text))


def code(text: object) -> str:
    """The text on one line, as Markdown inline code."""
    text = _on_one_line(text)
    fence = "`" * (max(map(len, re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{pad}{text}{pad}{fence}"


def _on_one_line(text: object) -> str:
    return " ".join(str(text).encode("utf-8", "replace").decode().split())


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("hornbook.report"),
        autoescape=select_autoescape(["html"]),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"wording": wording, "number": number, "infinity": math.inf}
    environment.filters |= {"plain": plain, "code": code, "repr": repr}
    return environment
