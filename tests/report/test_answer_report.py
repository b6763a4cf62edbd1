"""The part of the report that is about answers: scores by no-answer threshold, start and end probabilities."""

import json
import re

import pytest
from made_up_tasks import KINDS, PICTURES, SCRIPT
from test_page import Page

from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.page import write_report
from hornbook.report.plots.run import thresholds_figure


def span_row(key, gold, best, score, threshold=-1.25):
    answer = "" if score > threshold else best
    row = {"key": key, "gold": gold, "question": f"{key}?", "answer": answer, "probability": 0.5}
    return row | {"no_answer_score": score, "n_best": [{"text": best, "start": 0, "end": 4, "probability": 0.5}]}


SCORED_SPANS = [
    span_row("a", ["Oslo"], "Oslo", -4.0),
    span_row("b", ["the red house"], "house", -3.0),
    span_row("c", [], "Rome", -1.25),
    span_row("d", [], "Rome", 2.0),
    span_row("e", ["Monday"], "Friday", 2.0),
]
ILLUSTRATION = {
    "key": "a",
    "question": f"Where did {SCRIPT} move?",
    "answer": "Oslo",
    "start": 13,
    "end": 17,
    "no_answer_score": -4.0,
    "gold": ["Oslo", "Oslo", "in Oslo"],
    "passage": "Ada moved to Oslo in spring.",
    "tokens": [[0, 3, 0.25, 0.01], [4, 9, 0.0, 0.0], [13, 15, 0.5, 0.125], [15, 17, 0.0, 0.75], [21, 27, 0.0, 0.0]],
    "none": [0.25, 0.115],
}


@pytest.mark.pictures
def test_scores_by_threshold(make_task_run):
    folder = make_task_run("spans", rows=SCORED_SPANS, leave_out=PICTURES)
    run = ReportedTaskRun.load(folder)
    points = run.task_kind.by_threshold(run.predictions, "squad2")
    assert [round(at, 9) for at, _, _ in points] == [-4.0, -4.0, -3.0, -1.25, 2.0]
    assert [exact for _, exact, _ in points] == pytest.approx([0.4, 0.6, 0.6, 0.4, 0.2])
    assert [f1 for _, _, f1 in points] == pytest.approx([0.4, 0.6, 0.6 + 0.4 / 3, 0.4 + 0.4 / 3, 0.2 + 0.4 / 3])
    axes = thresholds_figure(points, run.task["threshold"]).axes[0]
    f1, exact, chosen = axes.lines
    assert f1.get_ydata().max() == pytest.approx(0.6 + 0.4 / 3) and exact.get_ydata().max() == pytest.approx(0.6)
    assert set(chosen.get_xdata()) == {-1.25} and "chosen: -1.250" in axes.get_legend_handles_labels()[1]
    page = Page(write_report(folder))
    assert (folder / "thresholds.png").is_file()
    assert "Exact match and F1 on dev by no-answer threshold" in [tag.get("alt") for tag in page.all("img")]


@pytest.mark.parametrize("rows", [[row for row in SCORED_SPANS if row["gold"]], KINDS["spans"]["rows"]])
def test_no_curve_without_unanswerable_questions_or_scores(make_task_run, rows):
    folder = make_task_run("spans", rows=rows, leave_out=PICTURES)
    write_report(folder)
    assert not (folder / "thresholds.png").exists()


def test_no_curve_for_a_task_that_always_answers(make_task_run):
    folder = make_task_run("spans", rows=SCORED_SPANS, task_details={"allows_no_answer": False}, leave_out=PICTURES)
    write_report(folder)
    assert not (folder / "thresholds.png").exists()


def test_questions_without_any_span_do_not_stretch_the_plot():
    points = [(-4.0, 0.4, 0.4), (-3.0, 0.6, 0.6), (10_000.0, 0.5, 0.5)]
    assert thresholds_figure(points, -3.0).axes[0].get_xlim()[1] < 0


def test_start_and_end_probabilities(make_task_run):
    folder = make_task_run("spans", rows=SCORED_SPANS, leave_out=PICTURES)
    (folder / "illustrations.json").write_text(json.dumps({"examples": [ILLUSTRATION]}), encoding="utf-8")
    file = write_report(folder)
    page = Page(file)
    for words in (
        f"Where did {SCRIPT} move?",
        "Oslo / in Oslo",
        "Os 50.0%, Ada 25.0%, moved 0.0%",
        "lo 75.0%, Os 12.5%, Ada 1.0%",
        "start 25.0%, end 11.5%; no-answer score -4.00",
    ):
        assert words in page.text, words
    tokens = [tag for tag in page.all("span") if tag.get("class", "").startswith("token") and "title" in tag]
    assert [tag["class"] for tag in tokens] == ["token", "token", "token answer", "token answer", "token"]
    assert tokens[3]["style"] == "--start:0.000;--end:0.750" and tokens[2]["title"] == "start 50.0%, end 12.5%"
    passage = re.search(r'<p class="passage">(.*?)</p>', file.read_text(encoding="utf-8"))[1]
    assert re.sub("<.*?>", "", passage) == ILLUSTRATION["passage"] and not page.all("script")


def test_without_illustrations_the_page_has_no_section_for_them(make_task_run):
    assert "Where answers start and end" not in Page(write_report(make_task_run("spans", leave_out=PICTURES))).text
