"""Time per query and recall@10 of search in an index: float32 beside int8, and approximate search beside both.

    nice python benchmarks/search_speed.py --rows 1000000 --width 384
    nice python benchmarks/search_speed.py --rows 200000 --clusters 2000 --approximate
    nice python benchmarks/search_speed.py --texts sentences.txt --model MODEL        # recall on real vectors

Random unit vectors are the hardest case for int8 and for approximate search: the scores of neighbours are closer
together than those of texts. With --clusters, vectors of one cluster have a cosine of about 0.64. All searches take
turns; CPU times, of all threads together, depend less on other jobs.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from hornbook.inference.retrieval import searching
from hornbook.inference.retrieval.index import Index, IndexSource, IndexWriter, Manifest
from hornbook.inference.retrieval.searching import ApproximateIndex, fastest_product, search_index
from hornbook.tasks.encoded import l2_normalized

NUM_QUERIES, TOP, BATCH, BLOCK, ROUNDS = 200, 10, 32, 50_000, 15
QUERY_SEED, CENTRE_SEED = 2**32 - 1, 2**32 - 2  # the blocks have 0, 1, ...
CLOSENESS = 0.8  # cosine of a clustered vector with its centre

Search = Callable[[np.ndarray, int], list[tuple[np.ndarray, np.ndarray]]]  # scores and rows of each query


def random_vectors(count: int, width: int, seed: int, clusters: int = 0) -> np.ndarray:
    """Unit vectors: of equal density everywhere, or around as many random centres."""
    draw = np.random.default_rng(seed)
    vectors = l2_normalized(draw.standard_normal((count, width), np.float32))
    if not clusters:
        return vectors
    centres = random_vectors(clusters, width, CENTRE_SEED)
    return l2_normalized(CLOSENESS * centres[draw.integers(clusters, size=count)] + (1 - CLOSENESS**2) ** 0.5 * vectors)


def embedded(texts: Path, model: str) -> np.ndarray:
    import hornbook

    lines = dict.fromkeys(line.strip() for line in texts.read_text(encoding="utf-8").splitlines())
    return hornbook.load(model).embed([line for line in lines if line], normalize=True)


def written(folder: Path, vectors: str, blocks: list[Callable[[], np.ndarray]], width: int) -> Index:
    """An index of the blocks, which are made one by one."""
    folder.mkdir()
    writer = IndexWriter(
        folder, Manifest("none", "", {}, "cosine", width, vectors, 0, 0, (), (IndexSource(None, "", 0),))
    )
    for block in (make() for make in blocks):
        ids = [str(writer.manifest.count + number) for number in range(len(block))]
        writer.add(block, ids, ["a text"] * len(block), {})
    return Index(folder)


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and CPU seconds of all threads."""
    clock, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - clock, time.process_time() - cpu


def milliseconds(searches: dict[str, Search], queries: np.ndarray, at_once: int) -> dict[str, tuple[float, float]]:
    """Per query the median time and CPU time of each search, by turns, with the files in the page cache. The first
    round is not counted."""
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in searches}
    for number in range(ROUNDS):
        chosen = np.arange(number * at_once, (number + 1) * at_once) % len(queries)
        for name, search in searches.items():
            taken[name].append(measured(partial(search, queries[chosen], TOP)))
    return {name: tuple(1000 / at_once * np.median(its[1:], axis=0)) for name, its in taken.items()}


def approximate_search(index: Index) -> Search:
    """Builds the graph of neighbours, and opens it again as a new process would."""
    clock, cpu = measured(lambda: ApproximateIndex(index))
    size = (index.folder / searching.HNSW_FILE).stat().st_size / 1e6
    opening, _ = measured(lambda: ApproximateIndex(index))
    print(f"graph of neighbours: built in {clock:.0f} s ({cpu:.0f} CPU s), {size:,.0f} MB, opened in {opening:.2f} s")
    return ApproximateIndex(index).search


def report(searches: dict[str, Search], queries: np.ndarray) -> None:
    """Recall is that among the results of the first search."""
    one, many = milliseconds(searches, queries, 1), milliseconds(searches, queries, BATCH)
    found = {name: [rows for _, rows in search(queries, TOP)] for name, search in searches.items()}
    exact = next(iter(found.values()))
    for name in searches:
        recall = np.mean([len(set(a) & set(b)) / TOP for a, b in zip(exact, found[name], strict=True)])
        print(
            f"{name:11} one query {one[name][0]:6.1f} ms (CPU {one[name][1]:6.1f}), per query of {BATCH} "
            f"{many[name][0]:6.2f} ms (CPU {many[name][1]:6.2f}), recall@{TOP} {recall:.4f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--clusters", type=int, default=0, help="random vectors around as many centres")
    parser.add_argument("--texts", type=Path, help="one text per line, in place of random vectors")
    parser.add_argument("--model")
    parser.add_argument("--approximate", action="store_true", help="also with a graph of neighbours (faiss)")
    given = parser.parse_args()
    if given.texts:
        vectors = embedded(given.texts, given.model)
        queries, blocks = vectors[:NUM_QUERIES], [lambda: vectors[NUM_QUERIES:]]
    else:
        draw = partial(random_vectors, width=given.width, clusters=given.clusters)
        queries = draw(NUM_QUERIES, seed=QUERY_SEED)
        blocks = [partial(draw, BLOCK, seed=number) for number in range(given.rows // BLOCK)]
    width = queries.shape[1]
    with tempfile.TemporaryDirectory() as place:
        indexes = {name: written(Path(place) / name, name, blocks, width) for name in ("float32", "int8")}
        print(
            f"{len(indexes['float32']):,} vectors of width {width}; {torch.get_num_threads()} threads; int8: "
            f"{fastest_product(width, True).__name__} for one query, {fastest_product(width, False).__name__} for more"
        )
        searches = {name: partial(search_index, index) for name, index in indexes.items()}
        if given.approximate:
            searches["approximate"] = approximate_search(indexes["float32"])
        report(searches, queries)


if __name__ == "__main__":
    main()
