"""Puts together at most ten million words of text for `hornbook reproduce babylm`, as documents of sentences.

    python benchmarks/babylm_text.py babylm/text/*.txt --fill books.txt wiki.txt --out text.jsonl [--words 10e6]

The first files are used whole; those of `--fill` share what is left, each from its start and without sentences that are
long, incomplete or have a rare word: a small text then shows every word and construction more often. Marks of speakers
("*CHI:", "A:") and headings ("= = = Title = = =") are removed. Every document starts with a sentence, as BLiMP's items
do. Half of the words are in short documents, half in long ones.

An eighth of the words are in documents of a third kind, which a model can only predict by looking up what it has read,
as entity tracking needs: numbered things ("Room 7 has the river, Room 2 has the old man.") that occur again in another
order. They are short sentences of the text, or words that follow "the" in it; in half of the latter documents the thing
comes before its number at first ("The river stayed near room 7."), and in half of them things come, leave or go from
one number to another before they are listed again ("The river went from room 7 to room 2."). All their words are
counted.
"""

import argparse
import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hornbook.text.sentences import split_sentences

MARKUP = re.compile(r"(?:^|(?<=\s))(?:\*[A-Z]{3}:|[AB]:|(?:= )+=?.{1,60}?(?: =)+)\s*")
MIN_WORDS = 2  # of a sentence
FILL_WORDS = (5, 40)  # fewest and most words of a sentence of the files that fill
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
MAX_NUMBERED_WORDS = 8  # of a sentence that is numbered
MAX_REMEMBERED = 100  # words for the next document of numbered things
NUMBERED = (5, 9)  # fewest and most things in a document of numbered things
# What is numbered, and the verb; neither "box" nor "contains", the words of the evaluation.
NOUNS = [
    "page",
    "number",
    "room",
    "letter",
    "line",
    "chapter",
    "card",
    "seat",
    "house",
    "door",
    "bed",
    "table",
    "shelf",
]
NOUNS += ["row", "team", "class", "shop", "bus", "picture", "song", "day", "floor", "verse", "note"]
VERBS = ["says", "is", "has", "reads", "tells", "shows", "gives", "means", "holds", "asks"]
PLACED = ["went with", "belonged to", "came from", "stayed near", "fell on"]  # after one thing and after two
NUM_CHANGES = (1, 4)  # fewest and most
COMES, LEAVES, GOES = ["came to", "joined", "arrived at"], ["left", "went away from"], ["went from", "passed from"]
THING = re.compile(r"\bthe ([a-z]{3,12})(?= (?:of|and|was|is|were|are|in|on|to|for|with|had|has)\b|[.,;:!?])")


def sentences(file: Path, common: set[str] | None) -> Iterator[str]:
    """Without marks; the first one of a file of one line may have lost its beginning and is left out. If there are
    `common` words, only whole sentences of such words."""
    found = (
        " ".join(MARKUP.sub(" ", sentence).split())
        for line in file.read_text(encoding="utf-8").splitlines()
        for sentence in split_sentences(line)
    )
    next(found, None)
    for each in found:
        if len(each.split()) >= MIN_WORDS and (common is None or is_simple(each, common)):
            yield each


def is_simple(sentence: str, common: set[str]) -> bool:
    fewest, most = FILL_WORDS
    is_whole = sentence[0].isupper() and sentence[-1] in ".?!" and fewest <= len(sentence.split()) <= most
    return is_whole and all(word in common for word in WORD.findall(sentence.lower()))


def common_words(files: list[Path], num_words: int) -> set[str]:
    """The most frequent words of the files."""
    counts = Counter(word for file in files for word in WORD.findall(file.read_text(encoding="utf-8").lower()))
    return {word for word, _ in counts.most_common(num_words)}


def documents(
    found: Iterable[str], num_sentences: int, num_long_words: int, numbered_share: float, most_words: float
) -> Iterator[str]:
    """Documents of at most `most_words` words in all: short ones of `num_sentences` sentences, and long ones of about
    `num_long_words` words, with as many words in short as in long ones; `numbered_share` of the words are in numbered
    ones."""
    numbered = NumberedDocuments()
    document: list[str] = []
    more_long_words = 0  # in the long documents than in the short ones
    num_read, num_numbered = 0, 0  # words of all documents; of the numbered ones
    for sentence in found:
        numbered.read(sentence)
        if num_numbered < numbered_share * num_read and (text := numbered.make()):
            num_numbered += len(text.split())
            num_read += len(text.split())
            if num_read > most_words:
                break
            yield text
        num_read += len(sentence.split())
        if num_read > most_words:
            break
        document.append(sentence)
        is_long = more_long_words <= 0
        num_words = sum(len(each.split()) for each in document)
        if num_words >= num_long_words if is_long else len(document) == num_sentences:
            yield " ".join(document)
            more_long_words += num_words if is_long else -num_words
            document = []
    if document:
        yield " ".join(document)


