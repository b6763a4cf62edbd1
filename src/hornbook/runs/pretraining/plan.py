"""Resource plan of a run before it starts: parameters, memory, FLOPs and days. The network is built on the meta device,
without memory, so any size can be planned on any machine.

Exact: parameters; the bytes of weights (float32), gradients (float32) and Adam's two moments (float32 each).
Estimated: activations, from what a block keeps for the backward pass (`BLOCK_KEEPS`), and days, from the assumed
utilisation of the device's peak FLOP/s.
"""

import math
from dataclasses import dataclass

import torch

from hornbook.config import checked
from hornbook.devices import GIB, chosen_device, matrix_flops, memory_of
from hornbook.files import num_cores
from hornbook.models.transformer import PADDED
from hornbook.runs.pretraining.assembly import new_network
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.runs.pretraining.settings import PretrainSettings

WEIGHT, GRADIENT, MOMENTS = 4, 4, 8  # bytes per parameter
HALF = 2  # bytes per activation
# Activations that a block keeps per token. In units of the width: input, queries, keys, values, attention output,
# output projection, two sums before norms; of the inner width: fc1 output, activation. ELECTRA-small at 16,256 tokens:
# 2.9 GB estimated, 2.9 GB measured.
BLOCK_KEEPS, BLOCK_KEEPS_INNER = 8, 2
LOGIT_BYTES = 10  # per logit: half precision (2), float32 (4) and gradient (4)
GPU_GIB, GPU_TFLOPS = 80.0, 989.0  # H100
USABLE = 0.9  # share of a device's memory
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class Sharding:
    """One sharding strategy: what is split over the devices, and the memory that each device then needs."""

    shares: str
    state_bytes: float  # weights, gradients and optimizer state per device
    most_tokens: int  # largest micro-batch per device in the remaining memory
    most_recomputed: int  # the same with activation checkpointing of every block


@dataclass(frozen=True)
class Plan:
    preset: str
    parameters: int
    flops_per_token: float
    tokens: int
    flops: float
    days: float
    bytes_per_token: float
    length: int
    sharding: tuple[Sharding, ...]
    devices_needed: int | None  # fewest devices that hold it, all of it sharded; None if one sequence takes too much

    def fits(self, sharding: Sharding) -> bool:
        """Whether at least one whole sequence fits, with activation checkpointing if needed."""
        return sharding.most_recomputed >= self.length


def plan(
    preset: str,
    devices: int = 1,
    device_bytes: float = GPU_GIB * GIB,
    device_flops: float = GPU_TFLOPS * 1e12,
    utilisation: float = 0.4,
    tokens: int | None = None,
    overrides: dict | None = None,
) -> Plan:
    """The resources for pre-training a preset on `devices` devices, each with `device_bytes` of memory and a peak of
    `device_flops` FLOP/s.

    >>> plan("bert-base").parameters
    110106428
    """
    devices = checked(devices, int, "--devices", low=1, high=1_000_000)
    utilisation = checked(utilisation, float, "--utilisation", above=0, high=1)
    checked(device_bytes / GIB, float, "--device-memory", above=0, high=1e6)
    checked(device_flops / 1e12, float, "--device-tflops", above=0, high=1e6)
    tokens = checked(tokens, int | None, "--tokens", low=1, high=10**15)
    settings = preset_settings(preset, overrides)
    num_parameters = count_parameters(settings)
    tokens = tokens or round(settings.schedule.steps * settings.batch.mean_tokens)
    length = settings.data.length if settings.data.short_fraction < 1 else settings.data.short_length
    share = settings.data.short_fraction
    flops_per_token = share * settings.flops_per_token(settings.data.short_length)
    flops_per_token += (1 - share) * settings.flops_per_token(settings.data.length)
    bytes_per_token, recomputed = activation_bytes(settings)
    sharded = []
    for name, sharded_bytes in (
        ("nothing", 0),
        ("the optimizer", MOMENTS),
        ("the optimizer and gradients", MOMENTS + GRADIENT),
        ("all of it", MOMENTS + GRADIENT + WEIGHT),
    ):
        all_bytes = WEIGHT + GRADIENT + MOMENTS
        state = num_parameters * (all_bytes - sharded_bytes + sharded_bytes / devices)
        free_bytes = max(0.0, USABLE * device_bytes - state)
        sharded.append(Sharding(name, state, int(free_bytes / bytes_per_token), int(free_bytes / recomputed)))
    free_bytes = USABLE * device_bytes - length * recomputed
    needed = math.ceil(num_parameters * (WEIGHT + GRADIENT + MOMENTS) / free_bytes) if free_bytes > 0 else None
    flops = tokens * flops_per_token
    days = flops / (devices * device_flops * utilisation) / SECONDS_PER_DAY
    return Plan(
        preset,
        num_parameters,
        flops_per_token,
        tokens,
        flops,
        days,
        bytes_per_token,
        length,
        tuple(sharded[:1] if devices == 1 else sharded),
        needed,
    )


