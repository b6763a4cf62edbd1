"""`hornbook.evaluate_retrieval`: how well a model finds the relevant documents of a data set in BEIR's layout.

corpus.jsonl      {"_id": "d1", "title": "...", "text": "..."}
queries.jsonl     {"_id": "q1", "text": "..."}
qrels/test.tsv    query-id, corpus-id, score
"""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.inference.load import load
from hornbook.inference.loaded_model import LoadedModel
from hornbook.inference.retrieval.searching import TopRows, top_rows
from hornbook.metrics.confidence_intervals import intervals
from hornbook.metrics.retrieval import ndcg, recall, reciprocal_rank
from hornbook.tasks.encoded import mean_scorer
from hornbook.tasks.reading.cells import is_number

NUM_RESULTS = 100  # results per query
DOCUMENTS_AT_ONCE = 4_096  # embedded and compared together
METRICS: dict[str, Callable[[list[str], Mapping[str, float]], float]] = {
    "ndcg@10": lambda ranked, relevant: ndcg(ranked, relevant, 10),
    "mrr@10": lambda ranked, relevant: reciprocal_rank(ranked, relevant, 10),
    "recall@10": lambda ranked, relevant: recall(ranked, relevant, 10),
    "recall@100": lambda ranked, relevant: recall(ranked, relevant, 100),
}


@dataclass(frozen=True)
class RetrievalData:
    """`documents` and `queries`: text by id; `relevant`: for each query the gain of relevant documents by id."""

    documents: dict[str, str]
    queries: dict[str, str]
    relevant: dict[str, dict[str, float]]
    num_unknown: int = 0  # judgements of documents that are not in the corpus


def read_retrieval(folder: str | Path, split: str = "test") -> RetrievalData:
    """The data set in a folder of BEIR's layout."""
    folder = Path(folder)
    qrels = folder / "qrels" / f"{split}.tsv"
    for file in (folder / "corpus.jsonl", folder / "queries.jsonl", qrels):
        if not file.is_file():
            raise ValueError(f"{file} is missing: give a folder with corpus.jsonl, queries.jsonl and qrels/{split}.tsv")
    documents = {key: f"{row.get('title') or ''} {row['text']}".strip() for key, row in _rows(folder / "corpus.jsonl")}
    queries = {key: str(row["text"]) for key, row in _rows(folder / "queries.jsonl")}
    if empty := next((key for key, text in queries.items() if not text.strip()), None):
        raise ValueError(f"{folder / 'queries.jsonl'}: query '{empty}' is empty; give it a text or remove it")
    relevant, num_unknown = _judgements(qrels, documents, queries)
    return RetrievalData(documents, {key: queries[key] for key in relevant}, relevant, num_unknown)


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    seen: set[str] = set()
    with open(file, encoding="utf-8") as lines:
        for line_number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                key, _ = str(row["_id"]), row["text"]
            except (ValueError, TypeError, LookupError):
                raise ValueError(
                    f'{file} line {line_number} is not an object such as {{"_id": "1", "text": "..."}}: '
                    "correct the line"
                ) from None
            if key in seen:
                raise ValueError(f"{file} line {line_number}: the id '{key}' occurs twice; remove one of the lines")
            seen.add(key)
            yield key, row


def _judgements(
    file: Path, documents: Mapping[str, str], queries: Mapping[str, str]
) -> tuple[dict[str, dict[str, float]], int]:
    relevant: dict[str, dict[str, float]] = {}
    num_unknown = 0
    with open(file, encoding="utf-8", newline="") as lines:
        for line_number, row in enumerate(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE), 1):
            if line_number == 1 and row and not is_number(row[-1]):
                continue  # the header
            if len(row) != 3 or not is_number(row[2]):
                raise ValueError(f"{file} line {line_number} is not query-id, corpus-id and score, separated by tabs")
            if row[0] not in queries:
                raise ValueError(
                    f"{file} line {line_number}: there is no query '{row[0]}' in queries.jsonl; add it there"
                )
            num_unknown += row[1] not in documents
            if float(row[2]) > 0:
                relevant.setdefault(row[0], {})[row[1]] = float(row[2])
    if not relevant:
        raise ValueError(f"{file} has no relevant documents: every score is 0, or the file is empty")
    return relevant, num_unknown


