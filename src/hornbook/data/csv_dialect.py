"""How a CSV or TSV file is delimited and quoted, and the records of one.

The first line is the header, so the delimiter must occur in it; among several candidates, the one for which most
records have as many fields as the header is used. `csv.Sniffer` is not used: it can pick a letter, or the commas in a
single column of texts, as the delimiter. An unbalanced quote affects only its own row.
"""

import csv
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
SAMPLE_LINES = 500
OPEN_AT_END = "unexpected end of data"  # error of csv.reader
Record = tuple[str, list[str]]  # place in the file ("line 12") and fields


@dataclass(frozen=True)
class Dialect:
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None  # None: a quote inside a quoted field is doubled

    @property
    def options(self) -> dict:
        escape = {"escapechar": self.escape, "doublequote": self.escape is None}
        return {"delimiter": self.delimiter, "quotechar": self.quote, **escape}

    def described(self) -> str:
        traits = [f"delimiter {DELIMITERS.get(self.delimiter) or repr(self.delimiter)}"]
        traits += [f"quote character {self.quote}"] if self.quote != '"' else []
        traits += ["quotes escaped by a backslash"] if self.escape else []
        return ", ".join(traits)


def is_plain(text: str, suffix: str, dialect: Dialect, is_truncated: bool = False) -> bool:
    """Whether quotes are ordinary characters: in most TSV files, unless the whole file parses with quoting. With
    `is_truncated`, the text is the beginning of the file."""
    return suffix == ".tsv" and dialect == Dialect("\t") and not _is_quoted(text, is_truncated)


def plain_records(text: str, first_line: int = 1) -> Iterator[Record]:
    for line_number, line in enumerate(text.removesuffix("\n").split("\n"), first_line):
        yield f"line {line_number}", line.split("\t") if line else []


def detected(text: str, delimiter: str, *, is_given: bool = False) -> Dialect:
    """The dialect of a file with a header line. `delimiter` is preferred; with `is_given` it is the only candidate."""
    sample = "\n".join(text.split("\n", SAMPLE_LINES)[:SAMPLE_LINES]) + "\n"
    header = sample.partition("\n")[0]
    delimiters = [delimiter]
    if not is_given:
        delimiters = [each for each in (delimiter, *DELIMITERS) if each in header] or delimiters
    plain = [Dialect(each) for each in dict.fromkeys(delimiters)]
    escaped = [replace(dialect, escape="\\") for dialect in plain if '\\"' in sample]
    single = [replace(dialect, quote="'") for dialect in plain if _is_single_quoted(header, dialect.delimiter)]
    return max([*plain, *escaped, *single], key=lambda dialect: _regularity(sample, dialect))  # the first on ties


def _is_single_quoted(header: str, delimiter: str) -> bool:
    return all(len(name) > 1 and name[0] == name[-1] == "'" for name in header.split(delimiter))


def _regularity(sample: str, dialect: Dialect) -> float:
    """The fraction of records that have as many fields as the header, minus the fraction with unbalanced quotes; single
    quotes left around all column names count as one unbalanced record."""
    bad_quotes: list[str] = []
    rows = [fields for _, fields in csv_records(sample, dialect, lambda place, _: bad_quotes.append(place)) if fields]
    if not rows:
        return 0.0
    num_odd = len(bad_quotes) + all(name[:1] == name[-1:] == "'" for name in rows[0])
    return (sum(len(fields) == len(rows[0]) for fields in rows) - num_odd) / len(rows)


def _is_quoted(text: str, is_truncated: bool) -> bool:
    if '\t"' not in text and '\n"' not in text and not text.startswith('"'):
        return False
    lengths = set()
    try:
        for record in csv.reader(_lines(text), delimiter="\t", strict=True):
            lengths |= {len(record)} - {0}
    except csv.Error as error:
        if not is_truncated or str(error) != OPEN_AT_END:
            return False
    return len(lengths) == 1


def _lines(text: str) -> list[str]:
    """Lines with their line feeds. Split at line feeds only: `str.splitlines` also splits at characters that occur in
    texts."""
    lines = [line + "\n" for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "\n" else lines


def csv_records(
    text: str,
    dialect: Dialect,
    on_bad_quotes: Callable[[str, str], None],
    first_line: int = 1,
    is_truncated: bool = False,
) -> Generator[Record, None, int]:
    """The records of a text that starts at `first_line` of a file; returns the number of lines read. With
    `is_truncated`, the file has more text after this one: a record that is open at its end is not read. `on_bad_quotes`
    gets the place of a record with unbalanced quotes, and the error."""
    lines, start, bad_line = _lines(text), 0, 0
    limit = csv.field_size_limit(1 << 30)
    try:
        while start < len(lines):
            # A record that starts before `bad_line` and is still open at the end of its line would fail at `bad_line`
            # too, as the parser state inside an open quote does not depend on where it was opened: read only its line.
            last = start + 1 if start < bad_line else len(lines)
            reader = csv.reader((lines[i] for i in range(start, last)), **dialect.options, strict=True)
            done = 0
            try:
                for record in reader:
                    yield f"line {start + done + first_line}", record
                    done = reader.line_num
                start += done
            except csv.Error as error:
                # Keep only this line as a record: an open quote must not swallow the rows after it.
                bad_line = max(bad_line, start + reader.line_num - 1)
                start += done
                if is_truncated and str(error) == OPEN_AT_END and last == len(lines):
                    return start
                place = f"line {start + first_line}"
                on_bad_quotes(place, str(error))
                yield place, next(csv.reader([lines[start].rstrip("\n")], **dialect.options))
                start += 1
        return start
    finally:
        csv.field_size_limit(limit)
