"""The page, picture and Markdown of an experiment, whole and in parts, with the shipped arms and made-up numbers."""

import re

import pytest
from made_up_jobs import decided_for, leave

from hornbook.evaluation.experiments.definition import read_experiment
from hornbook.evaluation.experiments.results import write_results
from hornbook.files import read_json, write_json
from hornbook.report.experiment import format_losses, notes, write_experiment_page
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.report.plots.drawing import render_png
from hornbook.report.plots.scores import score_figure

MEANS = {
    **{"bert-mlm": 60.0, "electra": 66.0, "bert-nsp": 60.2, "bert-sop": 61.0},
    **{"albert-none": 61.0, "albert-all": 53.0, "albert-attention": 60.9, "albert-ffn": 59.0},
}
MISSING = ("at-0.25", "albert-ffn", "sentence-head", "bert-nsp-0-at-0.5", "electra-0-at-1-squad")


def results_of(out, missing=(), tasks=("cola", "mrpc", "sts-b", "rte", "squad")) -> dict:
    decided = decided_for(read_experiment("equal-compute"))
    jobs = leave(out, decided, MEANS, 0.3, missing)
    return write_results(out, decided, [job for job in jobs if job.task in ("", *tasks)], list(tasks))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    out = tmp_path_factory.mktemp("whole")
    return out, results_of(out), write_experiment_page(out).read_text()


def test_verdicts_come_with_their_reasons(whole):
    _, results, page = whole
    assert {claim["name"]: claim["verdict"] for claim in results["claims"]} == {
        "replaced-tokens": "holds",
        "sentence-tasks": "not decided",
        "nsp-is-overlap": "holds",
        "sharing-all": "does not hold at this scale",
        "sharing-attention": "not decided",
    }
    for claim in results["claims"]:
        assert claim["description"] in page and claim["published"] in page
    assert "pre-training seeds per arm, if the means" in page
    assert "checkpoints of one schedule, not separate runs" in page
    assert '<span class="badge finished">finished</span>' in page


def test_arms_of_few_steps_are_named_where_their_flops_differ(whole):
    _, results, page = whole
    assert "Rounding to whole steps" not in page
    arms = results["arms"] | {"electra": results["arms"]["electra"] | {"planned_flops": 1.03 * results["flops"]}}
    assert "makes some arms deviate: ELECTRA 1.03e+16." in notes(results | {"arms": arms})[0]
    assert "Training cost is that of seed 3." in " ".join(notes(results | {"seeds": [3, 4]}))


def test_an_experiment_without_published_numbers_mentions_none(whole, tmp_path):
    _, results, page = whole
    assert "Published scores are of other tasks" in page
    arms = {name: arm | {"published": "", "sentence_head": None} for name, arm in results["arms"].items()}
    claims = [claim | {"published": ""} for claim in results["claims"]]
    write_json(tmp_path / "results.json", results | {"arms": arms, "claims": claims, "seeds": [0, 1]})
    text = write_experiment_page(tmp_path).read_text() + (tmp_path / "RESULTS-equal-compute.md").read_text()
    assert (
        "Published" not in text
        and "published |" not in text
        and "published:" not in text
        and "those of sentence heads" not in text
    )


def test_tables_hold_scores_and_records(whole):
    out, results, page = whole
    assert re.search(r"ELECTRA<div.*?published: ELECTRA-small, 79.9", page, re.S)
    assert "1.23 million" in page and "3.4 GB" in page and "mlm 2.400" in page
    assert "90.0% (88.5 to 91.5)" in page and "shared-word classifier" in page
    text = (out / "RESULTS-equal-compute.md").read_text()
    assert "a difference within 2.0 points of a bound cannot be decided" in text  # 1.96 x sqrt(2) x 0.72
    assert text.count("| ELECTRA |") == 2 and text.count("| ELECTRA<br>") == 2  # three checkpoints and its record
    for row in results["scores"]:
        assert row["low"] < row["score"] < row["high"]
    assert "src=" not in page.replace('src="data:', "").replace("srcset", "")  # no other file is needed


