"""The pages of fine-tuning runs, from folders written by hand."""

import json

import numpy as np
import pytest
from made_up_tasks import CLASS_ROWS, CLASSES, KINDS, PICTURES, SCRIPT, class_row, scores
from one_call_scores import entity_scores
from safetensors.numpy import save_file
from test_page import Page

from hornbook.report.card import write_card
from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.report.plots.run import finetuning_curves
from hornbook.report.plots.scores import curve_figure, trials_figure
from hornbook.report.trials import draw, read_curve, read_trials
from hornbook.tasks.kinds import MultiLabel


def opened(folder):
    return ReportedTaskRun.load(folder)


def confusion(run):
    return run.task_kind.confusion(run.judged)


def tallies(run):
    return run.task_kind.tallies(run.judged)


def worst_mistakes(run):
    return run.task_kind.worst_mistakes(run.predictions, 12)


@pytest.mark.pictures
def test_the_page_of_a_classification(make_task_run):
    folder = make_task_run()
    page = Page(write_report(folder))
    for words in (
        "reviews",
        "finished after 60 steps",
        "owner/small-encoder",
        "22.7 million",
        "75.0%",
        "70.0% to 80.0%",
        "75.0% (70.0% to 80.0%)",
        "50.0% (45.0% to 55.0%)",
        "best step 40",
        "1,500",
        "train examples 4,000",
        "no GPU was found",
        "/data/reviews/train.csv",
        "columns: text = 'review', label = 'stars'",
        "7 empty texts (first: train.csv row 9)",
        "truncated texts of train 11",
        "of 3 in 12 examples",
        "surely wrong",
        "probability 97.0%, gold label 1.5%",
        "layer 6 of 6",
        "optimizer.lr",
        "hornbook predict",
        "load_predictor(",
        "pipeline('text-classification'",
    ):
        assert words in page.text, words
    assert "Warning" not in page.text
    assert page.text.index("surely wrong") < page.text.index("hardly wrong")
    shares = [tag["style"] for tag in page.all("td") if "style" in tag]
    assert "--share:0.600" in shares and "--share:0.400" in shares  # of 5 bad ones, 3 and 2
    assert (folder / "curves.png").stat().st_size > 10_000
    assert not page.all("script") and SCRIPT in page.text
    assert "<script" not in (folder / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.pictures
def test_every_kind_has_its_page(make_task_run, kind):
    folder = make_task_run(kind, leave_out=PICTURES)
    page = Page(write_report(folder))
    assert "Errors on dev" in page.text and "Worst errors on dev" in page.text
    assert not page.all("script")
    assert (folder / "scatter.png").is_file() == (kind == "regression")


def test_counts_of_classes(make_task_run):
    run = opened(make_task_run())
    found = confusion(run)
    assert found.names == list(CLASSES)
    assert found.counts.tolist() == [[6, 0, 0], [2, 3, 0], [0, 1, 0]]
    good = next(each for each in tallies(run) if each.name == "good")
    assert (good.num_gold, good.num_predicted, good.num_correct) == (6, 8, 6)
    assert (good.precision, good.recall, good.f1) == (0.75, 1.0, 12 / 14)


def test_a_class_of_dev_that_training_lacks_is_counted_too(make_task_run):
    rows = [*CLASS_ROWS, class_row(30, "unheard", "good", 0.6)]
    found = confusion(opened(make_task_run(rows=rows)))
    assert found.names[-1] == "unheard" and found.counts.sum() == 13 and found.counts[-1].sum() == 1


def test_rare_ones_of_many_classes_are_put_together(make_task_run):
    rows = [class_row(i, f"class {i % 30}", f"class {(i + i // 30) % 30}", 0.6) for i in range(75)]
    run = opened(make_task_run(rows=rows, labels=[f"class {i}" for i in range(30)]))
    found = confusion(run)
    assert len(found.names) == 20 and found.names[-1] == "11 others" and found.counts.sum() == 75
    assert len(tallies(run)) == 30 and sum(each.num_gold for each in tallies(run)) == 75


def test_several_classes_at_once(make_task_run):
    both = {"gold": ["a", "b"], "labels": ["a"], "probabilities": {"a": 0.9, "b": 0.2, "c": 0.1}}
    none = {"gold": [], "labels": ["c"], "probabilities": {"a": 0.1, "b": 0.1, "c": 0.6}}
    rows = [{"key": "1", "text": "one", **both}, {"key": "2", "text": "two", **none}]
    found = scores(micro_f1=0.5)
    folder = make_task_run("multi-label", rows=rows, found=found, labels=("a", "b", "c"), leave_out=PICTURES)
    run = opened(folder)
    assert confusion(run) is None
    assert {each.name: (each.num_gold, each.num_predicted, each.num_correct) for each in tallies(run)} == {
        "a": (1, 1, 1),
        "b": (1, 0, 0),
        "c": (0, 1, 0),
    }
    _, found = worst_mistakes(run)
    assert [(each.gold, each.predicted, each.note) for each in found] == [
        ("a, b", "a", "sum of absolute probability errors 1.00"),
        ("none", "c", "sum of absolute probability errors 0.80"),
    ]
    assert "any number of labels per text" in Page(write_report(folder)).text


def test_a_missed_label_whose_probability_is_not_written_counts_as_an_error():
    row = {"key": "1", "text": "one", "gold": ["a", "z"], "labels": ["a"], "probabilities": {"a": 0.75, "b": 0.25}}
    ((error, mistake),) = MultiLabel.mistakes([row])
    assert error == 1.5 and mistake.note.endswith("errors 1.50")


def test_entities_are_counted_as_the_official_scorer_counts_them(make_task_run):
    run = opened(make_task_run("tagging"))
    official = entity_scores([row["gold"] for row in run.predictions], [row["tags"] for row in run.predictions])
    ours = {each.name: each for each in tallies(run)}
    assert ours.keys() == official["types"].keys() == {"PER", "LOC"}
    for name, theirs in official["types"].items():
        assert (ours[name].precision, ours[name].recall, ours[name].num_gold) == (
            theirs["precision"],
            theirs["recall"],
            theirs["support"],
        )
        assert ours[name].f1 == pytest.approx(theirs["f1"])


def test_sentences_with_most_wrong_tags_come_first(make_task_run):
    folder = make_task_run("tagging", leave_out=PICTURES)
    _, found = worst_mistakes(opened(folder))
    assert [each.note for each in found] == ["2 of 3 tags wrong", "1 of 2 tags wrong"]
    assert [piece.error for piece in found[0].texts[0]] == ["B-LOC, not B-PER", "O, not B-LOC", ""]
    page = Page(write_report(folder))
    assert "B-LOC, not B-PER" in page.text and len(page.all("mark")) == 3


def test_plain_tags_have_a_table_by_tag(make_task_run):
    rows = [{"key": "0", "gold": ["NOUN", "VERB"], "words": ["a", "b"], "tags": ["NOUN", "NOUN"]}]
    run = opened(make_task_run("tagging", rows=rows, found=scores(tag_accuracy=0.5), labels=("NOUN", "VERB")))
    assert [(each.name, each.num_gold, each.num_predicted, each.num_correct) for each in tallies(run)] == [
        ("NOUN", 1, 2, 1),
        ("VERB", 1, 0, 0),
    ]


def test_spans(make_task_run):
    folder = make_task_run("spans", leave_out=PICTURES)
    run = opened(folder)
    found = confusion(run)
    assert found.names == ["has no answer", "has an answer"] and found.counts.tolist() == [[1, 1], [1, 2]]
    assert run.task_kind.by_length(run.predictions) == [("1 word", 2, 2), ("2 or 3 words", 1, 0)]
    _, mistakes = worst_mistakes(run)
    assert [(each.key, each.gold, each.predicted) for each in mistakes] == [
        ("2", "Paris / in Paris", "the Rome"),
        ("3", "no answer", "because"),
        ("4", "Monday", "no answer"),
    ]
    page = Page(write_report(folder))
    for words in ("above -1.250", "F1, answerable", "60.0% (55.0% to 65.0%)", "40.0% (35.0% to 45.0%)"):
        assert words in page.text, words
    assert "AutoModelForQuestionAnswering" in page.text


def test_numbers(make_task_run):
    folder = make_task_run("regression", leave_out=PICTURES)
    _, mistakes = worst_mistakes(opened(folder))
    assert [(each.gold, each.predicted, each.note) for each in mistakes] == [
        ("0.00", "4.50", "+4.50"),
        ("5.00", "4.00", "-1.00"),
        ("1.00", "1.25", "+0.25"),
    ]
    page = Page(write_report(folder))
    assert "0.610 (0.560 to 0.660)" in page.text and "Pearson correlation" in page.text


def test_choices(make_task_run):
    run = opened(make_task_run("choice"))
    found = confusion(run)
    assert found.names == ["choice 1", "choice 2", "choice 3"] and found.counts[2, 1] == 1
    _, mistakes = worst_mistakes(run)
    assert [(each.gold, each.predicted, each.note) for each in mistakes] == [
        ("choice 3", "choice 2: and swam", "probability 60.0%, gold choice 30.0%")
    ]


def test_a_degenerate_run_is_called_what_it_is(make_task_run):
    page = Page(write_report(make_task_run(degenerate="it answers 'good' whatever the text", leave_out=PICTURES)))
    assert "Warning: it answers 'good' whatever the text." in page.text
    assert [tag for tag in page.all("p") if tag.get("class") == "warning"]


OPTIONAL = (
    "scores.json",
    "task.json",
    "config.json",
    "predictions-dev.jsonl",
    "metrics.jsonl",
    "attention.json",
)


@pytest.mark.parametrize(
    ("kind", "missing"),
    [
        *((kind, OPTIONAL) for kind in KINDS),
        *(("classification", (name,)) for name in OPTIONAL),
        *((kind, ("task.json", "config.json", *PICTURES)) for kind in ("spans", "tagging", "choice")),
    ],
)
def test_missing_files_do_not_break_the_page(make_task_run, kind, missing):
    page = Page(write_report(make_task_run(kind, leave_out=missing)))
    assert "reviews" in page.text and "nan" not in page.text.split()


def test_an_unfinished_run_is_marked(make_task_run):
    folder = make_task_run(leave_out=OPTIONAL[:4])
    assert "trained, not scored yet" in Page(write_report(folder)).text
    (folder / "checkpoints" / "step-00000060" / "state.json").write_text(json.dumps({"step": 20}))
    (folder / "metrics.jsonl").unlink()
    assert "not finished: step 20 of 60" in Page(write_report(folder)).text


def test_a_run_that_ended_early_is_marked(make_task_run):
    folder = make_task_run(leave_out=PICTURES)
    state = {"step": 60, "seconds": 9.0, "ended_early": True}
    (folder / "checkpoints" / "step-00000060" / "state.json").write_text(json.dumps(state))
    assert "ended early, after 60 of 60 steps" in Page(write_report(folder)).text


def test_a_damaged_file_is_named(make_task_run):
    folder = make_task_run()
    (folder / "scores.json").write_text("{")
    with pytest.raises(ValueError, match=r"scores\.json is not valid JSON"):
        write_report(folder)


# --- several runs ---------------------------------------------------------------------------------------------------


def write_trials(folder, kind="lr_search", **overrides):
    trials = [
        {"name": f"try {i}", "folder": f"t{i}", "lr": lr, "seed": i, "score": s, "low": s - 0.02, "high": s + 0.03}
        | {"degenerate": "it answers '<b>' whatever the text" if s < 0.6 else None, "seconds": 75.0}
        for i, (lr, s) in enumerate([(5e-5, 0.81), (4e-5, 0.84), (3e-5, 0.83), (2e-5, 0.5)])
    ]
    found = {
        "kind": kind,
        "metric_for_best": "accuracy",
        "trials": trials,
        "best": "try 1",
        "median": 0.82,
        "spread": 0.34,
    }
    folder.mkdir(exist_ok=True)
    (folder / "trials.json").write_text(json.dumps(found | overrides))
    return folder


def write_curve(folder):
    points = [
        {"method": method, "examples": num, "score": start + num / 1e4, "low": start, "high": start + 0.2}
        for method, start in (("from-scratch", 0.5), ("finetune", 0.6), ("<i>own</i>", 0.55))
        for num in (512, 32, 128)
    ]
    folder.mkdir(exist_ok=True)
    (folder / "curve.json").write_text(json.dumps({"metric_for_best": "accuracy", "points": points}))
    return folder


@pytest.mark.pictures
def test_the_picture_of_a_search(tmp_path):
    folder = write_trials(tmp_path / "lr_search")
    draw(folder, read_trials(folder))
    assert (folder / "trials.png").stat().st_size > 5_000
    axes = trials_figure(read_trials(folder)).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["2e-5", "3e-5", "4e-5", "5e-5"]
    drawn = [(line.get_marker(), line.get_ydata()[0]) for line in axes.lines if len(line.get_ydata()) == 1]
    assert drawn == [("x", 0.5), ("o", 0.83), ("*", 0.84), ("o", 0.81)]
    intervals = [list(line.get_ydata()) for line in axes.lines if len(line.get_ydata()) == 2]
    assert intervals[0] == [0.48, 0.53]


def test_the_picture_of_restarts_has_the_median(tmp_path):
    axes = trials_figure(read_trials(write_trials(tmp_path / "seeds", "seeds"))).axes[0]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1", "2", "3"]
    assert "median 82.0%" in axes.get_legend_handles_labels()[1]


def test_the_page_of_a_search(tmp_path):
    page = Page(write_report(write_trials(tmp_path / "lr_search")))
    for words in ("84.0% (82.0% to 87.0%)", "try 1 ★", "1 of 4 no better than chance", "4e-05", "it answers '<b>'"):
        assert words in page.text, words
    assert (tmp_path / "lr_search" / "trials.png").is_file() and not page.all("b")


@pytest.mark.pictures
def test_a_sweep_in_the_same_folder_is_on_the_page_of_the_run(make_task_run):
    folder = write_curve(write_trials(make_task_run(leave_out=PICTURES)))
    page = Page(write_report(folder))
    assert "Search over learning rates" in page.text and "Score by number of labels" in page.text
    assert "Worst errors on dev" in page.text
    assert (folder / "trials.png").is_file() and (folder / "curve.png").is_file()


@pytest.mark.pictures
def test_the_curve_by_number_of_labels(tmp_path):
    folder = write_curve(tmp_path / "labels")
    axes = curve_figure(read_curve(folder)).axes[0]
    assert axes.get_xscale() == "log" and len(axes.lines) == 3 and len(axes.collections) == 3
    assert axes.lines[0].get_xdata().tolist() == [32, 128, 512]
    assert np.allclose(axes.lines[1].get_ydata(), [0.6032, 0.6128, 0.6512])
    page = Page(write_report(folder))
    assert "61.3% (60.0% to 80.0%)" in page.text and "<i>own</i>" in page.text and not page.all("i")


def test_fractions_are_shown_in_percent_and_correlations_are_not(tmp_path):
    trials = [{"name": "a", "lr": 1e-4, "seed": 0, "score": 0.715, "low": 0.7, "high": 0.73}]
    trials[0] |= {"degenerate": None, "seconds": 75.0}
    of_spans = {"metric_for_best": "f1", "best": "a", "median": 0.715, "spread": 0.0}
    folder = write_trials(tmp_path / "spans", trials=trials, **of_spans)
    assert "71.5% (70.0% to 73.0%)" in Page(write_report(folder)).text
    poor = [trials[0] | {"score": 0.012, "low": 0.009, "high": 0.014}]
    folder = write_trials(tmp_path / "poor", trials=poor, **of_spans)
    assert "1.2% (0.9% to 1.4%)" in Page(write_report(folder)).text
    trials[0] |= {"score": 0.53, "low": 0.5, "high": None}
    folder = write_trials(
        tmp_path / "cola", metric_for_best="matthews", trials=trials, best="a", median=0.53, spread=0.05
    )
    page = Page(write_report(folder))
    assert "spread 0.050" in page.text and "median 0.530" in page.text


def test_tries_without_a_score_are_refused(tmp_path):
    (tmp_path / "trials.json").write_text('{"trials": []}')
    with pytest.raises(ValueError, match="has no trials with a score"):
        read_trials(tmp_path)


@pytest.mark.parametrize("kind", ["classification", "spans"])
def test_scores_are_drawn_up_to_one(make_task_run, kind):
    folder = make_task_run(kind)
    run = opened(folder)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    top = {run.metric_for_best: 1.0}
    lines = [json.dumps(line | (top if line["kind"] == "validation" else {})) for line in metrics]
    (folder / "metrics.jsonl").write_text("\n".join(lines))
    axes = finetuning_curves(opened(folder)).axes[1]
    assert 1.0 < axes.get_ylim()[1] <= 1.02


def test_errors_above_one_are_not_drawn_among_the_scores(make_task_run):
    folder = make_task_run(leave_out=["attention.json"])
    other = {"mean_absolute_error": 1.7, "macro_f1": 0.5}
    lines = [line | (other if line["kind"] == "validation" else {}) for line in opened(folder).metrics]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    axes = finetuning_curves(opened(folder)).axes[1]
    labels = [line.get_label() for line in axes.get_lines()]
    assert "macro F1" in labels and "mean absolute error" not in labels


# --- info -----------------------------------------------------------------------------------------------------------


def test_info_of_a_run(make_task_run):
    found = describe(make_task_run(degenerate="it answers 'good' whatever the text"))
    assert found["kind"] == "fine-tuned run" and found["scores"]["dev"]["accuracy"]["value"] == 0.75
    json.dumps(found)
    said = dict(found["lines"])
    assert said["task"] == "reviews: one label per text" and said["model"] == "owner/small-encoder"
    assert said["labels"].startswith("3: good, bad") and said["best step"] == "40"
    assert said["dev scores"] == "accuracy 75.0% (70.0% to 80.0%); F1 50.0% (45.0% to 55.0%)"
    assert said["data"] == "/data/reviews/train.csv" and said["train examples"] == "4,000"
    assert said["problem"] == "7 empty texts (first: train.csv row 9)"
    assert said["trained on"] == "1,500 examples" and said["warning"] == "it answers 'good' whatever the text"


def test_info_does_not_repeat_the_number_of_training_examples(make_task_run):
    folder = make_task_run()
    run = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(run | {"train_examples": 4000}))
    said = dict(describe(folder)["lines"])
    assert said["train examples"] == "4,000" and "trained on" not in said


