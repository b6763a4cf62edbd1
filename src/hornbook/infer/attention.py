"""What each token of one short text looks at: the attention weights of one layer, computed openly.

The kernels that models run through never hold these weights, so they are computed here a second time, from the
layer's queries and keys.

Shapes: T = S tokens of one sequence, D width, H heads, C width of a head.
"""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hornbook.batch import Batch, pack
from hornbook.files import write_json
from hornbook.text.tokenizer import Tokenizer

MOST_TOKENS = 40  # more do not fit into a picture
FILE = "attention.json"


@torch.no_grad()
def attention_of(model: nn.Module, batch: Batch, layer: int = -1) -> Tensor:
    """softmax(q k / sqrt(C)) in one layer (from 0, or from the end) over the one sequence of a batch, H x S x S.

    Row i is what token i takes from each token; rows sum to 1. Without dropout, in float32.
    """
    if batch.num_sequences != 1:
        raise ValueError(f"attention is shown of one sequence, and the batch has {batch.num_sequences}")
    if not -len(model.blocks) <= layer < len(model.blocks):
        raise ValueError(f"there is no layer {layer}: the model has {len(model.blocks)}, counted from 0")
    was_training = model.training
    model.eval()
    try:
        number = layer % len(model.blocks) + 1
        asked: dict[int, Tensor | None] = {number: None}
        model(batch, qkv=asked)
        return _weights(model.blocks[layer].attention, asked[number])
    finally:
        model.train(was_training)


def _weights(attention: nn.Module, qkv_T3HC: Tensor) -> Tensor:
    q_THC, k_THC, _ = qkv_T3HC.unbind(1)
    scores_HSS = torch.einsum("qhc,khc->hqk", q_THC, k_THC) * q_THC.shape[-1] ** -0.5
    if attention.direction != "both":
        is_seen_SS = torch.ones(scores_HSS.shape[1:], dtype=torch.bool, device=q_THC.device).tril()
        if attention.window is not None:
            is_seen_SS = is_seen_SS.triu(1 - attention.window)
        is_seen_SS = is_seen_SS if attention.direction == "left" else is_seen_SS.T
        scores_HSS = scores_HSS.masked_fill(~is_seen_SS, -torch.inf)
    return scores_HSS.float().softmax(-1)


def write_attention(
    folder: str | Path, model: nn.Module, tokenizer: Tokenizer, text: str, pair: str | None = None, layer: int = -1
) -> Path | None:
    """Writes `attention.json`: the tokens, the layer (from 1), the mean over heads and each head.

    None, and nothing is written, for a text of more than 40 tokens.
    """
    encoded = tokenizer.encode(text, pair)
    if not 0 < len(encoded.ids) <= min(MOST_TOKENS, model.config.max_positions):
        return None
    device = next(model.parameters()).device
    batch = pack([np.array(encoded.ids, np.int64)], [np.array(encoded.segments, np.int64)]).to(device)
    weights_HSS = attention_of(model, batch, layer).double().cpu()
    path = Path(folder) / FILE
    write_json(
        path,
        {
            "tokens": [tokenizer.token(number) for number in encoded.ids],
            "layer": layer % len(model.blocks) + 1,
            "num_layers": len(model.blocks),
            "mean": _rounded(weights_HSS.mean(0)),
            "heads": [_rounded(weights_SS) for weights_SS in weights_HSS],
        },
    )
    return path


def _rounded(weights_SS: Tensor) -> list[list[float]]:
    return [[round(weight, 4) for weight in row] for row in weights_SS.tolist()]