def count_parameters(settings: PretrainSettings) -> int:
    """The number of parameters, without the rows that pad the vocabulary."""
    with torch.device("meta"):
        model = new_network(settings)
    num_padding_rows = settings.model.padded_vocab_size - settings.model.vocab_size
    total = 0
    for name, parameter in model.named_parameters():
        is_padded = name.endswith(tuple(PADDED))
        total += parameter.numel() - (num_padding_rows * parameter[0].numel() if is_padded else 0)
    return total


def activation_bytes(settings: PretrainSettings) -> tuple[float, float]:
    """Bytes of activations per token that are kept for the backward pass: (without, with activation checkpointing,
    which keeps the input of every block and recomputes one block at a time)."""
    with torch.device("meta"):
        model = new_network(settings)
    encoders = [model.generator, model.discriminator] if hasattr(model, "discriminator") else [model]
    kept = recomputed = 0.0
    for encoder in encoders:
        config = encoder.config
        block = HALF * (BLOCK_KEEPS * config.width + BLOCK_KEEPS_INNER * config.inner_width)
        masks = 2 * config.width if config.dropout else 0
        share = 1.0 if settings.predicts_next else settings.masking.mean_probability if "mlm" in encoder.heads else 0.0
        head = share * LOGIT_BYTES * config.padded_vocab_size
        kept += config.num_layers * (block + masks) + head
        recomputed += config.num_layers * HALF * config.width + block + masks + head
    return kept, recomputed


@dataclass(frozen=True)
class Machine:
    """The machine that a plan is for."""

    where: str
    num_bytes: float  # memory per device
    flops: float  # peak FLOP/s per device
    speed: str  # the peak and its source, as text
    is_here: bool


def machine(
    device: str = "auto", devices: int = 1, gibibytes: float | None = None, tflops: float | None = None
) -> Machine:
    """This machine, measured, unless the arguments describe another one, whose speed defaults to that of an H100."""
    devices = checked(devices, int, "--devices", low=1, high=1_000_000)
    gibibytes = checked(gibibytes, float | None, "--device-memory", above=0, high=1e6)
    tflops = checked(tflops, float | None, "--device-tflops", above=0, high=1e6)
    is_elsewhere = device.startswith("cuda") and not torch.cuda.is_available()
    here = "cpu" if is_elsewhere else chosen_device(device)
    is_here = devices == 1 and gibibytes is None and not is_elsewhere
    if is_here:
        name = torch.cuda.get_device_name(here) if here != "cpu" else f"{num_cores()} CPU cores"
        num_bytes = float(memory_of(here))
        where = f"this machine ({name}, {num_bytes / GIB:.0f} GiB)"
    else:
        num_bytes = (GPU_GIB if gibibytes is None else gibibytes) * GIB
        where = f"{devices:,} x {num_bytes / GIB:.0f} GiB"
    if tflops is not None:
        flops, speed = tflops * 1e12, f"{tflops:g} TFLOP/s, as given by --device-tflops"
    elif is_here or device == "cpu":
        flops = matrix_flops(here)
        speed = f"{flops / 1e12:.3g} TFLOP/s, measured on this machine in matrix products"
    else:
        flops = GPU_TFLOPS * 1e12
        speed = f"{GPU_TFLOPS:g} TFLOP/s, the assumed bfloat16 peak of an H100; --device-tflops overrides it"
    return Machine(where, num_bytes, flops, speed, is_here)
