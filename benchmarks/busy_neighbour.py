"""Training speed in tokens per second, alone and next to a process that keeps every core busy, with spinning OpenMP
threads and with threads that wait passively, as `hornbook` sets them.

    python benchmarks/busy_neighbour.py --steps 30
"""

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time

POLICIES = ("active", "passive")
SIZE = {"num_layers": 4, "width": 256, "num_heads": 4, "inner_width": 1024, "vocab_size": 2048}
NUM_SEQUENCES, LENGTH = 4, 128


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(measured(arguments.steps))
        return
    found = {
        policy: {
            "alone": run(policy, arguments.steps),
            "beside a busy neighbour": beside_neighbour(policy, arguments.steps),
        }
        for policy in POLICIES
    }
    print(f"{'OMP_WAIT_POLICY':<18}{'alone':>12}{'beside a busy neighbour':>26}   tokens per second")
    for policy, speeds in found.items():
        alone, beside = speeds.values()
        print(f"{policy:<18}{alone:>12,.0f}{beside:>26,.0f}   {beside / alone:.0%}")
    print(json.dumps(found))


def run(policy: str, steps: int) -> float:
    """Measures in a separate process, because OpenMP reads its settings once."""
    settings = os.environ | {"OMP_WAIT_POLICY": policy, "KMP_BLOCKTIME": "200" if policy == "active" else "0"}
    words = [sys.executable, __file__, "--measure", "--steps", str(steps)]
    return float(subprocess.run(words, env=settings, check=True, stdout=subprocess.PIPE, text=True).stdout)


def beside_neighbour(policy: str, steps: int) -> float:
    neighbours = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count() or 1)]
    for each in neighbours:
        each.start()
    try:
        return run(policy, steps)
    finally:
        for each in neighbours:
            each.terminate()


def spin() -> None:
    while True:
        pass


def measured(steps: int) -> float:
    """Steps of a small BERT on all cores: forward pass, backward pass, update."""
    import torch

    import hornbook  # noqa: F401  sets how threads wait, unless the environment does
    from hornbook.batch import pack
    from hornbook.models.bert import Bert, BertConfig

    torch.set_num_threads(os.cpu_count() or 1)
    torch.manual_seed(0)
    model = Bert(BertConfig(**SIZE), ("mlm",))
    model.initialize(torch.Generator().manual_seed(0))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    batch = pack([torch.randint(SIZE["vocab_size"], (LENGTH,)).numpy() for _ in range(NUM_SEQUENCES)])
    labels = torch.randint(SIZE["vocab_size"], (NUM_SEQUENCES * LENGTH,))
    began = 0.0
    for step in range(steps + 1):
        if step == 1:  # the first one warms up
            began = time.monotonic()
        logits = model.vocabulary_logits(model(batch))
        torch.nn.functional.cross_entropy(logits[:, : SIZE["vocab_size"]], labels).backward()
        optimizer.step()
        optimizer.zero_grad()
    return steps * NUM_SEQUENCES * LENGTH / (time.monotonic() - began)


if __name__ == "__main__":
    main()
