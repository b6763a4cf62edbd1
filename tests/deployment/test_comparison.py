"""Models side by side: every row measured on the same inputs, held against the first, drawn from what was written."""

import shutil
from pathlib import Path

import pytest
from model_folders import model_folder_of
from typer.testing import CliRunner

import hornbook
from hornbook.cli import app
from hornbook.deployment.comparison import compare
from hornbook.deployment.measuring import time_interleaved
from hornbook.files import read_json, write_json
from hornbook.inference.predictor import Predictor
from hornbook.models.head_config import HeadConfig
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.report.plots.scores import comparison_figure

FAST = {"rounds": 3, "batch_size": 4, "batch_threads": 1}


def test_scores_are_those_on_record_and_shares_those_of_the_first(learned, tmp_path):
    worse = shutil.copytree(learned.run, tmp_path / "worse")
    scores = read_json(worse / "scores.json")
    before = scores["splits"]["dev"]["accuracy"]["value"]
    scores["splits"]["dev"]["accuracy"]["value"] = before / 2
    write_json(worse / "scores.json", scores)
    found = compare([learned.run, worse, learned.phone], length=16, **FAST)
    assert "of different data" in found["notes"][0], "the phone was scored on all of the file, the runs on a part of it"
    first, second, phone = found["rows"]
    assert first["score"]["value"] == before and first["kept"] == 1 and first["times_faster"] == 1
    assert second["kept"] == 0.5
    assert phone["score"] == read_json(learned.phone / "export.json")["scores"]["dev"]["accuracy"]
    assert [row["kind"] for row in found["rows"]] == ["torch", "torch", "onnx-int8"]
    assert first["parameters"] == phone["parameters"] and first["flops"] == phone["flops"]
    assert phone["bytes"] == (learned.phone / "model.onnx").stat().st_size
    assert first["bytes"] == (learned.run / "model.safetensors").stat().st_size
    dots = [each.get_sizes()[0] for each in comparison_figure(found).axes[0].collections]
    assert dots[2] / dots[0] == pytest.approx(phone["bytes"] / first["bytes"])  # in eight bits it is smaller
    for row in found["rows"]:
        assert 0 < row["latency_ms"]["p50"] <= row["latency_ms"]["p99"] and row["throughput"]["cpu"] > 0
    # 2 for each weight of a block of width 32 and inner width 128, and attention to 16 tokens.
    assert first["flops"] == pytest.approx(16 * (2 * (4 * 32**2 + 2 * 32 * 128) + 4 * 16 * 32))


def test_a_run_and_its_export_that_were_scored_on_the_same_split(learned, tmp_path):
    lines = Path(learned.data).read_text(encoding="utf-8").splitlines(keepends=True)
    (tmp_path / "data").mkdir()
    for name, part in (("train", lines[1:41]), ("dev", lines[41:])):
        (tmp_path / "data" / f"{name}.csv").write_text("".join([lines[0], *part]), encoding="utf-8")
    data, run, phone = str(tmp_path / "data"), tmp_path / "run", tmp_path / "phone"
    hornbook.finetune(learned.run, data, out=run, text="said", label="label", epochs=1)
    hornbook.export(run, phone, data=data, rounds=1, length=8)
    found = compare([run, phone], length=16, **FAST)
    assert found["notes"] == [] and found["rows"][1]["kept"] == 1


def test_the_plot_has_ticks_at_1_2_5_and_names_all_models():
    names = {"runs/reviews": 124.3, "runs/small-reviews": 20.81, "runs/tiny-reviews": 19.5, "phone": 2.87}
    rows = [
        {
            **{"name": name, "kind": "torch", "bytes": ms * 1e6, "latency_ms": {"p50": ms}, "throughput": {"cpu": 1.0}},
            "score": {"value": 0.9, "low": 0.85, "high": 0.95},
        }
        for name, ms in names.items()
    ]
    figure = comparison_figure({"rows": rows, "task": "reviews", "metric_for_best": "accuracy", "threads": 1})
    (axes,) = figure.axes
    figure.draw_without_rendering()
    low, high = axes.get_xlim()
    ticks = [tick.label1.get_text() for tick in axes.xaxis.get_major_ticks() if low < tick.get_loc() < high]
    assert ticks == ["2", "5", "10", "20", "50", "100"] and not len(axes.xaxis.get_minor_ticks())
    (legend,) = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert labels[-1] == "phone: 90.0%, 2.87 ms" and [label.partition(":")[0] for label in labels] == list(names)
    assert figure.bbox.y0 <= legend.get_window_extent().y0 and legend.get_window_extent().y1 < axes.bbox.y0


@pytest.mark.pictures
def test_with_data_all_are_scored_and_timed_on_its_examples(learned, tmp_path):
    out = tmp_path / "side-by-side"
    words = ["compare", str(learned.run), str(learned.phone), "--data", learned.data, "--out", str(out)]
    result = CliRunner().invoke(app, [*words, "--rounds", "3", "--batch-size", "4"])
    assert result.exit_code == 0, (result.output, result.exception)
    found = read_json(out / "comparison.json")
    assert found["data"] == learned.data and found["metric_for_best"] == "accuracy"
    assert all(row["score"]["value"] > 0.9 for row in found["rows"])
    assert 4 < found["rows"][0]["mean_tokens"] < 16, "as long as the texts, not as --length"
    assert found["rows"][1]["kept"] == pytest.approx(1, abs=0.03)
    assert str(learned.phone) in result.stdout and "ONNX, int8" in result.stdout and "kept" in result.stdout
    assert f"classification, {Path(learned.data).name}, with 95% intervals" in result.stdout
    page = (out / "report.html").read_text(encoding="utf-8")
    assert (out / "comparison.png").stat().st_size > 5000 and str(learned.phone) in page
    (out / "report.html").unlink()
    assert write_report(out).read_text(encoding="utf-8") == page, "the page comes from what is on disk alone"


