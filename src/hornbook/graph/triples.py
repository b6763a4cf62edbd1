"""Reads triples (head, relation, tail) and entity names from files: tables, JSON lines, ConceptNet 4 and 5, T-REx facts
and JSON files of names. A row that cannot be read is a `Problem` with its place; the rows around it are kept."""

import json
import math
import re
import unicodedata
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from hornbook.data.csv_dialect import Dialect, csv_records
from hornbook.data.problems import Problem, Problems
from hornbook.data.sources import ByteReader, format_of
from hornbook.data.text_encoding import UTF_8, encoding_of
from hornbook.lifecycle.run_folder import OnCount

TABLES = (".tsv", ".csv", ".txt")
TRIPLE_SUFFIXES = (*TABLES, ".jsonl")
READABLE = ".tsv, .csv, .txt, .jsonl (also followed by .gz, .xz or .zst), .json with names, or a WordNet folder"
COLUMNS = ("head", "relation", "tail", "weight")
HEADINGS = {  # the usual headings of each column; of several the first counts: a source may be a book, a start a year
    "head": ("head", "subject", "subj", "head_id", "sub_uri", "h", "source", "start"),
    "relation": ("relation", "predicate", "rel", "relation_id", "predicate_id", "property", "r", "edge"),
    "tail": ("tail", "object", "obj", "tail_id", "obj_uri", "t", "target", "end"),
    "weight": ("weight", "score", "confidence", "count"),
    "head_name": ("head_name", "head_label", "sub_label"),
    "tail_name": ("tail_name", "tail_label", "obj_label"),
}
SPLITS = ("train", "valid", "test")
SPLIT_OF = {**{name: index for index, name in enumerate(SPLITS)}, "dev": 1, "validation": 1}
LABELS, ALIASES = ("label", "name", "title"), ("aliases", "alternatives", "alias", "also_known_as", "names")
LONGEST_LINE = 16 << 20
OPAQUE = re.compile(r"[A-Z]?\d+|/[a-z]/\S+|<?https?://\S+")  # identifiers that are not words: Q42, 00260881, /m/027rn
ALIAS_WEIGHT = 0.5  # prior of an alias next to the 1 of a label


class Triples:
    """The triples and names read so far, with entities and relations numbered in the order of their first use."""

    def __init__(self, problems: Problems):
        self.problems = problems
        self.entities: dict[str, int] = {}
        self.relations: dict[str, int] = {}
        self.relation_names: dict[str, str] = {}
        self.heads, self.relation_ids, self.tails = array("i"), array("i"), array("i")
        self.weights, self.splits = array("f"), array("b")
        self.names: dict[tuple[int, str], float] = {}  # (entity, name) -> weight of the name
        self.priors: dict[tuple[int, str], float] = {}  # (entity, name) -> prior, where the source gives one

    def entity(self, identifier: str) -> int:
        return self.entities.setdefault(identifier, len(self.entities))

    def add(self, head: str, relation: str, tail: str, weight: float = 1.0, split: int = 0) -> None:
        entities, relations = self.entities, self.relations
        self.heads.append(entities.setdefault(head, len(entities)))
        self.relation_ids.append(relations.setdefault(relation, len(relations)))
        self.tails.append(entities.setdefault(tail, len(entities)))
        self.weights.append(weight)
        self.splits.append(split)

    def add_name(self, identifier: str, name: str, weight: float = 1.0) -> None:
        if name := tidy(name):
            key = (self.entity(identifier), name)
            self.names[key] = max(weight, self.names.get(key, 0.0))

    def add_sense(self, identifier: str, name: str, prior: float) -> None:
        """Adds a name whose prior among the entities of that name is known."""
        self.add_name(identifier, name, prior)
        self.priors[self.entity(identifier), tidy(name)] = prior


def tidy(text: str) -> str:
    """The text on one line, without white space at its ends, in NFC: sources that decompose Hangul or accents name the
    same entities. Unpaired surrogates are replaced."""
    text = " ".join(text.split())
    return text if text.isascii() else unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode())


