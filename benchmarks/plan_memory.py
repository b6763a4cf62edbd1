"""Memory of training steps on a GPU compared with `hornbook plan`, and the largest model that trains on the GPU.

    python benchmarks/plan_memory.py [--set runtime.compile=yes] [--without-largest]

Each row takes a few steps on made-up tokens and compares the plan with the peak of allocated memory (inf: out of
memory); what PyTorch reserved is more, as it keeps freed blocks. The largest model is a GPT of width 4096 with
activation checkpointing: the number of layers grows from what the plan says until memory runs out. The exit status is 1
if a row is off by over 10%.
"""

import argparse
import math
import sys
import time
from types import SimpleNamespace

import numpy as np
import torch

from hornbook.batch import Batch, pack
from hornbook.devices import GIB
from hornbook.evaluation.experiments.jobs import release_memory
from hornbook.runs.pretraining.assembly import new_network, objective_of
from hornbook.runs.pretraining.plan import plan
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.settings import PretrainSettings
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel.sharding import checkpoint_activations
from hornbook.train.runtime import choose_runtime, configure_torch
from hornbook.train.step import Stepper

CHECKPOINTED = {"parallel.activation_checkpointing": True}
CASES = (  # preset, length, tokens of a batch and of a micro-batch, other settings
    ("bert-base", 128, 65_536, 65_536, {}),
    ("bert-base", 512, 131_072, 65_536, {}),
    ("gpt2-small", 1024, 65_536, 65_536, {}),
    ("electra-small", 128, 65_536, 65_536, {}),
    ("albert-base", 512, 65_536, 65_536, {}),
    ("gpt3-1.3b", 2048, 16_384, 16_384, {}),
    ("gpt3-1.3b", 2048, 65_536, 32_768, CHECKPOINTED),
)
LARGEST = ("gpt3-6.7b", 2048, 2048, 2048, CHECKPOINTED)
STEPS, TOLERANCE = 3, 0.1
TOKENIZER = {"mask_id": 4, "special_ids": [0, 1, 2, 3, 4]}
PUBLISHED = {"schedule.steps": 10**9}  # so long a run takes the published recipe, also with small batches


def overrides_of(length: int, tokens: int, micro_tokens: int, more: dict) -> dict:
    lengths = {"data.length": length, "data.short_length": length, "data.short_fraction": 0.0}
    batch = {"batch.tokens": tokens, "batch.micro_tokens": micro_tokens, "batch.first_tokens": None}
    return lengths | batch | PUBLISHED | more