class NumberedDocuments:
    """Makes documents of numbered things from the sentences that it reads."""

    def __init__(self) -> None:
        self._draw = random.Random(0)
        self._sentences: dict[str, list[str]] = {}  # short ones, by their first word or by ""
        self._words: list[str] = []  # after "the"

    def read(self, sentence: str) -> None:
        self._words = [*self._words, *THING.findall(sentence)][-MAX_REMEMBERED:]
        if len(sentence.split()) <= MAX_NUMBERED_WORDS:
            start = self._draw.choice(("", sentence.split()[0].lower()))
            self._sentences.setdefault(start, []).append(sentence.rstrip(".?! "))

    def make(self) -> str:
        """A document; empty if too little was read since the last one."""
        size = self._draw.randint(*NUMBERED)
        start = next((start for start, found in self._sentences.items() if len(found) >= size), None)
        words = list(dict.fromkeys(self._words))
        if start is not None and self._draw.random() < 0.5:
            return self._document(self._sentences.pop(start)[:size])
        if len(words) < 2 * size:
            return ""
        self._words = []
        groups = [words[2 * at : 2 * at + self._draw.randint(1, 2)] for at in range(size)]
        return self._document([listed(group) for group in groups], groups, words[2 * size :])

    def _document(self, things: list[str], groups: Sequence[list[str]] = (), others: Sequence[str] = ()) -> str:
        """All things with their numbers, and then again in one to three other orders. Where the things are `groups` of
        words, the number may come after the thing at first, and they may change in between; `others` may come."""
        draw = self._draw
        numbers = draw.sample(range(draw.choice((10, 100))), len(things))
        noun, verb = draw.choice(NOUNS).capitalize(), draw.choice(VERBS)
        form = draw.choice(("{noun} {number} {verb} {thing}",) * 2 + ("{noun} {number}: {thing}", "{number} {thing}"))

        def listing(things: Sequence[str]) -> list[str]:
            pairs = zip(numbers, things, strict=True)
            return [form.format(noun=noun, verb=verb, number=number, thing=thing) for number, thing in pairs]

        first = listing(things)
        changes: list[str] = []
        if groups and "noun" in form:
            if draw.random() < 0.5:
                placed = draw.choice(PLACED)
                pairs = zip(numbers, things, strict=True)
                first = [f"{thing.capitalize()} {placed} {noun.lower()} {number}" for number, thing in pairs]
            if draw.random() < 0.5:
                places = [f"{noun.lower()} {number}" for number in numbers]
                changes = changed(groups, places, list(others), draw)
        again = listing([listed(group) for group in groups] if groups else things)
        orders = [draw.sample(again, len(again)) for _ in range(draw.randint(1, 3))]
        parts = [draw.choice((", ", ". ")).join(first), *changes, *(". ".join(order) for order in orders)]
        return ". ".join(parts) + "."


def listed(words: list[str]) -> str:
    return " and ".join(f"the {word}" for word in words) or "nothing"


def changed(groups: Sequence[list[str]], places: list[str], others: list[str], draw: random.Random) -> list[str]:
    """Changes the words of some groups, and says how."""
    comes, leaves, goes = draw.choice(COMES), draw.choice(LEAVES), draw.choice(GOES)
    said = []
    for _ in range(draw.randint(*NUM_CHANGES)):
        at, to = draw.sample(range(len(groups)), 2)
        kind = draw.choice(("comes", "leaves", "goes", "goes"))
        if kind == "comes" and others:
            groups[at].append(word := others.pop())
            said.append(f"The {word} {comes} {places[at]}")
        elif kind == "leaves" and groups[at]:
            word = groups[at].pop(draw.randrange(len(groups[at])))
            said.append(f"The {word} {leaves} {places[at]}")
        elif kind == "goes" and groups[at]:
            moved = [groups[at].pop(draw.randrange(len(groups[at])))] if draw.random() < 0.5 else groups[at][:]
            groups[at][:] = [word for word in groups[at] if word not in moved]
            groups[to].extend(moved)
            said.append(f"{listed(moved).capitalize()} {goes} {places[at]} to {places[to]}")
    return said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--fill", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--words", type=float, default=10e6)
    parser.add_argument("--sentences", type=int, default=8, help="of a short document")
    parser.add_argument("--long-words", type=int, default=300, help="of a long document")
    parser.add_argument(
        "--numbered", type=float, default=0.12, help="share of the words in documents of numbered things"
    )
    parser.add_argument("--common", type=int, default=30_000, help="words that sentences of --fill are made of")
    options = parser.parse_args()
    left = options.words
    common = common_words([*options.files, *options.fill], options.common)
    with open(options.out, "w", encoding="utf-8") as out:
        for number, file in enumerate([*options.files, *options.fill]):
            num_filling = len(options.files) + len(options.fill) - number
            most = left if number < len(options.files) else left / num_filling
            found = sentences(file, common if file in options.fill else None)
            num_words = 0
            for document in documents(found, options.sentences, options.long_words, options.numbered, most):
                out.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
                num_words += len(document.split())
            left -= num_words
            print(f"{file}: {num_words:,} words")
    print(f"{options.out}: {options.words - left:,.0f} words")


if __name__ == "__main__":
    main()