def read_file(path: str, into: Triples, columns: Sequence[str] | None, language: str, on_progress: OnCount) -> None:
    if Path(path).suffix.lower() == ".json":
        read_names(path, into)
        return
    kind, _ = format_of(path, TRIPLE_SUFFIXES)
    split = split_of(path)
    rows = _json_rows(path, into.problems) if kind == ".jsonl" else _table_rows(path, kind, columns, into, language)
    before = len(into.heads), into.problems.count("bad_triple")
    for count, (place, row) in enumerate(rows, 1):
        reason = _add_row(row, split, into)
        if reason:
            into.problems.add(Problem("bad_triple", path, place, reason))
        if count % 50_000 == 0:
            on_progress("edges read", len(into.heads))
    if before == (len(into.heads), into.problems.count("bad_triple")):
        into.problems.add(Problem("empty_file", path))


def split_of(path: str) -> int:
    """The index in `SPLITS` that a file's name stands for; 0, training, for any other name."""
    return SPLIT_OF.get(Path(path).name.partition(".")[0].lower(), 0)


def _add_row(row: dict, split: int, into: Triples) -> str:
    """Adds a row; returns the reason if it is not a triple."""
    if "head" not in row and all(isinstance(row.get(name), str) for name in ("relation", "label")):
        into.relation_names[row["relation"]] = tidy(row["label"])  # T-REx names its relations in such rows
        return ""
    values = []
    for name in COLUMNS[:3]:
        value = row.get(name)
        value = tidy(value) if isinstance(value, str) else str(value) if isinstance(value, int) else ""
        if not value:
            return f"no {name}"
        values.append(value)
    weight = row.get("weight")
    try:
        weight = 1.0 if weight in (None, "") else float(weight)
    except (TypeError, ValueError):
        return f"the weight {str(weight)[:40]!r} is not a number"
    if not math.isfinite(weight):
        return "the weight is not finite"
    into.add(*values, weight=weight, split=split)
    for name, identifier in (("head_name", values[0]), ("tail_name", values[2])):
        if isinstance(row.get(name), str):
            into.add_name(identifier, row[name])
    return ""


def _lines(path: str, problems: Problems) -> Iterator[tuple[str, str]]:
    """Yields (place, line) for the lines that are not blank."""
    encoding = encoding_of(next(ByteReader(path).blocks(), b""))
    if encoding != UTF_8:
        problems.add(Problem("other_encoding", path, detail=encoding))
    reader = ByteReader(path)
    for number, line in reader.lines(LONGEST_LINE):
        place = f"line {number}"
        if line is None:
            problems.add(Problem("line_too_long", path, place))
            continue
        try:
            text = line.decode(encoding)
        except UnicodeDecodeError:
            text = line.decode(encoding, "replace")
            problems.add(Problem("invalid_utf8", path, place))
        if text := text.rstrip("\r").replace("\0", ""):
            yield place, text
    if reader.failure:
        problems.add(reader.failure)


@lru_cache
def _columns_of(headings: tuple[str, ...]) -> tuple[str, ...]:
    """The columns that these headings stand for; one that stands for none is kept.

    >>> _columns_of(("Subject", "predicate", "object", "source"))
    ('head', 'relation', 'tail', 'source')
    """
    names, columns = [heading.strip().lower() for heading in headings], list(headings)
    for column, usual in HEADINGS.items():
        if found := next((name for name in usual if name in names), None):
            columns[names.index(found)] = column
    return tuple(columns)


def _json_rows(path: str, problems: Problems) -> Iterator[tuple[str, dict]]:
    for place, line in _lines(path, problems):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as error:
            problems.add(Problem("not_json", path, place, str(error)[:200]))
            continue
        if isinstance(value, list):
            yield place, dict(zip(COLUMNS, value, strict=False))
        elif isinstance(value, dict):
            yield place, dict(zip(_columns_of(tuple(value)), value.values(), strict=True))
        else:
            problems.add(Problem("not_json", path, place, f"a {type(value).__name__}, not an object"))


