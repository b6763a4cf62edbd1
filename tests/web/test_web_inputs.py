"""Reading pages and lists of links."""

import gzip
import json

import fsspec
import numpy as np
import pytest
from web_pages import html, prose, write_warc

from hornbook.data.problems import Problem, Problems
from hornbook.data.web.inputs import Page, decode_html, find_pages, page_hash, page_key, read_links, read_pages


def test_the_same_page():
    same = ("https://www.example.org/a%20b/", "http://example.org:80/a b#part", "EXAMPLE.org/a b/index.html")
    assert len({page_key(url) for url in same}) == 1
    different = (
        "http://example.org/a",
        "http://example.org/A",
        "http://example.org:8080/a",
        "http://example.org/a?b=1",
    )
    assert len({page_key(url) for url in different}) == 4
    assert page_hash("http://example.org:port/") == page_hash("http://example.org:port/")  # no URL, but no error


def test_links(tmp_path):
    rows = [
        {"url": "http://a.example/", "score": 5},
        {"url": "b.example", "karma": 3},
        {"url": "c.example", "votes": 2},
    ]
    rows += [{"url": None, "votes": 9}, {"url": "d.example"}, "text"]
    text = "\n".join(map(json.dumps, rows)) + "\nrubbish\n\n"
    (tmp_path / "links.jsonl").write_text(text)
    (tmp_path / "links.tsv").write_text("e.example\t3\nf.example\t2.5\nf.example\t4\n")
    problems = Problems()
    found = read_links([tmp_path / "links.jsonl", tmp_path / "links.tsv"], 3, problems)
    assert found.tolist() == sorted(page_hash(f"{name}.example") for name in "abef") and found.dtype == np.uint64
    assert problems.count("bad_link") == 4
    assert [each["place"] for each in problems.to_dict()["bad_link"]["examples"]] == [f"line {n}" for n in (4, 5, 6, 7)]
    with pytest.raises(ValueError, match="no link has 100 votes"):
        read_links([tmp_path / "links.tsv"], 100, Problems())
    (tmp_path / "links.txt").write_text("a")
    with pytest.raises(ValueError, match=r"rename it to \.tsv"):
        read_links([tmp_path / "links.txt"], 3, Problems())


@pytest.mark.parametrize(
    ("data", "content_type"),
    [
        ("Zürich".encode(), None),
        (b"\xef\xbb\xbf" + "Zürich".encode(), "text/html; charset=UTF-8"),
        ("Zürich".encode("latin-1"), "text/html; charset=iso-8859-1"),
        ('<meta charset="windows-1252">Zürich'.encode("cp1252"), None),
        ("Zürich".encode(), "text/html; charset=no-such-encoding"),
        ("Zürich".encode(), "text/html; charset=ascii"),  # declared, but wrong
    ],
)
def test_encodings(data, content_type):
    assert decode_html(data, content_type).endswith("Zürich")


@pytest.mark.parametrize(
    ("declared", "encoding", "text"),
    [
        ("ISO-8859-1", "cp1252", "He said “don’t” – twice"),
        ("euc-kr", "cp949", "똠방각하와 펲시콜라"),
        ("gb2312", "gb18030", "朱镕基和囧"),
        ("Shift_JIS", "cp932", "①番の～、髙島屋"),
    ],
)
def test_a_declared_encoding_is_read_as_its_extension_by_windows(declared, encoding, text):
    """As browsers do; Latin-1 would make control characters of the quotation marks."""
    assert decode_html(text.encode(encoding), f"text/html; charset={declared}") == text


def test_pages_in_folders_and_at_urls(tmp_path):
    for name, text in (("one.example/a/index.html", "one"), ("two.example/b.htm", "two")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(html(text))
    (tmp_path / "three.html.gz").write_bytes(gzip.compress(html("three").encode()))
    (tmp_path / "empty.html").write_bytes(b" \n")
    (tmp_path / "notes.txt").write_text("no page")
    memory = fsspec.filesystem("memory")
    memory.put(f"{tmp_path}/", "/crawl/", recursive=True)
    for path in (str(tmp_path), "memory://crawl"):
        files = find_pages([path])
        assert [file.url for file in files] == [
            "empty.html",
            "one.example/a/index.html",
            "three.html",
            "two.example/b.htm",
        ]
        pages = [page for file in files for page in read_pages(file)]
        assert [page.url for page in pages] == ["one.example/a/index.html", "three.html", "two.example/b.htm"]
        assert all(isinstance(page, Page) and "<article>" in page.html for page in pages)
    memory.rm("/crawl", recursive=True)


def test_damaged_archives(tmp_path):
    write_warc(tmp_path / "good.warc", [("http://a.example/", html(prose(1)))])
    good = (tmp_path / "good.warc").read_bytes()
    (tmp_path / "rubbish.warc").write_bytes(good + b"this is not a record\r\n" * 20)
    (tmp_path / "none.warc.gz").write_bytes(b"not compressed")
    first, *problems = read_pages(find_pages([str(tmp_path / "rubbish.warc")])[0])
    assert first.url == "http://a.example/" and [each.kind for each in problems] == ["unreadable"]
    assert problems[0].place == "after record 1"
    (problem,) = read_pages(find_pages([str(tmp_path / "none.warc.gz")])[0])
    assert isinstance(problem, Problem) and problem.kind == "unreadable"
