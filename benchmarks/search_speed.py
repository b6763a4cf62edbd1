"""Time per query, memory and recall of exact search in an index of a million vectors, float32 beside int8.

    nice python benchmarks/search_speed.py --rows 1000000 --width 384
    nice python benchmarks/search_speed.py --texts sentences.txt --model MODEL        # recall on real vectors

Random unit vectors are the hardest case for int8: the scores of neighbours are closer together than those of texts.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from hornbook.inference.embeddings import normalized
from hornbook.retrieval.index import Index, IndexWriter, Manifest, Source
from hornbook.retrieval.scan import has_int8_kernel, search_index

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
        writer.add(block, ids, ["a text"] * len(block), [{}] * len(block))
    return Index(folder)


def milliseconds(index: Index, queries: np.ndarray) -> float:
    """Median time of a search in ms, with the files in the page cache."""
    taken = []
    for _ in range(TIMES):
        start = time.perf_counter()
        search_index(index, queries, TOP)
        taken.append(1000 * (time.perf_counter() - start))
    return float(np.median(taken[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--texts", type=Path, help="one text per line, in place of random vectors")
    parser.add_argument("--model")
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
            one, many = milliseconds(index, queries[:1]), milliseconds(index, queries[:32]) / 32
            _, found = search_index(index, queries, TOP)
            exact = found if exact is None else exact
            recall = np.mean([len(set(a) & set(b)) / TOP for a, b in zip(exact, found, strict=True)])
            size = (index.vectors_ND.nbytes + (0 if index.scales_N is None else index.scales_N.nbytes)) / 1e6
            print(
                f"{vectors:8} searched {size:7,.0f} MB  {one:6.1f} ms for one query, {many:5.1f} ms per query of 32  "
                f"recall@{TOP} {recall:.4f}"
            )


if __name__ == "__main__":
    main()
