"""What a run would take, before anybody buys it: parameters, memory, FLOPs, days. The network is built without memory,
on the meta device, so that any size can be planned anywhere.

Exact: parameters; the bytes of weights (float32), gradients (float32) and the optimizer's two means (float32 each).
Estimated: activations, from what a block keeps for the way back (`BLOCK_KEEPS`), and days, from a share of the
device's peak that is reached.
"""

from dataclasses import dataclass

import torch

from hornbook.config import checked
from hornbook.devices import GIB, chosen_device, matrix_flops, memory_of
from hornbook.files import num_cores
from hornbook.models.transformer import PADDED
from hornbook.pretraining.assembly import new_network
from hornbook.pretraining.settings import PretrainSettings, preset_settings

WEIGHT, GRADIENT, MEANS = 4, 4, 8  # bytes a parameter
HALF = 2  # bytes of an activation
# What a block keeps of each token, in widths and in inner widths: what goes in, queries, keys, values, attended, the
# way out, two sums before norms; expanded and activated. ELECTRA-small at 16,256 tokens: 2.9 GB by this, 2.9 measured.
BLOCK_KEEPS, BLOCK_KEEPS_INNER = 8, 2
LOGIT_BYTES = 10  # a score over the vocabulary in half precision, in float32, and its gradient
GPU_GIB, GPU_TFLOPS = 80.0, 989.0  # an H100's
USABLE = 0.9  # of a device's memory
SECONDS_A_DAY = 86_400


@dataclass(frozen=True)
class Sharding:
    """What is cut into as many parts as there are devices, and the bytes that each then holds."""

    shares: str
    state_bytes: float
    most_tokens: int  # that go through a device at once beside them
    most_recomputed: int  # the same where only what goes into each block is kept, and the rest computed again


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

    def fits(self, sharding: Sharding) -> bool:
        """A whole sequence at once, if need be with blocks computed again on the way back."""
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
    """What pre-training a preset takes on so many devices of so much memory and peak speed.

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
    token_seconds = share * settings.flops_per_token(settings.data.short_length)
    token_seconds += (1 - share) * settings.flops_per_token(settings.data.length)
    bytes_per_token, recomputed = activation_bytes(settings)
    sharded = []
    for name, kept in (
        ("nothing", 0),
        ("the optimizer", MEANS),
        ("the optimizer and gradients", MEANS + GRADIENT),
        ("all of it", MEANS + GRADIENT + WEIGHT),
    ):
        whole = WEIGHT + GRADIENT + MEANS
        state = num_parameters * (whole - kept + kept / devices)
        room = max(0.0, USABLE * device_bytes - state)
        sharded.append(Sharding(name, state, int(room / bytes_per_token), int(room / recomputed)))
    flops = tokens * token_seconds
    days = flops / (devices * device_flops * utilisation) / SECONDS_A_DAY
    return Plan(
        preset,
        num_parameters,
        token_seconds,
        tokens,
        flops,
        days,
        bytes_per_token,
        length,
        tuple(sharded[:1] if devices == 1 else sharded),
    )


def count_parameters(settings: PretrainSettings) -> int:
    """With the vocabulary at its true size."""
    with torch.device("meta"):
        model = new_network(settings)
    num_dead_rows = settings.model.padded_vocab_size - settings.model.vocab_size
    total = 0
    for name, parameter in model.named_parameters():
        is_padded = name.endswith(tuple(PADDED))
        total += parameter.numel() - (num_dead_rows * parameter[0].numel() if is_padded else 0)
    return total


def activation_bytes(settings: PretrainSettings) -> tuple[float, float]:
    """Of a token on its way through all that is trained, kept until the way back: all of it, or only what goes into
    each block, with one block at a time computed again."""
    with torch.device("meta"):
        model = new_network(settings)
    encoders = [model.generator, model.discriminator] if hasattr(model, "discriminator") else [model]
    kept = recomputed = 0.0
    for encoder in encoders:
        config = encoder.config
        block = HALF * (BLOCK_KEEPS * config.width + BLOCK_KEEPS_INNER * config.inner_width)
        masks = 2 * config.width if config.dropout else 0
        share = 1.0 if settings.predicts_next else settings.masking.probability if "mlm" in encoder.heads else 0.0
        head = share * LOGIT_BYTES * config.padded_vocab_size
        kept += config.num_layers * (block + masks) + head
        recomputed += config.num_layers * HALF * config.width + block + masks + head
    return kept, recomputed


@dataclass(frozen=True)
class Machine:
    """The devices that a plan is for."""

    where: str
    num_bytes: float  # memory of each
    flops: float  # FLOP/s of each that are counted as its peak
    speed: str  # where that number comes from
    is_here: bool


def machine(
    device: str = "auto", devices: int = 1, gibibytes: float | None = None, tflops: float | None = None
) -> Machine:
    """This machine, measured, unless another one is described; of that one, a GPU's speed where none is given."""
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
        speed = f"{flops / 1e12:.3g} TFLOP/s, measured here in matrix products"
    else:
        flops = GPU_TFLOPS * 1e12
        speed = f"{GPU_TFLOPS:g} TFLOP/s, an H100's peak in bfloat16, which is assumed; --device-tflops sets another"
    return Machine(where, num_bytes, flops, speed, is_here)
