"""Texts embedded per second on a CPU, ours beside sentence-transformers, by turns, with the same model and threads.

    python benchmarks/embed_speed.py MODEL texts.txt [--texts 2000] [--rounds 3]

MODEL is a sentence-transformers folder, such as all-MiniLM-L6-v2. sentence-transformers sorts texts by length and pads
batches of 32, its default, or of 64 and 128; the fastest is compared. Both get the texts in one call.
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
    rates: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(args.rounds):
        for name, embed in sides.items():
            start = time.perf_counter()
            embed()
            rates[name].append(len(texts) / (time.perf_counter() - start))
    best = max(statistics.median(rates[name]) for name in sides if name != "hornbook")
    for name, found in rates.items():
        print(f"{name:40} {statistics.median(found):8.1f} texts/s ({min(found):.1f} to {max(found):.1f})")
    print(f"ratio to the best of sentence-transformers: {statistics.median(rates['hornbook']) / best:.2f}")


if __name__ == "__main__":
    main()
