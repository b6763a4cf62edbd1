"""What `corpus web` reads: pages from WARC archives and HTML files, on a local disk or at a URL that fsspec opens, and
lists of links with votes.

WebText (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.1) kept the pages that
a post on Reddit with at least 3 karma linked to: people had found them worth reading.
"""

import codecs
import contextlib
import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

import numpy as np

from hornbook.data.duplicates import hash_text
from hornbook.data.problems import Problem, Problems
from hornbook.data.remote import file_system
from hornbook.data.sources import ByteReader, format_of

PAGE_FORMATS = (".warc", ".html", ".htm", ".xhtml")
PAGE_EXTENSIONS = ".warc, .html, .htm and .xhtml, also followed by .gz"
LARGEST_PAGE = 20 << 20  # bytes; longer ones are no articles
CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE)
# What pages mean by an encoding, as browsers read it: Windows added quotation marks to Latin-1 and syllables to EUC-KR.
READ_AS = {
    "utf-8": "utf-8-sig",
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "euc_kr": "cp949",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "shift_jis": "cp932",
}
GUESSED_BYTES = 1 << 16
LINK_FORMATS = (".tsv", ".jsonl")
VOTES = ("votes", "score", "karma")  # keys of a .jsonl, the first that is there; Reddit's dumps have "score"
LINE_BYTES = 1 << 20
LINKS_AT_ONCE = 1_000_000


@dataclass(frozen=True, slots=True)
class PageFile:
    """An archive, or a file with one page: `url` is its path below the folder that was given, which is the URL of the
    page if the folder is a mirror (`wget --mirror`)."""

    path: str
    bytes: int
    version: str  # what changes with the contents: modification time or entity tag
    url: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    html: str
    url: str
    place: str = ""  # in an archive


def find_pages(paths: Sequence[str]) -> list[PageFile]:
    """The files at the given paths and in the given folders, sorted by name; a folder's other files are left out."""
    files = []
    for path in map(str, paths):
        system, inside = file_system(path)
        if system.isdir(inside):
            prefix = inside.rstrip("/")
            listed = system.find(inside, detail=True)
            files += [_page_file(system, info, name[len(prefix) + 1 :]) for name, info in sorted(listed.items())]
        elif system.exists(inside):
            files.append(_page_file(system, system.info(inside), PurePosixPath(inside).name))
            if files[-1] is None:
                raise ValueError(f"{path} has an unknown extension: the known ones are {PAGE_EXTENSIONS}")
        else:
            raise ValueError(f"{path} does not exist: check the spelling")
    files = [file for file in files if file is not None]
    if not files:
        raise ValueError(f"no pages in {', '.join(map(str, paths))}: the known extensions are {PAGE_EXTENSIONS}")
    return files


def _page_file(system, info: dict, url: str) -> PageFile | None:
    """The file that the file system describes; None if its extension is not that of a web page."""
    kind, compression = format_of(info["name"], PAGE_FORMATS) or ("", "")
    if not kind or compression not in ("", ".gz"):
        return None
    version = str(next((info[name] for name in ("mtime", "ETag", "etag", "LastModified") if info.get(name)), ""))
    path = system.unstrip_protocol(info["name"]).removeprefix("file://")
    return PageFile(path, int(info["size"] or 0), version, "" if kind == ".warc" else url.removesuffix(".gz"))


def read_pages(file: PageFile) -> Iterator[Page | Problem]:
    """The pages of a file, and a problem for each record that cannot be read."""
    system, path = file_system(file.path)
    try:
        with system.open(path, "rb") as stream:
            if not file.url:
                yield from _read_archive(stream, file.path)
                return
            data = stream.read()
        yield from _page(gzip.decompress(data) if path.endswith(".gz") else data, None, file.url, file.path, "")
    except (OSError, EOFError, zlib.error) as error:
        yield Problem("unreadable", file.path, detail=str(error) or type(error).__name__)


def _read_archive(stream, path: str) -> Iterator[Page | Problem]:
    from warcio.archiveiterator import ArchiveIterator
    from warcio.exceptions import ArchiveLoadFailed

    record_number = 0
    try:
        for record_number, record in enumerate(ArchiveIterator(stream), 1):
            place = f"record {record_number}"
            if record.rec_type != "response":
                continue
            headers = record.http_headers
            content_type = (headers.get_header("Content-Type") if headers else "") or ""
            if not re.match(r"\s*(text/html|application/xhtml)", content_type, re.IGNORECASE):
                continue
            url = record.rec_headers.get_header("WARC-Target-URI")
            if not url:
                yield Problem("bad_record", path, place, "it has no WARC-Target-URI")
                continue
            data = record.content_stream().read()
            length = headers.get_header("Content-Length")
            if not data and length not in (None, "0"):
                yield Problem("bad_record", path, place, "its contents cannot be decompressed")
                continue
            if getattr(record.raw_stream, "limit", 0) > 0 and not record.raw_stream.read(1):
                yield Problem("bad_record", path, place, "it is cut off")
                continue
            yield from _page(data, content_type, url, path, place)
    except (ArchiveLoadFailed, OSError, EOFError, ValueError, zlib.error) as error:
        yield Problem("unreadable", path, f"after record {record_number}", str(error).partition("\n")[0][:200])


def _page(data: bytes, content_type: str | None, url: str, path: str, place: str) -> Iterator[Page | Problem]:
    if len(data) > LARGEST_PAGE:
        yield Problem("bad_record", path, place, f"longer than {LARGEST_PAGE >> 20} MiB")
    elif data.strip():
        yield Page(decode_html(data, content_type), url, place)


def decode_html(data: bytes, content_type: str | None = None) -> str:
    """The text of a page, in the encoding that its HTTP header or the page itself declares if it is valid in it, else
    in UTF-8, else in the most likely one.

    >>> decode_html("naïve".encode("latin-1"), "text/html; charset=iso-8859-1")
    'naïve'
    """
    header = re.search(r"charset\s*=\s*[\"']?\s*([\w-]+)", content_type or "", re.IGNORECASE)
    meta = CHARSET.search(data[:4096])
    declared = [header and header[1], meta and meta[1].decode("ascii"), "utf-8"]
    for name in filter(None, declared):
        with contextlib.suppress(LookupError, ValueError):  # unknown, or the page is not valid in it
            return data.decode(READ_AS.get(codecs.lookup(name).name, name))
    from charset_normalizer import from_bytes

    best = from_bytes(data[:GUESSED_BYTES]).best()
    return data.decode(best.encoding if best else "cp1252", "replace")


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
        reason = problems.most_frequent("bad_link", "unreadable")
        raise ValueError(f"no link has {min_votes} votes{f' ({reason})' if reason else ''}: check links=")
    return hashes


def _rows(path: str, problems: Problems) -> Iterator[tuple[str, float]]:
    kind = (format_of(path, LINK_FORMATS) or ("",))[0]
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