def _table_rows(
    path: str, kind: str, columns: Sequence[str] | None, into: Triples, language: str
) -> Iterator[tuple[str, dict]]:
    separator = "," if kind == ".csv" else "\t"
    names: Sequence[str] | None = None
    place = ""

    def note_bad_quotes(_: str, error: str) -> None:
        into.problems.add(Problem("bad_quotes", path, place, error))

    for place, line in _lines(path, into.problems):
        fields = line.split(separator)
        if kind == ".csv" and '"' in line:
            _, fields = next(csv_records([line], Dialect(), note_bad_quotes))
        if names is None:  # the first line
            heading = _columns_of(tuple(fields))
            if set(COLUMNS[:3]) <= set(heading):
                names = heading
                continue
            names = columns or ()
        if fields[0].startswith("/a/["):
            yield from _conceptnet_5(place, fields, language, path, into)
        elif names:
            yield place, dict(zip(names, fields, strict=False))
        elif len(fields) == 5:
            yield place, _conceptnet_4(fields)
        elif len(fields) in (3, 4):
            yield place, dict(zip(COLUMNS, fields, strict=False))
        else:
            detail = (
                f"{len(fields)} fields instead of head, relation, tail and perhaps a weight; a header row names others"
            )
            into.problems.add(Problem("bad_triple", path, place, detail))


def _conceptnet_4(fields: list[str]) -> dict:
    """A row of ConceptNet 4: head, relation, tail, frequency, score. A negative frequency negates the relation."""
    head, relation, tail, frequency, score = fields
    try:
        relation = f"Not{relation}" if float(frequency) < 0 else relation
    except ValueError:
        return dict(zip(COLUMNS, (head, relation, tail, frequency), strict=True))
    return dict(zip(COLUMNS, (head, relation, tail, score), strict=True))


def _conceptnet_5(place: str, fields: list[str], language: str, path: str, into: Triples) -> Iterator[tuple[str, dict]]:
    """A row of ConceptNet 5: assertion, relation, head, tail, JSON with the weight; concepts are /c/en/ice_cream/n."""
    if len(fields) != 5:
        into.problems.add(Problem("bad_triple", path, place, f"{len(fields)} fields, ConceptNet 5 has 5"))
        return
    _, relation, head, tail, metadata = fields
    concepts = [concept.split("/") for concept in (head, tail)]
    if any(len(parts) < 4 or parts[1] != "c" or language not in ("", parts[2]) for parts in concepts):
        into.problems.add(Problem("other_language", path, place))
        return
    try:
        weight = json.loads(metadata).get("weight", 1.0)
    except (ValueError, AttributeError):
        weight = metadata
    head, tail = (parts[3].replace("_", " ") for parts in concepts)
    yield place, {"head": head, "relation": relation.removeprefix("/r/"), "tail": tail, "weight": weight}


def is_names_file(path: Path) -> bool:
    """Whether a .json file maps identifiers to objects with a label, as CoDEx and FB15k-237 publish them."""
    with open(path, encoding="utf-8", errors="replace") as file:
        start = file.read(1 << 16)
    return any(f'"{key}"' in start for key in LABELS)


def read_names(path: str, into: Triples) -> None:
    """Adds the labels and aliases of a JSON object that maps identifiers to {"label": ..., "aliases": [...]}, or to a
    text. Identifiers of relations, such as P31, name relations."""
    try:
        names = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON ({str(error)[:100]}): restore the file or leave it out") from None
    if not isinstance(names, dict):
        raise ValueError(f"{path} must map identifiers to objects with a label, found a {type(names).__name__}")
    are_relations = Path(path).name.lower().startswith("relation")
    for identifier, entry in names.items():
        label, aliases = _names_of(entry)
        if label is None:
            into.problems.add(Problem("no_name", path, identifier[:80]))
        elif are_relations or identifier in into.relations:
            into.relation_names[identifier] = tidy(label)
        else:
            into.add_name(tidy(identifier), label)
            for alias in aliases:
                into.add_name(tidy(identifier), alias, ALIAS_WEIGHT)


def _names_of(entry: object) -> tuple[str | None, list[str]]:
    """(Label, aliases) of an entry of a file of names; no label if there is none."""
    if isinstance(entry, str):
        return entry, []
    if not isinstance(entry, dict):
        return None, []
    label = next((entry[name] for name in LABELS if isinstance(entry.get(name), str) and entry[name].strip()), None)
    aliases = next((entry[name] for name in ALIASES if isinstance(entry.get(name), list)), [])
    return label, [alias for alias in aliases if isinstance(alias, str)]
