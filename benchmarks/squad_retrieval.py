"""Retrieval of SQuAD's paragraphs by its questions: writes a data set in BEIR's layout and scores methods on it.

    python benchmarks/squad_retrieval.py squad/dev-v1.1.json squad-retrieval --every 5
    hornbook evaluate-retrieval MODEL --data squad-retrieval
    python benchmarks/squad_retrieval.py squad/dev-v1.1.json squad-retrieval --every 5 --baselines --vectors glove.txt
    python benchmarks/squad_retrieval.py squad/dev-v1.1.json squad-retrieval --every 5 --check MODEL

--baselines scores BM25, TF-IDF and averaged word vectors. --check prints a model's scores by sentence-transformers'
InformationRetrievalEvaluator, which should be those of evaluate-retrieval.
"""

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sts_scores import averaged

from hornbook.inference.retrieval.evaluation import NUM_RESULTS, RetrievalData, read_retrieval, scores_of

WORD = r"(?u)\b\w+\b"  # scikit-learn's own pattern leaves out words of one letter


def write(squad: Path, folder: Path, every: int) -> None:
    """Each paragraph is a document with its article's title; every n-th question is a query."""
    articles = json.loads(squad.read_text(encoding="utf-8"))["data"]
    corpus, questions = [], []
    for article in articles:
        for paragraph in article["paragraphs"]:
            key = f"p{len(corpus)}"
            title = article["title"].replace("_", " ")
            corpus.append({"_id": key, "title": title, "text": paragraph["context"]})
            questions += [({"_id": each["id"], "text": each["question"].strip()}, key) for each in paragraph["qas"]]
    chosen = questions[::every]
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, rows in (("corpus", corpus), ("queries", [query for query, _ in chosen])):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    judgements = "".join(f"{query['_id']}\t{key}\t1\n" for query, key in chosen)
    (folder / "qrels" / "test.tsv").write_text(f"query-id\tcorpus-id\tscore\n{judgements}", encoding="utf-8")


def bm25(documents: list[str], queries: list[str], k1: float = 1.2, b: float = 0.75) -> np.ndarray:
    """Queries x documents, as Lucene computes it."""
    words = CountVectorizer(token_pattern=WORD)
    counts = words.fit_transform(documents).tocoo()
    lengths = np.bincount(counts.row, counts.data, len(documents))
    frequency = np.bincount(counts.col, minlength=counts.shape[1])
    rarity = np.log1p((len(documents) - frequency + 0.5) / (frequency + 0.5))
    saturation = k1 * (1 - b + b * lengths / lengths.mean())
    weights = rarity[counts.col] * counts.data / (counts.data + saturation[counts.row])
    weighted = csr_matrix((weights, (counts.row, counts.col)), counts.shape)
    return (words.transform(queries) @ weighted.T).toarray()


def tfidf(documents: list[str], queries: list[str]) -> np.ndarray:
    words = TfidfVectorizer(sublinear_tf=True, token_pattern=WORD)
    weighted = words.fit_transform(documents)
    return (words.transform(queries) @ weighted.T).toarray()


def word_vectors(documents: list[str], queries: list[str], file: Path) -> np.ndarray:
    vectors = averaged(documents + queries, file)
    return vectors[len(documents) :] @ vectors[: len(documents)].T


def baseline_scores(data: RetrievalData, method: Callable[[list[str], list[str]], np.ndarray]) -> dict:
    similarities_QN = method(list(data.documents.values()), list(data.queries.values()))
    ids = list(data.documents)
    best_QK = np.argsort(-similarities_QN, axis=1, kind="stable")[:, :NUM_RESULTS]
    ranked = {query: [ids[row] for row in rows] for query, rows in zip(data.queries, best_QK, strict=True)}
    return scores_of(ranked, data.relevant)


def their_scores(data: RetrievalData, model: str) -> dict[str, float]:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import InformationRetrievalEvaluator

    relevant = {query: set(gains) for query, gains in data.relevant.items()}
    evaluator = InformationRetrievalEvaluator(
        data.queries,
        data.documents,
        relevant,
        mrr_at_k=[10],
        ndcg_at_k=[10],
        accuracy_at_k=[10],
        precision_recall_at_k=[10, 100],
        map_at_k=[100],
        write_csv=False,
    )
    found = evaluator(SentenceTransformer(model, device="cpu"))
    return {
        name: next(value for key, value in found.items() if key.endswith(f"cosine_{name}"))
        for name in ("ndcg@10", "mrr@10", "recall@10", "recall@100")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("squad", type=Path, help="dev-v1.1.json")
    parser.add_argument("folder", type=Path, help="the data set to write")
    parser.add_argument("--every", type=int, default=1, help="take every n-th question")
    parser.add_argument("--baselines", action="store_true")
    parser.add_argument("--vectors", type=Path, help="word vectors as text, such as GloVe's")
    parser.add_argument("--check", metavar="MODEL", help="a model folder, or a Hugging Face name")
    given = parser.parse_args()
    write(given.squad, given.folder, given.every)
    data = read_retrieval(given.folder)
    print(f"{given.folder}: {len(data.documents):,} documents, {len(data.queries):,} queries")
    methods = {"BM25": bm25, "TF-IDF": tfidf} if given.baselines else {}
    if given.vectors:
        methods["averaged word vectors"] = partial(word_vectors, file=given.vectors)
    for name, method in methods.items():
        found = baseline_scores(data, method)
        shown = [f"{name} {its['value']:.4f} ({its['low']:.3f} to {its['high']:.3f})" for name, its in found.items()]
        print(f"{name}: {', '.join(shown)}")
    if given.check:
        shown = [f"{name} {value:.6f}" for name, value in their_scores(data, given.check).items()]
        print(f"sentence-transformers: {', '.join(shown)}")


if __name__ == "__main__":
    main()
