"""Text of any size for benchmarks: Python's own documentation, repeated with variation, in compressed files.

Each copy of a document has a tenth of its sentences changed by a word and a number, so that no document is a duplicate.
Copies follow each other within the window of the compression: the files take about a fifth of the text.
"""

import json
import random
import re
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path

import pyarrow

from hornbook.demo import SHORTEST_DOCUMENT, built_in_documents

GROUP_CHARACTERS, COPIES = 150_000, 50  # a group of documents is repeated before the next one
CHANGED = 0.1  # of the sentences

Sentences = tuple[str, ...]


@cache
def groups_of_documents() -> list[list[Sentences]]:
    """All documents as their sentences, in groups."""
    groups, size = [[]], 0
    for text in built_in_documents():
        if len(text) >= SHORTEST_DOCUMENT:
            groups[-1].append(tuple(re.split(r"(?<=[.!?])\s+", text)))
            size += len(text)
            if size >= GROUP_CHARACTERS:
                groups, size = [*groups, []], 0
    return [group for group in groups if group]


def varied(sentences: Sentences, draw: random.Random, words: list[str]) -> str:
    """A copy of a document with changed sentences, at least one."""
    changed = list(sentences)
    for _ in range(1 + int(CHANGED * len(changed))):
        place = int(draw.random() * len(changed))
        before, space, after = changed[place].partition(" ")
        word, number = words[int(draw.random() * len(words))], int(draw.random() * 10**6)
        changed[place] = f"{before} {word} {number}{space}{after}"
    return " ".join(changed)


def write_file(path: Path, megabytes: float, seed: int) -> int:
    """Writes a .jsonl.zst file of about this much text; returns the bytes of the text."""
    groups, draw, size = groups_of_documents(), random.Random(seed), 0
    words = sorted({word for group in groups for document in group for word in document[0].split()})
    with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
        while True:
            for document in draw.choice(groups) * COPIES:
                text = varied(document, draw, words)
                line = json.dumps({"text": text}, ensure_ascii=False).encode() + b"\n"
                file.write(line)
                size += len(line) - len('{"text": ""}\n')
                if size >= megabytes * 1e6:
                    return size


def write_files(folder: Path, megabytes: float, megabytes_each: float, processes: int) -> int:
    """Writes files of made-up text with several processes; returns the bytes of the text."""
    folder.mkdir(parents=True, exist_ok=True)
    count = max(1, round(megabytes / megabytes_each))
    paths = [folder / f"{number:04d}.jsonl.zst" for number in range(count)]
    groups_of_documents()  # the processes are forked and share them
    with ProcessPoolExecutor(processes) as pool:
        return sum(pool.map(write_file, paths, [megabytes / count] * count, range(count)))
