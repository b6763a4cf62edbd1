"""Gradients summed over the ranks while the backward pass still runs.

Parameters are grouped into buckets in the reverse of their order in the model, which is about the order in which the
backward pass reaches them. In the backward pass of the last micro-batch, the sum of a bucket starts as soon as all of
its gradients are there; all ranks start the buckets in the same order. Gradients that the backward pass does not reach
are summed after it.

`DistributedDataParallel` does the same for means, but leaves the other ranks waiting for ever when one of them runs out
of memory in the backward pass. Here, that rank takes part in the remaining sums with zeros, and all repeat the step.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from hornbook.train.parallel.ranks import Ranks, collective, unless_out_of_memory

BUCKET_BYTES = 25 * 2**20  # gradients are summed in buckets of about this size, as in DistributedDataParallel
Result = TypeVar("Result")


class GradientSums:
    """Sums the gradients of these parameters over the ranks, in place. With `overlaps`, the sums start during a
    backward pass that `start` announces. For one rank it does nothing."""

    def __init__(self, ranks: Ranks, parameters: Iterable[nn.Parameter], overlaps: bool = False):
        self.ranks = ranks
        self.parameters = [each for each in parameters if each.requires_grad] if ranks.size > 1 else []
        self.buckets = _buckets(self.parameters[::-1])
        self._bucket_of = {parameter: i for i, bucket in enumerate(self.buckets) for parameter in bucket}
        self._started: list[dist.Work] = []  # the sums of the first buckets
        self._missing: set[nn.Parameter] = set()  # had no gradient when their bucket was started
        self._awaited: list[set[nn.Parameter]] = []  # for each bucket, the gradients to wait for; empty: not started
        self._num_arrived = 0
        self._are_all_used = True  # in the last backward pass
        hooked = self.parameters if overlaps else []
        self._hooks = [each.register_post_accumulate_grad_hook(self._arrived) for each in hooked]

    def start(self, loss: Tensor) -> None:
        """To be called before the last `loss.backward()` of a step, which then starts the sums of complete buckets."""
        awaited = set(self.parameters) if self._are_all_used else parameters_of(loss)
        self._awaited = [awaited.intersection(bucket) for bucket in self.buckets]

    def summed_after(self, backward: Callable[[], Result]) -> Result:
        """What `backward` returns, with all its gradients summed over the ranks. If memory runs out on one rank, it
        does on all, so that all of them repeat a step."""
        if self.ranks.size == 1:
            return backward()
        result, error = unless_out_of_memory(backward)
        if self.finish(failed=error is not None):
            raise torch.OutOfMemoryError(error or "out of memory on another rank")
        return result

    def finish(self, failed: bool = False) -> bool:
        """Starts the sums that have not started yet, and waits for all of them. True if this or another rank `failed`:
        then there are no gradients. A parameter without a gradient on this rank gets one if it has one on another."""
        if failed:
            for bucket in self.buckets[len(self._started) :]:
                _drop_gradients(bucket)
        while len(self._started) < len(self.buckets):
            self._start_next()
        has_gradient = (parameter not in self._missing for parameter in self.parameters)
        num_failed, *num_ranks = self.ranks.sum(failed, *has_gradient)
        with collective():
            for work in self._started:
                work.wait()
        _drop_gradients(each for each, num in zip(self.parameters, num_ranks, strict=True) if num_failed or not num)
        self._are_all_used = self._num_arrived == len(self.parameters)
        self._started, self._awaited, self._num_arrived = [], [], 0
        self._missing.clear()
        return num_failed > 0

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()

    def _arrived(self, parameter: nn.Parameter) -> None:
        """Called in the backward pass, when the gradient of a parameter is complete."""
        if not self._awaited:  # more micro-batches follow
            return
        self._num_arrived += 1
        self._awaited[self._bucket_of[parameter]].discard(parameter)
        while len(self._started) < len(self.buckets) and not self._awaited[len(self._started)]:
            self._start_next()

    @torch.no_grad()
    def _start_next(self) -> None:
        """Starts the sum of the next bucket. Its gradients become parts of one tensor."""
        bucket = self.buckets[len(self._started)]
        gradients = [torch.zeros_like(each) if each.grad is None else each.grad for each in bucket]
        flat = torch.cat([each.flatten() for each in gradients]) if len(bucket) > 1 else gradients[0].flatten()
        with collective():
            self._started.append(dist.all_reduce(flat, async_op=True))
        self._missing.update(each for each in bucket if each.grad is None)
        for parameter, part in zip(bucket, flat.split([each.numel() for each in bucket]), strict=True):
            parameter.grad = part.view_as(parameter)


def parameters_of(loss: Tensor) -> set[Tensor]:
    """The parameters that `loss.backward()` reaches."""
    parameters, seen, waiting = set(), {None}, [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if isinstance(parameter := getattr(node, "variable", None), nn.Parameter):
            parameters.add(parameter)
        waiting += [before for before, _ in node.next_functions]
    return parameters


def _buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """Parameters of one data type in groups of at most `BUCKET_BYTES`; a larger parameter is a group by itself."""
    buckets: list[list[nn.Parameter]] = []
    num_bytes = 0
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if not buckets or num_bytes + size > BUCKET_BYTES or parameter.dtype != buckets[-1][0].dtype:
            buckets.append([])
            num_bytes = 0
        buckets[-1].append(parameter)
        num_bytes += size
    return buckets


def _drop_gradients(parameters: Iterable[nn.Parameter]) -> None:
    for parameter in parameters:
        parameter.grad = None