def test_info_shows_it(whole, tmp_path):
    results = whole[1]
    write_json(tmp_path / "run.json", {"command": "reproduce"})
    write_json(tmp_path / "results.json", results)
    found = describe(tmp_path)
    assert (found["kind"], found["num_done"]) == ("experiment", results["num_jobs"])
    told = found["lines"]
    assert ("holds", "Replaced-token detection beats masked-token prediction at equal FLOPs.") in told
    assert ("state", f"{results['num_jobs']} of {results['num_jobs']} jobs done") in told


def test_tokens_found_are_of_those_replaced():
    last = {"loss": 14.7, "rtd": 0.22, "rtd_replaced": 0.1, "rtd_found": 0.033}
    words = format_losses({"losses": {"0.5": {"loss": 1.0, "mlm": 9.0}, "1": last}})
    assert words == "rtd 0.220, rtd replaced 0.100, rtd found of replaced 0.330"
    assert format_losses({"losses": {}}) == ""


def test_degenerate_runs_are_on_the_page_and_in_the_text(tmp_path):
    decided = decided_for(read_experiment("equal-compute"))
    jobs = leave(tmp_path, decided, MEANS, 0.3)
    file = next(job for job in jobs if job.kind == "finetune" and job.task == "rte").file(tmp_path)
    write_json(file, read_json(file) | {"degenerate": "it answers 'entailment' whatever the text"})
    write_results(tmp_path, decided, jobs, ["cola", "mrpc", "sts-b", "rte", "squad"])
    page, text = write_experiment_page(tmp_path).read_text(), (tmp_path / "RESULTS-equal-compute.md").read_text()
    assert "Fine-tuning runs no better than chance" in page and "Missing jobs" not in page
    assert "Fine-tuning runs no better than chance (their scores count): " in text and "Missing jobs: " not in text


@pytest.mark.pictures
def test_the_picture_has_a_line_for_each_arm(whole):
    _, results, _ = whole
    figure = score_figure(results)
    assert len(figure.axes) == 2 + 5
    names = [name for axes in figure.axes[:2] for name in axes.get_legend_handles_labels()[1]]
    assert len(names) == 4 + 5
    assert any(name.startswith("ELECTRA ") for name in names)
    assert len(render_png(figure, "scores").address) > 30_000


@pytest.mark.pictures
def test_partial_results_are_drawn_and_missing_runs_are_listed(tmp_path):
    results = results_of(tmp_path, MISSING)
    page = write_experiment_page(tmp_path).read_text()
    done, of = results["num_done"], results["num_jobs"]
    assert f"{done} of {of} jobs</span>" in page and 0 < done < of
    assert "fine-tuning electra at 1: 3 jobs" in page and "pre-training albert-ffn: 1 job<" in page
    texts = score_figure(results).axes[0].get_legend_handles_labels()[1]
    assert any(re.fullmatch(r"ELECTRA [\d.]+ at 0.5", text) for text in texts)
    claims = {claim["name"]: claim for claim in results["claims"]}
    assert claims["replaced-tokens"]["verdict"] == "not decided"
    assert "because 3 fine-tuning runs of electra are missing" in claims["replaced-tokens"]["reason"]
    assert claims["replaced-tokens"]["would_decide"] == "the missing jobs"


def test_page_without_any_finished_run(tmp_path):
    results = results_of(tmp_path, ("",))
    assert results["num_done"] == 0
    assert write_report(tmp_path).read_text().count("not decided</span>") == 5
    assert not (tmp_path / "score-by-flops.png").exists()


def test_a_task_without_data_is_left_out(tmp_path):
    results = results_of(tmp_path, tasks=("cola", "rte"))
    assert "squad is left out" in write_experiment_page(tmp_path).read_text()
    assert len(score_figure(results).axes) == 2 + 2
    assert {claim["verdict"] for claim in results["claims"]} >= {"holds"}


def test_with_one_checkpoint_the_arms_are_side_by_side(whole):
    _, results, _ = whole
    arms = {name: arm | {"panels": ["Mean score"]} for name, arm in results["arms"].items()}
    scores = [row for row in results["scores"] if row["share"] == 1]
    figure = score_figure(results | {"checkpoints": [1.0], "scores": scores, "arms": arms})
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "Mean score" and axes.yaxis.get_major_formatter()(102, 0) == ""
    assert [label.get_text() for label in axes.get_xticklabels()] == [arm["label"] for arm in arms.values()]
    assert [line.get_xdata()[0] for line in axes.lines if line.get_marker() == "o"] == list(range(len(arms)))
