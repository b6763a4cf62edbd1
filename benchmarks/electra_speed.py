"""ELECTRA-small on one GPU: updates and tokens per second of whole runs of `hornbook pretrain`, data loading included.

    python benchmarks/electra_speed.py --corpus CORPUS [--batches 128,1024] [--modes captured,compiled] [--steps 600]

A mode is `plain` (eager PyTorch), `captured` (whole steps as CUDA graphs), `compiled` (blocks and losses compiled), or
`both`. Speed is that of the last half of the steps, because compilation and capture happen in the first. The published
batch is 128 sequences of 128 tokens, with the published dropout.
"""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path

import torch

from hornbook.lifecycle.run_folder import read_metrics
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.pretrain import pretrain

WAYS = {"plain": ("no", False), "captured": ("no", True), "compiled": ("yes", False), "both": ("yes", True)}
LENGTH = 128


def measured(corpus: str, sequences: int, mode: str, steps: int, workers: int) -> dict:
    compiles, graphs = WAYS[mode]
    out = Path(tempfile.mkdtemp()) / "run"
    overrides = {
        "batch.micro_tokens": max(65_536, sequences * LENGTH),
        "runtime.compile": compiles,
        "runtime.cuda_graphs": graphs,
        "runtime.loader_workers": workers,
        "runtime.tensorboard": False,
        "runtime.log_every_steps": 25,
        "checkpoint.every_steps": 0,
        "checkpoint.at_start": False,
        "validation.every_steps": 10_000_000,
    }
    began = time.perf_counter()
    pretrain(
        "electra-small",
        [corpus],
        out,
        steps=steps,
        batch_tokens=sequences * LENGTH,
        recipe="published",
        overrides=overrides,
        log=lambda _: None,
    )
    whole = time.perf_counter() - began
    lines = [line for line in read_metrics(out) if line["kind"] == "train"]
    half, last = next(line for line in lines if line["step"] >= steps // 2), lines[-1]
    seconds, num_steps = last["seconds"] - half["seconds"], last["step"] - half["step"]
    tokens = (last["tokens"] - half["tokens"]) / seconds
    shutil.rmtree(out.parent)
    return {
        "sequences": sequences,
        "mode": mode,
        "updates_per_second": num_steps / seconds,
        "tokens_per_second": tokens,
        "useful_tflops": tokens * preset_settings("electra-small").flops_per_token(LENGTH) / 1e12,
        "memory_gib": torch.cuda.max_memory_allocated() / 2**30,
        "start_seconds": whole - seconds * steps / num_steps,
        "last_loss": last["loss"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", required=True)
    parser.add_argument("--batches", default="128,1024", help="sequences in a batch")
    parser.add_argument("--modes", default="captured,both")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--workers", type=int, default=-1, help="processes that make batches")
    args = parser.parse_args()
    found = []
    for sequences in map(int, args.batches.split(",")):
        for mode in args.modes.split(","):
            torch.cuda.reset_peak_memory_stats()
            steps = args.steps if sequences <= 256 else max(60, args.steps // 4)
            found.append(measured(args.corpus, sequences, mode, steps, args.workers))
            print(json.dumps(found[-1]), flush=True)
    print(f"\n{torch.cuda.get_device_name()}; torch {torch.__version__}")
    print("| batch | mode | updates/s | tokens/s | useful TFLOP/s | memory GiB | start s |")
    print("|---|---|---|---|---|---|---|")
    for each in found:
        print(
            f"| {each['sequences']} x {LENGTH} | {each['mode']} | {each['updates_per_second']:.1f} | "
            f"{each['tokens_per_second']:,.0f} | {each['useful_tflops']:.0f} | {each['memory_gib']:.1f} | "
            f"{each['start_seconds']:.0f} |"
        )


if __name__ == "__main__":
    main()
