"""Reads the `dict` folder of WordNet: synsets become entities such as dog.n.01, pointers become edges.

Of a pointer and its inverse (hypernym and hyponym) only the first is kept, as a graph is followed in both directions.
The format is that of wndb(5WN), https://wordnet.princeton.edu/documentation/wndb5wn.
"""

from collections.abc import Iterator
from pathlib import Path

from hornbook.data.problems import Problem
from hornbook.graph.triples import Triples
from hornbook.lifecycle.run_folder import OnCount

PARTS = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
RELATIONS = {
    "@": "hypernym",
    "@i": "instance_hypernym",
    "%m": "has_member",
    "%s": "has_substance",
    "%p": "has_part",
    "!": "antonym",
    "+": "derivationally_related_form",
    "*": "entails",
    ">": "causes",
    "^": "also_see",
    "$": "verb_group",
    "&": "similar_to",
    "<": "participle_of",
    "\\": "pertains_to",
    "=": "attribute",
    ";c": "domain_topic",
    ";r": "domain_region",
    ";u": "domain_usage",
}
SENSE_PARTS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}  # of the keys in index.sense
INVERSES = ("~", "~i", "#m", "#s", "#p", "-c", "-r", "-u")


def is_wordnet(folder: Path) -> bool:
    return any((folder / f"data.{part}").is_file() for part in PARTS)


def read_wordnet(folder: Path, into: Triples, on_progress: OnCount) -> None:
    """Adds the synsets, their words as names, and their pointers. The prior of a name is how often the word has that
    sense in WordNet's tagged texts plus 1 / sense number, as the senses of a word are listed by frequency."""
    counts = _tag_counts(folder / "index.sense")
    senses = {part: _senses(folder / f"index.{part}") for part in PARTS}
    synsets = {part: list(_synsets(folder / f"data.{part}", into)) for part in PARTS}
    identifiers = {}
    for part, letter in PARTS.items():
        for offset, words, _ in synsets[part]:
            sense = senses[part].get((words[0].lower(), offset))
            identifiers[offset, letter] = f"{words[0].lower()}.{letter}.{sense:02d}" if sense else f"{offset}-{letter}"
    for part, letter in PARTS.items():
        for offset, words, pointers in synsets[part]:
            identifier = identifiers[offset, letter]
            for word in words:
                prior = 1 / senses[part].get((word.lower(), offset), 1) + counts.get((word.lower(), letter, offset), 0)
                into.add_sense(identifier, word.replace("_", " "), prior)
            for relation, target in pointers:
                if target in identifiers:
                    into.add(identifier, relation, identifiers[target])
                else:
                    place = f"synset {offset}"
                    into.problems.add(Problem("bad_triple", str(folder / f"data.{part}"), place, "no such synset"))
        on_progress("edges read", len(into.heads))


def _senses(file: Path) -> dict[tuple[str, str], int]:
    """(word, offset of its synset) -> number of the sense, from an index file; empty if there is none."""
    senses = {}
    for line in _lines(file):
        fields = line.split()
        if line.startswith(" ") or len(fields) < 4 or not fields[2].isdigit():
            continue
        for sense, offset in enumerate(fields[-int(fields[2]) :], 1):
            senses[fields[0], offset] = sense
    return senses


def _tag_counts(file: Path) -> dict[tuple[str, str, str], int]:
    """(word, part of speech, offset) -> occurrences in tagged texts, from lines "dog%1:05:00:: 02086723 1 42"."""
    counts = {}
    for line in _lines(file):
        key, *fields = line.split()
        word, _, sense = key.partition("%")
        if len(fields) == 3 and fields[2].isdigit() and fields[2] != "0" and sense[:1] in SENSE_PARTS:
            counts[word, SENSE_PARTS[sense[0]], fields[0]] = int(fields[2])
    return counts


def _lines(file: Path) -> Iterator[str]:
    """The lines of a file; none if it does not exist."""
    if file.is_file():
        with open(file, encoding="utf-8", errors="replace") as lines:
            yield from lines


def _synsets(file: Path, into: Triples) -> Iterator[tuple[str, list[str], list[tuple[str, tuple[str, str]]]]]:
    """Yields (offset, words, [(relation, (offset, part of speech) of the target)])."""
    for number, line in enumerate(_lines(file), 1):
        if line.startswith(" ") or not line.strip():  # the licence
            continue
        try:
            yield _synset(line.partition(" | ")[0].split())
        except (ValueError, IndexError):
            into.problems.add(Problem("bad_triple", str(file), f"line {number}", "not a synset of WordNet"))


def _synset(fields: list[str]) -> tuple[str, list[str], list[tuple[str, tuple[str, str]]]]:
    num_words = int(fields[3], 16)
    words = [fields[4 + 2 * i].partition("(")[0] for i in range(num_words)]  # without the marker of galore(ip)
    first = 5 + 2 * num_words  # field of the first pointer, after their number
    pointers = []
    for i in range(int(fields[first - 1])):
        symbol, offset, part, _ = fields[first + 4 * i : first + 4 * i + 4]
        if symbol not in INVERSES:
            pointers.append((RELATIONS.get(symbol, symbol), (offset, part.replace("s", "a"))))
    if not words or not fields[0].isdigit():
        raise ValueError
    return fields[0], words, pointers
