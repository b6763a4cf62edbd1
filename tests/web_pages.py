"""A small web: pages whose fate is known, in a WARC archive and as files, and the list of links to them."""

import gzip
import io
import random
import re
from pathlib import Path

from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

ENGLISH = """river mountain village library garden winter harvest letter teacher bridge market engine painting council
history season travel weather kitchen silver quiet modern careful simple northern remarkable wooden distant early
people children farmers sailors writers merchants neighbours visitors doctors students believe remember discover
describe carry follow gather protect repair explain measure collect observe prepare journey island forest window
evening morning summer autumn ocean valley castle museum newspaper story answer question reason daughter uncle soldier
captain minister orchard stable chapel cottage harbour lighthouse meadow pasture quarry railway station theatre tower
tunnel vineyard wagon copper marble leather cotton timber barley butter cheese honey pepper sugar thunder lightning
shadow mirror candle lantern blanket basket bottle hammer ladder needle saddle whistle violin trumpet"""
COMMON = "the of and to that have with in a for by from when while because before after under near without"
FRENCH = """Le vieux village se trouve au bord de la rivière, et les habitants y vivent depuis très longtemps. Pendant
l'hiver, les enfants vont à l'école à pied, tandis que leurs parents travaillent dans les champs ou au marché. Chaque
semaine, un marchand apporte du fromage, des légumes et des lettres venues de la ville. On raconte que le château, dont
il ne reste que quelques murs, appartenait autrefois à une famille de marins qui avait fait fortune au loin. """


def prose(seed: int, sentences: int = 14) -> str:
    """English sentences; another text for each seed."""
    draw, words, common = random.Random(seed), ENGLISH.split(), COMMON.split()
    found = [
        [draw.choice((common, words)[place % 3 > 0]) for place in range(draw.randint(9, 15))] for _ in range(sentences)
    ]
    return " ".join(" ".join(each).capitalize() + "." for each in found)


def html(text: str, title: str = "A page") -> str:
    parts = "".join(f"<p>{part.strip()}.</p>" for part in text.strip(". ").split(". "))
    return (
        f"<html><head><title>{title}</title></head><body><nav>Home About</nav><article>{parts}</article></body></html>"
    )


def pages() -> list[tuple[str, str]]:
    """(URL, HTML); the names say which filter drops a page."""
    kept = [(f"https://www.good.example/{number}", html(prose(number))) for number in range(6)]
    near = prose(3) + " This is a copy."
    return [
        *kept,
        ("http://copy.example/near", html(near)),
        ("http://unpopular.example/", html(prose(100))),
        ("http://unknown.example/", html(prose(101))),
        ("https://en.wikipedia.org/wiki/River", html(prose(102))),
        ("http://empty.example/", "<html><body></body></html>"),
        ("http://french.example/", html(FRENCH * 2)),
        ("http://repeats.example/", html("The same words of the people are here with them again and again. " * 30)),
        ("http://numbers.example/", html(re.sub(r" (\w+)", lambda found: f" {found[1]} {found.start()}", prose(103)))),
    ]


def write_warc(
    path: Path, found: list[tuple[str, str | bytes]], content_type: str = "text/html; charset=utf-8"
) -> None:
    with open(path, "wb") as file:
        writer = WARCWriter(file, gzip=path.suffix == ".gz")
        for url, text in found:
            data = text.encode() if isinstance(text, str) else text
            headers = StatusAndHeaders("200 OK", [("Content-Type", content_type)], protocol="HTTP/1.0")
            writer.write_record(writer.create_warc_record(url, "response", io.BytesIO(data), http_headers=headers))


def write_links(path: Path) -> None:
    """Votes for all pages but one; one has too few, and one is voted for twice."""
    rows = [("url", "votes"), ("unpopular.example", 2), ("http://nowhere.example/", 50), ("http://good.example/0/", 1)]
    for url, _ in pages():
        if "unpopular" not in url and "unknown" not in url:
            rows.append((url, 3))
    text = "".join(f"{url}\t{votes}\n" for url, votes in rows) + "a line without votes\n"
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")


def write_mirror(folder: Path, found: list[tuple[str, str]]) -> None:
    """Pages as files, named as `wget --mirror` does."""
    for url, text in found:
        path = folder / (url.split("://")[1].rstrip("/") + "/index.html")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
