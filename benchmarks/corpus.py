"""Speed and memory of building a corpus, compared with the bare tokenizer on the same cores and text.

    python benchmarks/corpus.py --data wiki.txt --tokenizer my-tokenizer

"Bare" is `tokenizers` alone: documents in batches of about 4 MB, threads on all cores, ids discarded. Both sides are
measured twice in alternation, and the better of each counts, because other load on the machine only ever slows them
down. Memory is summed over all processes of a build, with shared pages counted once (PSS), sampled ten times per
second.
"""

import argparse
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hornbook.data.build import build_corpus
from hornbook.data.readers import read_documents
from hornbook.text.tokenizer import Tokenizer

BATCH_CHARACTERS = 4_000_000


def bare_rate(data: list[str], tokenizer: str, method: str, most_megabytes: float) -> float:
    encode = getattr(Tokenizer.load(tokenizer).backend, method)
    seconds, done, batch, size = 0.0, 0, [], 0
    for document in read_documents(data):
        batch.append(document.text)
        size += len(document.text)
        if size >= BATCH_CHARACTERS:
            seconds, done = seconds + timed(encode, batch), done + sum(len(text.encode()) for text in batch)
            batch, size = [], 0
            if done >= most_megabytes * 1e6:
                break
    if batch:
        seconds, done = seconds + timed(encode, batch), done + sum(len(text.encode()) for text in batch)
    return done / 1e6 / seconds


def timed(encode: Callable, batch: list[str]) -> float:
    started = time.perf_counter()
    encode(batch, add_special_tokens=False)
    return time.perf_counter() - started


def build_rate(data: list[str], tokenizer: str, workers: int | None) -> float:
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        manifest = build_corpus(data, tokenizer, Path(folder) / "corpus", workers=workers)
        return manifest["totals"]["text_bytes"] / 1e6 / (time.perf_counter() - started)


def measure(function: Callable, *arguments: object) -> tuple[float, float]:
    """Runs the function in a separate process; returns its result and the peak memory of that process and its children,
    in MB."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, function, arguments))
    process.start()
    sender.close()
    peak = 0
    while process.is_alive():
        peak = max(peak, tree_memory(process.pid))
        time.sleep(0.1)
    if process.exitcode:
        raise SystemExit(f"the measured process ended with {process.exitcode}")
    return receiver.recv(), peak / 1e6


def _send(sender, function: Callable, arguments: tuple) -> None:
    sender.send(function(*arguments))


def tree_memory(root: int) -> int:
    total = 0
    for process in process_tree(root):
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def process_tree(root: int) -> list[int]:
    """A process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, waiting = [], [root]
    while waiting:
        found.append(waiting.pop())
        waiting += children.get(found[-1], [])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", required=True, help="files or folders of text")
    parser.add_argument("--tokenizer", required=True, help="tokenizer folder")
    parser.add_argument("--workers", type=int, help="processes of the build (default: one a core)")
    parser.add_argument("--bare-megabytes", type=float, default=50, help="how much text the bare rates are taken on")
    parser.add_argument("--rounds", type=int, default=2, help="how often each is measured")
    options = parser.parse_args()
    if not Path("/proc/self/smaps_rollup").exists():
        raise SystemExit("memory is read from /proc, which only Linux has")
    bare = {"encode_batch": [], "encode_batch_fast": []}
    ours, peaks = [], []
    for _ in range(options.rounds):
        for method, rates in bare.items():
            rates.append(measure(bare_rate, options.data, options.tokenizer, method, options.bare_megabytes)[0])
        rate, peak = measure(build_rate, options.data, options.tokenizer, options.workers)
        ours.append(rate)
        peaks.append(peak)
    cores = len(os.sched_getaffinity(0))
    print(f"| on {cores} cores, best of {options.rounds} | MB/s | corpus build / this | peak memory, MB |")
    print("|---|---|---|---|")
    for method, rates in bare.items():
        print(f"| bare `{method}` | {max(rates):.2f} | {max(ours) / max(rates):.2f} | |")
    print(f"| corpus build | {max(ours):.2f} | 1 | {max(peaks):.0f} |")
    print("all rounds:", {name: [round(rate, 2) for rate in rates] for name, rates in {**bare, "build": ours}.items()})


if __name__ == "__main__":
    main()
