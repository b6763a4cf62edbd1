"""The kind of task that docs/architecture.md adds as an example: every part of Hornbook knows it."""

import re
from pathlib import Path

import pytest
from finetuned import encoder, finetuned, words

from hornbook.evaluation.baselines.baseline import baseline
from hornbook.inference.predictor import load_predictor
from hornbook.report.finetuned import ReportedTaskRun
from hornbook.report.info import describe
from hornbook.report.page import write_report
from hornbook.tasks.datasets import KNOWN
from hornbook.tasks.kinds import KINDS

PAGE = Path(__file__).parent.parent / "docs" / "architecture.md"


@pytest.fixture
def rating():
    section = PAGE.read_text(encoding="utf-8").partition("### How to add a task kind")[2].partition("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
    assert len(code.splitlines()) < 100
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example"})
    yield KINDS["rating"]
    del KINDS["rating"], KNOWN["rating"]


def test_the_example_kind(tmp_path, tiny_tokenizer, rating):
    import random

    draw = random.Random(0)
    rows = [{"text": words(draw, number % 5 + 1), "label": number % 5 + 1} for number in range(60)]
    run = finetuned(tmp_path / "run", encoder(tmp_path / "encoder", tiny_tokenizer), "rating", rows)
    predictor = load_predictor(run, "cpu")
    assert isinstance(predictor.task, rating) and all(each.is_integer() for each in predictor.predict(["a", "b c"]))
    assert set(predictor.evaluate(rows)["splits"]["dev"]) == {"accuracy", "mean_absolute_error"}
    opened = ReportedTaskRun.load(run)
    assert opened.kind_description == "a whole number of stars per text" and rating.confusion(opened.judged) is not None
    assert "whole number of stars" in write_report(run).read_text(encoding="utf-8")
    accuracy, error = dict(describe(run)["lines"])["dev scores"].split("; ")
    assert re.match(r"accuracy \d+\.\d% \(", accuracy) and re.match(r"mean absolute error \d\.\d{3} \(", error)
    for name in ("majority", "tfidf"):
        assert 0 <= baseline(name, rows, "rating", tmp_path / name).score <= 1