def evaluate_retrieval(
    model: str | Path | LoadedModel,
    data: str | Path | RetrievalData,
    split: str = "test",
    device: str = "auto",
    on_progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Scores a model on a retrieval data set in BEIR's layout, by exact search over all documents.

    Args:
        model: A model folder, a Hugging Face name or a loaded model.
        data: The folder of the data set.
        split: The judgements to use, `qrels/SPLIT.tsv`.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.
        on_progress: Called with (documents embedded, number of documents).

    Returns:
        A dictionary: `scores` (value, low and high by metric: nDCG@10, MRR@10, recall@10 and recall@100), the numbers
        of `documents` and `queries`, and `wrong`: for each query whose first result is not relevant, that result and
        the nearest relevant document, those that are farthest behind first.

    >>> import hornbook
    >>> result = hornbook.evaluate_retrieval("runs/first", "beir")
    >>> result["queries"], 0 <= result["scores"]["ndcg@10"]["value"] <= 1
    (1, True)
    """
    dataset = data if isinstance(data, RetrievalData) else read_retrieval(data, split)
    loaded = model if isinstance(model, LoadedModel) else load(model, device=device)
    scores_QK, rows_QK, ids = _search(loaded, dataset, on_progress)
    ranked = {}
    for query, *each in zip(dataset.queries, rows_QK, scores_QK, strict=True):
        results = [(ids[row], float(score)) for row, score in zip(*each, strict=True)]
        # Queries that are documents do not find themselves; where ids are just numbers, the two are different texts.
        left_out = {query} - dataset.relevant[query].keys()
        ranked[query] = [result for result in results if result[0] not in left_out][:NUM_RESULTS]
    return {
        "scores": scores_of(
            {query: [key for key, _ in results] for query, results in ranked.items()}, dataset.relevant
        ),
        "documents": len(ids),
        "queries": len(ranked),
        "unknown_documents": dataset.num_unknown,
        "embedding": loaded.embedding.description,
        "wrong": _nearest_wrong(dataset, ranked),
    }


def scores_of(
    ranked: Mapping[str, list[str]], relevant: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """The mean of each metric over the queries, with a 95% interval. `ranked`: ids of documents, best first, by query;
    `relevant`: gain by id, by query."""
    values = {
        name: np.array([metric(results, relevant[query]) for query, results in ranked.items()])
        for name, metric in METRICS.items()
    }
    score = mean_scorer(values)
    bounds = intervals(score, len(ranked))
    return {name: {"value": value, "low": bounds[name][0], "high": bounds[name][1]} for name, value in score().items()}


def _search(
    model: LoadedModel, data: RetrievalData, on_progress: Callable[[int, int], None] | None
) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Scores and rows of the nearest documents of each query, one more than `NUM_RESULTS`, and the ids of the rows.
    Only the vectors of one block of documents are in memory."""
    queries_QD = model.embed_for_similarity(list(data.queries.values()), "query")
    ids, texts = list(data.documents), list(data.documents.values())
    top = TopRows(len(queries_QD), NUM_RESULTS + 1)
    for first in range(0, len(ids), DOCUMENTS_AT_ONCE):
        block = texts[first : first + DOCUMENTS_AT_ONCE]
        report = on_progress and (lambda done, first=first: on_progress(first + done, len(ids)))
        vectors_BD = model.embed_for_similarity(block, "document", report)
        scores_QK, rows_QK = top_rows(queries_QD, vectors_BD, None, NUM_RESULTS + 1)
        top.add(scores_QK, rows_QK + first)
    return top.scores, top.rows, ids


def _nearest_wrong(data: RetrievalData, ranked: Mapping[str, list[tuple[str, float]]]) -> list[dict[str, Any]]:
    """The queries whose first result is not relevant, those whose nearest relevant document is farthest behind first;
    one that is not among the results at all comes before others."""
    rows = []
    for query, results in ranked.items():
        relevant = data.relevant[query]
        if not results or results[0][0] in relevant:
            continue
        wrong, similarity = results[0]
        rank, right = next(((n, each) for n, each in enumerate(results, 1) if each[0] in relevant), (None, None))
        key = right[0] if right else next(iter(relevant))
        row = {"query": query, "text": data.queries[query], "wrong": wrong, "wrong_text": data.documents[wrong]}
        row |= {"wrong_similarity": similarity, "right": key, "right_text": data.documents.get(key)}
        rows.append(row | {"right_similarity": right[1] if right else None, "right_rank": rank})

    def margin(row: dict[str, Any]) -> float:
        return -np.inf if row["right_similarity"] is None else row["right_similarity"] - row["wrong_similarity"]

    return sorted(rows, key=margin)
