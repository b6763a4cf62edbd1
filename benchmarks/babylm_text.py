"""Puts together at most ten million words of text for `hornbook reproduce babylm`, as documents of sentences.

    python benchmarks/babylm_text.py babylm/text/*.txt --fill books.txt wiki.txt --out text.jsonl [--words 10e6]

The first files are used whole; those of `--fill` share what is left, each from its start. Marks of speakers ("*CHI:",
"A:") and headings ("= = = Title = = =") are removed. Every document starts with a sentence, as BLiMP's items do. Half
of the words are in short documents, half in long ones. In one long document of five every sentence is numbered ("Page 7
says ...") and occurs twice, the second time in another order: to predict it, a model has to look up what the same
number said before, which entity tracking needs. Its words are counted twice.
"""

import argparse
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from hornbook.text.sentences import split_sentences

MARKS = re.compile(r"(?:^|(?<=\s))(?:\*[A-Z]{3}:|[AB]:|(?:= )+=?.{1,60}?(?: =)+)\s*")
MIN_WORDS = 2  # of a sentence
NUMBERED = ("Page {} says", "Number {} is", "Room {} has", "Letter {} reads", "Line {}:")  # none as in the evaluation


def sentences(file: Path) -> Iterator[str]:
    """Without marks; the first one of a file of one line may have lost its beginning and is left out."""
    found = (
        " ".join(MARKS.sub(" ", sentence).split())
        for line in file.read_text(encoding="utf-8").splitlines()
        for sentence in split_sentences(line)
    )
    next(found, None)
    yield from (each for each in found if len(each.split()) >= MIN_WORDS)


def documents(
    file: Path, num_sentences: int, num_long_words: int, numbered_share: float, most_words: float
) -> Iterator[str]:
    """Documents of at most `most_words` words in all: short ones of `num_sentences` sentences, and long ones of about
    `num_long_words` words, with as many words in short as in long ones. In a share of the long ones, every sentence
    is numbered and occurs twice."""
    draw = random.Random(0)
    document: list[str] = []
    num_words, more_long_words = 0, 0  # of the document; of the long documents than of the short ones
    numbering: tuple[str, list[int]] | None = None
    for sentence in sentences(file):
        if numbering:
            sentence = f"{numbering[0].format(numbering[1].pop())} {sentence}"
        num_read = len(sentence.split()) * (2 if numbering else 1)
        most_words -= num_read
        if most_words < 0:
            break
        document.append(sentence)
        num_words += num_read
        is_long = more_long_words <= 0
        if num_words >= num_long_words if is_long else len(document) == num_sentences:
            yield " ".join(document + draw.sample(document, len(document)) if numbering else document)
            more_long_words += num_words if is_long else -num_words
            document, num_words = [], 0
            is_numbered = more_long_words <= 0 and draw.random() < numbered_share
            numbering = (draw.choice(NUMBERED), draw.sample(range(100), 100)) if is_numbered else None
    if document and not numbering:
        yield " ".join(document)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--fill", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--words", type=float, default=10e6)
    parser.add_argument("--sentences", type=int, default=8, help="of a short document")
    parser.add_argument("--long-words", type=int, default=300, help="of a long document")
    parser.add_argument("--numbered", type=float, default=0.2, help="share of long documents with numbered sentences")
    options = parser.parse_args()
    left = options.words
    with open(options.out, "w", encoding="utf-8") as out:
        for number, file in enumerate([*options.files, *options.fill]):
            num_filling = len(options.files) + len(options.fill) - number
            most = left if number < len(options.files) else left / num_filling
            num_words = 0
            for document in documents(file, options.sentences, options.long_words, options.numbered, most):
                out.write(json.dumps({"text": document}, ensure_ascii=False) + "\n")
                num_words += len(document.split())
            left -= num_words
            print(f"{file}: {num_words:,} words")
    print(f"{options.out}: {options.words - left:,.0f} words")


if __name__ == "__main__":
    main()
