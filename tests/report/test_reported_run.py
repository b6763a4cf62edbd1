import json
import math
import shutil
import subprocess
import sys

import pytest
from synthetic_runs import train_lines, validation_lines, write_run

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.report.run_files import ReportedRun, ReportedStage


def test_a_run_is_read_whole(make_run):
    folder = make_run(train_lines(3000) + validation_lines(3000), state={"step": 3000, "tokens": 24_576_000})
    run = ReportedRun.load(folder)
    assert run.is_finished and run.status == "finished after 3,000 steps"
    assert run.terms == ["mlm", "nsp"]
    assert run.best_validation["step"] == 3000
    assert run.tokens_per_second == pytest.approx(21_000)
    assert [round(corpus["epochs"], 3) for corpus in run.corpora] == [0.64, 0.878]


def test_a_cut_last_line_is_passed_over(make_run):
    folder = make_run(train_lines(30))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "step": 40, "lo')
    assert [line["step"] for line in read_metrics(folder)] == [10, 20, 30]


def test_progress_is_that_of_the_newest_checkpoint(make_run):
    run = ReportedRun.load(make_run(steps=300, state={"step": 7, "tokens": 700, "seconds": 3.5}))
    assert (run.step, run.tokens, run.tokens_per_second) == (7, 700, 200)
    assert run.status == "not finished: step 7 of 300"


def test_a_run_that_ended_early_is_finished(make_run):
    event = {"kind": "event", "step": 70, "event": "ended_early", "message": "no improvement in 2 validations"}
    folder = make_run([*train_lines(70), event], steps=300, state={"step": 70, "ended_early": True})
    info = describe(folder)
    assert info["finished"] and info["state"] == "ended early, after 70 of 300 steps" and info["resume"] is None
    assert "--resume" not in write_report(folder).read_text(encoding="utf-8")
    shutil.rmtree(folder / "checkpoints")
    assert ReportedRun.load(folder).is_finished


def test_an_earlier_stage_that_ended_early_is_finished(tmp_path):
    folder = write_run(tmp_path / "1", steps=300, state={"step": 70, "seconds": 9.0, "ended_early": True})
    stage = ReportedStage(1, 2, ("hidden",), ReportedRun.load(folder))
    assert stage.took == "70 steps at learning rate 0.0005, 9.0 s"


def test_the_command_to_resume_names_everything(make_run):
    folder = make_run(name="my run")
    command = ReportedRun.load(folder).resume_command
    assert "bert-mini --corpus /data/books --corpus /data/news:3 --out" in command
    assert f"'{folder}' --resume" in command


def test_not_a_number_is_never_the_best(make_run):
    bad = {"kind": "validation", "step": 50, "loss": math.nan, "mlm": math.nan, "best": False}
    run = ReportedRun.load(make_run([*validation_lines(3000), bad]))
    assert run.best_validation["step"] == 3000


def test_what_is_no_run_is_refused_in_one_sentence(make_run, tmp_path):
    with pytest.raises(ValueError, match=r"is not a run: it has no run\.json"):
        ReportedRun.load(tmp_path / "nowhere")
    folder = make_run()
    (folder / "run.json").write_text(json.dumps({"name": "another tool"}))
    with pytest.raises(ValueError, match="was not written by hornbook"):
        ReportedRun.load(folder)
    (folder / "run.json").write_text('{"settings": ')
    with pytest.raises(ValueError, match=r"run\.json is not valid JSON"):
        ReportedRun.load(folder)


def test_reports_need_no_torch():
    code = "import sys, hornbook.report.page, hornbook.report.info; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_counts_of_a_term_are_not_losses(tmp_path):
    """Validation of replaced tokens also counts how many there were and how many were found."""
    train = {"kind": "train", "step": 1, "loss": 30.0, "mlm": 7.0, "rtd": 0.4, "lr": 1e-4, "grad_norm": 1.0}
    found = {"mlm_accuracy": 0.1, "rtd_accuracy": 0.9, "rtd_replaced": 0.1, "rtd_found": 0.02}
    validation = {"kind": "validation", "step": 1, "loss": 29.0, "mlm": 7.0, "rtd": 0.4, "best": True} | found
    assert ReportedRun(tmp_path, {}, [train, validation]).terms == ["mlm", "rtd"]
