"""Resource plan of a run before it starts: parameters, memory, FLOPs and days. The network is built on the meta device,
without memory, so any size can be planned on any machine.

Exact: parameters; the bytes of weights (float32), gradients (float32) and Adam's two moments (float32 each).
Estimated: activations, from the tensors that a step on CUDA in bfloat16 keeps for its backward pass (`Activations`),
and days, from the assumed utilisation of the device's peak FLOP/s. `benchmarks/plan_memory.py` compares the memory with
that of real steps.
"""

import math
from dataclasses import dataclass

import torch

from hornbook.config import checked
from hornbook.devices import GIB, chosen_device, matrix_flops, memory_of
from hornbook.files import num_cores
from hornbook.models.transformer import Transformer, TransformerConfig, count_parameters
from hornbook.objectives.vocabulary_loss import PART_ROWS
from hornbook.runs.pretraining.assembly import new_network
from hornbook.runs.pretraining.recipes import Recipe
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.resolve import requested_settings, resolve_settings
from hornbook.runs.pretraining.settings import PretrainSettings

WEIGHT, GRADIENT, MOMENTS = 4, 4, 8  # bytes per parameter
STATE = WEIGHT + GRADIENT + MOMENTS
HALF, FLOAT = 2, 4  # bytes per activation
WORKSPACE = 64 * 2**20  # cuBLAS and small tensors
GPU_GIB, GPU_TFLOPS = 80.0, 989.0  # H100
USABLE = 0.9  # share of a device's memory
SECONDS_PER_DAY = 86_400


@dataclass(frozen=True)
class Sharding:
    """One sharding strategy: what is split over the devices, and the memory that each device then needs."""

    shares: str
    state_bytes: float  # weights, gradients and optimizer state per device
    max_tokens: int  # largest micro-batch per device in the remaining memory
    most_recomputed: int  # the same with activation checkpointing of every block


@dataclass(frozen=True)
class Plan:
    preset: str
    recipe: Recipe
    vocab_size: int
    parameters: int
    flops_per_token: float
    tokens: int
    flops: float
    days: float
    bytes_per_token: float
    micro_tokens: int  # tokens of a micro-batch on each device, as set
    step_bytes: float  # peak memory of a step with such micro-batches, if nothing is sharded
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
    utilization: float = 0.4,
    tokens: int | None = None,
    overrides: dict | None = None,
) -> Plan:
    """The resources for pre-training a preset on `devices` devices, each with `device_bytes` of memory and a peak of
    `device_flops` FLOP/s. As in a run, `tokens` far below the published number mean the settings of the budget recipe.

    >>> plan("bert-base").parameters
    110106428
    """
    devices = checked(devices, int, "devices", low=1, high=1_000_000)
    utilization = checked(utilization, float, "utilization", above=0, high=1)
    tokens = checked(tokens, int | None, "tokens", low=1, high=10**15)
    request = PretrainRequest(overrides=overrides or {}, preset=preset, tokens=tokens)
    settings, recipe = resolve_settings(request), requested_settings(request)[1]
    with torch.device("meta"):
        num_parameters = count_parameters(new_network(settings))
    tokens = tokens or round(settings.schedule.steps * settings.batch.mean_tokens)
    length = max(settings.lengths)
    flops = tokens * settings.mean_flops_per_token()
    activations = Activations(settings)
    strategies = {"nothing": 0}  # bytes per parameter that are sharded
    if devices > 1:
        strategies |= {"the optimizer": MOMENTS, "the optimizer and gradients": MOMENTS + GRADIENT, "all of it": STATE}
    sharding = []
    for name, sharded_bytes in strategies.items():
        state_bytes = num_parameters * (STATE - sharded_bytes + sharded_bytes / devices)
        free_bytes = USABLE * device_bytes - state_bytes
        max_tokens = (activations.max_tokens(free_bytes, recomputes) for recomputes in (False, True))
        sharding.append(Sharding(name, state_bytes, *max_tokens))
    free_bytes = USABLE * device_bytes - activations.bytes(length, True)
    micro_tokens = min(settings.batch.micro_tokens, max(length, math.ceil(settings.batch.tokens / devices)))
    accumulates = settings.batch.tokens > devices * micro_tokens
    activation_bytes = activations.bytes(micro_tokens, settings.parallel.activation_checkpointing)
    return Plan(
        preset,
        recipe,
        settings.model.vocab_size,
        num_parameters,
        settings.mean_flops_per_token(),
        tokens,
        flops,
        flops / (devices * device_flops * utilization) / SECONDS_PER_DAY,
        activation_bytes / micro_tokens,
        micro_tokens,
        step_bytes(num_parameters, activation_bytes, accumulates),
        length,
        tuple(sharding),
        math.ceil(num_parameters * STATE / free_bytes) if free_bytes > 0 else None,
    )


