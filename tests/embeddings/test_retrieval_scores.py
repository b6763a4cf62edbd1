"""Scores of retrieval by hand, and a folder in BEIR's layout."""

from pathlib import Path

import numpy as np
import pytest
from finetuned import encoder
from retrieval_folder import DOCUMENTS, write_beir
from sklearn.metrics import ndcg_score

import hornbook
from hornbook.inference.retrieval import evaluation
from hornbook.metrics.retrieval import ndcg, recall, reciprocal_rank


def test_ndcg_is_that_of_scikit_learn(random):
    for _ in range(20):
        gains, order = random.integers(0, 4, 30), random.permutation(30)
        ranked = [str(i) for i in order]
        expected = ndcg_score([gains], [[-list(order).index(i) for i in range(30)]], k=10)
        assert ndcg(ranked, {str(i): float(gain) for i, gain in enumerate(gains)}) == pytest.approx(expected)


def test_ranks_and_recall_by_hand():
    ranked, relevant = ["a", "b", "c", "d"], {"b": 1.0, "d": 2.0, "x": 1.0}
    assert reciprocal_rank(ranked, relevant) == 0.5 and reciprocal_rank(ranked, relevant, 1) == 0
    assert recall(ranked, relevant, 2) == pytest.approx(1 / 3) and recall(ranked, relevant, 10) == pytest.approx(2 / 3)


@pytest.fixture
def model(tmp_path, tiny_tokenizer) -> Path:
    return encoder(tmp_path / "model", tiny_tokenizer)


def test_evaluate_retrieval(hornbook, model, tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "DOCUMENTS_AT_ONCE", 3)  # several blocks
    queries = {"q1": "the river and the bridge", "q2": "silver bread", "4": "the harbour", "unjudged": "a"}
    judged = [("q1", "1", 1), ("q2", "3", 1), ("q2", "2", 0), ("4", "1", 2), ("q1", "gone", 1)]
    data = write_beir(tmp_path / "data", DOCUMENTS, queries, judged)
    said = hornbook("evaluate-retrieval", model, "--data", data, "--json")
    found = said.answer
    assert (found["queries"], found["documents"], found["unknown_documents"]) == (3, 4, 1)
    assert found["scores"].keys() == {"ndcg@10", "mrr@10", "recall@10", "recall@100"}
    assert found["scores"]["recall@100"]["value"] == pytest.approx((0.5 + 1 + 1) / 3)
    wrong = {each["query"]: each for each in found["wrong"]}
    assert "q1" not in wrong and wrong["q2"]["wrong"] == "2" and wrong["q2"]["right"] == "3"
    assert all(each["wrong"] != "4" for each in found["wrong"])  # a document with the id of the query is left out
    assert "nearest wrong results" in hornbook("evaluate-retrieval", model, "--data", data).stdout


def test_the_best_order_is_found(model, tmp_path):
    """Each document is the answer to itself."""
    queries, judged = {f"q{k}": text for k, text in DOCUMENTS.items()}, [(f"q{k}", k, 1) for k in DOCUMENTS]
    data = write_beir(tmp_path / "data", DOCUMENTS, queries, judged)
    found = hornbook.evaluate_retrieval(model, data)
    assert {name: each["value"] for name, each in found["scores"].items()} == dict.fromkeys(evaluation.METRICS, 1.0)
    assert found["wrong"] == [] and np.isclose(found["scores"]["ndcg@10"]["low"], 1)
    data = write_beir(tmp_path / "numbered alike", DOCUMENTS, DOCUMENTS, [(k, k, 1) for k in DOCUMENTS])
    assert hornbook.evaluate_retrieval(model, data)["scores"] == found["scores"]


def test_ids_with_quotation_marks(tmp_path):
    queries, judged = {'"q': "the river", "p": "bread"}, [('"q', "1", 1), ("p", "2", 1)]
    data = write_beir(tmp_path / "data", DOCUMENTS, queries, judged)
    assert evaluation.read_retrieval(data).queries == queries


def test_bad_folders(hornbook, model, tmp_path):
    data = write_beir(tmp_path / "data", DOCUMENTS, {"q": "a"}, [("q", "1", 1)])
    for file, content, message in (
        ("qrels/test.tsv", "q\t1\n", "line 1 is not query-id, corpus-id and score"),
        ("qrels/test.tsv", "q\t1\tnan\nq\t1\tnan\n", "line 2 is not query-id, corpus-id and score"),
        ("qrels/test.tsv", "x\t1\t1\n", "there is no query 'x' in queries.jsonl"),
        ("qrels/test.tsv", "q\t1\t0\n", "has no relevant documents"),
        ("queries.jsonl", '{"_id": "q", "text": " "}\n', "query 'q' is empty"),
        ("corpus.jsonl", '{"_id": "1", "text": "a"}\n{"_id": "1", "text": "b"}\n', "the id '1' occurs twice"),
        ("corpus.jsonl", "{}\n", "line 1 is not an object such as"),
    ):
        before = (data / file).read_text()
        (data / file).write_text(content)
        said = hornbook("evaluate-retrieval", model, "--data", data)
        assert said.status == 2 and message in said.error, said
        (data / file).write_text(before)
    assert "qrels/dev.tsv is missing" in hornbook("evaluate-retrieval", model, "--data", data, "--split", "dev").error
