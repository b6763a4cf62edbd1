"""The settings of a training run that do not depend on what is trained."""

import math
from dataclasses import dataclass
from typing import Literal

from hornbook.config import LARGEST_SEED, MANY, Typed, setting

MOST_BATCH_TOKENS = 2**28
MINUTES_A_YEAR = 525_600
UNCORRECTED_START = 2**20  # counted from here, beta^step is 0 to every digit, and counts stay exact in float32
HIGHEST_UNCORRECTED_BETA = 0.9999  # to the power of the start: 3e-46


@dataclass(frozen=True)
class OptimizerSettings(Typed, group="optimizer"):
    name: Literal["adamw", "lamb", "muon"] = setting(
        "adamw", "lamb for batches of thousands of sequences (You et al. 2019); muon to learn more from each update"
    )
    lr: float = setting(1e-4, "peak learning rate", above=0, high=100)
    beta1: float = setting(0.9, "decay of the running mean of gradients", low=0, below=1)
    beta2: float = setting(0.999, "decay of the running mean of squared gradients", low=0, below=1)
    eps: float = setting(1e-6, "added to the root of the squared gradients", low=0, high=1)
    weight_decay: float = setting(
        0.01, "decoupled decay of matrices and tables; never of biases and norms", low=0, high=100
    )
    clip: float = setting(1.0, "largest norm of the whole gradient; 0 does not clip", low=0, high=1e9)
    bias_correction: bool = setting(
        True, "divide the running means by 1 - beta^step; no: as in the published code of BERT, ALBERT and ELECTRA"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            beta = getattr(self, name)
            if beta > HIGHEST_UNCORRECTED_BETA and not self.bias_correction:
                raise ValueError(
                    f"without bias correction optimizer.{name} can be at most {HIGHEST_UNCORRECTED_BETA}, not {beta}; "
                    f"lower it or set optimizer.bias_correction=true"
                )


@dataclass(frozen=True)
class ScheduleSettings(Typed, group="schedule"):
    steps: int = setting(1_000_000, "number of updates", low=1, high=MANY)
    warmup_fraction: float = setting(
        0.01, "share of the steps in which the rate rises from 0; then it falls to 0", low=0, below=1
    )
    warmup_steps: int | None = setting(
        None, "steps in which the rate rises; none takes warmup_fraction", low=0, high=MANY
    )
    shape: Literal["joined", "multiplied"] = setting(
        "joined", "up to the peak, then down from there; or the rise times a fall that starts at once, as in ELECTRA"
    )
    power: float = setting(1.0, "of the way down: 1 is a line", above=0, high=100)
    decay: Literal["power", "cosine"] = setting("power", "the way down: a power of the steps left, or half a cosine")
    min_lr_ratio: float = setting(0.0, "share of the peak rate at the end (GPT-3: 0.1)", low=0, high=1)
    decay_fraction: float = setting(
        1.0, "share of the steps after which the rate is at its floor, and stays there", above=0, high=1
    )

    def rate(self, step: int) -> float:
        """The share of the peak rate at a step, the first being 0: up in a line, then down to the floor.

        The rise counts from 1, so that the first update is not made at rate 0 as in the published code. A warm-up
        longer than the run never gets to the peak.
        """
        warmup = round(self.warmup_fraction * self.steps) if self.warmup_steps is None else self.warmup_steps
        last = self.steps if self.decay_fraction == 1 else round(self.decay_fraction * self.steps)
        if self.shape == "multiplied":
            return min(1.0, (step + 1) / max(warmup, 1)) * self._down(max(0.0, 1 - step / max(last, 1)))
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return self._down((last - step) / (last - warmup) if step < last else 0.0)

    def _down(self, share_left: float) -> float:
        """The rate with such a share of the way down left."""
        fallen = share_left**self.power if self.decay == "power" else (1 - math.cos(math.pi * share_left)) / 2
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * fallen


@dataclass(frozen=True)
class BatchSettings(Typed, group="batch"):
    tokens: int = setting(
        131_072, "tokens in a batch, counting every sequence at its length limit", low=8, high=MOST_BATCH_TOKENS
    )
    micro_tokens: int = setting(
        65_536,
        "most tokens that go through the model at once; halves itself when memory is short",
        low=8,
        high=MOST_BATCH_TOKENS,
    )

    first_tokens: int | None = setting(
        None,
        "tokens in the first batch, where batches grow from there to batch.tokens (GPT-3); none: all are alike",
        low=8,
        high=MOST_BATCH_TOKENS,
    )
    growth_fraction: float = setting(
        0.02, "share of the steps in which they grow, in a line over the tokens seen", above=0, high=1
    )

    @property
    def grows(self) -> bool:
        return self.first_tokens is not None and self.first_tokens < self.tokens

    @property
    def mean_tokens(self) -> float:
        """Tokens in a batch, over the whole run."""
        if not self.grows:
            return self.tokens
        growing = (self.tokens - self.first_tokens) / math.log(self.tokens / self.first_tokens)
        return self.growth_fraction * growing + (1 - self.growth_fraction) * self.tokens

    def tokens_before(self, step: float, num_steps: int) -> float:
        """Tokens in all batches before a step of a run.

        A batch that is a line over the tokens seen is a power over the steps: d tokens / d step = first + a x tokens.
        """
        if not self.grows:
            return step * self.tokens
        growing = self.growth_fraction * num_steps
        exponent = math.log(self.tokens / self.first_tokens) / growing
        while_growing = self.first_tokens / exponent * math.expm1(exponent * min(step, growing))
        return while_growing + self.tokens * max(0.0, step - growing)


@dataclass(frozen=True)
class CheckpointSettings(Typed, group="checkpoint"):
    every_steps: int = setting(1000, "steps between checkpoints; 0 leaves it to the minutes", low=0, high=MANY)
    every_minutes: float = setting(
        5.0, "minutes between checkpoints; 0 leaves it to the steps", low=0, high=MINUTES_A_YEAR
    )
    keep: int = setting(2, "how many of the last checkpoints are kept", low=1, high=MANY)
    at_start: bool = setting(True, "also before the first step, so that a run can always go back")
    keep_optimizer: bool = setting(True, "also when the run is finished and nothing goes on from it")
    keep_at: tuple[int, ...] = setting(
        (), "steps whose weights stay in kept/ for good; each is validated too", low=1, high=MANY
    )


@dataclass(frozen=True)
class ValidationSettings(Typed, group="validation"):
    every_steps: int | None = setting(
        None,
        "steps between validations; none takes a twentieth of the run, at most 1,000; of a short run, more",
        low=1,
        high=MANY,
    )
    tokens: int = setting(262_144, "tokens of held-out text looked at, at most", low=1, high=MANY)
    patience: int | None = setting(
        None, "validations without a better one after which the run ends; none: never", low=1, high=MANY
    )


@dataclass(frozen=True)
class GuardSettings(Typed, group="guard"):
    spike_deviations: float = setting(
        10.0, "a loss so many deviations above its running mean is a spike; 0 turns it off", low=0, high=1e6
    )
    spike_least: float = setting(1.0, "and at least so far above it", low=0, high=1e6)
    history_steps: int = setting(50, "steps before spikes are looked for", low=0, high=1_000_000)


@dataclass(frozen=True)
class RuntimeSettings(Typed, group="runtime"):
    seed: int = setting(0, "everything random follows from it", low=0, high=LARGEST_SEED)
    device: str = setting("auto", "auto, cpu, cuda, cuda:1 ...")
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", "bfloat16 where the device computes in it")
    compile: Literal["auto", "yes", "no"] = setting(
        "auto", "compile the block; auto: on CUDA, when the run is long enough"
    )
    graphs: bool = setting(True, "on CUDA, capture whole steps, where a batch goes through the model at once")
    threads: int = setting(
        0, "CPU threads; 0 takes the cores there are, and a resumed run takes what it had", low=0, high=1024
    )
    loader_workers: int = setting(
        -1, "processes that make batches ahead; -1 takes 0 on a CPU and 4 on CUDA", low=-1, high=256
    )
    log_every_steps: int = setting(10, "steps between lines of metrics.jsonl", low=1, high=MANY)
    tensorboard: bool = setting(True, "write the same numbers for TensorBoard")