def step_bytes(num_parameters: int, activations: float, accumulates: bool) -> float:
    """Peak memory of a step. The backward pass of the first micro-batch allocates the gradients while it frees the
    activations; with gradient accumulation, the forward passes of the others need both."""
    in_forward = num_parameters * (WEIGHT + MOMENTS + GRADIENT * accumulates) + activations
    return max(in_forward, num_parameters * STATE + WORKSPACE)


class Activations:
    """Memory of a micro-batch, without weights, gradients and optimizer state, at its peak: when the backward pass
    begins, and everything is kept that it needs.

    Per token, a block keeps in half precision its input, queries, keys, values, the attention output, the input of fc1,
    the output of fc1 and its activation; and two sums before norms, with pre-norm in float32. Dropout keeps no masks.
    """

    def __init__(self, settings: PretrainSettings):
        with torch.device("meta"):
            model = new_network(settings)
        # The last encoder is the one whose backward pass comes first.
        self._encoders = [model.generator, model.discriminator] if hasattr(model, "discriminator") else [model]
        self._settings = settings
        self._num_matrix_parameters = sum(matrix.numel() for matrix in model.parameters() if matrix.ndim > 1)

    def bytes(self, tokens: int, recomputes: bool) -> float:
        """Bytes for micro-batches of this many tokens; `recomputes`: with activation checkpointing."""
        # Linear layers keep a copy of their weights in half precision for the backward pass.
        total = WORKSPACE + (0.0 if recomputes else HALF * self._num_matrix_parameters)
        largest = 0.0  # of the temporary tensors
        for encoder in self._encoders:
            config = encoder.config
            block, block_input = _block_bytes(config), _input_bytes(config)
            total += tokens * (block_input if recomputes else block) * config.num_layers
            total += tokens * (FLOAT + 1) * config.embedding_width  # embedding sum before the norm, and dropout mask
            if encoder is self._encoders[-1]:
                gradients = 2 * HALF * (config.width + config.inner_width)  # of the block whose backward pass runs
                largest = max(largest, self._head_bytes(encoder, tokens), tokens * (gradients + block * recomputes))
            else:  # the loss of a generator is computed after the forward pass of the discriminator
                largest = max(largest, tokens * self._num_logits(encoder) * (HALF + 2 * FLOAT))
        return total + largest

    def max_tokens(self, num_bytes: float, recomputes: bool) -> int:
        """The largest micro-batch that fits into this memory."""
        low, high = 0, 1
        while self.bytes(high, recomputes) <= num_bytes:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.bytes(middle, recomputes) <= num_bytes else (low, middle)
        return low

    def _num_logits(self, encoder: Transformer) -> float:
        """Logits per token."""
        masked = self._settings.masking.mean_probability if "mlm" in encoder.heads else 0.0
        return (1.0 if self._settings.predicts_next else masked) * encoder.config.padded_vocab_size

    def _head_bytes(self, encoder: Transformer, tokens: int) -> float:
        """The vocabulary head at its peak: log-probabilities, their gradient and that of the logits, in float32; or, if
        fused (`objectives/vocabulary_loss.py`), some logits at a time and the gradients of input and matrix."""
        if not self._settings.predicts_next:
            return tokens * self._num_logits(encoder) * 3 * FLOAT
        vocab_size, width = encoder.config.padded_vocab_size, encoder.config.width
        matrices = vocab_size * width * (HALF + (FLOAT if tokens > PART_ROWS else HALF))
        return HALF * (min(tokens, PART_ROWS) * vocab_size + tokens * width) + matrices


def _block_bytes(config: TransformerConfig) -> float:
    """Bytes per token that a block keeps."""
    sums = 2 * (FLOAT if config.pre_norm else HALF)
    return config.width * (6 * HALF + sums) + 2 * HALF * config.inner_width


def _input_bytes(config: TransformerConfig) -> float:
    """Bytes per token of a block's input; with pre-norm, the residual stream and its norm."""
    return config.width * (FLOAT + HALF if config.pre_norm else HALF)


@dataclass(frozen=True)
class Machine:
    where: str
    num_bytes: float  # memory per device
    flops: float  # peak FLOP/s per device
    speed: str  # the peak and its source, as text
    is_here: bool


def machine(
    device: str = "auto", devices: int = 1, gibibytes: float | None = None, tflops: float | None = None
) -> Machine:
    """This machine, measured, unless the arguments describe another one, whose speed defaults to that of an H100."""
    gibibytes = checked(gibibytes, float | None, "device_memory", above=0, high=1e6)
    tflops = checked(tflops, float | None, "device_tflops", above=0, high=1e6)
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
        flops, speed = tflops * 1e12, f"{tflops:g} TFLOP/s, as given"
    elif is_here or device == "cpu":
        flops = matrix_flops(here)
        speed = f"{flops / 1e12:.3g} TFLOP/s, measured on this machine in matrix products"
    else:
        flops = GPU_TFLOPS * 1e12
        speed = f"{GPU_TFLOPS:g} TFLOP/s, the assumed bfloat16 peak of an H100; tflops= overrides it"
    return Machine(where, num_bytes, flops, speed, is_here)
