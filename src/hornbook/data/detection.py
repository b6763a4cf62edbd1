"""How a file of text is encoded, and how a CSV or TSV file is delimited and quoted; the records of one.

A file is UTF-8 if its bytes are valid UTF-8. Otherwise, isolated high bytes are accents of a European language and runs
that decode to Hangul are Korean; the rest is left to `charset-normalizer`, which needs some text to be reliable.

The first line of a table is the header, so the delimiter must occur in it; among several candidates, the one for which
most records have as many fields as the header is used. `csv.Sniffer` is not used: it can pick a letter, or the commas
in a single column of texts, as the delimiter. An unbalanced quote affects only its own row.
"""

import codecs
import csv
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

UTF_8 = "utf-8"
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF8: UTF_8,
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, whose mark is a prefix of this one
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
OTHER_ENCODINGS = ("cp932", "gb18030", "big5", "cp1250", "cp1251", "cp1253")
SAMPLE_BYTES = 1 << 18
MIN_HIGH_BYTES = 6  # beyond ASCII; fewer are not enough for charset-normalizer
HIGH_BYTES = re.compile(rb"[\x80-\xff]+")
VALID_UTF_8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
HANGUL = re.compile("[가-힣]")
RARE_CHARACTERS = "ÿþÞðÐ"  # in cp1252 texts; so are these Unicode categories:
RARE_CATEGORIES = ("Cc", "Cf", "No", "So", "Sk", "Sm")

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "pipe"}
SAMPLE_LINES = 500
RECORD_CHARACTERS = 32 << 20  # of the longest record of several lines; in a longer one a quote is not closed
OPEN_AT_END = "unexpected end of data"  # error of csv.reader
Record = tuple[str, list[str]]  # place in the file ("line 12") and fields


def encoding_of(data: bytes) -> str:
    """The encoding of a file; `utf-8` if none fits, so that invalid bytes are replaced."""
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if data.startswith(mark):
            return encoding
    if wide := _wide(data[:SAMPLE_BYTES]):
        return wide
    try:
        data.decode(UTF_8)
        return UTF_8
    except UnicodeDecodeError as error:
        start = max(0, error.start - SAMPLE_BYTES // 2)
    sample = data[start : start + SAMPLE_BYTES]
    sample = sample[: sample.rfind(b"\n") + 1] or sample
    return _legacy(sample) or UTF_8


def _wide(sample: bytes) -> str | None:
    """UTF-16 without a byte order mark: line ends, digits and delimiters have a zero in every other byte."""
    zeros = [sample[side::2].count(0) for side in (0, 1)]
    if max(zeros) < max(3, len(sample) / 40) or min(zeros) > max(zeros) / 20:
        return None
    encoding = "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"
    try:
        sample[: len(sample) // 2 * 2].decode(encoding)
    except UnicodeDecodeError as error:
        return encoding if error.reason == "unexpected end of data" else None
    return encoding


def _legacy(sample: bytes) -> str | None:
    runs = HIGH_BYTES.findall(sample)
    if sum(map(len, VALID_UTF_8.findall(sample))) >= sum(map(len, runs)) / 2:
        return None  # UTF-8 with some damaged bytes
    if sum(len(run) == 1 for run in runs) > len(runs) / 2 and (european := _european(sample)):
        return european
    korean = _decoded(sample, "cp949")
    # EUC-KR has 2,350 syllables, which cover nearly all Korean words.
    common = [each for each in HANGUL.findall(korean or "") if len(each.encode("euc_kr", "ignore")) == 2]
    if korean is not None and _fraction(common, korean) > 0.95:
        return "cp949"
    if sum(map(len, runs)) < MIN_HIGH_BYTES:
        return None
    from charset_normalizer import from_bytes

    best = from_bytes(sample, cp_isolation=list(OTHER_ENCODINGS)).best()
    return best.encoding if best is not None and best.encoding in OTHER_ENCODINGS else None


def _european(sample: bytes) -> str | None:
    for encoding in ("cp1252", "latin-1"):
        text = _decoded(sample, encoding)
        if text is not None:
            others = [each for each in text if each > "\x7f"]
            rare = [each for each in others if each in RARE_CHARACTERS or unicodedata.category(each) in RARE_CATEGORIES]
            return encoding if _fraction(rare, text) < 0.4 else None
    return None


def _decoded(sample: bytes, encoding: str) -> str | None:
    """The decoded sample, None if it is not in this encoding; a character cut off at the end is ignored."""
    try:
        return codecs.getincrementaldecoder(encoding)().decode(sample)
    except UnicodeDecodeError:
        return None


def _fraction(some: list[str], text: str) -> float:
    return len(some) / max(1, sum(each > "\x7f" and not unicodedata.category(each).startswith("P") for each in text))


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
    single = [replace(dialect, quote="'") for dialect in plain if _is_single_quoted(header, dialect.delimiter)]
    return max([*plain, *escaped, *single], key=lambda dialect: _regularity(sample, dialect))  # the first on ties


def _is_single_quoted(header: str, delimiter: str) -> bool:
    return all(len(name) > 1 and name[0] == name[-1] == "'" for name in header.split(delimiter))


def _regularity(sample: list[str], dialect: Dialect) -> float:
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
