"""Training FLOPs per token in the convention of the ELECTRA paper (Clark et al. 2020, arXiv 2003.10555): every
operation counts as one, a multiply-add as two; the backward pass costs as much as the forward pass; an embedding lookup
is a product with a one-hot vector over the whole vocabulary."""

from hornbook.models.flops import ModelShape

NORM, SOFTMAX, ACTIVATION, DROPOUT = 5, 5, 8, 4  # FLOPs per output value
HEAD_WIDTH = 64  # of an attention head


def electra_flops_per_token(*shapes: ModelShape) -> float:
    """Training FLOPs per token in the convention of the ELECTRA paper, in which causal attention counts as
    bidirectional."""
    forward = (_embeddings(shape) + shape.num_layers * _block(shape) + _head(shape) for shape in shapes)
    return 2 * sum(forward)


def _dense(num_in: int, num_out: int) -> int:
    """FLOPs of a linear layer with bias, per token."""
    return 2 * num_in * num_out + num_out


def _embeddings(shape: ModelShape) -> int:
    """Lookups of tokens, positions and segments as products with one-hot vectors, two additions, norm and dropout."""
    embedded = shape.embedded
    num_rows = shape.vocab_size + shape.length + 2
    flops = embedded * (2 * num_rows + 2 + NORM + DROPOUT)
    return flops + (_dense(embedded, shape.width) if embedded != shape.width else 0)


def _block(shape: ModelShape) -> int:
    width, inner = shape.width, shape.inner
    num_heads = max(width // HEAD_WIDTH, 1)
    scores = shape.length * num_heads * (1 + SOFTMAX + DROPOUT)  # 1: the scaling
    attention = 4 * _dense(width, width) + 2 * (2 * shape.length * width) + scores
    feed_forward = _dense(width, inner) + ACTIVATION * inner + _dense(inner, width)
    residual = width * (DROPOUT + 1 + NORM)  # 1: the addition
    return attention + feed_forward + 2 * residual


def _head(shape: ModelShape) -> float:
    width, embedded = shape.width, shape.embedded
    rtd = _dense(width, width) + ACTIVATION * width + 2 * width if "rtd" in shape.head else 0
    if shape.head in ("rtd", "none"):
        return rtd
    transform = 0 if shape.head == "clm" else _dense(width, embedded) + (ACTIVATION + NORM) * embedded
    logits = shape.vocab_size * (2 * embedded + SOFTMAX + 2)  # 2: selecting the logit of the target
    return rtd + shape.predicted_fraction * (transform + logits)
