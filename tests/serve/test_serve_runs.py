"""The runs that the page of the server shows, as they train."""

import json
import shutil

import pytest
from fastapi.testclient import TestClient

from hornbook.lifecycle import run_folder as run_folder_files
from hornbook.lifecycle.locking import run_lock
from hornbook.report.run_list import find_runs
from hornbook.serve import run_curves
from hornbook.serve.api import ServeSettings
from hornbook.serve.models import open_models
from hornbook.serve.run_curves import list_runs
from hornbook.serve.server import build_app


def test_runs_and_their_curves(folders, tmp_path):
    run = tmp_path / "runs" / "first"
    run.mkdir(parents=True)
    for name in ("run.json", "config.json", "metrics.jsonl"):
        (run / name).write_bytes((folders["first"] / name).read_bytes())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    expected = {
        kind: [[row["step"], row["loss"]] for row in lines if row["kind"] == kind] for kind in ("train", "validation")
    }
    models = open_models([str(folders["first"])])
    with TestClient(build_app(models, ServeSettings(runs=tmp_path / "runs"))) as client:
        (found,) = client.get("/runs").json()["runs"]
        assert found["name"] == "first" and found["num_steps"] == 3 and client.get("/models").json()["has_runs"]
        for kind, points in expected.items():
            assert [point[:2] for point in found["curves"][kind]] == points
        with (run / "metrics.jsonl").open("a") as file:  # a run that goes on, in the middle of a line
            file.write('{"kind": "train", "step": 4, "loss": 1.5}\n{"kind": "train", "st')
        (found,) = client.get("/runs").json()["runs"]
        assert found["curves"]["train"][-1] == [4, 1.5, None]


def run_folder(folder, source, terms, task=None):
    """A folder with the record of the run `source` and a line of metrics with these loss terms."""
    folder.mkdir(parents=True)
    about = json.loads((source / "run.json").read_text(encoding="utf-8")) | ({"task": task} if task else {})
    (folder / "run.json").write_text(json.dumps(about), encoding="utf-8")
    (folder / "metrics.jsonl").write_text(json.dumps({"kind": "train", "step": 1, "loss": 2.0, **terms, "lr": 0.1}))


def test_runs_have_an_objective_and_samples(folders, tmp_path):
    run_folder(tmp_path / "bert", folders["first"], {"mlm": 1.5, "nsp": 0.5})
    run_folder(tmp_path / "task", folders["texts"], {"task": 2.0}, "rte")
    run_folder(tmp_path / "vectors", folders["first"], {"epoch": 1})
    samples = json.loads((folders["first"] / "samples.json").read_text(encoding="utf-8"))
    (tmp_path / "bert" / "samples.json").write_text(json.dumps(samples), encoding="utf-8")
    (tmp_path / "task" / "samples.json").write_text("damaged")
    found = {run["name"]: run for run in list_runs(tmp_path)}
    objectives = {name: run["objective"] for name, run in found.items()}
    assert objectives == {"bert": "mlm + nsp", "task": "rte", "vectors": "pretrain"}
    assert found["task"]["samples"] == [] and found["vectors"]["samples"] == []
    for ours, stored in zip(found["bert"]["samples"], samples, strict=True):
        assert "[MASK]".join(ours["parts"]) == stored["text"] and ours["answer"] == stored["answer"]
        assert ours["guesses"] == stored["guesses"]


def test_runs_that_did_not_change_are_not_read_again(folders, tmp_path, monkeypatch):
    for name in ("bert", "removed"):
        run_folder(tmp_path / name, folders["first"], {"mlm": 1.5})
    before = {run["name"]: run for run in list_runs(tmp_path)}
    found = find_runs(tmp_path)
    shutil.rmtree(tmp_path / "removed")
    monkeypatch.setattr(run_curves, "find_runs", lambda folder: found)  # it is removed after the folders were listed
    monkeypatch.setattr(run_folder_files, "read_json_lines", lambda file: pytest.fail(f"{file} is read again"))
    assert list_runs(tmp_path) == [before["bert"]] and before["bert"]["state"] == "stopped"
    with run_lock(tmp_path / "bert"):
        assert list_runs(tmp_path) == [before["bert"] | {"state": "running"}]


def test_runs_are_shown_only_if_asked(client):
    found = client.get("/runs")
    assert found.status_code == 404 and "--runs" in found.json()["error"]["message"]


def test_a_folder_of_runs_that_was_removed(folders, tmp_path):
    (tmp_path / "runs").mkdir()
    with TestClient(build_app(open_models([str(folders["first"])]), ServeSettings(runs=tmp_path / "runs"))) as client:
        assert client.get("/runs").json() == {"runs": []}
        (tmp_path / "runs").rmdir()
        found = client.get("/runs")
        assert found.status_code == 404 and "is not a folder" in found.json()["error"]["message"]
