"""Speed of a knowledge graph: building, path queries per second, linked sentences per second.

    python benchmarks/graph_speed.py --source assertions.tsv --texts sentences.txt

Path queries are pairs of entities drawn in proportion to their edges, so hubs are as frequent as in the graph, and
(with --pairs, a .tsv of two names) pairs of a task. They are answered in batches of 10,000, at most 2 hops, 20 paths.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from hornbook.data.readers import read_documents
from hornbook.graph.build import build_graph
from hornbook.graph.graph import Graph
from hornbook.text.sentences import split_sentences

NUM_QUERIES = 10_000
REPEATS = 5
NUM_SENTENCES = 20_000


def query_rate(graph: Graph, pairs_Q2: np.ndarray) -> dict:
    seconds = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        found = graph.paths_batch(pairs_Q2[:, 0], pairs_Q2[:, 1])
        seconds.append(time.perf_counter() - began)
    per_query = len(found.num_hops_K) / len(pairs_Q2)
    return {
        "queries_per_second": round(len(pairs_Q2) / float(np.median(seconds))),
        "paths_per_query": round(per_query, 2),
    }


def pairs_in(file: Path, graph: Graph) -> np.ndarray:
    lines = (line.split("\t")[:2] for line in file.read_text(encoding="utf-8").splitlines())
    found = [[graph.candidates(name) for name in line] for line in lines]
    known = np.array([[head[0], tail[0]] for head, tail in found if head and tail])
    return np.tile(known, (NUM_QUERIES // len(known) + 1, 1))[:NUM_QUERIES]


def linking_rate(graph: Graph, texts: Path) -> dict:
    sentences: list[str] = []
    for document in read_documents(texts):
        sentences += [each.strip() for each in split_sentences(document.text) if each.strip()]
        if len(sentences) >= NUM_SENTENCES:
            break
    began = time.perf_counter()
    linker = graph.linker
    ready = time.perf_counter() - began
    num_mentions, began = 0, time.perf_counter()
    for start in range(0, len(sentences), 1000):
        num_mentions += sum(len(each.mentions) for each in linker.link(sentences[start : start + 1000]))
    seconds = time.perf_counter() - began
    return {
        "seconds_to_read_names": round(ready, 2),
        "sentences": len(sentences),
        "characters_per_sentence": round(sum(map(len, sentences)) / len(sentences), 1),
        "mentions_per_sentence": round(num_mentions / len(sentences), 2),
        "sentences_per_second": round(len(sentences) / seconds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, nargs="+")
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--pairs", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        manifest = build_graph(options.source, Path(folder) / "graph")
        began = time.perf_counter()
        graph = Graph(Path(folder) / "graph")
        result = {"totals": manifest["totals"], "build_seconds": manifest["seconds"]}
        result["open_seconds"] = round(time.perf_counter() - began, 3)
        ends = np.concatenate([graph.heads, graph.tails])
        drawn = np.random.default_rng(0).choice(ends, (NUM_QUERIES, 2))
        result["random pairs"] = query_rate(graph, drawn)
        if options.pairs:
            result["pairs of a task"] = query_rate(graph, pairs_in(options.pairs, graph))
        if options.texts:
            result["linking"] = linking_rate(graph, options.texts)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
