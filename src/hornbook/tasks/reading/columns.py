"""Finds the columns of a table by their names."""

from collections.abc import Collection

from hornbook.tasks.reading.cells import is_number
from hornbook.tasks.reading.rows import RowTable

KEYS = ("id", "key", "guid", "qid", "annot_id", "idx", "index", "uid", "uuid")  # names of columns of keys


def key_column(table: RowTable, used: Collection[str | None] = ()) -> str | None:
    """The column of the examples' keys, known by its name; `used` columns have another role."""
    return next((name for name in table.columns_named(KEYS) if name not in used), None)


def find_column(
    table: RowTable,
    requested: str | None,
    names: tuple[str, ...],
    role: str,
    *,
    what: str = "",
    may_be_missing: bool = False,
    num_sure: int = 1,
) -> str | None:
    """The requested column, or the column with one of `names`. If the table has several of them, one of the first
    `num_sure` names is preferred; otherwise `ValueError` is raised. `what`: the content of the column, for errors, if
    it is not its role."""
    if requested and (requested in table.columns or not may_be_missing):
        table.require(requested, role)
        return requested
    candidates = [] if requested else table.columns_named(names)
    if len(candidates) > 1 and candidates[0].lower() not in names[:num_sure] and not may_be_missing:
        raise ambiguous_columns_error(table, role, candidates)
    if not candidates and not may_be_missing:
        raise ValueError(
            f"{table.file}: no column for the {what or role} (looked for {', '.join(names)}); name it with {role}= "
            f"(columns: {table.column_list})"
        )
    return candidates[0] if candidates else None


def ambiguous_columns_error(table: RowTable, role: str, candidates: list[str]) -> ValueError:
    return headerless_error(table) or ValueError(
        f"{table.file}: several columns could be the {role} ({', '.join(candidates)}); name one, such as "
        f"{role}={candidates[0]!r}"
    )


def headerless_error(table: RowTable) -> ValueError | None:
    """An error if the names of the columns look like values."""
    if not any(is_number(name) for name in table.columns):
        return None
    return ValueError(
        f"{table.file}: the first row looks like data ({table.column_list}); put a row of column names above it, such "
        "as text, pair, label"
    )
