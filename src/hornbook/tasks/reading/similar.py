"""Users' own tables of similar texts: pairs, scored pairs, triplets, or single texts."""

from dataclasses import dataclass
from typing import Any

from hornbook.tasks.reading.guess import KEYS, PAIRS, infer_columns
from hornbook.tasks.reading.layout import Tables, TabularLayout
from hornbook.tasks.reading.notes import Defect, Notes, RequestedColumns
from hornbook.tasks.reading.rows import Row, RowTable
from hornbook.tasks.reading.texts import key_of, number, plain
from hornbook.tasks.records import SimilarityExample, Splits

SIMILAR = (("anchor", "positive"), ("query", "positive"), ("question", "answer"), ("query", "answer"))
SIMILAR += (("title", "body"), ("source", "target"))
NEGATIVES = ("negative", "hard_negative", "neg")
SCORES = ("score", "similarity", "similarity_score", "relatedness", "label")


@dataclass(frozen=True)
class SimilarColumns:
    text: str
    pair: str | None = None
    negative: str | None = None
    score: str | None = None
    key: str | None = None

    @property
    def in_words(self) -> str:
        """What a row is."""
        if self.pair is None:
            return "single texts"
        return "scored pairs" if self.score else "triplets" if self.negative else "pairs"


@dataclass(frozen=True)
class OwnSimilar(TabularLayout):
    def from_tables(self, tables: Tables, notes: Notes) -> Splits:
        splits: Splits = {}
        for split, table in tables.items():
            if not table.rows:
                splits[split] = []
                continue
            columns = find_columns(table, notes.requested)
            if not splits:
                notes.set_roles(text=columns.text, pair=columns.pair, label=columns.score, key=columns.key)
            names = {"text": columns.text, "pair": columns.pair, "negative": columns.negative, "score": columns.score}
            notes.log_columns(f" ({split}: {columns.in_words})", **names)
            splits[split] = _examples(table, columns, split, notes)
        return splits


def find_columns(table: RowTable, requested: RequestedColumns) -> SimilarColumns:
    """The columns of a table. Only a column with the name of a score, such as `score` or `label`, is taken for one."""
    by_name = {column.lower(): column for column in table.columns}
    roles = ("text", "pair", "label")
    given = {role: getattr(requested, role) for role in roles}
    if not any(given.values()):  # the columns of the run, where this table has them
        given = {role: name for role, name in requested.trained.items() if role in roles and name in table.columns}
    for role, name in given.items():
        if name:
            table.require(name, role)
    text, pair = given.get("text"), given.get("pair")
    if text is None and pair is None:
        names = next((each for each in (*SIMILAR, *PAIRS) if all(name in by_name for name in each)), ())
        text, pair = (by_name[name] for name in names) if names else (None, None)
    if text is None:
        text = infer_columns(table, RequestedColumns(pair=pair), "number", needs_label=False).text
    used = {text, pair}
    negative = next((by_name[name] for name in NEGATIVES if name in by_name and by_name[name] not in used), None)
    score = given.get("label") or next((by_name[name] for name in SCORES if name in by_name), None)
    key = next((by_name[name] for name in KEYS if name in by_name and by_name[name] not in used), None)
    if pair is None:
        return SimilarColumns(text, key=key)
    return SimilarColumns(text, pair, None if score else negative, None if score in used else score, key)


def _examples(table: RowTable, columns: SimilarColumns, split: str, notes: Notes) -> list[SimilarityExample]:
    found = []
    for index, row in enumerate(table.rows):
        example, problem = _example(row, index, columns)
        notes.places[split, example.key] = row.place
        if notes.keeps(problem, split, table.file, row.place):
            found.append(example)
    return found


def _example(row: Row, index: int, columns: SimilarColumns) -> tuple[SimilarityExample, Defect | None]:
    def cell(column: str | None) -> Any:
        return None if column is None else plain(row.fields.get(column)).strip()

    texts = {name: cell(getattr(columns, name)) for name in ("text", "pair", "negative")}
    score, problem = None, row.broken
    if columns.score and not row.broken:
        try:
            score = number(row.fields.get(columns.score))
            problem = ("no_label", "the score is empty") if score is None else None
        except ValueError as error:
            problem = ("bad_number", f"the score, in column '{columns.score}': {error}")
    if not row.broken and (empty := next((name for name, text in texts.items() if text == ""), None)):
        problem = ("empty_text", f"the {empty} is empty")
    return SimilarityExample(key_of(row, columns.key, index), **texts, score=score), problem
