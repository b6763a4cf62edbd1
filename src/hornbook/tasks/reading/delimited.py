"""Records of CSV and TSV files: the delimiter and the quoting are detected, and a broken quote breaks its own row only.

The first line names the columns, so a delimiter must occur in it; of several, the one that gives most records as many
fields as there are names is taken. `csv.Sniffer` is not used: it takes a letter or the commas of a single column of
texts for a delimiter.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, replace

from hornbook.tasks.reading.notes import Notes

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
SAMPLE_LINES = 500
Record = tuple[str, list[str]]  # its place in the file, and its fields


@dataclass(frozen=True)
class Dialect:
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None  # None: a quote within quotes is doubled

    @property
    def options(self) -> dict:
        return {
            **{"delimiter": self.delimiter, "quotechar": self.quote},
            **{"escapechar": self.escape, "doublequote": self.escape is None},
        }

    def described(self) -> str:
        words = [f"delimiter {DELIMITERS.get(self.delimiter) or repr(self.delimiter)}"]
        words += [f"fields in {self.quote}"] if self.quote != '"' else []
        words += ["quotes escaped by a backslash"] if self.escape else []
        return ", ".join(words)


def dialect_for(text: str, suffix: str, file: str, notes: Notes) -> Dialect:
    """The dialect of a .csv or .tsv file, logged where it is not the usual one."""
    asked = notes.format.delimiter
    usual = Dialect("\t" if suffix == ".tsv" else ",")
    found = detected(text, asked or usual.delimiter, is_asked=asked is not None)
    if found != usual and asked is None:
        notes.log(f"{file}: {found.described()} (detected; --delimiter overrides it)")
    return found


def records(text: str, suffix: str, dialect: Dialect, file: str, notes: Notes) -> Iterator[Record]:
    """The records of a .csv or .tsv file, the first of which names the columns."""
    if suffix == ".tsv" and dialect == Dialect("\t"):
        # Quotes are plain characters, as in most TSV files, unless they make sense as marks in the whole of this one.
        if not _quotes_are_marks(text):
            return plain_records(text)
        notes.log(f"{file}: fields are in quotes, which were taken off")
    return csv_records(text, dialect, file, notes)


def plain_records(text: str) -> Iterator[Record]:
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        yield f"line {number}", line.split("\t") if line else []


def detected(text: str, usual: str, *, is_asked: bool = False) -> Dialect:
    """The dialect of a file whose first line names its columns; with `is_asked`, the delimiter is the usual one."""
    sample = "\n".join(text.split("\n", SAMPLE_LINES)[:SAMPLE_LINES]) + "\n"
    header = sample.partition("\n")[0]
    delimiters = [usual] if is_asked else [mark for mark in (usual, *DELIMITERS) if mark in header] or [usual]
    plain = [Dialect(mark) for mark in dict.fromkeys(delimiters)]
    escaped = [replace(each, escape="\\") for each in plain if '\\"' in sample]
    single = [replace(each, quote="'") for each in plain if _is_in_single_quotes(header, each.delimiter)]
    return max([*plain, *escaped, *single], key=lambda each: _regularity(sample, each))  # of equals the first


def _is_in_single_quotes(header: str, delimiter: str) -> bool:
    return all(len(name) > 1 and name[0] == name[-1] == "'" for name in header.split(delimiter))


def _regularity(sample: str, dialect: Dialect) -> float:
    """The share of the records that have as many fields as there are columns, less those with broken quotes; a quote
    that stays around a name of a column counts as broken."""
    notes = Notes()
    found = [fields for _, fields in csv_records(sample, dialect, "", notes) if fields]
    if not found:
        return 0.0
    num_odd = notes.problems.count("bad_quotes") + all(name[:1] == name[-1:] == "'" for name in found[0])
    return (sum(len(fields) == len(found[0]) for fields in found) - num_odd) / len(found)


def _quotes_are_marks(text: str) -> bool:
    if '\t"' not in text and '\n"' not in text and not text.startswith('"'):
        return False
    try:
        lengths = {len(record) for record in csv.reader(_lines(text), delimiter="\t", strict=True) if record}
    except csv.Error:
        return False
    return len(lengths) == 1


def _lines(text: str) -> list[str]:
    """With their ends, and cut at line feeds only: texts hold other characters that Python counts as line ends."""
    lines = [line + "\n" for line in text.split("\n")]
    return lines[:-1] if lines[-1] == "\n" else lines


def csv_records(text: str, dialect: Dialect, file: str, notes: Notes) -> Iterator[Record]:
    lines, start, bad_line = _lines(text), 0, 0
    limit = csv.field_size_limit(1 << 30)
    try:
        while start < len(lines):
            # Within an open quote all that was read before is forgotten, so that a record which is open at the end of
            # its line, on the way to a line where another one broke, would break there too: it is not followed again.
            last = start + 1 if start < bad_line else len(lines)
            reader = csv.reader((lines[i] for i in range(start, last)), **dialect.options, strict=True)
            done = 0
            try:
                for record in reader:
                    yield f"line {start + done + 1}", record
                    done = reader.line_num
                start += done
            except csv.Error as error:
                # Only this line is doubtful: an open quote must not swallow the rows after it.
                bad_line = max(bad_line, start + reader.line_num - 1)
                start += done
                place = f"line {start + 1}"
                notes.problem("bad_quotes", file, place, str(error))
                yield place, next(csv.reader([lines[start].rstrip("\n")], **dialect.options))
                start += 1
    finally:
        csv.field_size_limit(limit)
