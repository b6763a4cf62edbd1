"""A table of the parameters of a model by part, which adds up to the exact number.

V is the vocabulary, E the embedding width, H the width of the blocks, I the inner width, L the number of blocks.
"""

import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hornbook.config import did_you_mean
from hornbook.interop.folder import load_model
from hornbook.interop.hub import builtin_names, model_folder
from hornbook.models.electra import ElectraPair
from hornbook.models.transformer import VOCABULARY_PADDING, Transformer
from hornbook.nn.block import SHARED_PARTS
from hornbook.runs.pretraining.assembly import new_network
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.show.translations import PARTS, Language, in_language, translate
from hornbook.show.visualization import TitledTable, Visualization


def show_parameters(name: str | Path, language: Language = "en") -> Visualization:
    """The table of a preset, or of the model in a folder.

    >>> show_parameters("bert-base").tables[-1].rows[0][1]
    '110,106,428'
    """
    if str(name) in PRESETS and not Path(name).is_dir():
        with torch.device("meta"):
            network = new_network(PRESETS[str(name)])
    else:
        network = load_model(_folder(name))
    return network_parameters(network, str(name), language)


def network_parameters(network: nn.Module, name: str, language: Language = "en") -> Visualization:
    """The table of a network that is called `name`."""
    message = partial(translate, language)
    models = {"": network}
    if isinstance(network, ElectraPair):
        models = {message("discriminator"): network.discriminator, message("generator part"): network.generator}
    tables, notes, seen, total = [], [], set(), 0
    for title, model in models.items():
        has_embeddings = id(model.embeddings.tokens.weight) not in seen
        ledger = parameter_table(model, seen, language)
        total += sum(size for _, _, size in ledger)
        rows = [(part, formula, f"{size:,}") for part, formula, size in ledger]
        tables.append(TitledTable(title, (message("part"), "", message("number")), rows))
        notes += [f"{title + ': ' if title else ''}{note}" for note in _size_notes(model, has_embeddings, message)]
    if not any(model.reads_entities for model in models.values()):  # the blocks of ERNIE's two halves differ
        totals = sharing_totals(*models.values(), language=language)
        tables.append(TitledTable(message("if shared"), ("", message("total")), totals))
    tables.append(TitledTable("", ("", ""), [(message("total"), f"{total:,}")]))
    return Visualization(message("parameters of", name=name), notes, tables=tables, language=language)


def _folder(name: str | Path) -> Path:
    try:
        return model_folder(name)
    except ValueError:
        if "/" in str(name) or os.path.exists(name):
            raise
        if hint := did_you_mean(str(name), PRESETS, most=3):
            raise ValueError(f"there is no preset or model '{name}'; {hint}") from None
        raise ValueError(
            f"there is no preset '{name}', and no model of that name was found or could be downloaded: give a folder, "
            f"a built-in model ({', '.join(builtin_names())}) or one of the presets {', '.join(PRESETS)}"
        ) from None


def on_meta_device(model: Transformer) -> Transformer:
    """The same model without weights, and with matrices where those of `model` are in int8."""
    with torch.device("meta"):
        return type(model)(model.config, model.heads, model.head_config)


def parameter_table(
    model: Transformer, seen: set[int] | None = None, language: Language = "en"
) -> list[tuple[str, str, int]]:
    """(part, formula, number of parameters) of each part of a model. Rows that pad the vocabulary do not count;
    parameters whose ids are in `seen` were counted before, and those counted now are added."""
    seen = set() if seen is None else seen
    shapes: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        parts = _parts(name)
        for part in parts:
            shapes[part].append(_shape(name, parameter, model.config.vocab_size, len(parts)))
    assert shapes.keys() <= PARTS.keys(), shapes.keys() - PARTS.keys()
    return [
        (in_language(title, language), _formula(shapes[part]), sum(map(math.prod, shapes[part])))
        for part, title in PARTS.items()
        if part in shapes
    ]


def sharing_totals(*models: Transformer, language: Language = "en") -> list[tuple[str, str]]:
    """The number of parameters if the blocks of each model shared nothing, their attention, their feed-forward network
    or all. Parameters that several models have in common, such as the embeddings of an ELECTRA, count once."""
    totals, counted = dict.fromkeys(("none", "attention", "ffn", "all"), 0), set()
    for model in models:
        outside, in_block = 0, Counter()  # parameters outside the blocks, and of the first block by part
        for name, parameter in model.named_parameters():
            if id(parameter) in counted:
                continue
            counted.add(id(parameter))
            size = math.prod(_shape(name, parameter, model.config.vocab_size, 1))
            if name.startswith("blocks.0."):
                in_block[name.split(".")[2]] += size
            elif not name.startswith("blocks."):
                outside += size
        for mode, shared in SHARED_PARTS.items():
            num_layers = model.config.num_layers
            totals[mode] += outside + sum(n * (1 if part in shared else num_layers) for part, n in in_block.items())
    names = {mode: translate(language, f"shared.{mode}") for mode in totals}
    if len({model.config.sharing for model in models}) == 1:
        mode = models[0].config.sharing
        names[mode] = translate(language, "this model", name=names[mode])
    return [(names[mode], f"{total:,}") for mode, total in totals.items()]


def _size_notes(model: Transformer, has_embeddings: bool, message: Callable[..., str]) -> list[str]:
    """Sizes, and the parameters of the token embeddings; without `has_embeddings` they are the discriminator's."""
    config = model.config
    vocab_size, narrow, width = config.vocab_size, config.embedding_width, config.width
    size = message("size", layers=config.num_layers, width=width, inner=config.inner_width, heads=config.num_heads)
    if not has_embeddings:
        if model.project is None:
            return [size, message("its embeddings")]
        return [size, message("its projection", formula=f"{narrow:,} x {width:,}", number=narrow * width)]
    if model.project is None:
        return [size, message("vocabulary", formula=f"{vocab_size:,} x {width:,}", number=vocab_size * width)]
    formula = f"{vocab_size:,} x {narrow:,} + {narrow:,} x {width:,}"
    number = vocab_size * narrow + narrow * width
    return [size, message("factorised", formula=formula, number=number, full=vocab_size * width)]


def _parts(name: str) -> tuple[str, ...]:
    """The keys in `PARTS` of the parts that a parameter holds: three for queries, keys and values."""
    if name.startswith("norm."):
        return ("final",)
    in_block = re.sub(r"^blocks\.\d+\.", "", name)
    if in_block.startswith("attention.qkv"):
        return "attention.query", "attention.key", "attention.value"
    return (re.match(r"attention\.out|embeddings\.\w+|\w+", in_block)[0],)


def _shape(name: str, parameter: nn.Parameter, vocab_size: int, num_parts: int) -> tuple[int, ...]:
    rows, *rest = parameter.shape
    return (vocab_size if name in VOCABULARY_PADDING else rows // num_parts, *rest)


def _formula(shapes: list[tuple[int, ...]]) -> str:
    """`12 x (768 x 768 + 768)` for the same shapes in 12 blocks."""
    counts = Counter(shapes)
    num_blocks = min(counts.values()) if len(set(counts.values())) == 1 else 1
    listed = counts if num_blocks > 1 else shapes
    text = " + ".join(" x ".join(f"{size:,}" for size in shape) for shape in listed)
    if num_blocks == 1:
        return text
    return f"{num_blocks} x ({text})" if "x" in text or "+" in text else f"{num_blocks} x {text}"
