"""From pages and lists of links that are made here to texts, with the filter that drops each page."""

import gzip
import json

import pytest
from web_pages import HINDI, KOREAN, html, pages, prose, write_links, write_mirror, write_warc

from hornbook.data.build import build_corpus
from hornbook.data.web import build
from hornbook.data.web.build import build_web_corpus


def rows_of(out) -> list[dict]:
    files = sorted((out / "texts").glob("*.jsonl.gz"))
    return [json.loads(line) for file in files for line in gzip.decompress(file.read_bytes()).splitlines()]


def counts(record: dict) -> dict[str, int]:
    return {each["name"]: each["pages"] for each in record["filters"]}


@pytest.fixture(scope="module")
def crawl(tmp_path_factory):
    """A folder with two archives, one of them damaged, and the list of links."""
    folder = tmp_path_factory.mktemp("crawl")
    found = pages()
    write_warc(folder / "a.warc.gz", found[:5])
    write_warc(folder / "b.warc", found[5:])
    write_warc(folder / "pdf.warc", [("http://good.example/paper.pdf", b"%PDF-1.4")], "application/pdf")
    write_warc(
        folder / "z.warc.gz", [("http://late.example/", html(prose(50))), ("http://cut.example/", html(prose(51)))]
    )
    cut = folder / "z.warc.gz"
    cut.write_bytes(cut.read_bytes()[:-200])
    (folder / "notes.txt").write_text("not a page")
    write_links(folder.parent / "links.tsv.gz")
    return folder


@pytest.fixture(scope="module")
def webtext(crawl, tmp_path_factory):
    out = tmp_path_factory.mktemp("webtext") / "out"
    links = crawl.parent / "links.tsv.gz"
    return out, build_web_corpus(crawl, out, links=[links], preset="webtext", workers=1)


def test_counts_after_every_filter(webtext):
    _, record = webtext
    assert counts(record) == {
        "pages": 15,  # all but the PDF and the record that is cut off
        "votes": 12,  # without unpopular, unknown and late
        "hosts": 11,  # without Wikipedia
        "text": 10,  # without the empty one
        "language": 9,  # without the French one
        "repetition": 8,
        "quality": 7,  # without the one of numbers
        "near-duplicates": 6,
    }
    reasons = {each["name"]: each["dropped"] for each in record["filters"]}
    assert reasons["language"] == {"fr": 1} and reasons["quality"] == {"gopher_below_alpha_threshold": 1}


def test_texts_are_those_of_the_pages(webtext):
    out, record = webtext
    found = {row["metadata"]["url"]: row["text"] for row in rows_of(out)}
    assert set(found) == {f"https://www.good.example/{number}" for number in range(6)}
    assert found["https://www.good.example/2"].split() == prose(2).split()
    assert record["texts"] == {"documents": 6, "characters": sum(map(len, found.values()))}


def test_bad_records_are_counted_with_their_place(webtext, crawl):
    problems = webtext[1]["problems"]
    assert problems["bad_link"]["examples"][0]["place"] == f"line {len(pages()) + 3}"
    expected = {"file": str(crawl / "z.warc.gz"), "place": "record 2", "detail": "it is cut off"}
    assert problems["bad_record"]["examples"] == [expected] and problems["bad_record"]["count"] == 1


def test_corpus_build_reads_the_texts(webtext, tmp_path, tiny_tokenizer):
    manifest = build_corpus(webtext[0] / "texts", tiny_tokenizer, tmp_path / "corpus", workers=0)
    assert manifest["totals"]["documents"] == 6 and set(manifest["problems"]) <= {"unknown_token"}


def test_a_finished_folder_is_not_built_again(webtext, crawl):
    out, record = webtext
    before = (out / "web.json").stat().st_mtime_ns
    again = build_web_corpus(crawl, out, links=[crawl.parent / "links.tsv.gz"], preset="webtext", workers=2)
    assert again["already_built"] and again["filters"] == record["filters"]
    assert (out / "web.json").stat().st_mtime_ns == before
    assert not (out / "work").exists()
    with pytest.raises(ValueError, match=r"settings.language was 'en' and is now 'fr'.*choose another folder"):
        build_web_corpus(crawl, out, links=[crawl.parent / "links.tsv.gz"], preset="webtext", language="fr")


