"""What a loop trains with: the module on its device, the optimizer, the running average and the stepper."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import nn

from hornbook.train.ema import AveragedWeights
from hornbook.train.job import Job
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel.ranks import Ranks
from hornbook.train.runtime import Runtime
from hornbook.train.settings import LoopSettings
from hornbook.train.step import Stepper

if TYPE_CHECKING:
    from hornbook.train.parallel.sharding import Sharded


@dataclass(frozen=True)
class TrainingSetup:
    """`sharded`: the weights, if each rank has a share of them; `trained`: whose parameters are updated."""

    sharded: "Sharded | None"
    trained: "Sharded | nn.Module"
    optimizer: torch.optim.Optimizer
    ema: AveragedWeights | None
    stepper: Stepper


def set_up(job: Job, settings: LoopSettings, runtime: Runtime, ranks: Ranks) -> TrainingSetup:
    """Moves the module of the job to the device, or its shares to the devices of the ranks."""
    module, sharded = _placed(job.module, settings, runtime, ranks)
    step_runtime = _step_runtime(module, settings, runtime)
    trained = sharded or job.model
    optimizer = make_optimizer(trained, settings.optimizer, job.lr_multiplier_of)
    if sharded is not None:
        optimizer.shards = sharded
    ema = _ema(job.model, settings, sharded)
    stepper = Stepper(
        module,
        optimizer,
        step_runtime,
        settings.runtime.seed,
        settings.optimizer.max_grad_norm,
        settings.batch.micro_tokens,
        ranks,
        sharded,
    )
    return TrainingSetup(sharded, trained, optimizer, ema, stepper)


def _placed(
    module: TrainingModule, settings: LoopSettings, runtime: Runtime, ranks: Ranks
) -> tuple[TrainingModule, "Sharded | None"]:
    """The module to train and its shares, if it is sharded; all ranks get the weights of the main one."""
    if not settings.parallel.shard or ranks.size == 1:
        module.to(runtime.device)
        ranks.broadcast(_tensors_of(module))
        return module, None
    from hornbook.train.parallel.sharding import Sharded  # FSDP2 takes a second to import

    ranks.broadcast(_tensors_of(module.cpu()))
    sharded = Sharded(module, ranks, runtime.device)
    return sharded.module, sharded


def _tensors_of(module: nn.Module) -> list[torch.Tensor]:
    return [*module.parameters(), *module.buffers()]


def _step_runtime(module: TrainingModule, settings: LoopSettings, runtime: Runtime) -> Runtime:
    """The runtime of training steps; activation checkpointing changes it."""
    if not settings.parallel.activation_checkpointing:
        return runtime
    from hornbook.train.parallel.sharding import checkpoint_activations

    return checkpoint_activations(module.model, runtime)


def _ema(model: nn.Module, settings: LoopSettings, sharded: "Sharded | None") -> AveragedWeights | None:
    if not settings.optimizer.ema_decay:
        return None
    if sharded is not None:
        raise ValueError("optimizer.ema_decay needs whole weights on every device: set parallel.shard=false")
    return AveragedWeights(model, settings.optimizer.ema_decay)
