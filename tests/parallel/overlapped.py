"""Sums of gradients on each rank, and when they start."""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from hornbook.train.objective import TrainingModule
from hornbook.train.optimizer import make_optimizer
from hornbook.train.parallel import gradients
from hornbook.train.parallel.gradients import GradientSums
from hornbook.train.parallel.ranks import current_ranks
from hornbook.train.settings import OptimizerSettings
from hornbook.train.step import Stepper
from train.small import CPU, small_batch, small_model, small_objective

STEPS = 3


def order_of_events(folder: str, compiles: bool = False) -> None:
    """Takes steps of two micro-batches with a model that has a parameter without use. Each rank writes what happens in
    each step: the names of parameters whose gradients arrive, and the sums that start."""
    gradients.BUCKET_BYTES = 4096
    torch.manual_seed(0)
    events, all_reduce = [], dist.all_reduce

    def recorded(tensor, *arguments, async_op=False, **named):
        events.extend(["sum"] * async_op)
        return all_reduce(tensor, *arguments, async_op=async_op, **named)

    dist.all_reduce = recorded
    model, batch = small_model(num_layers=3), small_batch(current_ranks().rank)
    model.unused = nn.Linear(4, 4)  # the last parameters, and so in the first bucket
    for block in model.blocks if compiles else ():
        block.fc1.compile(backend="aot_eager")  # the rest, or another compiler, would take minutes
    module = TrainingModule(model, small_objective())
    optimizer = make_optimizer(model, OptimizerSettings())
    stepper = Stepper(module, optimizer, CPU, 0, 1.0, batch.num_tokens // 2 + 24, current_ranks())
    for name, parameter in model.named_parameters():
        parameter.register_post_accumulate_grad_hook(lambda _, name=name: events.append(name))
    steps = []
    for number in range(STEPS):
        stepper.train_step(batch, number, 1e-3)
        steps.append(events.copy())
        events.clear()
    stepper.close()
    found = {"steps": steps, "buckets": len(stepper.gradients.buckets), "unused": model.unused.weight.grad is not None}
    found["weights"] = [each.double().sum().item() for each in model.parameters()]
    Path(folder, f"{current_ranks().rank}.json").write_text(json.dumps(found))


def sums_of_four(folder: str) -> None:
    """Four parameters: one that both ranks use, one that rank 0 uses, one that each uses in another micro-batch, and
    one without use. In the second of three steps, rank 1 runs out of memory when some sums have started."""
    gradients.BUCKET_BYTES = 8
    rank = current_ranks().rank
    both, first, other, _ = parameters = [nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(4)]
    sums = GradientSums(current_ranks(), parameters, overlaps=True)

    def backward(factor: float, is_short: bool = False) -> float:
        losses = [(both * 2 + (first * 3 if rank == 0 else 0)).sum(), (both * 1 + other * (rank + 1)).sum()]
        losses = losses if rank else losses[::-1]
        (factor * losses[0]).backward()
        sums.start(losses[1])
        if is_short and rank:
            both.register_hook(lambda _: out_of_memory())
        (factor * losses[1]).backward()
        return factor

    def out_of_memory():
        raise torch.OutOfMemoryError("CUDA out of memory" if 0 < len(sums._started) < 4 else "at another moment")

    found = []
    for factor, is_short in ((1.0, False), (1.0, True), (2.0, False)):
        try:
            assert sums.summed_after(lambda factor=factor, is_short=is_short: backward(factor, is_short)) == factor
            found.append([None if each.grad is None else each.grad.tolist() for each in parameters])
        except torch.OutOfMemoryError as error:
            assert all(each.grad is None for each in parameters)
            both._backward_hooks = None
            found.append(str(error))
        for each in parameters:
            each.grad = None
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
