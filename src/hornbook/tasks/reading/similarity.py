"""Users' own tables of similar texts: pairs, scored pairs, triplets, or single texts."""

from dataclasses import dataclass

from hornbook.tasks.reading.cells import as_text, parse_number
from hornbook.tasks.reading.infer_columns import PAIRS, infer_columns
from hornbook.tasks.reading.layout import Tables, TabularLayout
from hornbook.tasks.reading.reader import Defect, Reader, RequestedColumns
from hornbook.tasks.reading.rows import Row, RowTable, convert_rows, key_column
from hornbook.tasks.records import SimilarityExample, Splits

SIMILAR = (("anchor", "positive"), ("query", "positive"), ("question", "answer"), ("query", "answer"))
SIMILAR += (("title", "body"), ("source", "target"))
NEGATIVES = ("negative", "hard_negative", "neg")
SCORES = ("score", "similarity", "similarity_score", "relatedness", "label")


@dataclass(frozen=True)
class SimilarityColumns:
    text: str
    pair: str | None = None
    negative: str | None = None
    score: str | None = None
    key: str | None = None

    @property
    def form(self) -> str:
        """The form of a row, as logged."""
        if self.pair is None:
            return "single texts"
        return "scored pairs" if self.score else "triplets" if self.negative else "pairs"


@dataclass(frozen=True)
class CustomSimilarity(TabularLayout):
    def from_tables(self, tables: Tables, reader: Reader) -> Splits:
        splits: Splits = {}
        for split, table in tables.items():
            if not table.rows:
                splits[split] = []
                continue
            columns = find_columns(table, reader.requested)
            if not splits:
                reader.set_roles(text=columns.text, pair=columns.pair, label=columns.score, key=columns.key)
            names = {"text": columns.text, "pair": columns.pair, "negative": columns.negative, "score": columns.score}
            reader.log_columns(f" ({split}: {columns.form})", **names)
            splits[split] = _examples(table, columns, split, reader)
        return splits

    def inputs_of(self, table: RowTable, reader: Reader) -> list[SimilarityExample]:
        inputs = super().inputs_of(table, reader)
        if any(each.pair is None for each in inputs):
            raise ValueError(f"{table.file} has no pairs of texts: name the column of the second text with pair=")
        return inputs


def find_columns(table: RowTable, requested: RequestedColumns) -> SimilarityColumns:
    """The columns of a table. Only a column with the name of a score, such as `score` or `label`, is taken for one."""
    roles = ("text", "pair", "label")
    named = {role: getattr(requested, role) for role in roles}
    if not any(named.values()):  # the columns of the run, where this table has them
        named = {
            role: name for role, name in requested.trained_columns.items() if role in roles and name in table.columns
        }
    for role, name in named.items():
        if name:
            table.require(name, role)
    text, pair = named.get("text"), named.get("pair")
    if text is None and pair is None:
        candidates = map(table.columns_named, (*SIMILAR, *PAIRS))
        text, pair = next((columns for columns in candidates if len(columns) == 2), (None, None))
    if text is None:
        text = infer_columns(table, RequestedColumns(pair=pair), "regression", needs_label=False).text
    if requested.label and pair is None:
        raise ValueError(f"{table.file}: label= needs a pair of texts: name the second text with pair=")
    used = {text, pair}
    negative = next((name for name in table.columns_named(NEGATIVES) if name not in used), None)
    score = named.get("label") or next(iter(table.columns_named(SCORES)), None)
    key = key_column(table, used)
    if pair is None:
        return SimilarityColumns(text, key=key)
    return SimilarityColumns(text, pair, None if score else negative, None if score in used else score, key)


def _examples(table: RowTable, columns: SimilarityColumns, split: str, reader: Reader) -> list[SimilarityExample]:
    text_columns = {name: getattr(columns, name) for name in ("text", "pair", "negative") if getattr(columns, name)}

    def convert(row: Row, key: str) -> tuple[SimilarityExample, Defect | None]:
        texts = {name: as_text(row.fields.get(column)).strip() for name, column in text_columns.items()}
        score = defect = None
        if columns.score:
            try:
                score = parse_number(row.fields.get(columns.score))
                defect = ("no_label", "the score is empty") if score is None else None
            except ValueError as error:
                defect = ("bad_number", f"the score, in column '{columns.score}': {error}")
        if empty := next((name for name, text in texts.items() if not text), None):
            defect = ("empty_text", f"the {empty} is empty")
        return SimilarityExample(key, **texts, score=score), defect

    return convert_rows(table, columns.key, split, reader, convert)
