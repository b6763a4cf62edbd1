"""The cost of running one process through torchrun on a GPU: tokens per second of the same run with and without it.

    python benchmarks/torchrun_cost.py --corpus DIR [--preset bert-base] [--steps 300] [--rounds 3] [--device cuda]

Runs with and without torchrun alternate, and the medians are compared. The first half of each run is not counted: it
compiles and captures. With one process there is nothing to exchange, so both should be equally fast.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from hornbook.lifecycle.run_folder import read_metrics

LAUNCHERS = {"plain": [], "torchrun": ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1"]}


def tokens_per_second(out: Path) -> float:
    """Of the second half of a run."""
    lines = [line for line in read_metrics(out) if line["kind"] == "train"]
    first, last = lines[len(lines) // 2], lines[-1]
    return (last["tokens"] - first["tokens"]) / (last["seconds"] - first["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--preset", default="bert-base")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--set", action="append", default=[], help="a setting, key=value")
    options = parser.parse_args()
    settings = [
        "validation.every_steps=1000000",
        "checkpoint.every_steps=0",
        "checkpoint.every_minutes=0",
        *options.set,
    ]
    words = [options.preset, "--corpus", options.corpus, "--steps", str(options.steps), "--recipe", "published"]
    words += ["--device", options.device, *(word for each in settings for word in ("--set", each))]
    found: dict[str, list[float]] = {name: [] for name in LAUNCHERS}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds):
            for name, launcher in LAUNCHERS.items():
                out = Path(folder) / f"{name}-{number}"
                command = [sys.executable, *launcher, "-m", "hornbook", "--quiet", "pretrain", *words]
                subprocess.run([*command, "--out", str(out)], check=True, stdout=subprocess.DEVNULL)
                found[name].append(round(tokens_per_second(out)))
                print(f"{name} {number + 1}: {found[name][-1]:,} tokens/s", file=sys.stderr)
    medians = {name: statistics.median(speeds) for name, speeds in found.items()}
    print(json.dumps({"tokens_per_second": found, "cost": round(1 - medians["torchrun"] / medians["plain"], 4)}))


if __name__ == "__main__":
    main()
