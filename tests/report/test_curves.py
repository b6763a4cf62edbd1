import math
import struct
import time

import numpy as np
import pytest
from matplotlib.figure import Figure
from synthetic_runs import RUN, train_lines, validation_lines

from hornbook.report.plots.drawing import label_up_to, render_png, short_power, smoothed, thinned
from hornbook.report.plots.run import pretraining_curves
from hornbook.report.run_files import ReportedRun

pytestmark = pytest.mark.pictures


def titles(run):
    return [axes.get_title(loc="left") for axes in pretraining_curves(run).axes]


def test_every_number_has_its_panel(make_run):
    event = {"kind": "event", "step": 1000, "event": "rollback", "message": "went back", "at_step": 1203}
    run = ReportedRun.load(make_run([*train_lines(3000), *validation_lines(3000), event]))
    found = titles(run)
    assert [title.split()[0] for title in found] == ["Loss", "Loss", "Next-sentence", "Accuracy", "Learning", "Tokens"]
    masked = pretraining_curves(run).axes[1]
    assert [text.get_text() for text in masked.texts] == ["unigram baseline: 6.61"]
    assert any(list(line.get_xdata()) == [1203, 1203] for line in masked.lines)
    render_png(pretraining_curves(run), "curves", run.folder / "curves.png")
    png = (run.folder / "curves.png").read_bytes()
    assert png[:4] == b"\x89PNG" and len(png) > 30_000
    assert struct.unpack(">II", png[16:24])[0] > 1000


def test_without_next_sentence_one_loss_is_enough(make_run):
    run = ReportedRun.load(make_run(train_lines(1000, sentence=None) + validation_lines(1000, sentence=None)))
    assert titles(run)[0] == "Loss on masked tokens (mlm)" and len(titles(run)) == 4


@pytest.mark.parametrize(("sentence", "words"), [("nsp", "Next-sentence"), ("sop", "Sentence-order")])
def test_a_sentence_task_is_named_and_measured_against_a_coin(sentence, words, make_run):
    run = ReportedRun.load(make_run(train_lines(1000, sentence=sentence) + validation_lines(1000, sentence=sentence)))
    assert titles(run)[2] == f"{words} loss ({sentence})"
    assert [text.get_text() for text in pretraining_curves(run).axes[2].texts] == ["chance: 0.69"]


@pytest.mark.parametrize(
    "lines",
    [
        train_lines(10),
        train_lines(100),
        validation_lines(20),
        [line | {"loss": math.nan, "mlm": math.inf, "nsp": -math.inf} for line in train_lines(30)],
        [{"kind": "train", "step": 1, "loss": 2.0}],
    ],
    ids=["one line", "no validation", "no training", "no numbers", "hardly anything"],
)
def test_any_run_can_be_drawn(make_run, lines):
    figure = pretraining_curves(ReportedRun.load(make_run(lines, unigram_baseline={})))
    assert len(render_png(figure, "curves").address) > 5_000


def test_a_hundred_thousand_lines_are_thinned_out(tmp_path):
    run = ReportedRun(tmp_path, RUN, train_lines(1_000_000))
    began = time.monotonic()
    figure = pretraining_curves(run)
    assert time.monotonic() - began < 10
    assert max(len(line.get_xdata()) for axes in figure.axes for line in axes.lines) <= 1500


def test_a_spike_survives_thinning_and_does_not_press_the_curve_flat(make_run):
    values = np.ones(10_000)
    values[1234], values[5000:5010] = 1000.0, np.nan
    assert 1000.0 in thinned(np.arange(10_000), values)[1]
    lines = train_lines(10_000, sentence=None)
    lines[500]["mlm"] = 1000.0
    assert pretraining_curves(ReportedRun.load(make_run(lines))).axes[0].get_ylim()[1] < 12


def test_smoothing_leaves_out_what_is_no_number():
    assert smoothed(np.array([1.0, 2.0, np.nan, 4.0, 6.0]), 3).tolist() == [1.0, 1.5, 3.0, 5.0, 5.0]
    assert np.isnan(smoothed(np.array([np.nan]), 3)).all()


def test_a_run_without_metrics_has_no_curves(make_run):
    with pytest.raises(ValueError, match="no metrics yet"):
        pretraining_curves(ReportedRun.load(make_run()))


def test_tick_labels_are_not_rounded():
    values = (0.00175, 2e-5, 0.0, 5e18)
    assert [short_power(value, 0) for value in values] == ["1.75e-3", "2e-5", "0", "5e18"]


def test_the_largest_value_has_its_label():
    """Ticks have rounding errors; there is no score above the largest, and so no label."""
    axes = Figure().subplots()
    for largest, unit, sign, shown in ((1, 1, "", "1"), (100, 100, "%", "100%")):
        label_up_to(axes, largest, unit, sign)
        label = axes.yaxis.get_major_formatter()
        assert (label(1.0000000000000002, 0), label(1.2, 0)) == (shown, "")