def test_teacher_and_augmented_copies_are_shown(make_task_run):
    folder = make_task_run(leave_out=PICTURES)
    run = json.loads((folder / "run.json").read_text())
    run["inputs"]["teacher"], run["augmented_examples"] = {"name": "runs/large"}, 1450
    (folder / "run.json").write_text(json.dumps(run))
    copies = "1,450 augmented copies of them"
    text = Page(write_report(folder)).text
    assert describe(folder)["title"].endswith(", teacher runs/large")
    assert "teacher runs/large" in text and f"1,500 examples and {copies}" in text
    assert dict(describe(folder)["lines"])["trained on"] == f"1,500 examples and {copies}"
    assert f"on 1,500 examples and {copies}, distilled from the teacher `runs/large`," in write_card(folder).read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_info_does_without_what_is_missing(make_task_run, kind):
    assert dict(describe(make_task_run(kind, leave_out=OPTIONAL))["lines"])["state"] == "trained, not scored yet"


def test_info_of_several_runs(tmp_path):
    found = describe(write_curve(write_trials(tmp_path / "lr_search")))
    said = dict(found["lines"])
    assert found["kind"] == "several runs" and said["try 1"] == "84.0% (82.0% to 87.0%)" and said["best"] == "try 1"
    assert (
        said["try 3"].endswith("no better than chance") and said["fine-tuning, 128 labels"] == "61.3% (60.0% to 80.0%)"
    )


