"""Attention weights of every layer and head for one text.

Shapes: S tokens, H heads.
"""

import base64

import numpy as np

from hornbook.batch import Batch, pack
from hornbook.config import checked
from hornbook.inference.attention import attentions_of
from hornbook.inference.loaded import LoadedModel
from hornbook.show.picture import Cell, Picture, PictureTable, Strip, readable
from hornbook.show.words import Language, say

MAX_TOKENS = 128  # of a page: 12 layers of 12 heads are 3 MB
MAX_IN_GRID = 40  # more do not fit into a terminal
SHADES = " ░▒▓█"
NUM_LARGEST = 3


def encode(model: LoadedModel, text: str, pair: str | None) -> tuple[list[str], Batch]:
    encoded = model.tokenizer.encode(text, pair)
    longest = min(MAX_TOKENS, model.model.config.max_positions)
    if not 1 <= len(encoded.ids) <= longest:
        raise ValueError(f"the text has {len(encoded.ids)} tokens: give one of 1 to {longest}")
    tokens = [readable(model.tokenizer, number) for number in encoded.ids]
    batch = pack([np.array(encoded.ids, np.int64)], [np.array(encoded.segments, np.int64)])
    return tokens, batch.to(model.device)


def show_attention(
    model: LoadedModel, text: str, pair: str | None = None, layer: int | None = None, head: int | None = None
) -> Picture:
    """Attention in one layer (from 1; the last by default) and head (from 1; the mean of all by default)."""
    tokens, batch = encode(model, text, pair)
    num_layers, num_heads = len(model.model.blocks), model.model.config.num_heads
    layer = checked(num_layers if layer is None else layer, int, "the layer", low=1, high=num_layers)
    head = checked(head, int | None, "the head", low=1, high=num_heads)
    weights_HSS = attentions_of(model.model, batch, [layer - 1])[0].cpu().numpy()
    weights_SS = weights_HSS.mean(0) if head is None else weights_HSS[head - 1]
    rows = []
    for place, (token, row) in enumerate(zip(tokens, weights_SS, strict=True)):
        largest = np.argsort(-row, kind="stable")[:NUM_LARGEST]
        said = ", ".join(f"{tokens[i]} {row[i]:.0%}" for i in largest if row[i] > 0)
        rows.append((place, token, _shades(row), said) if len(tokens) <= MAX_IN_GRID else (place, token, said))
    headings = ("", "token", "attends to (by position)", "most")
    if len(tokens) > MAX_IN_GRID:
        headings = ("", "token", "attends most to")
    which = f"the mean of {num_heads} heads" if head is None else f"head {head} of {num_heads}"
    attention = {"layer": layer, "head": head, "tokens": tokens, "weights": np.round(weights_SS, 5).tolist()}
    notes = [f"layer {layer} of {num_layers}, {which}; each row sums to 1"]
    return Picture("Attention", notes, tables=[PictureTable("", headings, rows)], attention=attention)


def _shades(row: np.ndarray) -> str:
    """A character per token, darker for larger weights; a weight of one half and more is black."""
    return "".join(SHADES[min(int(np.ceil(weight * 2 * (len(SHADES) - 1) - 0.2)), len(SHADES) - 1)] for weight in row)


def show_all_attention(model: LoadedModel, text: str, pair: str | None = None, language: Language = "en") -> Picture:
    """Attention of every layer and head, for a page with a selector: `attention` has the tokens, the numbers of layers
    and heads, and the weights as bytes (layers x heads x S x S, 255 for a weight of 1) in base 64."""
    tokens, batch = encode(model, text, pair)
    num_layers, num_heads = len(model.model.blocks), model.model.config.num_heads
    layers = attentions_of(model.model, batch, range(num_layers))
    weights = np.stack([np.round(each.cpu().numpy() * 255).astype(np.uint8) for each in layers])
    attention = {
        **{"tokens": tokens, "num_layers": num_layers, "num_heads": num_heads},
        "weights": base64.b64encode(weights.tobytes()).decode(),
    }
    strips = [Strip(say(language, "input"), [Cell(token) for token in tokens])]
    notes = [say(language, "rows")]
    return Picture(say(language, "attention"), notes, strips, attention=attention, language=language)
