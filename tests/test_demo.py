"""The demo's text and its steps, in a few seconds."""

import json

import pytest

from hornbook import demo


@pytest.fixture(scope="module")
def built_in() -> list[str]:
    return list(demo.built_in_documents())


def test_python_carries_enough_text(built_in):
    documents = [text for text in built_in if len(text) >= demo.SHORTEST_DOCUMENT]
    assert len(documents) > 100 and sum(map(len, documents)) > 500_000
    assert not any(line.startswith("+---") for text in documents for line in text.splitlines())


@pytest.mark.pictures
def test_the_demo_runs(tmp_path, monkeypatch, capsys, built_in):
    monkeypatch.setattr(demo, "built_in_documents", lambda: iter(built_in[:40]))
    small = ("model.num_layers=1", "model.width=32", "model.num_heads=1", "model.inner_width=64", "runtime.threads=1")
    monkeypatch.setattr(demo, "SETTINGS", (*demo.SETTINGS, *small))
    demo.main(str(tmp_path / "demo"), "0.02")
    said = capsys.readouterr()
    assert "$ hornbook pretrain bert-tiny" in said.err and "by word frequency" in said.out
    run = tmp_path / "demo" / "run"
    assert (run / "report.html").exists() and json.loads((run / "samples.json").read_text())
    demo.main(str(tmp_path / "demo"), "0.02")
    assert "remove it" in capsys.readouterr().err