def test_what_a_model_was_trained_on_is_noted_by_its_name(learned, tmp_path, monkeypatch):
    evaluate = Predictor.evaluate
    monkeypatch.setattr(
        Predictor, "evaluate", lambda self, *args, **more: evaluate(self, *args, **more) | {"notes": ["known"]}
    )
    found = compare([learned.run, learned.phone], data=learned.data, **FAST)
    assert found["notes"] == [f"{learned.run}, {learned.phone}: known"]


def test_a_comparison_of_other_models_is_not_written_over(tiny_tokenizer, tmp_path):
    one, two = (model_folder_of(tmp_path / name, tiny_tokenizer, "bert") for name in ("one", "two"))
    out = tmp_path / "out"
    compare([one, two], out=out, length=8, **FAST)
    compare([one, two], out=out, length=4, **FAST)
    assert read_json(out / "comparison.json")["length"] == 4
    with pytest.raises(ValueError, match=r"out holds a comparison of .*one, .*two: choose another folder"):
        compare([one], out=out, length=8, **FAST)
    assert len(read_json(out / "comparison.json")["rows"]) == 2
    with pytest.raises(ValueError, match=r"two holds something other than a comparison: choose another folder"):
        compare([one], out=two, length=8, **FAST)


def test_models_without_a_task_are_compared_by_size_and_speed(tiny_tokenizer, tmp_path):
    small = model_folder_of(tmp_path / "small", tiny_tokenizer, "bert")
    large = model_folder_of(tmp_path / "large", tiny_tokenizer, "albert", num_layers=3, embedding_width=16)
    out = tmp_path / "out"
    found = compare([large, small], length=8, out=out, **FAST)
    assert not any("score" in row or "kept" in row for row in found["rows"])
    assert found["rows"][0]["flops"] > 2 * found["rows"][1]["flops"]
    assert "Inputs per second" in write_report(out).read_text(encoding="utf-8")
    assert [name for name, _ in describe(out)["lines"][1:]] == [str(large), str(small)]


@pytest.mark.pictures
def test_there_is_a_picture_without_asking(tiny_tokenizer, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    models = [str(model_folder_of(tmp_path / name, tiny_tokenizer, "bert")) for name in ("one", "two")]
    result = CliRunner().invoke(app, ["compare", *models, "--rounds", "2", "--length", "8", "--batch-size", "2"])
    assert result.exit_code == 0, (result.output, result.exception)
    assert (tmp_path / "comparison" / "comparison.png").stat().st_size > 5000


def test_what_cannot_stand_side_by_side_is_refused_with_the_fix(learned, tiny_tokenizer, tmp_path):
    bare = model_folder_of(tmp_path / "bare", tiny_tokenizer, "bert")
    tagger = model_folder_of(tmp_path / "tagger", tiny_tokenizer, "bert", HeadConfig("tokens", 2, ("O", "B-X")))
    with pytest.raises(ValueError, match=r"no task head.*leave out data"):
        compare([learned.run, bare], data=learned.data, **FAST)
    with pytest.raises(ValueError, match=r"classification and .* for tagging.*models of one task"):
        compare([learned.run, tagger], **FAST)
    with pytest.raises(ValueError, match="takes at most 24 tokens, not 128: set length to 24 or less"):
        compare([learned.run], **FAST)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        compare([learned.run], **FAST | {"batch_size": 0})
    with pytest.raises(ValueError, match="nothing to compare"):
        compare([], **FAST)


def test_a_row_without_a_score_is_reported(learned, tiny_tokenizer, tmp_path):
    head_config = HeadConfig("sequence", 2, ("dark", "light"))
    other = model_folder_of(tmp_path / "other", tiny_tokenizer, "bert", head_config)
    found = compare([learned.run, other], length=8, **FAST)
    assert "score" not in found["rows"][1] and "kept" not in found["rows"][1]
    assert any(str(other) in note and "data=" in note for note in found["notes"])


@pytest.mark.parametrize("scored_now", [False, True])
def test_a_degenerate_run_is_reported(learned, tmp_path, scored_now):
    idle = tmp_path / "idle"
    shutil.copytree(learned.run, idle)
    scores = read_json(idle / "scores.json")
    write_json(idle / "scores.json", scores | {"degenerate": "it answers 'dark' whatever the text"})
    found = compare([learned.run, idle], length=8, data=learned.data if scored_now else None, **FAST)
    assert [each for each in found["notes"] if "answers" in each] == [f"{idle}: it answers 'dark' whatever the text"]


def test_rounds_go_time_interleaved_and_the_beginner_moves_on():
    asked: list[tuple[str, int]] = []
    answers = [lambda i, name=name: asked.append((name, i)) for name in "abc"]
    times = time_interleaved(answers, 3, num_warm_up=1)
    counted = asked[3:]
    assert [name for name, _ in counted] == [*"abc", *"bca", *"cab"]
    assert [i for _, i in counted] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert [len(each) for each in times] == [3, 3, 3]
