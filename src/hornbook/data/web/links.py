"""Lists of links with votes, and whether a page is among those with enough of them.

WebText (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.1) kept the pages that
a post on Reddit with at least 3 karma linked to: people had found them worth reading.
"""

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np

from hornbook.data.duplicates import hash_text
from hornbook.data.problems import Problem, Problems
from hornbook.data.sources import ByteReader, format_of

FORMATS = (".tsv", ".jsonl")
VOTES = ("votes", "score", "karma")  # keys of a .jsonl, the first that is there; Reddit's dumps have "score"
LINE_BYTES = 1 << 20
LINKS_AT_ONCE = 1_000_000


def page_key(url: str) -> str:
    """The part of a URL that names the page: without scheme, www, default port, index file, fragment and final slash.

    >>> page_key("HTTPS://www.Example.org:443/news/?page=2#top"), page_key("example.org/news/index.html")
    ('example.org/news?page=2', 'example.org/news')
    """
    url = url.strip()
    parts = urlsplit(url if "://" in url else f"http://{url}")
    host = (parts.hostname or "").removeprefix("www.")
    port = f":{parts.port}" if parts.port not in (None, 80, 443) else ""
    path = unquote(parts.path)
    for name in ("index.html", "index.htm", "index.php"):
        if path.endswith(f"/{name}"):
            path = path.removesuffix(name)
    return f"{host}{port}{path.rstrip('/')}" + (f"?{parts.query}" if parts.query else "")


def page_hash(url: str) -> int:
    """A 64-bit hash of `page_key`, or of the whole text if it is not a URL."""
    try:
        return hash_text(page_key(url))
    except ValueError:  # such as a port that is not a number
        return hash_text(url)


def read_links(paths: Iterable[str | Path], min_votes: int, problems: Problems) -> np.ndarray:
    """The sorted hashes of the links that have at least `min_votes` votes in one of the rows: 8 bytes per link. A .tsv
    has a URL and its votes in each row, a .jsonl the keys `url` and `votes`, `score` or `karma`."""
    parts = [np.empty(0, np.uint64)]
    for path in map(str, paths):
        if not Path(path).is_file():
            raise ValueError(f"{path} is not a file: give links= a list of URLs and votes")
        hashes = (page_hash(url) for url, votes in _rows(path, problems) if votes >= min_votes)
        while len(part := np.fromiter(islice(hashes, LINKS_AT_ONCE), np.uint64)):
            parts.append(np.unique(part))
    hashes = np.unique(np.concatenate(parts))
    if not len(hashes):
        reason = problems.first("bad_link", "unreadable")
        raise ValueError(f"no link has {min_votes} votes{f' ({reason})' if reason else ''}: check links=")
    return hashes


def _rows(path: str, problems: Problems) -> Iterator[tuple[str, float]]:
    kind = (format_of(path, FORMATS) or ("",))[0]
    if not kind:
        raise ValueError(f"{path} has an unknown extension: rename it to .tsv (URL, votes) or .jsonl")
    reader = ByteReader(path)
    parse = _from_tsv if kind == ".tsv" else _from_json
    for line_number, line in reader.lines(LINE_BYTES):
        if line is not None and not line.strip():
            continue
        try:
            link = parse(line.decode("utf-8", "replace"))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
            if line_number > 1 or kind != ".tsv":  # the first line of a table may hold the names of its columns
                problems.add(Problem("bad_link", path, f"line {line_number}"))
        else:
            yield link
    if reader.failure:
        problems.add(reader.failure)


def _from_tsv(line: str) -> tuple[str, float]:
    url, votes = line.rstrip("\r").split("\t")[:2]
    return url, float(votes)


def _from_json(line: str) -> tuple[str, float]:
    row = json.loads(line)
    return row["url"].strip(), float(row[next((name for name in VOTES if name in row), "votes")])