def made_batch(settings: PretrainSettings, number: int) -> Batch:
    """Sequences of random tokens at full length."""
    length = settings.data.length
    num = settings.batch.tokens // length
    sequences = list(np.random.default_rng(number).integers(5, settings.model.vocab_size, (num, length)))
    if settings.predicts_next:
        return pack(sequences, max_length=length, token_labels=sequences)
    segments = [np.arange(length) // (length // 2)] * num
    return pack(sequences, segments, None, np.arange(num) % 2, length)


def take_steps(settings: PretrainSettings, device: torch.device, steps: int = STEPS) -> list[float]:
    """The losses of a few steps of a newly initialised model, made on the device itself."""
    runtime = choose_runtime(settings.runtime, 0.0)
    configure_torch(runtime)
    with device:
        model = new_network(settings)
        for parameter in model.parameters():
            if parameter.requires_grad:
                torch.nn.init.normal_(parameter, std=0.02) if parameter.ndim > 1 else parameter.data.fill_(0.5)
    objective = objective_of(settings, SimpleNamespace(vocab_size=settings.model.vocab_size, **TOKENIZER))
    if runtime.compiles:
        model.compile_parts()
        objective.compile()
    if settings.parallel.activation_checkpointing:
        runtime = checkpoint_activations(model, runtime)
    optimizer = make_optimizer(model, settings.optimizer)
    module, seed, max_norm = TrainingModule(model, objective), 0, settings.optimizer.max_grad_norm
    stepper = Stepper(module, optimizer, runtime, seed, max_norm, settings.batch.micro_tokens)
    results = [stepper.train_step(made_batch(settings, i).to(device), i, 1e-4) for i in range(steps)]
    losses = [float(each.loss) for each in results]
    stepper.close()
    if stepper.micro_tokens < settings.batch.micro_tokens:
        raise torch.OutOfMemoryError("it took smaller micro-batches")
    return losses


def measured(settings: PretrainSettings, device: torch.device) -> tuple[list[float], float, float] | None:
    """(losses, allocated, reserved bytes at the peak), or None if memory runs out."""
    try:
        torch.cuda.reset_peak_memory_stats()
        losses = take_steps(settings, device)
        return losses, torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
    except torch.OutOfMemoryError:
        return None
    finally:
        release_memory()


def compare(cases: tuple, device: torch.device, more: dict) -> bool:
    """Prints a row for each case; whether all are within the tolerance."""
    print("| preset | batch, micro-batch | plan, GiB | allocated | plan / allocated | reserved | seconds |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for preset, length, tokens, micro_tokens, changes in cases:
        start, overrides = time.perf_counter(), overrides_of(length, tokens, micro_tokens, changes | more)
        predicted = plan(preset, device_bytes=total_bytes(device), overrides=overrides).step_bytes
        _, allocated, reserved = measured(preset_settings(preset, overrides), device) or ([], math.inf, math.inf)
        ratios.append(predicted / allocated)
        name = f"{preset}, {length}" + (", checkpointed" if changes else "")
        cells = f"{predicted / GIB:.2f} | {allocated / GIB:.2f} | {ratios[-1]:.3f} | {reserved / GIB:.2f}"
        seconds = time.perf_counter() - start
        print(f"| {name} | {tokens:,}, {micro_tokens:,} | {cells} | {seconds:.0f} |", flush=True)
    return all(abs(ratio - 1) <= TOLERANCE for ratio in ratios)


def total_bytes(device: torch.device) -> float:
    return float(torch.cuda.get_device_properties(device).total_memory)


def find_largest(device: torch.device, more: dict) -> None:
    """Trains deeper and deeper models for a few steps, first the deepest that the plan says fits."""
    preset, *sizes, changes = LARGEST

    def overrides(layers: int) -> dict:
        return overrides_of(*sizes, changes | more | {"model.num_layers": layers})

    def predicted(layers: int) -> float:
        return plan(preset, device_bytes=total_bytes(device), overrides=overrides(layers)).step_bytes

    layers, tried = 1, {}
    while predicted(layers + 1) < total_bytes(device):
        layers += 1
    while layers and layers not in tried:
        tried[layers] = measured(preset_settings(preset, overrides(layers)), device)
        number = plan(preset, overrides=overrides(layers)).parameters
        words = f"{layers} layers of width 4096, {number / 1e9:.2f} billion parameters: "
        if tried[layers] is None:
            print(f"{words}out of memory (plan: {predicted(layers) / GIB:.1f} GiB)", flush=True)
            layers -= 1
        else:
            losses, allocated, reserved = tried[layers]
            numbers = f"losses {', '.join(f'{loss:.2f}' for loss in losses)}; {allocated / GIB:.1f} GiB allocated, "
            print(f"{words}{numbers}{reserved / GIB:.1f} reserved (plan: {predicted(layers) / GIB:.1f})", flush=True)
            layers += 1
    found = max((each for each, result in tried.items() if result is not None), default=None)
    print(f"the largest that trains, with {sizes[-1]:,} tokens at once: {found} layers")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], help="a setting for all rows, key=value")
    parser.add_argument("--without-largest", action="store_true", help="only compare the presets")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this benchmark compares the memory of a GPU with the plan, and torch finds no GPU here")
    device, more = torch.device("cuda"), dict(each.split("=", 1) for each in options.set)
    print(f"{torch.cuda.get_device_name(device)}, {total_bytes(device) / GIB:.1f} GiB, torch {torch.__version__}\n")
    is_close = compare(CASES, device, more)
    print(f"\n{'all' if is_close else 'NOT all'} within {TOLERANCE:.0%}\n")
    if not options.without_largest:
        find_largest(device, more)
    sys.exit(not is_close)


if __name__ == "__main__":
    main()
