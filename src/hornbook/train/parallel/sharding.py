"""Weights, gradients and optimizer state spread over the ranks (FSDP2's `fully_shard`), for models that do not fit on
one device; and activation checkpointing.

Matrices and embeddings are split by rows; each block's are gathered while it computes. Vectors (biases and norms) stay
whole on every rank: they are small, and a pre-norm block reads the norm of the next one. The optimizer sees this rank's
rows as ordinary parameters. LAMB's norms are summed over the ranks, and Muon's matrices are gathered to be
orthogonalised.

The module as it was before sharding is kept on the host. Its weights are brought up to date to validate and to save, so
a checkpoint is the same with and without sharding, whatever the number of ranks.
"""

import copy
import dataclasses
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint

from hornbook.train.objective import TrainingModule
from hornbook.train.parallel.gradients import GradientSums
from hornbook.train.parallel.ranks import Ranks
from hornbook.train.runtime import Runtime


class ShardedModule:
    """A copy of `whole` whose matrices are spread over the ranks. `parameters` holds this rank's rows of each
    parameter, by its name in the model."""

    def __init__(self, whole: TrainingModule, ranks: Ranks, device: torch.device):
        if getattr(whole.model, "teacher", None) is not None:
            raise ValueError("parallel.shard is for a model without a teacher, as a student is small: leave it out")
        self.whole, self.ranks, self.device = whole, ranks, device
        whole.to("cpu")
        for part in whole.modules():
            part._compiled_call_impl = None
        self.module = copy.deepcopy(whole, {id(whole.objective): whole.objective})
        mesh, model = init_device_mesh(device.type, (ranks.size,)), self.module.model
        vectors = {parameter for parameter in model.parameters() if parameter.ndim < 2}
        shard = partial(fully_shard, mesh=mesh, ignored_params=vectors)
        blocks = blocks_of(model)
        parameters = [parameter for block in blocks for parameter in block.parameters()]
        # Blocks that share a parameter (as in a partly shared ALBERT) are gathered together with everything else.
        for block in blocks if len(set(parameters)) == len(parameters) else ():
            shard(block)
        shard(self.module)
        for part in self.module.modules():
            if isinstance(part, FSDPModule):
                part.set_gradient_divide_factor(1.0)  # sums, not means
                part.set_force_sum_reduction_for_comms(True)
        for vector in vectors:
            vector.data = vector.data.to(device)
        self._sources = dict(model.named_parameters())
        self.parameters = {
            name: nn.Parameter(each.to_local().detach(), each.requires_grad) if isinstance(each, DTensor) else each
            for name, each in self._sources.items()
        }
        self._vector_sums = GradientSums(ranks, [each for each in model.parameters() if each in vectors])
        self._names = {parameter: name for name, parameter in self.parameters.items()}

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        yield from self.parameters.items()

    @property
    def followed(self) -> list[tuple[nn.Parameter, ...]]:
        """The pairs of parameters of which the second follows the first, as in the model."""
        names = {parameter: name for name, parameter in self._sources.items()}
        pairs = getattr(self.module.model, "followed", ())
        return [tuple(self.parameters[names[each]] for each in pair) for pair in pairs]

    @torch.no_grad()
    def collect_gradients(self) -> None:
        """After the backward pass: gradients of rows are sums over the ranks already; those of vectors are summed."""
        rows = []
        for name, source in self._sources.items():
            if isinstance(source, DTensor):
                gradient, source.grad = source.grad, None
                self.parameters[name].grad = None if gradient is None else gradient.to_local()
                rows.append(self.parameters[name])
        self._vector_sums.finish()
        # A rank without rows of a matrix may have no gradient of it, but must count its updates as the others do.
        has_gradient = self.ranks.sum(*(parameter.grad is not None for parameter in rows))
        for parameter, num_ranks in zip(rows, has_gradient, strict=True):
            if num_ranks and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)

    def grad_norm(self) -> Tensor:
        gradients: dict[bool, list[Tensor]] = {True: [], False: []}
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                gradients[isinstance(self._sources[name], DTensor)].append(parameter.grad)
        of_rows, of_vectors = (torch.nn.utils.get_total_norm(gradients[kind]).to(self.device) for kind in (True, False))
        return (self.ranks.all_reduce({"squares": of_rows.square()})["squares"] + of_vectors.square()).sqrt()

    def norms(self, rows: list[Tensor]) -> list[Tensor]:
        """The norms of whole matrices, for LAMB."""
        squares = {str(i): norm.square() for i, norm in enumerate(torch._foreach_norm(rows))}
        return [square.sqrt() for square in self.ranks.all_reduce(squares).values()]

    def gathered(self, parameters: list[Tensor], rows: list[Tensor]) -> list[Tensor]:
        """Whole matrices from rows, for Muon."""
        return [self._whole(self._names[each], own) for each, own in zip(parameters, rows, strict=True)]

    def local_rows(self, matrices: list[Tensor]) -> list[Tensor]:
        """This rank's rows of whole matrices, for Muon."""
        return [self._local_rows(matrix) for matrix in matrices]

    def _whole(self, name: str, rows: Tensor) -> Tensor:
        """The whole parameter with these rows on this rank."""
        source = self._sources[name]
        if not isinstance(source, DTensor):
            return rows
        return DTensor.from_local(
            rows, source.device_mesh, source.placements, run_check=False, shape=source.shape, stride=source.stride()
        ).full_tensor()

    def _local_rows(self, matrix: Tensor) -> Tensor:
        parts = matrix.chunk(self.ranks.size)
        return parts[self.ranks.rank] if self.ranks.rank < len(parts) else matrix[:0]

    @torch.no_grad()
    def update_whole(self, on_all_ranks: bool = False) -> None:
        """Brings the weights of the whole module, on the host, up to date, by default only those of the main rank."""
        whole = dict(self.whole.model.named_parameters())
        for name, rows in self.parameters.items():
            gathered = self._whole(name, rows.detach())
            if self.ranks.is_main or on_all_ranks:
                whole[name].copy_(gathered)

    @torch.no_grad()
    def load_full_weights(self) -> None:
        """Takes over this rank's rows of the weights of the whole module, which are the same on all ranks."""
        for name, parameter in self.whole.model.named_parameters():
            is_sharded = isinstance(self._sources[name], DTensor)
            self.parameters[name].copy_(self._local_rows(parameter) if is_sharded else parameter)

    def whole_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The optimizer's state, `<quantity>/<parameter>`, of whole parameters, on the host."""
        return {
            key: (value if value.ndim == 0 else self._whole(key.partition("/")[2], value.to(self.device))).cpu()
            for key, value in tensors.items()
        }

    def local_state(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """This rank's rows of what `whole_state` returned."""
        sharded = {name for name, source in self._sources.items() if isinstance(source, DTensor)}
        return {
            key: self._local_rows(value) if value.ndim and key.partition("/")[2] in sharded else value
            for key, value in tensors.items()
        }


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The Transformer blocks of a model, or of both models of a pair, each once."""
    stacks = [part for name, part in model.named_modules() if name.split(".")[-1] == "blocks"]
    return list(dict.fromkeys(block for stack in stacks for block in stack))


def checkpoint_activations(model: nn.Module, runtime: Runtime) -> Runtime:
    """From here on, the backward pass computes each block again instead of keeping its activations: about a third more
    time for a fraction of the memory. Results do not change. Returns the runtime to use with it: without CUDA graphs,
    as not every version of torch can restore the random numbers of dropout within a graph."""
    for block in blocks_of(model):
        if getattr(block.forward, "func", None) is not _recomputed:
            block.forward = partial(_recomputed, block.forward)
    return dataclasses.replace(runtime, cuda_graphs=False, keeps_casts=False)


def _recomputed(forward, *arguments, **named):
    if not torch.is_grad_enabled():
        return forward(*arguments, **named)
    return checkpoint(forward, *arguments, use_reentrant=False, **named)
