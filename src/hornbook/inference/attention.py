"""Attention weights of one layer for one short text.

The fused attention kernels never materialise these weights, so they are recomputed here from the layer's queries and
keys.

Shapes: T = S tokens of one sequence, D width, H heads, C width of a head.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from hornbook.batch import Batch, pack
from hornbook.devices import device_of, evaluation_mode
from hornbook.files import write_json
from hornbook.text.tokenizer import Tokenizer

MAX_TOKENS = 40  # more do not fit into a plot
ATTENTION_FILE = "attention.json"


@torch.no_grad()
def attentions_of(model: nn.Module, batch: Batch, layers: Sequence[int]) -> list[Tensor]:
    """softmax(q k / sqrt(C)) of layers (from 0, or -1 from the end) for a batch of one sequence, each H x S x S.

    Row i holds the weights of token i over all tokens and sums to 1. One forward pass, without dropout, in float32.
    """
    if batch.num_sequences != 1:
        raise ValueError(f"attention weights need a batch of one sequence, not {batch.num_sequences}")
    for layer in layers:
        if not -len(model.blocks) <= layer < len(model.blocks):
            raise ValueError(f"there is no layer {layer}: the model has {len(model.blocks)}, counted from 0")
    blocks = [layer % len(model.blocks) + 1 for layer in layers]
    qkv: dict[int, Tensor | None] = dict.fromkeys(blocks)  # filled by the forward pass
    with evaluation_mode(model):
        model(batch, qkv=qkv)
    return [_weights(model.blocks[block - 1].attention, qkv[block]) for block in blocks]


def _weights(attention: nn.Module, qkv_T3HC: Tensor) -> Tensor:
    q_THC, k_THC, _ = qkv_T3HC.unbind(1)
    logits_HSS = torch.einsum("qhc,khc->hqk", q_THC, k_THC) * q_THC.shape[-1] ** -0.5
    if attention.direction == "causal":
        mask_SS = torch.ones(logits_HSS.shape[1:], dtype=torch.bool, device=q_THC.device).tril()
        if attention.window is not None:
            mask_SS = mask_SS.triu(1 - attention.window)
        logits_HSS = logits_HSS.masked_fill(~mask_SS, -torch.inf)
    return logits_HSS.float().softmax(-1)


def write_attention(
    folder: str | Path, model: nn.Module, tokenizer: Tokenizer, text: str, pair: str | None = None, layer: int = -1
) -> Path | None:
    """Writes `attention.json`: the tokens, the layer (from 1), the mean over heads and each head.

    Returns its path, or None without writing anything for an empty text or one of more than 40 tokens.
    """
    encoded = tokenizer.encode(text, pair)
    if not 0 < len(encoded.ids) <= min(MAX_TOKENS, model.config.max_positions):
        return None
    batch = pack([encoded.ids], [encoded.segments]).to(device_of(model))
    weights_HSS = attentions_of(model, batch, [layer])[0].double().cpu()
    path = Path(folder) / ATTENTION_FILE
    write_json(
        path,
        {
            "tokens": [tokenizer.token(token) for token in encoded.ids],
            "layer": layer % len(model.blocks) + 1,
            "num_layers": len(model.blocks),
            "mean": weights_HSS.mean(0).numpy().round(4).tolist(),
            "heads": weights_HSS.numpy().round(4).tolist(),
        },
    )
    return path
