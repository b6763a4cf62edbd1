"""Tokens per second that the worker processes of the data loader deliver to a training loop without a model.

    python benchmarks/loader.py [--corpus DIR] [--presets bert-base roberta-base] [--lengths 128 512] [--workers 8]

Without --corpus, a corpus of made-up text is built first. Each cell is the median of --rounds measurements of --seconds
each, after the workers have started; the columns alternate, so that other load on the machine reaches all of them. With
--device cuda, batches are also copied to the GPU.
"""

import argparse
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median

import torch
from made_text import write_files

from hornbook.data.build import build_corpus
from hornbook.data.loader import batches
from hornbook.files import num_cores
from hornbook.interop.hub import BUILTIN_MODELS
from hornbook.runs.pretraining.batches import BatchMaker, open_corpora
from hornbook.runs.pretraining.presets import preset_settings

TARGET = 3_000_000  # tokens per second with 8 workers


def tokens_per_second(make: BatchMaker, workers: int, seconds: float, device: torch.device) -> float:
    loader = batches(make, range(make.num_steps), workers, device)
    for _ in islice(loader, 4 * workers + 1):  # the workers have started, and what they prepared meanwhile is used up
        pass
    start, tokens = time.perf_counter(), 0
    for batch in loader:
        tokens += batch.num_real_tokens
        if (passed := time.perf_counter() - start) >= seconds:
            return tokens / passed
    raise SystemExit("the run of the preset is too short: lower --seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", help="corpus folder (default: made-up text)")
    parser.add_argument("--megabytes", type=float, default=100, help="size of the made-up text")
    parser.add_argument("--presets", nargs="+", default=["bert-base", "roberta-base"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--workers", type=int, default=8, help="largest number of workers")
    parser.add_argument("--batch-tokens", type=int, default=65_536)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.corpus is None:
            write_files(Path(folder) / "text", options.megabytes, 25, num_cores())
            build_corpus(Path(folder) / "text", BUILTIN_MODELS / "en", f"{folder}/corpus")
        makers = {}
        for preset in options.presets:
            for length in options.lengths:
                changes = {"data.length": length, "data.short_length": length, "batch.tokens": options.batch_tokens}
                settings = preset_settings(preset, changes | {"schedule.steps": 1_000_000})
                opened = open_corpora([options.corpus or f"{folder}/corpus"], settings)
                makers[f"{preset}, {settings.layout}, {length}"] = BatchMaker(settings, opened)
        print(f"tokens/s in thousands, batches of {options.batch_tokens:,}, {num_cores()} cores, {options.device}\n")
        print(f"| workers | {' | '.join(makers)} |\n|{'---|' * (len(makers) + 1)}")
        for workers in sorted({min(1 << power, options.workers) for power in range(options.workers.bit_length() + 1)}):
            arguments = workers, options.seconds, torch.device(options.device)
            rounds = [[tokens_per_second(each, *arguments) for each in makers.values()] for _ in range(options.rounds)]
            found = [median(column) for column in zip(*rounds, strict=True)]
            print(f"| {workers} | {' | '.join(f'{each / 1e3:,.0f}' for each in found)} |", flush=True)
        print(f"\ntarget: {TARGET:,} tokens/s with 8 workers; slowest here: {min(found):,.0f} with {workers}")


if __name__ == "__main__":
    main()