@pytest.mark.parametrize(
    ("config", "task", "labels"),
    [
        ({"architectures": ["BertForSequenceClassification"]}, "classification: one label per text", "2: no, yes"),
        ({"architectures": ["RobertaForTokenClassification"]}, "tagging: one tag per word", "2: no, yes"),
        ({"architectures": ["BertForQuestionAnswering"]}, "spans: an answer span in the text", None),
        ({"architectures": ["BertForMultipleChoice"]}, "choice: one of several choices", None),
        (
            {"architectures": ["BertForSequenceClassification"], "problem_type": "regression"},
            "regression: one number per text",
            None,
        ),
        (
            {"architectures": ["BertForSequenceClassification"], "problem_type": "multi_label_classification"},
            "multi-label: any number of labels per text",
            "2: no, yes",
        ),
        (
            {"architectures": ["BertModel"], "hornbook_head": {"output": "sequence", "layers": "cnn"}},
            "classification: one label per text",
            "2: no, yes",
        ),
        ({"architectures": ["BertModel"]}, None, None),
    ],
)
def test_info_of_a_model_that_transformers_wrote(tmp_path, config, task, labels):
    names = {"id2label": {"1": "yes", "0": "no"}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"} | names | config))
    save_file({"a": np.zeros((3, 2), np.float32)}, tmp_path / "model.safetensors")
    said = dict(describe(tmp_path)["lines"])
    assert said.get("task") == task and said.get("labels") == labels


@pytest.mark.pictures
def test_no_score_above_one_is_on_the_axis(make_task_run):
    figure = finetuning_curves(ReportedTaskRun.load(make_task_run(found=scores(matthews=1.0))))
    axes = next(axes for axes in figure.axes if axes.get_title(loc="left") == "Scores on dev")
    shown = axes.yaxis.get_major_formatter()
    assert (shown(0.98, 0), shown(1.0, 0), shown(1.02, 0)) == ("0.98", "1", "")
