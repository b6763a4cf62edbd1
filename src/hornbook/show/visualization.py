"""A visualization as plain values: rows of marked tokens, and tables. And those of what a model reads: the tokens, ids,
positions and segments of a text or a pair, and the forms of inputs of tasks. Nothing here imports torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hornbook.files import write_text
from hornbook.report.rendering import render
from hornbook.show.translations import LEGEND, Language, in_language, translate, translate_count
from hornbook.text.task_tokens import with_gpt1_format
from hornbook.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Cell:
    """One token: its text, a key of `show/translations.py`'s marks, and a note, such as the original token."""

    text: str
    mark: str = ""
    note: str = ""


@dataclass(frozen=True)
class TokenRow:
    label: str
    cells: list[Cell]


@dataclass(frozen=True)
class TitledTable:
    title: str
    headings: tuple[str, ...]
    rows: list[tuple]


@dataclass(frozen=True)
class Visualization:
    """`attention` is for the page with a selector: see `show/attention.py`. `language` is that of its texts."""

    title: str
    notes: list[str] = field(default_factory=list)
    token_rows: list[TokenRow] = field(default_factory=list)
    tables: list[TitledTable] = field(default_factory=list)
    attention: dict[str, Any] | None = None
    language: Language = "en"

    @property
    def legend(self) -> dict[str, str]:
        """The meaning of the marks that occur."""
        used = {cell.mark for token_row in self.token_rows for cell in token_row.cells}
        return {mark: in_language(meaning, self.language) for mark, meaning in LEGEND.items() if mark in used}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"legend": self.legend}


def write_visualization(file: Path, shown: Visualization) -> Path:
    """Writes one HTML file that needs no other."""
    write_text(file, render("show.html", title=shown.title, shown=shown))
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


# ---- what a model reads


def show_tokens(tokenizer: Tokenizer, text: str, pair: str | None = None, language: Language = "en") -> Visualization:
    """The tokens of a text or pair as the model reads them.

    >>> from hornbook.text.tokenizer import Tokenizer
    >>> shown = show_tokens(Tokenizer.load("vocabulary"), "the river", "a bridge")
    >>> [cell.text for cell in shown.token_rows[0].cells]
    ['[CLS]', 'the', 'river', '[SEP]', 'a', 'bridge', '[SEP]']
    """
    parts = [text] if pair is None else [text, pair]
    encoding = tokenizer.with_special_tokens(*tokenizer.encode_batch(parts))
    offsets = tokenizer.encode(text, pair).offsets  # those of `encoding` are trimmed twice by a byte-level tokenizer
    # The tokens of a single text may have no sequence id.
    owners = [
        None if word is None else (owner or 0)
        for owner, word in zip(encoding.sequence_ids, encoding.word_ids, strict=True)
    ]
    words = list(zip(owners, encoding.word_ids, strict=True))
    starts = [word[1] is None or i == 0 or word != words[i - 1] for i, word in enumerate(words)]
    texts = [
        "" if part is None else parts[part][start:stop] for part, (start, stop) in zip(owners, offsets, strict=True)
    ]
    cells = token_cells(tokenizer, encoding.ids, starts, texts)
    meanings = {mark: in_language(meaning, language) for mark, meaning in LEGEND.items()}
    columns = zip(cells, encoding.ids, encoding.type_ids, texts, strict=True)
    rows = [
        (position, cell.text, token_id, segment, original, meanings.get(cell.mark, ""))
        for position, (cell, token_id, segment, original) in enumerate(columns)
    ]
    num_words = sum(start and word is not None for start, (_, word) in zip(starts, words, strict=True))
    num_unknown = sum(cell.mark == "unknown" for cell in cells)
    message = partial(translate, language)
    counts = {"tokens": len(cells), "words": num_words}
    counts = {name: translate_count(language, name, number) for name, number in counts.items()}
    notes = [message("count", **counts, vocabulary=tokenizer.vocab_size)]
    if num_unknown:
        notes.append(translate_count(language, "unknown", num_unknown))
    headings = (*map(message, ("position", "token", "id", "segment", "text")), "")
    token_row, table = TokenRow(message("input"), cells), TitledTable("", headings, rows)
    return Visualization(message("tokens"), notes, [token_row], [table], language=language)


def show_forms(tokenizer: Tokenizer, text: str, pair: str, is_gpt: bool, language: Language = "en") -> Visualization:
    """The input of each form of task, as in figure 1 of the GPT paper (Radford et al. 2018) and figure 4 of the BERT
    paper (Devlin et al. 2018): one row per sequence that the model reads."""
    tokenizer, message = with_gpt1_format(tokenizer) if is_gpt else tokenizer, partial(translate, language)
    forms = [("classification", (text, None)), ("entailment", (text, pair))]
    if is_gpt:
        forms += [("first order", (text, pair)), ("second order", (pair, text))]
    forms.append(("choice", (text, pair)))
    if not is_gpt:
        forms += [("answering", (text, pair)), ("tagging", (text, None))]
    reads = message("last token" if is_gpt else "first token")
    token_rows = [
        TokenRow(message(f"form.{form}", reads=reads), token_cells(tokenizer, tokenizer.encode(*parts).ids))
        for form, parts in forms
    ]
    return Visualization(message("forms"), [message("each form")], token_rows, language=language)
