import math
import re
from html.parser import HTMLParser

import pytest
from synthetic_runs import SAMPLES, train_lines, validation_lines, write_run

from hornbook.report.page import write_report

VOID = {"meta", "img", "br"}


class Page(HTMLParser):
    """Reads a page: its text, its tags with attributes; every tag must be closed in turn."""

    def __init__(self, path):
        super().__init__()
        self.text, self.tags, self.open = "", [], []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] != "style":
            self.text += data + " "

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The report of a run that went to its end."""
    event = {"kind": "event", "step": 1000, "event": "rollback", "message": "at step 1203 the loss <jumped>"}
    lines = [*train_lines(3000), event, *validation_lines(3000)]
    state = {"step": 3000, "tokens": 24_576_000, "seconds": 1170.0}
    return write_report(write_run(tmp_path_factory.mktemp("runs") / "finished", lines, SAMPLES, state=state))


@pytest.mark.pictures
def test_the_page_shows_the_main_results(finished):
    page = Page(finished)
    for words in (
        "bert-mini",
        "finished after 3,000 steps",
        "11.2 million",
        "3.791",
        "33.2",
        "41.7%",
        "3.11 below",
        "24.6 million",
        "19 min 30 s",
        "21,000",
        "no GPU was found",
        "/data/news",
        "48,000",
        "0.88 times",
        "at step 1203 the loss <jumped>",
        "schedule.warmup_fraction",
        "hornbook fill-mask",
        "hornbook.load(",
        "river ✓",
        "of 2 masked words, 0 are the top prediction and 1 are among the listed predictions",
    ):
        assert words in page.text, words
    assert "--resume" not in page.text
    assert len(page.all("details")) == 3
    assert "width:31.0%" in [attributes.get("style") for attributes in page.all("div")]
    assert (finished.parent / "curves.png").stat().st_size > 30_000


@pytest.mark.pictures
def test_the_page_is_self_contained(finished):
    page = Page(finished)
    addresses = [
        value for _, attributes in page.tags for key, value in attributes.items() if key in ("src", "srcset", "href")
    ]
    assert len(addresses) == 1 and all(address.startswith("data:image/png;base64,") for address in addresses)
    assert not page.all("script") and not page.all("link")
    assert "url(" not in finished.read_text() and "@import" not in finished.read_text()
    assert "prefers-color-scheme: dark" in finished.read_text()


@pytest.mark.pictures
def test_what_a_run_holds_is_escaped(finished):
    page = Page(finished)
    for part in ("text", "answer", "guess"):
        assert f"<script>alert('{part}')</script>" in page.text
    assert not page.all("script") and not page.all("jumped")


@pytest.mark.parametrize(
    ("sentence", "objective", "words"),
    [
        ("nsp", {"sentence": "nsp", "sentence_weight": 1.0}, "next-sentence accuracy"),
        ("sop", {"sentence": "sop", "sentence_weight": 1.0}, "sentence-order accuracy"),
    ],
)
def test_a_sentence_task_has_its_tile(sentence, objective, words, make_run):
    lines = [*train_lines(1000, sentence=sentence), *validation_lines(1000, sentence=sentence)]
    page = Page(write_report(make_run(lines, settings={"objective": objective, "schedule": {"steps": 1000}})))
    assert words in page.text and "88.0%" in page.text
    assert all(f"objective.{name}" in page.text for name in objective)


def test_settings_that_nothing_reads_are_left_out(make_run):
    settings = {
        "schedule": {"steps": 3000, "warmup_fraction": 0.1},
        "masking": {"probability": 0.15},
        "epochs": 1,
        "size": 2,
    }
    unused = ["schedule.warmup_fraction", "masking.probability", "epochs"]
    page = Page(write_report(make_run(settings=settings, unused=unused)))
    assert "schedule.steps" in page.text and "size" in page.text
    assert not [name for name in (*unused, "masking") if name in page.text]


def test_the_page_of_an_unfinished_run_shows_how_to_resume(make_run):
    folder = make_run(train_lines(1000), steps=3000)
    page = Page(write_report(folder))
    assert "not finished: step 1,000 of 3,000" in page.text and "--resume" in page.text
    assert "not validated yet" in page.text
    assert "hornbook fill-mask" not in page.text


def test_the_page_of_a_run_without_metrics(make_run):
    folder = make_run(preset="<b>bold</b>", inputs={}, runtime={})
    page = Page(write_report(folder))
    assert "no metrics yet" in page.text and "<b>bold</b>" in page.text
    assert not page.all("img") and not (folder / "curves.png").exists()


def test_losses_that_are_not_numbers_are_described_in_words(make_run):
    bad = {"kind": "validation", "step": 10, "loss": math.nan, "mlm": math.nan, "mlm_accuracy": 0.0}
    page = Page(write_report(make_run([*train_lines(10), bad])))
    assert "not a number" in page.text and not re.search(r"\bnan\b", page.text)


def test_another_mask_and_word_marks_are_understood(make_run):
    sample = {"text": "in the <mask> .", "answer": "Ġhouse", "guesses": [{"token": "house", "probability": math.nan}]}
    folder = make_run(samples=[sample])
    (folder / "tokenizer_config.json").write_text('{"mask_token": {"content": "<mask>"}}')
    (folder / "model.safetensors").touch()
    page = Page(write_report(folder))
    assert len(page.all("mark")) == 1 and "house ✓" in page.text
    assert "The <mask> sat on the mat." in page.text
