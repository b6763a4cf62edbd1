"""Renders pages and Markdown files from the jinja2 templates in `templates/`; HTML is escaped there."""

import math
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined, UndefinedError, select_autoescape

from hornbook.files import write_text
from hornbook.metrics.formatting import number
from hornbook.report import formatting


class Table(NamedTuple):
    """Rows of cells; the first may be (name, note). Columns with an empty title are left-aligned text, others
    right-aligned numbers."""

    titles: tuple[str, ...]
    rows: list[tuple]


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
    environment.globals |= {"formatting": formatting, "number": number, "infinity": math.inf}
    environment.filters |= {"plain": plain, "code": code, "repr": repr}
    return environment
