"""Start and end probabilities of answers, in the terminal and in the report."""

import numpy as np
import pytest
from finetuned import asked_questions, encoder, finetuned

from hornbook.files import read_json
from hornbook.inference.predictor import load_predictor
from hornbook.report.finetuned import ReportedTaskRun
from hornbook.show.answers import show_answer


@pytest.fixture(scope="module")
def answering(tmp_path_factory, tiny_tokenizer):
    root = tmp_path_factory.mktemp("answering")
    return finetuned(root / "run", encoder(root / "encoder", tiny_tokenizer), "spans-or-none", asked_questions(60))


def test_the_report_shows_the_probabilities_of_show_answer(answering):
    found = read_json(answering / "illustrations.json")["examples"]
    gold = {row["id"]: row for row in asked_questions(60)}
    assert 2 <= len(found) <= 5 and {bool(each["gold"]) for each in found} == {True, False}
    predictor = load_predictor(answering)
    for each in found:
        row = gold[each["key"]]
        assert each["passage"] == row["passage"] and each["gold"] == ([row["answer"]] if row["answer"] else [])
        picture = show_answer(predictor, each["question"], each["passage"])
        shown = [tuple(float(cell.rstrip("%")) for cell in cells[1:]) for cells in picture.tables[0].rows]
        assert [token[2:] for token in each["tokens"]] == [
            pytest.approx(np.array(its) / 100, abs=6e-4) for its in shown
        ]
        marked = [cell.text for cell in picture.token_rows[0].cells if cell.mark == "answer"]
        assert marked == each["answer"].split()


def test_the_curve_of_the_report_has_the_scores_of_the_run(answering):
    run = ReportedTaskRun.load(answering)
    points = run.task_kind.by_threshold(run.predictions, run.task["rules"])
    _, exact, f1 = max(point for point in points if point[0] <= run.task["threshold"])
    assert {"exact": exact, "f1": f1} == pytest.approx(
        {name: run.splits["dev"][name]["value"] for name in ("exact", "f1")}
    )


def test_answers(answering):
    predictor = load_predictor(answering)
    picture = show_answer(predictor, "the garden", "the river and a bridge")
    answer = predictor.predict([("the garden", "the river and a bridge")])[0]
    marked = [cell.text for cell in picture.token_rows[0].cells if cell.mark == "answer"]
    assert marked == answer.answer.split() and len(picture.tables[0].rows) == 5
    assert all(0 <= float(cell.rstrip("%")) <= 100 for row in picture.tables[0].rows for cell in row[1:])
    assert len(picture.notes) == 2
    with pytest.raises(ValueError, match="the passage is longer"):
        show_answer(predictor, "the garden", "the river " * 50)


def test_an_ensemble_is_refused(answering):
    with pytest.raises(ValueError, match="give one of its models"):
        show_answer(load_predictor([answering, answering]), "the garden", "the river and a bridge")
