"""FLOPs of training a model, a token, in two conventions. A number means something only beside the name of its own.

`electra` is how the ELECTRA paper counts (Clark et al. 2020, arXiv 2003.10555): every operation is one, a multiply-add
two; the way back costs as much as the way forward; looking up a token is a product with a one-hot vector over the whole
vocabulary. Only such figures can be set beside that paper's.

`model` is what the network itself asks for, and what a device's speed is measured by: six for each multiply-add weight,
two on the way forward and four back, twelve for each position attended to and unit of width; looking up is free.

In both, the vocabulary head runs on predicted positions only, and what is computed once a sequence (the pooler, NSP,
SOP) is left out. Layers that share weights are computed as often as others: sharing saves parameters, not FLOPs.

>>> base = Shape(width=768, num_layers=12, length=512)
>>> f"{electra_flops_per_token(base) * 256 * 512 * 1_000_000:.1e}"  # BERT-base, a million batches of 256
'6.4e+19'
>>> small = [Shape(64, 12, 128, embedding_width=128), Shape(256, 12, 128, embedding_width=128, head="rtd")]
>>> f"{electra_flops_per_token(*small) * 128 * 128 * 1_000_000:.2e}"  # ELECTRA-small, its generator and discriminator
'1.29e+18'
"""

from dataclasses import dataclass
from typing import Literal

# Of the electra convention, for each number that comes out.
NORM, SOFTMAX, ACTIVATION, DROPOUT = 5, 5, 8, 4
Head = Literal["mlm", "clm", "rtd", "rtd+mlm", "none"]  # rtd: replaced or not; clm: no layer before the vocabulary
HEAD_WIDTH = 64  # of an attention head where the number of heads is not said


@dataclass(frozen=True)
class Shape:
    """All of a network that its FLOPs depend on. What is not given is as in BERT."""

    width: int
    num_layers: int
    length: float  # tokens in a sequence
    vocab_size: int = 30522
    embedding_width: int | None = None  # none: the width
    inner_width: int | None = None  # none: four times the width
    num_heads: int | None = None  # none: one for each 64 units of width
    predicted_share: float = 0.15625  # of the tokens; BERT's script predicts at most 20 of 128, 80 of 512
    head: Head = "mlm"
    one_sided: bool = False  # attends to one side only: to half of the positions, in the model convention
    windows: tuple[int | None, ...] = (None,)  # positions that the blocks attend to at most, by turns

    @property
    def embedded(self) -> int:
        return self.embedding_width or self.width

    @property
    def inner(self) -> int:
        return self.inner_width or 4 * self.width


def shape_of(config, length: float, predicted_share: float, head: Head = "mlm") -> Shape:
    """Of a model's settings."""
    return Shape(
        config.width,
        config.num_layers,
        length,
        config.vocab_size,
        config.embedding_width,
        config.inner_width,
        config.num_heads,
        predicted_share,
        head,
        one_sided=config.direction != "both",
        windows=config.windows,
    )


def model_flops_per_token(*shapes: Shape) -> float:
    """Of networks that read the same tokens, such as ELECTRA's generator and discriminator: their sum."""
    return sum(6 * _weights(shape) + 12 * _attended(shape) * shape.width * shape.num_layers for shape in shapes)


def forward_flops(shape: Shape) -> float:
    """Of reading one sequence in the model convention: a third of what training on it costs.

    >>> f"{forward_flops(Shape(width=768, num_layers=12, length=128, head='none')) / 1e9:.1f}"  # BERT-base, in billions
    '22.3'
    """
    return model_flops_per_token(shape) * shape.length / 3


def _weights(shape: Shape) -> float:
    """Multiply-adds of one token with weights."""
    width, embedded = shape.width, shape.embedded
    projection = embedded * width if embedded != width else 0
    blocks = shape.num_layers * (4 * width**2 + 2 * width * shape.inner)
    vocabulary = embedded * shape.vocab_size
    heads = {
        "mlm": shape.predicted_share * (width * embedded + vocabulary),
        "clm": shape.predicted_share * vocabulary,
        "rtd": width**2 + width,
        "none": 0,
    }
    return projection + blocks + sum(heads[head] for head in shape.head.split("+"))


def _attended(shape: Shape) -> float:
    """Positions, on average over the tokens of a sequence and the blocks; the first of a window have fewer before
    them."""
    length = shape.length
    whole = length / 2 if shape.one_sided else length
    seen = [
        whole if window is None or window >= length else window * (1 - window / (2 * length))
        for window in shape.windows
    ]
    return sum(seen[i % len(seen)] for i in range(shape.num_layers)) / shape.num_layers


def electra_flops_per_token(*shapes: Shape) -> float:
    """The same in the convention of the ELECTRA paper; attention to one side only counts as attention to both."""
    forward = (_looked_up(shape) + shape.num_layers * _block(shape) + _head(shape) for shape in shapes)
    return 2 * sum(forward)


def _dense(num_in: int, num_out: int) -> int:
    """A matrix and its bias."""
    return 2 * num_in * num_out + num_out


def _looked_up(shape: Shape) -> int:
    """Tokens, positions and segments as products with one-hot vectors, their two sums, norm and dropout."""
    embedded = shape.embedded
    num_rows = shape.vocab_size + shape.length + 2
    found = embedded * (2 * num_rows + 2 + NORM + DROPOUT)
    return found + (_dense(embedded, shape.width) if embedded != shape.width else 0)


def _block(shape: Shape) -> int:
    width, inner = shape.width, shape.inner
    num_heads = shape.num_heads or max(width // HEAD_WIDTH, 1)
    scores = shape.length * num_heads * (1 + SOFTMAX + DROPOUT)  # 1: scaled
    attention = 4 * _dense(width, width) + 2 * (2 * shape.length * width) + scores
    feed_forward = _dense(width, inner) + ACTIVATION * inner + _dense(inner, width)
    after_each = width * (DROPOUT + 1 + NORM)  # 1: added to what went in
    return attention + feed_forward + 2 * after_each


def _head(shape: Shape) -> float:
    width, embedded = shape.width, shape.embedded
    judged = _dense(width, width) + ACTIVATION * width + 2 * width if "rtd" in shape.head else 0
    if shape.head in ("rtd", "none"):
        return judged
    transformed = 0 if shape.head == "clm" else _dense(width, embedded) + (ACTIVATION + NORM) * embedded
    scored = shape.vocab_size * (2 * embedded + SOFTMAX + 2)  # 2: the target's score picked out
    return judged + shape.predicted_share * (transformed + scored)
