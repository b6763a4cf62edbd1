"""The settings of a training run that do not depend on what is trained."""

import math
from dataclasses import dataclass, field
from typing import Literal

from hornbook.config import LARGEST_SEED, MAX_COUNT, ValidatedSettings, setting

MAX_BATCH_TOKENS = 2**28
MINUTES_PER_YEAR = 525_600
UNCORRECTED_START = 2**20  # step counts start here without bias correction: beta^step is 0, and counts exact in float32
HIGHEST_UNCORRECTED_BETA = 0.9999  # to the power of UNCORRECTED_START: 3e-46


@dataclass(frozen=True)
class OptimizerSettings(ValidatedSettings, group="optimizer"):
    name: Literal["adamw", "lamb", "muon"] = setting(
        "adamw", "lamb: for batches of thousands of sequences (You et al. 2019); muon: learns more per update"
    )
    lr: float = setting(1e-4, "peak learning rate", above=0, high=100)
    beta1: float = setting(0.9, "decay of the running mean of gradients", low=0, below=1)
    beta2: float = setting(0.999, "decay of the running mean of squared gradients", low=0, below=1)
    eps: float = setting(1e-6, "added to the root of the mean squared gradients", low=0, high=1)
    weight_decay: float = setting(
        0.01, "decoupled weight decay of matrices and embeddings; never of biases and norms", low=0, high=100
    )
    max_grad_norm: float = setting(1.0, "clip the gradient to this norm; 0: no clipping", low=0, high=1e9)
    ema_decay: float = setting(
        0.0,
        "decay of a running average of the weights, which is validated and saved in their place (EMA, such as 0.999); "
        "0: none",
        low=0,
        below=1,
    )
    bias_correction: bool = setting(
        True, "divide the running means by 1 - beta^step; false: as in the published code of BERT, ALBERT and ELECTRA"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("beta1", "beta2"):
            beta = getattr(self, name)
            if beta > HIGHEST_UNCORRECTED_BETA and not self.bias_correction:
                raise ValueError(
                    f"without bias correction optimizer.{name} must be at most {HIGHEST_UNCORRECTED_BETA}, not {beta}; "
                    f"lower it or set optimizer.bias_correction=true"
                )


@dataclass(frozen=True)
class ScheduleSettings(ValidatedSettings, group="schedule"):
    steps: int = setting(1_000_000, "number of updates", low=1, high=MAX_COUNT)
    warmup_fraction: float = setting(
        0.01, "fraction of the steps in which the learning rate warms up linearly from 0", low=0, below=1
    )
    warmup_steps: int | None = setting(
        None, "steps of learning-rate warmup; none: from warmup_fraction", low=0, high=MAX_COUNT
    )
    decay_in_warmup: bool = setting(
        False, "the decay starts at step 0 and multiplies the warmup, as in ELECTRA; false: it starts after the warmup"
    )
    power: float = setting(1.0, "exponent of the polynomial decay; 1 is linear", above=0, high=100)
    decay: Literal["polynomial", "cosine"] = setting("polynomial", "learning-rate decay")
    min_lr_ratio: float = setting(0.0, "final learning rate as a fraction of the peak (GPT-3: 0.1)", low=0, high=1)
    decay_fraction: float = setting(
        1.0, "fraction of the steps after which the learning rate stays at its minimum", above=0, high=1
    )

    def lr_ratio(self, step: int) -> float:
        """The learning rate at a step, counted from 0, as a fraction of the peak: linear warmup, then decay.

        The warmup counts from 1, so that the first update does not have learning rate 0 as in the published code. A
        warmup longer than the run never reaches the peak.
        """
        warmup = round(self.warmup_fraction * self.steps) if self.warmup_steps is None else self.warmup_steps
        last = self.steps if self.decay_fraction == 1 else round(self.decay_fraction * self.steps)
        if self.decay_in_warmup:
            return min(1.0, (step + 1) / max(warmup, 1)) * self._decayed(max(0.0, 1 - step / max(last, 1)))
        if step < warmup:
            return (step + 1) / (warmup + 1)
        return self._decayed((last - step) / (last - warmup) if step < last else 0.0)

    def _decayed(self, remaining: float) -> float:
        """The decay factor when this fraction of the decay remains, from 1 down to `min_lr_ratio`."""
        factor = remaining**self.power if self.decay == "polynomial" else (1 - math.cos(math.pi * remaining)) / 2
        return self.min_lr_ratio + (1 - self.min_lr_ratio) * factor


@dataclass(frozen=True)
class BatchSettings(ValidatedSettings, group="batch"):
    tokens: int = setting(
        131_072, "tokens per batch, counting every sequence at its length limit", low=8, high=MAX_BATCH_TOKENS
    )
    micro_tokens: int = setting(
        65_536,
        "maximum tokens per micro-batch; halved automatically when memory runs out",
        low=8,
        high=MAX_BATCH_TOKENS,
    )
    first_tokens: int | None = setting(
        None,
        "tokens in the first batch; batches grow from there to batch.tokens (GPT-3); none: constant batch size",
        low=8,
        high=MAX_BATCH_TOKENS,
    )
    growth_fraction: float = setting(
        0.02, "fraction of the steps in which batches grow, linearly in the tokens seen", above=0, high=1
    )

    @property
    def grows(self) -> bool:
        return self.first_tokens is not None and self.first_tokens < self.tokens

    @property
    def mean_tokens(self) -> float:
        """Mean number of tokens per batch over the whole run."""
        if not self.grows:
            return self.tokens
        growing = (self.tokens - self.first_tokens) / math.log(self.tokens / self.first_tokens)
        return self.growth_fraction * growing + (1 - self.growth_fraction) * self.tokens

    def tokens_before(self, step: float, num_steps: int) -> float:
        """Number of tokens in all batches before `step`, in a run of `num_steps`.

        A batch size that is linear in the tokens seen grows exponentially in the steps:
        d tokens / d step = first + a x tokens.
        """
        if not self.grows:
            return step * self.tokens
        growing = self.growth_fraction * num_steps
        exponent = math.log(self.tokens / self.first_tokens) / growing
        while_growing = self.first_tokens / exponent * math.expm1(exponent * min(step, growing))
        return while_growing + self.tokens * max(0.0, step - growing)


@dataclass(frozen=True)
class CheckpointSettings(ValidatedSettings, group="checkpoint"):
    every_steps: int = setting(1000, "steps between checkpoints; 0: only by minutes", low=0, high=MAX_COUNT)
    every_minutes: float = setting(5.0, "minutes between checkpoints; 0: only by steps", low=0, high=MINUTES_PER_YEAR)
    keep: int = setting(2, "number of most recent checkpoints to keep", low=1, high=MAX_COUNT)
    at_start: bool = setting(True, "save a checkpoint before the first step, so that a rollback is always possible")
    keep_optimizer: bool = setting(True, "keep the optimizer state in the last checkpoint of a finished run")
    keep_at: tuple[int, ...] = setting(
        (), "steps whose weights are validated and kept permanently in kept/", low=1, high=MAX_COUNT
    )


@dataclass(frozen=True)
class ValidationSettings(ValidatedSettings, group="validation"):
    every_steps: int | None = setting(
        None,
        "steps between validations; none: a twentieth of the steps but at most 1,000, and more if validation would "
        "take over a tenth of the time; in fine-tuning, an epoch",
        low=1,
        high=MAX_COUNT,
    )
    tokens: int = setting(262_144, "maximum tokens of held-out text", low=1, high=MAX_COUNT)
    patience: int | None = setting(
        None, "stop early after this many validations without improvement; none: never", low=1, high=MAX_COUNT
    )


@dataclass(frozen=True)
class LossSpikeSettings(ValidatedSettings, group="loss_spike"):
    deviations: float = setting(
        10.0, "a spike is a loss this many standard deviations above its running mean; 0: off", low=0, high=1e6
    )
    min_increase: float = setting(1.0, "a spike is at least this far above the running mean", low=0, high=1e6)
    history_steps: int = setting(50, "steps before spike detection starts", low=0, high=1_000_000)


@dataclass(frozen=True)
class ParallelSettings(ValidatedSettings, group="parallel"):
    shard: bool = setting(
        False, "spread weights, gradients and optimizer state over the processes that torchrun starts (FSDP2)"
    )
    activation_checkpointing: bool = setting(
        False, "compute each block again in the backward pass instead of keeping its activations: less memory, slower"
    )


@dataclass(frozen=True)
class RuntimeSettings(ValidatedSettings, group="runtime"):
    seed: int = setting(0, "random seed", low=0, high=LARGEST_SEED)
    device: str = setting("auto", "auto, cpu, cuda, cuda:1 ...")
    precision: Literal["auto", "float32", "bfloat16"] = setting("auto", "auto: bfloat16 where the device supports it")
    compile: Literal["auto", "yes", "no"] = setting(
        "auto", "torch.compile the blocks; auto: on CUDA, when the run is long enough"
    )
    cuda_graphs: bool = setting(True, "on CUDA, capture whole steps as CUDA graphs where a batch is one micro-batch")
    threads: int = setting(
        0, "CPU threads; 0: all cores; a resumed run uses the number it started with", low=0, high=1024
    )
    loader_workers: int = setting(
        -1, "processes that prepare batches in advance; -1: 0 on a CPU, 4 on CUDA", low=-1, high=256
    )
    log_every_steps: int = setting(10, "steps between lines of metrics.jsonl", low=1, high=MAX_COUNT)
    tensorboard: bool = setting(True, "also write the metrics for TensorBoard")


@dataclass(frozen=True)
class LoopSettings(ValidatedSettings, group=""):
    """The groups of settings that the loop reads. The settings of each kind of run inherit from this class and from one
    with groups of their own, which come first in `--show` and in records."""

    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    loss_spike: LossSpikeSettings = field(default_factory=LossSpikeSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)
    parallel: ParallelSettings = field(default_factory=ParallelSettings)

    @property
    def unused(self) -> dict[str, str]:
        """Settings and groups that this run does not use, with the reason for each."""
        unused = {}
        if not self.batch.grows:
            unused["batch.growth_fraction"] = "all batches have the same size; set batch.first_tokens too"
        if self.schedule.warmup_steps is not None:
            unused["schedule.warmup_fraction"] = "schedule.warmup_steps sets the warmup; set it to none"
        if self.schedule.decay == "cosine":
            unused["schedule.power"] = "it is the exponent of schedule.decay=polynomial"
        if not self.loss_spike.deviations:
            why = "loss_spike.deviations=0 turns off the detection of spikes"
            unused |= dict.fromkeys(("loss_spike.min_increase", "loss_spike.history_steps"), why)
        return unused

    def check_run(self, num_ranks: int) -> None:
        """Raises a `ValueError` for settings that do not fit the steps or the processes of the run, which are known
        later than the settings. To be called before the run is recorded: a recorded run keeps its settings."""
        if self.parallel.shard and num_ranks > 1 and self.optimizer.ema_decay:
            raise ValueError("optimizer.ema_decay needs whole weights on every device: set parallel.shard=false")
        if beyond := [step for step in self.checkpoint.keep_at if step > self.schedule.steps]:
            raise ValueError(
                f"checkpoint.keep_at has step {beyond[0]:,}, but schedule.steps={self.schedule.steps:,}: use steps "
                "within the run"
            )
