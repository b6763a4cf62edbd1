"""A student beside the teacher that it learns from, and the layers that bring the vectors of one to the other's width.

The teacher is no part of the module: it is never trained, never saved and always in evaluation mode. It only goes along
to the device.

Shapes: T tokens, D width of what goes in, P width of what comes out.
"""

import dataclasses
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.models.transformer import Transformer
from hornbook.nn.block import initialise


class FixedProjection(nn.Module):
    """Brings vectors to fewer numbers by orthonormal rows that are drawn once and never trained. A target that learned
    would learn to be easy: all zeros. Lengths are kept on the average."""

    def __init__(self, width: int, narrower: int):
        super().__init__()
        self.register_buffer("weight", torch.empty(narrower, width))

    def draw(self, generator: torch.Generator) -> None:
        """The first rows of a random rotation; wider than what goes in, its first columns."""
        narrower, width = self.weight.shape
        square = torch.randn(max(narrower, width), max(narrower, width), generator=generator, dtype=torch.float64)
        rotation, _ = torch.linalg.qr(square)
        with torch.no_grad():
            self.weight.copy_(rotation[:narrower, :width] * max(1.0, width / narrower) ** 0.5)

    def forward(self, x_TD: Tensor) -> Tensor:
        return F.linear(x_TD, self.weight)


class DistillationPair(nn.Module):
    """What distillation trains: a student, and projections by the name of the loss term that they belong to."""

    def __init__(self, student: Transformer, teacher: Transformer, projections: dict[str, nn.Module]):
        super().__init__()
        self.student = student
        # A dictionary of modules cannot hold the names of its own methods, such as "keys".
        self.projections = nn.ModuleDict({f"of-{term}": each for term, each in projections.items()})
        self._outside = (teacher.eval().requires_grad_(False),)  # within a tuple it is no part of the module

    @property
    def teacher(self) -> Transformer:
        return self._outside[0]

    def projection(self, term: str) -> nn.Module:
        return self.projections[f"of-{term}"]

    @property
    def projected(self) -> list[str]:
        """The terms that have a projection."""
        return [name.removeprefix("of-") for name in self.projections]

    @property
    def config(self):
        """The student's, with no more positions than both have."""
        longest = min(self.student.config.max_positions, self.teacher.config.max_positions)
        return dataclasses.replace(self.student.config, max_positions=longest)

    @property
    def family(self) -> str:
        return self.student.family

    @property
    def heads(self) -> tuple[str, ...]:
        return self.student.heads

    def _apply(self, change, recurse: bool = True):
        """Moves the teacher too, to a device or a type."""
        self.teacher._apply(change)
        return super()._apply(change, recurse)

    def initialise(self, generator: torch.Generator) -> None:
        """First weights of the student and of the projections."""
        self.student.initialise(generator)
        self.initialise_projections(generator)

    def initialise_projections(self, generator: torch.Generator) -> None:
        for projection in self.projections.values():
            if isinstance(projection, FixedProjection):
                projection.draw(generator)
            else:
                initialise(projection, self.config.init_std, generator)

    def adopt_projections(self, state: Mapping[str, Tensor]) -> list[str]:
        """Starts from those of an earlier run, as far as they are of one kind and shape: the terms they belong to."""
        adopted = []
        for term in self.projected:
            start, projection = f"of-{term}.", self.projection(term)
            theirs = {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
            if {k: v.shape for k, v in theirs.items()} == {k: v.shape for k, v in projection.state_dict().items()}:
                projection.load_state_dict(theirs)
                adopted.append(term)
        return adopted

    def compile_parts(self) -> None:
        self.student.compile_parts()
        self.teacher.compile_parts()


def first_layers(num_student: int, num_teacher: int) -> list[int]:
    """Which of the teacher's layers, from 1, each of the student's starts from: spread from the first to the last.

    >>> first_layers(6, 12)  # as published
    [1, 3, 5, 8, 10, 12]
    """
    if num_student == 1:
        return [1]
    return [1 + round(i * (num_teacher - 1) / (num_student - 1)) for i in range(num_student)]


def initialise_from_teacher(student: Transformer, teacher: Transformer) -> str:
    """Puts layers, embeddings and the vocabulary head of the teacher into the student as far as they are of one shape.
    In words, what the student starts from."""
    ours, theirs = student.config, teacher.config
    if difference := _other_shape(ours, theirs):
        return f"starts from random weights: {difference}"
    layers = first_layers(ours.num_layers, theirs.num_layers)
    for block, number in zip(student.blocks, layers, strict=True):
        block.load_state_dict(teacher.blocks[number - 1].state_dict())
    copied = [f"layers {', '.join(map(str, layers))} of the teacher"]
    if student.norm is not None and teacher.norm is not None:
        student.norm.load_state_dict(teacher.norm.state_dict())
    if ours.embedding_width == theirs.embedding_width and ours.vocab_size == theirs.vocab_size:
        _copy_embeddings(student, teacher)
        copied.append("its embeddings")
        for name in ("mlm", "clm"):
            heads = getattr(student, name, None), getattr(teacher, name, None)
            if all(heads) and ours.tied == theirs.tied:
                heads[0].load_state_dict(heads[1].state_dict())
                copied.append("its vocabulary head")
    return f"starts from {', '.join(copied)}"


def _other_shape(ours, theirs) -> str | None:
    for name in ("width", "inner_width", "num_heads"):
        if getattr(ours, name) != getattr(theirs, name):
            return f"it has {name} {getattr(ours, name)} and the teacher {getattr(theirs, name)}"
    if ours.pre_norm != theirs.pre_norm:
        return "its norms stand elsewhere in the blocks than the teacher's"
    if ours.sharing != "none" and ours.sharing != theirs.sharing:
        return f"its layers share their weights (sharing={ours.sharing}) and the teacher's do not"
    if ours.num_layers > theirs.num_layers:
        return f"it has {ours.num_layers} layers and the teacher only {theirs.num_layers}"
    return None


@torch.no_grad()
def _copy_embeddings(student: Transformer, teacher: Transformer) -> None:
    to, of = student.embeddings, teacher.embeddings
    to.tokens.weight.copy_(of.tokens.weight)
    if to.norm is not None and of.norm is not None:
        to.norm.load_state_dict(of.norm.state_dict())
    num = min(student.config.max_positions, teacher.config.max_positions)
    to.positions.weight[to.position_offset :][:num] = of.positions.weight[of.position_offset :][:num]
    if to.segments is not None and of.segments is not None and to.segments.weight.shape == of.segments.weight.shape:
        to.segments.load_state_dict(of.segments.state_dict())
    if student.project is not None and teacher.project is not None:
        student.project.load_state_dict(teacher.project.state_dict())