def test_files_of_a_mirror_with_more_tasks_and_workers(webtext, crawl, tmp_path, monkeypatch):
    """The same pages as files, in many tasks: the same texts."""
    write_mirror(tmp_path / "mirror", pages())
    monkeypatch.setattr(build, "TASK_BYTES", 5000)
    links = crawl.parent / "links.tsv.gz"
    record = build_web_corpus(tmp_path / "mirror", tmp_path / "out", links=[links], preset="webtext", workers=2)
    assert len(list((tmp_path / "out" / "texts").iterdir())) > 1
    assert [*counts(record).values()] == [14, 12, 11, 10, 9, 8, 7, 6]
    # Files come in the order of their names, so the near duplicate (copy.example) comes before its original.
    ours, theirs = ({row["text"] for row in rows_of(out)} for out in (tmp_path / "out", webtext[0]))
    assert len(ours & theirs) == 5 and len(ours) == 6


def test_options_without_a_preset(tmp_path):
    write_warc(tmp_path / "pages.warc", pages())
    record = build_web_corpus(
        tmp_path / "pages.warc", tmp_path / "out", workers=1, quality=False, keep_near_duplicates=True, language="fr"
    )
    assert counts(record) == {"pages": 14, "text": 13, "language": 1}
    assert rows_of(tmp_path / "out")[0]["metadata"]["url"] == "http://french.example/"


@pytest.mark.parametrize(("language", "text"), [("ko", KOREAN), ("hi", HINDI)])
def test_a_good_text_in_a_language_of_short_words_is_kept(tmp_path, language, text):
    write_warc(tmp_path / "pages.warc", [("http://page.example/", html(text))])
    record = build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", workers=1, language=language)
    assert record["texts"]["documents"] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "webtext"}, "give links="),
        ({"preset": "web"}, "there is no preset 'web'"),
        ({"executor": "cloud"}, "executor must be one of local, slurm, ray"),
        ({"language": "xx"}, "the language 'xx' is not known"),
        ({"links": ["nowhere.tsv"]}, "nowhere.tsv is not a file"),
        ({"links": ["nowhere.tsv"], "min_votes": 0}, "min_votes must be at least 1, not 0"),
        ({"executor": "slurm"}, "sbatch"),
    ],
)
def test_bad_options(options, message, tmp_path):
    write_warc(tmp_path / "pages.warc", pages()[:1])
    with pytest.raises(ValueError, match=message):
        build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", **options)
    assert not (tmp_path / "out" / "work" / "request.json").exists() or "slurm" in options.values()


def test_missing_inputs_and_packages(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="does not exist"):
        build_web_corpus(tmp_path / "nothing", tmp_path / "out")
    (tmp_path / "some").mkdir()
    with pytest.raises(ValueError, match=r"no pages in .*the known extensions are \.warc"):
        build_web_corpus(tmp_path / "some", tmp_path / "out")
    monkeypatch.setattr(build, "PACKAGES", ("no_such_package",))
    with pytest.raises(ValueError, match=r"no_such_package, .* pip install 'hornbook\[web\]'"):
        build_web_corpus(tmp_path / "some", tmp_path / "out")


def test_no_page_is_left(tmp_path):
    write_warc(tmp_path / "pages.warc", pages()[-1:])
    with pytest.raises(ValueError, match=r"no page is left \(pages 1, text 1, repetition 1, quality 0"):
        build_web_corpus(tmp_path / "pages.warc", tmp_path / "out", workers=1)


def test_command(tmp_path, hornbook):
    write_mirror(tmp_path / "crawl", pages())
    write_links(tmp_path / "links.tsv")
    given = ["corpus", "web", tmp_path / "crawl", "--out", tmp_path / "out", "--workers", 1, "--keep-near-duplicates"]
    given += ["--links", tmp_path / "links.tsv", "--exclude-host", "wikipedia.org"]
    found = hornbook(*given)
    assert found.status == 0, found.out
    rows = [line.split("  ")[0] for line in found.stdout.splitlines()]
    assert rows[:4] == ["after", "pages read", "enough votes", "not on an excluded host"]
    assert f"{tmp_path / 'out' / 'texts'}: 7 documents" in found.stdout
    assert "links.tsv line 17" in found.stderr and "corpus build" in found.stderr
    again = hornbook(*given, "--json")
    assert again.answer["texts"]["documents"] == 7 and "already built" in again.stderr
    refused = hornbook(*given, "--sbatch", "partition")
    assert refused.status == 2 and refused.error == "hornbook: --sbatch must be NAME=VALUE, not 'partition'\n"
