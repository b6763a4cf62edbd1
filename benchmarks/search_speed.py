"""Time per query and recall of search in an index of a million vectors, float32 beside int8.

    nice python benchmarks/search_speed.py --rows 1000000 --width 384
    nice python benchmarks/search_speed.py --texts sentences.txt --model MODEL        # recall on real vectors

Random unit vectors are the hardest case for int8: the scores of neighbours are closer together than those of texts.
"""

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

from hornbook.inference.embeddings import normalized
from hornbook.inference.retrieval.approximate import ApproximateIndex
from hornbook.inference.retrieval.index import Index, IndexWriter, Manifest, Source
from hornbook.inference.retrieval.scan import has_int8_kernel, search_index

NUM_QUERIES, TOP, BLOCK, TIMES = 200, 10, 50_000, 15


def random_vectors(count: int, width: int, seed: int) -> np.ndarray:
    return normalized(np.random.default_rng(seed).standard_normal((count, width), np.float32))


def embedded(texts: Path, model: str) -> np.ndarray:
    import hornbook

    lines = dict.fromkeys(line.strip() for line in texts.read_text(encoding="utf-8").splitlines())
    return hornbook.load(model).embed([line for line in lines if line], normalize=True)


def written(folder: Path, vectors: str, blocks: list[np.ndarray] | range, width: int, rows: int) -> Index:
    """An index of the blocks; a range stands for the seeds of random blocks."""
    folder.mkdir()
    source = Source(None, "", rows)
    writer = IndexWriter(folder, Manifest("none", "", {}, "cosine", width, vectors, 0, 0, (), (source,)))
    for each in blocks:
        block = random_vectors(BLOCK, width, each) if isinstance(each, int) else each
        ids = [str(writer.manifest.count + number) for number in range(len(block))]
        writer.add(block, ids, ["a text"] * len(block), {})
    return Index(folder)


def milliseconds(search: Callable, queries: np.ndarray) -> float:
    """Median time of a search in ms, with the files in the page cache."""
    taken = []
    for _ in range(TIMES):
        start = time.perf_counter()
        search(queries, TOP)
        taken.append(1000 * (time.perf_counter() - start))
    return float(np.median(taken[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--texts", type=Path, help="one text per line, in place of random vectors")
    parser.add_argument("--model")
    parser.add_argument("--approximate", action="store_true", help="also with a graph of neighbours (faiss)")
    given = parser.parse_args()
    if given.texts:
        found = embedded(given.texts, given.model)
        queries, blocks = found[:NUM_QUERIES], [found[NUM_QUERIES:]]
        rows, width = len(found) - NUM_QUERIES, found.shape[1]
    else:
        rows, width = given.rows // BLOCK * BLOCK, given.width
        queries, blocks = random_vectors(NUM_QUERIES, width, -1 % 2**32), range(rows // BLOCK)
    print(
        f"{rows:,} vectors of width {width}; {torch.get_num_threads()} threads; int8 kernel: {has_int8_kernel(width)}"
    )
    exact = None
    with tempfile.TemporaryDirectory() as place:
        for vectors in ("float32", "int8"):
            index = written(Path(place) / vectors, vectors, blocks, width, rows)
            searches = {vectors: partial(search_index, index)}
            if given.approximate and vectors == "float32":
                start = time.perf_counter()
                searches["approximate"] = ApproximateIndex(index).search
                print(f"building the graph of neighbours: {time.perf_counter() - start:.0f} s")
            for name, search in searches.items():
                one, many = milliseconds(search, queries[:1]), milliseconds(search, queries[:32]) / 32
                _, found = search(queries, TOP)
                exact = found if exact is None else exact
                recall = np.mean([len(set(a) & set(b)) / TOP for a, b in zip(exact, found, strict=True)])
                print(
                    f"{name:11} {one:6.1f} ms for one query, {many:5.1f} ms per query of 32  recall@{TOP} {recall:.4f}"
                )


if __name__ == "__main__":
    main()
