"""A student with its teacher, and the projections that map the hidden states of one to the width of the other.

The teacher is not a submodule: it is never trained or saved and is always in evaluation mode. It only moves to the same
device.

Shapes: T tokens, D input width, P output width.
"""

import dataclasses
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.models.transformer import Transformer, TransformerConfig
from hornbook.nn.block import initialize


class FixedProjection(nn.Module):
    """A random projection with orthonormal rows or, if it widens, columns. It is never trained: a trained projection of
    the target would collapse to zero. The expected length of vectors is preserved."""

    def __init__(self, width: int, output_width: int):
        super().__init__()
        self.register_buffer("weight", torch.empty(output_width, width))

    def draw(self, generator: torch.Generator) -> None:
        """Fills the weight with the first rows (and, if it has fewer columns than rows, columns) of a random
        rotation."""
        output_width, width = self.weight.shape
        size = max(output_width, width)
        square = torch.randn(size, size, generator=generator, dtype=torch.float64)
        rotation, _ = torch.linalg.qr(square)
        with torch.no_grad():
            self.weight.copy_(rotation[:output_width, :width] * max(1.0, width / output_width) ** 0.5)

    def forward(self, x_TD: Tensor) -> Tensor:
        return F.linear(x_TD, self.weight)


class DistillationPair(nn.Module):
    """What distillation trains: a student, and the projections by the name of their loss term."""

    def __init__(self, student: Transformer, teacher: Transformer, projections: dict[str, nn.Module]):
        super().__init__()
        self.student = student
        # A ModuleDict does not accept the names of its own methods, such as "keys".
        self.projections = nn.ModuleDict({f"of-{term}": projection for term, projection in projections.items()})
        self._teacher = (teacher.eval().requires_grad_(False),)  # in a tuple, so that it is not a submodule

    @property
    def teacher(self) -> Transformer:
        return self._teacher[0]

    def projection(self, term: str) -> nn.Module:
        return self.projections[f"of-{term}"]

    @property
    def projected_terms(self) -> list[str]:
        return [name.removeprefix("of-") for name in self.projections]

    @property
    def config(self):
        """The student's config, with the smaller `max_positions` of student and teacher."""
        longest = min(self.student.config.max_positions, self.teacher.config.max_positions)
        return dataclasses.replace(self.student.config, max_positions=longest)

    @property
    def model_type(self) -> str:
        return self.student.model_type

    @property
    def heads(self) -> tuple[str, ...]:
        return self.student.heads

    def _apply(self, change, recurse: bool = True):
        """Moves the teacher to the same device or dtype."""
        self.teacher._apply(change)
        return super()._apply(change, recurse)

    def initialize(self, generator: torch.Generator) -> None:
        self.student.initialize(generator)
        self.initialize_projections(generator)

    def initialize_projections(self, generator: torch.Generator) -> None:
        for projection in self.projections.values():
            if isinstance(projection, FixedProjection):
                projection.draw(generator)
            else:
                initialize(projection, self.config.init_std, generator)

    def adopt_projections(self, state: Mapping[str, Tensor]) -> list[str]:
        """Loads the projections of an earlier run that have the same names and shapes; returns their terms."""
        adopted = []
        for term in self.projected_terms:
            start, projection = f"of-{term}.", self.projection(term)
            weights = {name.removeprefix(start): value for name, value in state.items() if name.startswith(start)}
            if {k: v.shape for k, v in weights.items()} == {k: v.shape for k, v in projection.state_dict().items()}:
                projection.load_state_dict(weights)
                adopted.append(term)
        return adopted

    def compile_parts(self) -> None:
        self.student.compile_parts()
        self.teacher.compile_parts()


def layers_to_copy(num_student: int, num_teacher: int) -> list[int]:
    """The teacher's layer, counted from 1, that initialises each of the student's: evenly from the first to the last.

    >>> layers_to_copy(6, 12)  # as published
    [1, 3, 5, 8, 10, 12]
    """
    if num_student == 1:
        return [1]
    return [1 + round(i * (num_teacher - 1) / (num_student - 1)) for i in range(num_student)]


def initialize_from_teacher(student: Transformer, teacher: Transformer) -> str:
    """Copies layers, embeddings and the vocabulary head of the teacher into the student, where the shapes agree.
    Returns a description of what was copied."""
    student_config, teacher_config = student.config, teacher.config
    if difference := _difference(student_config, teacher_config):
        return f"is randomly initialised: {difference}"
    layers = layers_to_copy(student_config.num_layers, teacher_config.num_layers)
    for block, layer in zip(student.blocks, layers, strict=True):
        block.load_state_dict(teacher.blocks[layer - 1].state_dict())
    numbers = ", ".join(map(str, layers))
    copied = [f"layer{'s' if len(layers) > 1 else ''} {numbers} of the teacher"]
    if student.norm is not None and teacher.norm is not None:
        student.norm.load_state_dict(teacher.norm.state_dict())
    has_same_vocabulary = student_config.vocab_size == teacher_config.vocab_size
    if has_same_vocabulary and student_config.embedding_width == teacher_config.embedding_width:
        _copy_embeddings(student, teacher)
        copied.append("its embeddings")
        for name in ("mlm", "clm"):
            heads = getattr(student, name, None), getattr(teacher, name, None)
            if all(heads) and student_config.tied == teacher_config.tied:
                heads[0].load_state_dict(heads[1].state_dict())
                copied.append("its vocabulary head")
    *others, last = copied
    return f"is initialised from {', '.join(others)}{' and ' * bool(others)}{last}"


def _difference(student: TransformerConfig, teacher: TransformerConfig) -> str | None:
    """Why the teacher's layers do not fit into the student, or None."""
    for name in ("width", "inner_width", "num_heads"):
        if getattr(student, name) != getattr(teacher, name):
            return f"it has {name} {getattr(student, name)} and the teacher {getattr(teacher, name)}"
    if student.pre_norm != teacher.pre_norm:
        return "one of it and the teacher has pre-norm blocks, the other post-norm blocks"
    if student.sharing != "none" and student.sharing != teacher.sharing:
        return f"its layers share their weights (sharing={student.sharing}) and the teacher's do not"
    if student.num_layers > teacher.num_layers:
        return f"it has {student.num_layers} layers and the teacher only {teacher.num_layers}"
    return None


@torch.no_grad()
def _copy_embeddings(student: Transformer, teacher: Transformer) -> None:
    target, source = student.embeddings, teacher.embeddings
    target.tokens.weight.copy_(source.tokens.weight)
    if target.norm is not None and source.norm is not None:
        target.norm.load_state_dict(source.norm.state_dict())
    length = min(student.config.max_positions, teacher.config.max_positions)
    copied = source.positions.weight[source.position_offset :][:length]
    target.positions.weight[target.position_offset :][:length] = copied
    has_segments = target.segments is not None and source.segments is not None
    if has_segments and target.segments.weight.shape == source.segments.weight.shape:
        target.segments.load_state_dict(source.segments.state_dict())
    if student.project is not None and teacher.project is not None:
        student.project.load_state_dict(teacher.project.state_dict())
