"""Training FLOPs per token of what the model needs (the `model` convention), the basis of a device's utilisation: six
per weight that is multiplied (two in the forward and four in the backward pass), twelve per attended position and unit
of width; lookups are free.

The vocabulary head runs on predicted positions only, and what is computed once per sequence (pooler, NSP, SOP) is left
out. Shared layers are computed as often as others: sharing saves parameters, not FLOPs. The ELECTRA paper (Clark et al.
2020, arXiv 2003.10555) counts differently; its figures are comparable only with each other.
"""

from dataclasses import dataclass
from typing import Literal

Head = Literal["mlm", "clm", "rtd", "rtd+mlm", "none"]  # clm: no dense layer before the vocabulary


@dataclass(frozen=True)
class ModelShape:
    """The properties of a model that determine its FLOPs. The defaults are those of BERT."""

    width: int
    num_layers: int
    length: float  # tokens per sequence
    vocab_size: int = 30522
    embedding_width: int | None = None  # none: the width
    inner_width: int | None = None  # none: four times the width
    predicted_fraction: float = 0.15625  # fraction of predicted tokens; BERT's script has at most 20 of 128, 80 of 512
    head: Head = "mlm"
    is_causal: bool = False  # causal attention: half of the positions
    windows: tuple[int | None, ...] = (None,)  # attention windows, assigned to the blocks in rotation

    @property
    def embedded(self) -> int:
        return self.embedding_width or self.width

    @property
    def inner(self) -> int:
        return self.inner_width or 4 * self.width


def shape_of(config, length: float, predicted_fraction: float, head: Head = "mlm") -> ModelShape:
    return ModelShape(
        config.width,
        config.num_layers,
        length,
        config.vocab_size,
        config.embedding_width,
        config.inner_width,
        predicted_fraction,
        head,
        is_causal=config.direction != "bidirectional",
        windows=config.windows,
    )


def model_flops_per_token(*shapes: ModelShape) -> float:
    """Training FLOPs per token in the model convention, summed over models that read the same tokens, such as ELECTRA's
    generator and discriminator."""
    return sum(6 * _weights(shape) + 12 * _attended(shape) * shape.width * shape.num_layers for shape in shapes)


def forward_flops(shape: ModelShape) -> float:
    """FLOPs of a forward pass over one sequence in the model convention: a third of the training FLOPs.

    >>> base = ModelShape(width=768, num_layers=12, length=128, head="none")  # of BERT
    >>> f"{forward_flops(base) / 1e9:.1f}"  # in billions
    '22.3'
    """
    return model_flops_per_token(shape) * shape.length / 3


def _weights(shape: ModelShape) -> float:
    """Multiply-adds with weights per token."""
    width, embedded = shape.width, shape.embedded
    projection = embedded * width if embedded != width else 0
    blocks = shape.num_layers * (4 * width**2 + 2 * width * shape.inner)
    vocabulary = embedded * shape.vocab_size
    heads = {
        "mlm": shape.predicted_fraction * (width * embedded + vocabulary),
        "clm": shape.predicted_fraction * vocabulary,
        "rtd": width**2 + width,
        "none": 0,
    }
    return projection + blocks + sum(heads[head] for head in shape.head.split("+"))


def _attended(shape: ModelShape) -> float:
    """Mean number of attended positions over the tokens of a sequence and the blocks; the first tokens of a sequence
    attend to fewer than a whole window."""
    length = shape.length
    full = length / 2 if shape.is_causal else length
    attended = [
        full if window is None or window >= length else window * (1 - window / (2 * length)) for window in shape.windows
    ]
    return sum(attended[i % len(attended)] for i in range(shape.num_layers)) / shape.num_layers
