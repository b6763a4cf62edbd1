"""The page of a folder with several runs."""

import pytest
from made_up_tasks import KINDS, write_task_run
from served_page import CHROMIUM
from synthetic_runs import RUN, train_lines, validation_lines
from test_page import Page

from hornbook.report.page import write_report
from hornbook.report.rendering import Table, write_page
from hornbook.report.run_files import ReportedRun
from hornbook.report.run_list import HEADINGS
from hornbook.report.side_by_side import losses_figure

LINES = [*train_lines(1000), *validation_lines(1000)]


@pytest.fixture
def folder(make_run, tmp_path):
    """Two pre-training runs that differ in their learning rate, an unreadable one, and a fine-tuning run."""
    make_run(LINES, name="runs/a", planned_flops=3e12)
    other = RUN["settings"] | {"optimizer": {"lr": 2e-3}}
    make_run(LINES, name="runs/more/b", planned_flops=6e12, settings=other)
    make_run([], name="runs/damaged")
    (tmp_path / "runs" / "damaged" / "run.json").write_text("{", encoding="utf-8")
    write_task_run(tmp_path / "runs" / "task", "classification", **KINDS.get("classification", {}))
    return tmp_path / "runs"


def test_all_runs_are_listed_and_settings_that_differ_are_shown(folder):
    page = Page(write_report(folder))
    assert "4 runs in runs" in page.text
    for words in ("more/b", "unreadable", "optimizer.lr", "0.0005", "0.002"):
        assert words in page.text, words
    assert "schedule.warmup_fraction" not in page.text, "it is the same in all runs"
    assert "cannot be compared" not in page.text
    assert len(page.all("img")) == 1 and (folder / "curves.png").is_file()


def test_losses_are_drawn_by_tokens_and_by_flops(folder):
    runs = {name: ReportedRun.load(folder / name) for name in ("a", "more/b")}
    tokens, flops = losses_figure(runs).axes
    assert [text.get_text() for text in tokens.get_legend().get_texts()] == ["a", "more/b"]
    assert [line.get_xdata()[-1] for line in tokens.lines] == [runs["a"].tokens] * 2
    planned = [1000 / 3000 * total for total in (3e12, 6e12)]
    assert [line.get_xdata()[-1] for line in flops.lines] == pytest.approx(planned)


def test_losses_on_different_corpora_are_not_compared_silently(folder, make_run):
    inputs = {"corpora": [{"folder": "/data/law", "fingerprint": "other", "documents": 10, "tokens": 1000}]}
    make_run(LINES, name="runs/law", inputs=inputs)
    assert "cannot be compared" in Page(write_report(folder)).text


def test_a_folder_without_runs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="is not a run"):
        write_report(tmp_path)


def test_names_and_all_columns_can_be_read_in_a_small_window(tmp_path):
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    rest = ("electra-small, budget recipe, seed 0", "finished", "loss 12.718 (mlm + rtd + correction)", "8 of 8")
    rows = [(name, *rest, "168.4 MB", "14 min 21 s") for name in ("a", "electra-first")]
    page = write_page(tmp_path, "runs.html", "runs", runs=Table(HEADINGS, rows), curves=None, settings=Table((), []))
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        opened = browser.new_page(viewport={"width": 1000, "height": 600})
        opened.goto(page.as_uri())
        short, long = (row.bounding_box()["height"] for row in opened.query_selector_all("tbody tr"))
        assert long < 1.5 * short, "the name is broken into pieces of a few letters"
        assert opened.evaluate("(card => card.scrollWidth <= card.clientWidth)(document.querySelector('.card'))")
        browser.close()
