"""The demo's text and its steps, in a few seconds."""

import json
from collections import Counter
from itertools import islice

import pytest

from hornbook import demo


def test_python_carries_enough_text():
    num_documents, num_characters = 0, 0
    for text in demo.built_in_documents():
        if len(text) >= demo.SHORTEST_DOCUMENT:
            num_documents, num_characters = num_documents + 1, num_characters + len(text)
            assert not any(line.startswith("+---") for line in text.splitlines())
        if num_documents > 100 and num_characters > 500_000:
            return
    raise AssertionError("the demo has too little text")


@pytest.mark.pictures
def test_the_demo_runs(tmp_path, monkeypatch, capsys):
    documents = list(islice(demo.built_in_documents(), 40))
    monkeypatch.setattr(demo, "built_in_documents", lambda: iter(documents))
    rows = demo.MESSAGES.read_text(encoding="utf-8").splitlines()
    (tmp_path / "few.csv").write_text("\n".join(rows[:17]), encoding="utf-8")
    monkeypatch.setattr(demo, "MESSAGES", tmp_path / "few.csv")
    monkeypatch.setattr("sys.argv", ["demo", str(tmp_path / "demo"), "0.02"])
    demo.main()
    said = capsys.readouterr()
    assert "$ hornbook pretrain bert-tiny" in said.err and "by word frequency" in said.out
    assert "The book was published in 1998." in said.out and "open [two] the public" in said.out
    assert "이 소설은 1998년에 [먹었다]." in said.out
    assert (tmp_path / "demo" / "messages" / "report.html").exists() and all(
        text in said.out for text in demo.NEW_MESSAGES
    )
    run = tmp_path / "demo" / "run"
    assert (run / "report.html").exists() and json.loads((run / "samples.json").read_text())


def test_the_messages_are_of_four_balanced_kinds():
    labels = [row.rpartition(",")[2] for row in demo.MESSAGES.read_text(encoding="utf-8").splitlines()[1:]]
    assert Counter(labels) == dict.fromkeys(("delivery", "payment", "technical", "praise"), 36)


def test_an_earlier_demo_is_kept(tmp_path, capsys, monkeypatch):
    (tmp_path / "demo" / "run").mkdir(parents=True)
    monkeypatch.setattr("sys.argv", ["demo", str(tmp_path / "demo"), "0.02"])
    demo.main()
    assert "remove it" in capsys.readouterr().err
