"""Builds what the loop trains with: the module on its device, the optimizer, the running average and the stepper."""

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import nn

from hornbook.train.ema import AveragedWeights
from hornbook.train.job import TrainingJob
from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel.ranks import SINGLE_PROCESS, Ranks
from hornbook.train.runtime import Runtime
from hornbook.train.settings import LoopSettings
from hornbook.train.step import Stepper

if TYPE_CHECKING:
    from hornbook.train.parallel.sharding import Sharded


class TrainingSetup(NamedTuple):
    """`sharded`: the weights, if they are spread over the ranks; `trained`: has the parameters that are updated."""

    sharded: "Sharded | None"
    trained: "Sharded | nn.Module"
    optimizer: torch.optim.Optimizer
    ema: AveragedWeights | None
    stepper: Stepper


def set_up(job: TrainingJob, settings: LoopSettings, runtime: Runtime, ranks: Ranks) -> TrainingSetup:
    """Moves the module of the job to the device, or its shards to the devices of the ranks. All ranks get the weights
    of the main one."""
    is_sharded = settings.parallel.shard and ranks.size > 1
    if is_sharded and settings.optimizer.ema_decay:
        raise ValueError("optimizer.ema_decay needs whole weights on every device: set parallel.shard=false")
    module, sharded = job.module.to("cpu" if is_sharded else runtime.device), None
    ranks.broadcast([*module.parameters(), *module.buffers()])
    if is_sharded:
        from hornbook.train.parallel.sharding import Sharded  # FSDP2 takes a second to import

        sharded = Sharded(module, ranks, runtime.device)
        module = sharded.module
    trained = sharded or job.model
    optimizer = make_optimizer(trained, settings.optimizer, job.lr_multiplier_of)
    if sharded is not None:
        optimizer.shards = sharded
    ema = AveragedWeights(job.model, settings.optimizer.ema_decay) if settings.optimizer.ema_decay else None
    stepper = make_stepper(module, optimizer, settings, runtime, ranks, sharded)
    return TrainingSetup(sharded, trained, optimizer, ema, stepper)


def make_stepper(
    module: TrainingModule,
    optimizer: torch.optim.Optimizer,
    settings: LoopSettings,
    runtime: Runtime,
    ranks: Ranks = SINGLE_PROCESS,
    sharded: "Sharded | None" = None,
) -> Stepper:
    """The stepper of a run, with activation checkpointing if the settings say so."""
    if settings.parallel.activation_checkpointing:
        from hornbook.train.parallel.sharding import checkpoint_activations

        runtime = checkpoint_activations(module.model, runtime)
    seed, max_grad_norm = settings.runtime.seed, settings.optimizer.max_grad_norm
    return Stepper(module, optimizer, runtime, seed, max_grad_norm, settings.batch.micro_tokens, ranks, sharded)
