"""Texts embedded per second on a CPU, ours beside sentence-transformers, by turns, with the same model and threads.

    python benchmarks/embed_speed.py MODEL texts.txt [--texts 2000] [--rounds 3]

MODEL is a sentence-transformers folder, such as all-MiniLM-L6-v2. sentence-transformers sorts texts by length and pads
batches of 32, its default, or of 64 and 128; the fastest is compared. Both get the texts in one call. On a machine that
others use too, compare the CPU time, with OMP_NUM_THREADS=1.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

import hornbook

BATCHES = (32, 64, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("file", type=Path, help="one text per line")
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    lines = [line.strip() for line in args.file.read_text(encoding="utf-8").splitlines() if line.strip()]
    texts = lines[: args.texts]
    ours, theirs = hornbook.load(args.model, device="cpu"), SentenceTransformer(args.model, device="cpu")
    sides = {"hornbook": lambda: ours.embed(texts)}
    for size in BATCHES:
        sides[f"sentence-transformers, batches of {size}"] = lambda size=size: theirs.encode(texts, batch_size=size)
    words = statistics.fmean(len(text.split()) for text in texts)
    print(f"{len(texts):,} texts of {words:.0f} words on average, {torch.get_num_threads()} threads")
    difference = np.abs(ours.embed(texts[:64]) - theirs.encode(texts[:64])).max()
    print(f"largest difference of the vectors: {difference:.1e}")
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, embed in sides.items():
            start, used = time.perf_counter(), time.process_time()
            embed()
            seconds[name].append((time.perf_counter() - start, time.process_time() - used))
    medians = {name: [statistics.median(each) for each in zip(*found, strict=True)] for name, found in seconds.items()}
    for name, (wall, used) in medians.items():
        milliseconds = 1000 * used / len(texts)
        print(f"{name:40} {len(texts) / wall:8.1f} texts/s, {milliseconds:6.2f} ms of CPU time per text")
    ours_wall, ours_used = medians.pop("hornbook")
    wall, used = (min(found) for found in zip(*medians.values(), strict=True))
    print(f"ratio to the best of sentence-transformers: {wall / ours_wall:.2f}; in CPU time {used / ours_used:.2f}")


if __name__ == "__main__":
    main()
