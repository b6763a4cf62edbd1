"""A picture as plain values: strips of marked tokens and tables. Nothing here imports torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hornbook.files import write_text
from hornbook.report.rendering import render
from hornbook.show.translations import LEGEND, Language, in_language
from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Cell:
    """One token: its text, a key of `show/translations.py`'s marks, and a note, such as the original token."""

    text: str
    mark: str = ""
    note: str = ""


@dataclass(frozen=True)
class Strip:
    label: str
    cells: list[Cell]


@dataclass(frozen=True)
class PictureTable:
    title: str
    headings: tuple[str, ...]
    rows: list[tuple]


@dataclass(frozen=True)
class Picture:
    """`attention` is for the page with a selector: see `show/attention.py`. `language` is that of its texts."""

    title: str
    notes: list[str] = field(default_factory=list)
    strips: list[Strip] = field(default_factory=list)
    tables: list[PictureTable] = field(default_factory=list)
    attention: dict[str, Any] | None = None
    language: Language = "en"

    @property
    def legend(self) -> dict[str, str]:
        """The meaning of the marks that occur."""
        used = {cell.mark for strip in self.strips for cell in strip.cells}
        return {mark: in_language(meaning, self.language) for mark, meaning in LEGEND.items() if mark in used}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"legend": self.legend}


def write_picture(file: Path, picture: Picture) -> Path:
    """Writes the picture as one HTML file that needs no other."""
    write_text(file, render("show.html", title=picture.title, picture=picture))
    return file


def token_cells(
    tokenizer: Tokenizer, ids: Sequence[int], word_starts: Sequence[bool] | None = None, texts: Sequence[str] = ()
) -> list[Cell]:
    """The tokens with their marks; `texts` are the texts that they stand for, to show where a token is unknown."""
    special = set(tokenizer.special_ids)
    cells = []
    for position, token_id in enumerate(ids):
        text = readable_token(tokenizer, token_id)
        if token_id == tokenizer.unk_id:
            cells.append(Cell(text, "unknown", texts[position] if texts else ""))
        elif token_id in special:
            cells.append(Cell(text, "special"))
        else:
            is_piece = word_starts is not None and not word_starts[position]
            cells.append(Cell(text, "piece" if is_piece else ""))
    return cells


def readable_token(tokenizer: Tokenizer, token_id: int) -> str:
    """The token as in the vocabulary; one of a byte-level vocabulary as the text that its bytes spell, with `Ġ` for a
    space, where they spell one."""
    token = tokenizer.token(token_id)
    if tokenizer.kind != "bpe" or token_id in tokenizer.special_ids or token.isascii():
        return token
    text = tokenizer.decode([token_id], skip_special=False)
    return token if not text.strip() or "\ufffd" in text else text.replace(" ", "Ġ")
