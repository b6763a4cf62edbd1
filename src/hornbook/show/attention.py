"""Attention weights of every layer and head for one text, of one model or of several side by side.

Shapes: S tokens, H heads.
"""

import base64
from collections.abc import Sequence
from functools import partial
from itertools import zip_longest
from typing import Any

import numpy as np

from hornbook.batch import Batch, pack
from hornbook.config import checked
from hornbook.inference.attention import attentions_of
from hornbook.inference.loaded_model import LoadedModel
from hornbook.show.translations import Language, translate
from hornbook.show.visualization import Cell, TitledTable, TokenRow, Visualization, readable_token

MAX_TOKENS = 128  # of a page: 12 layers of 12 heads are 3 MB
MAX_IN_GRID = 40  # more do not fit into a terminal
MAX_WIDTH = 100  # characters of the grids of several models in one table; wider ones are below each other
SHADES = " ░▒▓█"
NUM_LARGEST = 3
Named = Sequence[tuple[str | None, LoadedModel]]  # models with the names to show, if there are several


def encode(model: LoadedModel, text: str, pair: str | None) -> tuple[list[str], Batch]:
    encoded = model.tokenizer.encode(text, pair)
    max_length = min(MAX_TOKENS, model.model.config.max_positions)
    if not 1 <= len(encoded.ids) <= max_length:
        raise ValueError(f"the text has {len(encoded.ids)} tokens: give one of 1 to {max_length}")
    tokens = [readable_token(model.tokenizer, token_id) for token_id in encoded.ids]
    batch = pack([np.array(encoded.ids, np.int64)], [np.array(encoded.segments, np.int64)])
    return tokens, batch.to(model.device)


def show_attention(
    models: Named, text: str, pair: str | None = None, layer: int | None = None, head: int | None = None
) -> Visualization:
    """Attention in one layer (from 1; the last by default) and head (from 1; the mean of all by default). `attention`
    has the weights of one model; for several, shown side by side, `attention["models"]` has those of each, with its
    `name` and `direction`: `bidirectional` or `causal`."""
    if len(models) == 1:
        attention, note = _one_layer(models[0][1], text, pair, layer, head)
        return Visualization(
            "Attention", [f"{note}; each row sums to 1"], tables=[_table(attention)], attention=attention
        )
    attentions, notes = [], []
    for name, model in models:
        try:
            attention, note = _one_layer(model, text, pair, layer, head)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        attentions.append(_named(name, model, attention))
        notes.append(f"{name}: {translate('en', model.model.config.direction)}; {note}")
    notes.append("each row sums to 1")
    tables = _side_by_side(attentions) or [_table(each, each["name"]) for each in attentions]
    return Visualization("Attention", notes, tables=tables, attention={"models": attentions})


def _one_layer(
    model: LoadedModel, text: str, pair: str | None, layer: int | None, head: int | None
) -> tuple[dict[str, Any], str]:
    """The tokens and weights of one layer and head, and a note that names both."""
    tokens, batch = encode(model, text, pair)
    num_layers, num_heads = len(model.model.blocks), model.model.config.num_heads
    layer = checked(num_layers if layer is None else layer, int, "the layer", low=1, high=num_layers)
    head = checked(head, int | None, "the head", low=1, high=num_heads)
    weights_HSS = attentions_of(model.model, batch, [layer - 1])[0].cpu().numpy()
    weights_SS = weights_HSS.mean(0) if head is None else weights_HSS[head - 1]
    heads = f"the mean of {num_heads} heads" if head is None else f"head {head} of {num_heads}"
    attention = {"layer": layer, "head": head, "tokens": tokens, "weights": np.round(weights_SS, 5).tolist()}
    return attention, f"layer {layer} of {num_layers}, {heads}"


def _named(name: str | None, model: LoadedModel, attention: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "direction": model.model.config.direction, **attention}


def _table(attention: dict[str, Any], title: str = "") -> TitledTable:
    tokens, rows = attention["tokens"], []
    has_grid = len(tokens) <= MAX_IN_GRID
    for position, (token, weights) in enumerate(zip(tokens, attention["weights"], strict=True)):
        row = np.array(weights)
        largest = np.argsort(-row, kind="stable")[:NUM_LARGEST]
        most = ", ".join(f"{tokens[i]} {row[i]:.0%}" for i in largest if row[i] > 0)
        rows.append((position, token, _shades(row), most) if has_grid else (position, token, most))
    columns = ("attends to (by position)", "most") if has_grid else ("attends most to",)
    return TitledTable(title, ("", "token", *columns), rows)


def _side_by_side(attentions: list[dict[str, Any]]) -> list[TitledTable]:
    """One table with a column of tokens and a grid per model; none if it would be too wide."""
    columns = [
        [(token, _shades(np.array(row))) for token, row in zip(each["tokens"], each["weights"], strict=True)]
        for each in attentions
    ]
    widths = [
        len(column) + max(len(each["name"]), *(len(token) for token, _ in column)) + 4
        for each, column in zip(attentions, columns, strict=True)
    ]
    if sum(widths) > MAX_WIDTH or max(map(len, columns)) > MAX_IN_GRID:
        return []
    rows = [
        (position, *(cell for token_and_grid in row for cell in token_and_grid))
        for position, row in enumerate(zip_longest(*columns, fillvalue=("", "")))
    ]
    return [TitledTable("", ("", *(title for each in attentions for title in (each["name"], ""))), rows)]


def _shades(row: np.ndarray) -> str:
    """A character per token, darker for larger weights; a weight of one half and more is black."""
    return "".join(SHADES[min(int(np.ceil(weight * 2 * (len(SHADES) - 1) - 0.2)), len(SHADES) - 1)] for weight in row)


def show_all_attention(models: Named, text: str, pair: str | None = None, language: Language = "en") -> Visualization:
    """Attention of every layer and head, for a page with a selector: `attention` has the tokens, the numbers of layers
    and heads, and the weights as bytes (layers x heads x S x S, 255 for a weight of 1) in base 64. For several models,
    `attention["models"]` has these of each, with its `name`, its `direction` and `reads`, the direction in words."""
    if len(models) == 1:
        attention = _all_layers(models[0][1], text, pair)
        token_rows = [TokenRow(translate(language, "input"), [Cell(token) for token in attention["tokens"]])]
    else:
        attentions = [_named(name, model, _all_layers(model, text, pair)) for name, model in models]
        for each in attentions:
            each["reads"] = translate(language, each["direction"])
        attention, token_rows = {"models": attentions}, []
    message = partial(translate, language)
    return Visualization(message("attention"), [message("rows")], token_rows, attention=attention, language=language)


def _all_layers(model: LoadedModel, text: str, pair: str | None) -> dict[str, Any]:
    tokens, batch = encode(model, text, pair)
    num_layers, num_heads = len(model.model.blocks), model.model.config.num_heads
    layers = attentions_of(model.model, batch, range(num_layers))
    weights = np.stack([np.round(layer.cpu().numpy() * 255).astype(np.uint8) for layer in layers])
    encoded = base64.b64encode(weights.tobytes()).decode()
    return {"tokens": tokens, "num_layers": num_layers, "num_heads": num_heads, "weights": encoded}
