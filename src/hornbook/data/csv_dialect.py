"""How a CSV or TSV file is delimited and quoted, and the records of one.

The first line is the header, so the delimiter must occur in it; among several candidates, the one for which most
records have as many fields as the header is used. `csv.Sniffer` is not used: it can pick a letter, or the commas in a
single column of texts, as the delimiter. An unbalanced quote affects only its own row.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
SAMPLE_LINES = 500
RECORD_CHARACTERS = 32 << 20  # of the longest record of several lines; in a longer one a quote is not closed
OPEN_AT_END = "unexpected end of data"  # error of csv.reader
EXCEL_LINE = re.compile(r'("?)sep=([^"\n])\1', re.IGNORECASE)
Record = tuple[str, list[str]]  # place in the file ("line 12") and fields


@dataclass(frozen=True)
class Dialect:
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None  # None: a quote inside a quoted field is doubled
    skips_space: bool = False  # after a delimiter, as in: 1, "A text"

    @property
    def options(self) -> dict:
        escape = {"escapechar": self.escape, "doublequote": self.escape is None}
        return {
            "delimiter": self.delimiter,
            "quotechar": self.quote,
            "skipinitialspace": self.skips_space,
            **escape,
        }

    def described(self) -> str:
        traits = [f"delimiter {DELIMITERS.get(self.delimiter) or repr(self.delimiter)}"]
        traits += [f"quote character {self.quote}"] if self.quote != '"' else []
        traits += ["quotes escaped by a backslash"] if self.escape else []
        traits += ["spaces before quotes"] if self.skips_space else []
        return ", ".join(traits)


def excel_delimiter(first_line: str) -> str:
    """The delimiter that a line before the header names for Excel, as in sep=; or "sep=,"; empty for any other line."""
    match = EXCEL_LINE.fullmatch(first_line)
    return match[2] if match else ""


def is_plain(text: str, suffix: str, dialect: Dialect, is_truncated: bool = False) -> bool:
    """Whether quotes are ordinary characters: in most TSV files, unless the whole file parses with quoting. With
    `is_truncated`, the text is the beginning of the file."""
    return suffix == ".tsv" and dialect == Dialect("\t") and not _is_quoted(text, is_truncated)


def plain_records(lines: Iterable[str]) -> Iterator[Record]:
    for line_number, line in enumerate(lines, 1):
        yield f"line {line_number}", line.split("\t") if line else []


def detected(text: str, delimiter: str, *, is_given: bool = False) -> Dialect:
    """The dialect of a file with a header line. `delimiter` is preferred; with `is_given` it is the only candidate."""
    sample = text.removesuffix("\n").split("\n", SAMPLE_LINES)[:SAMPLE_LINES]
    header = sample[0]
    delimiters = [delimiter]
    if not is_given:
        delimiters = [each for each in (delimiter, *DELIMITERS) if each in header] or delimiters
    plain = [Dialect(each) for each in dict.fromkeys(delimiters)]
    escaped = [replace(dialect, escape="\\") for dialect in plain if any('\\"' in line for line in sample)]
    spaced = [
        replace(dialect, skips_space=True)
        for dialect in plain
        if dialect.delimiter != "\t" and any(f'{dialect.delimiter} "' in line for line in sample)
    ]
    single = [replace(dialect, quote="'") for dialect in plain if _is_single_quoted(header, dialect.delimiter)]
    dialects = [*plain, *escaped, *spaced, *single]
    return max(dialects, key=lambda dialect: _regularity(sample, dialect))  # the first on ties


def _is_single_quoted(header: str, delimiter: str) -> bool:
    return all(len(name) > 1 and name[0] == name[-1] == "'" for name in header.split(delimiter))


def _regularity(sample: list[str], dialect: Dialect) -> float:
    """The fraction of records that have as many fields as the header, minus the fraction with unbalanced quotes; single
    quotes left around all column names count as one unbalanced record, and so does a field that begins with ` "`."""
    bad_quotes: list[str] = []
    rows = [fields for _, fields in csv_records(sample, dialect, lambda place, _: bad_quotes.append(place)) if fields]
    if not rows:
        return 0.0
    num_odd = len(bad_quotes) + all(name[:1] == name[-1:] == "'" for name in rows[0])
    num_odd += sum(any(field.startswith(' "') for field in fields) for fields in rows)
    return (sum(len(fields) == len(rows[0]) for fields in rows) - num_odd) / len(rows)


def _is_quoted(text: str, is_truncated: bool) -> bool:
    if '\t"' not in text and '\n"' not in text and not text.startswith('"'):
        return False
    lengths = set()
    try:
        for record in csv.reader((line + "\n" for line in text.split("\n")), delimiter="\t", strict=True):
            lengths |= {len(record)} - {0}
    except csv.Error as error:
        if not is_truncated or str(error) != OPEN_AT_END:
            return False
    return len(lengths) == 1


def csv_records(lines: Iterable[str], dialect: Dialect, on_bad_quotes: Callable[[str, str], None]) -> Iterator[Record]:
    """The records of a file, whose `lines` come without line feeds. `on_bad_quotes` gets the place of a record with
    unbalanced quotes, and the error."""
    lines, number = iter(lines), 1
    taken: list[str] = []  # the lines of the record that is being read
    waiting: list[str] = []  # a line that is read again

    def take() -> Iterator[str]:
        num_characters = 0
        while (line := waiting.pop() if waiting else next(lines, None)) is not None:
            num_characters = num_characters + len(line) if taken else len(line)
            taken.append(line)
            if len(taken) > 1 and num_characters > RECORD_CHARACTERS:
                raise csv.Error("too long")
            yield line + "\n"

    limit = csv.field_size_limit(1 << 30)
    try:
        while True:
            try:
                for record in csv.reader(take(), **dialect.options, strict=True):
                    yield f"line {number}", record
                    number += len(taken)
                    taken.clear()
                return
            except csv.Error:
                # An open quote must not swallow the rows after it. Records that start in these lines and are still open
                # at the end of a line would fail at the same place, so every line but the last is read alone.
                if len(taken) > 1:
                    waiting.append(taken.pop())
                for line in taken:
                    place = f"line {number}"
                    try:
                        yield place, next(csv.reader([line + "\n"], **dialect.options, strict=True))
                    except csv.Error as error:
                        on_bad_quotes(place, str(error))
                        yield place, next(csv.reader([line], **dialect.options))
                    number += 1
                taken.clear()
    finally:
        csv.field_size_limit(limit)
