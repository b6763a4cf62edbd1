"""Memory and rate of building a large corpus of made-up text, with an extrapolation to 50 GB on 16 cores.

    nice python benchmarks/large_corpus.py --gigabytes 1 [--workers 2] [--minutes 8] [--near-duplicates]

The text (`made_text.py`) is written first, as compressed files. The largest resident memory (VmHWM) of each process of
the build is reported every 10 seconds, so that growth is seen; the limit is 1 GB. The rate per core is one of CPU time,
which other load on the machine changes little. After --minutes, the build is stopped and what was built so far counts.
"""

import argparse
import contextlib
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

import hornbook
from hornbook.data.build import MAX_WORKERS, BuildProgress, build_corpus
from hornbook.files import num_cores

LIMIT_MEGABYTES = 1000
TARGET_GIGABYTES, TARGET_CORES = 50, 16
REPORT_SECONDS = 10


def build(sender, texts: Path, out: Path, workers: int, minutes: float, near_duplicates: bool) -> None:
    """Builds a corpus and sends its results: `done` is the fraction of the text that was built."""
    from corpus import process_tree

    start, reported, found = time.perf_counter(), 0.0, {"done": 1.0, "peaks": {}}

    def watch(progress: BuildProgress) -> None:
        nonlocal reported
        found["seconds"] = time.perf_counter() - start
        found["done"] = progress.bytes_read / progress.bytes_total
        if found["seconds"] - reported >= REPORT_SECONDS or found["done"] == 1:
            reported = found["seconds"]
            found["peaks"] |= {pid: peak for pid in process_tree(os.getpid()) if (peak := peak_megabytes(pid))}
            own, workers = split_peaks(found["peaks"])
            print(f"{reported:.0f} s, {found['done']:.1%}: {own:.0f} MB, workers {workers:.0f} MB", file=sys.stderr)
        if found["seconds"] > 60 * minutes:
            raise KeyboardInterrupt

    tokenizer = Path(hornbook.__file__).parent / "builtin" / "en"
    with contextlib.suppress(KeyboardInterrupt):
        build_corpus(texts, tokenizer, out, workers=workers, near_duplicates=near_duplicates, on_progress=watch)
    found["peaks"][os.getpid()] = peak_megabytes(os.getpid())
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    found["cpu"] = [each.ru_utime + each.ru_stime for each in used]
    found["peaks"] = split_peaks(found["peaks"])
    sender.send(found)


def peak_megabytes(pid: int) -> float:
    """The largest resident memory of a process so far; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


def split_peaks(peaks: dict[int, float]) -> tuple[float, float]:
    """(this process, the largest of the others)"""
    return peaks[os.getpid()], max((peak for pid, peak in peaks.items() if pid != os.getpid()), default=0.0)


def main() -> None:
    from made_text import write_files

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gigabytes", type=float, default=1)
    parser.add_argument("--workers", type=int, default=min(num_cores(), MAX_WORKERS))
    parser.add_argument("--minutes", type=float, default=60, help="stop the build after this time")
    parser.add_argument("--near-duplicates", action="store_true")
    parser.add_argument("--folder", help="where to write text and corpus (default: a temporary folder)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        texts, start = Path(folder) / "text", time.perf_counter()
        size = write_files(texts, 1000 * options.gigabytes, 100, num_cores())
        stored = sum(file.stat().st_size for file in texts.iterdir())
        seconds = time.perf_counter() - start
        print(f"{size / 1e9:.2f} GB of text, {stored / 1e9:.2f} GB compressed, written in {seconds:.0f} s")
        context = multiprocessing.get_context("spawn")
        receiver, sender = context.Pipe(duplex=False)
        limits = options.workers, options.minutes, options.near_duplicates
        process = context.Process(target=build, args=(sender, texts, Path(folder) / "corpus", *limits))
        process.start()
        sender.close()
        found = receiver.recv()
        process.join()
    report(found, size / 1e6 * found["done"], options.workers)


def report(found: dict, megabytes: float, num_workers: int) -> None:
    main_seconds, worker_seconds = found["cpu"]
    own, worker = found["peaks"]
    per_core = megabytes / (main_seconds + worker_seconds)
    print(f"{megabytes / 1e3:.2f} GB built in {found['seconds']:.0f} s with {num_workers} workers\n")
    print("| | MB/s of CPU time | peak memory, MB |\n|---|---|---|")
    print(f"| main process | {megabytes / main_seconds:.2f} | {own:.0f} |")
    print(f"| each worker | {megabytes / max(worker_seconds, 1e-9):.2f} | {worker:.0f} |")
    print(f"| all | {per_core:.2f} per core, {megabytes / found['seconds']:.2f} here | |\n")
    # The main process reads and writes in sequence; the others share the rest of the cores.
    rate = min(megabytes / main_seconds, megabytes / max(worker_seconds, 1e-9) * (TARGET_CORES - 1))
    minutes = TARGET_GIGABYTES * 1000 / rate / 60
    print(f"{TARGET_GIGABYTES} GB on {TARGET_CORES} such cores: {minutes:.0f} minutes at {rate:.1f} MB/s")
    is_within = max(own, worker) < LIMIT_MEGABYTES
    print(f"memory of each process {'below' if is_within else 'NOT below'} {LIMIT_MEGABYTES} MB")
    sys.exit(not is_within)


if __name__ == "__main__":
    main()
