"""A table of the parameters of a model by part, which adds up to the exact number.

V is the vocabulary, E the embedding width, H the width of the blocks, I the inner width, L the number of blocks.
"""

import math
import re
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import nn

from hornbook.interop.builtin import builtin_names
from hornbook.interop.folder import load_model
from hornbook.interop.hub import model_folder
from hornbook.models.electra import ElectraPair
from hornbook.models.transformer import PADDED, Transformer
from hornbook.nn.block import SHARED_PARTS
from hornbook.runs.pretraining.assembly import new_network
from hornbook.runs.pretraining.presets import PRESETS
from hornbook.show.picture import Picture, PictureTable
from hornbook.show.words import PARTS, Language, say


def show_parameters(name: str | Path, language: Language = "en") -> Picture:
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


def network_parameters(network: nn.Module, name: str, language: Language = "en") -> Picture:
    """The table of a network that is called `name`."""
    said = partial(say, language)
    models = {"": network}
    if isinstance(network, ElectraPair):
        models = {said("discriminator"): network.discriminator, said("generator part"): network.generator}
    tables, notes, seen, total = [], [], set(), 0
    for title, model in models.items():
        ledger = ledger_of(model, seen, language)
        total += sum(number for _, _, number in ledger)
        rows = [(part, formula, f"{number:,}") for part, formula, number in ledger]
        tables.append(PictureTable(title, (said("part"), "", said("number")), rows))
        has_embeddings = any(part == PARTS[language]["embeddings.tokens"] for part, _, _ in ledger)
        notes += [f"{title + ': ' if title else ''}{line}" for line in _about(model, has_embeddings, said)]
    if not any(model.reads_entities for model in models.values()):  # the blocks of ERNIE's two halves differ
        totals = sharing_totals(*models.values(), language=language)
        tables.append(PictureTable(said("if shared"), ("", said("total")), totals))
    tables.append(PictureTable("", ("", ""), [(said("total"), f"{total:,}")]))
    return Picture(said("parameters of", name=name), notes, tables=tables, language=language)


def _folder(name: str | Path) -> Path:
    try:
        return model_folder(name)
    except ValueError:
        if "/" in str(name) or Path(name).exists():
            raise
        raise ValueError(
            f"there is no preset '{name}', and no model of that name was found or could be downloaded: give a folder, "
            f"a built-in model ({', '.join(builtin_names())}) or one of the presets {', '.join(PRESETS)}"
        ) from None


def on_meta_device(model: Transformer) -> Transformer:
    """The same model without weights, and with matrices where those of `model` are in int8."""
    with torch.device("meta"):
        return type(model)(model.config, model.heads, model.head_config)


def ledger_of(
    model: Transformer, seen: set[int] | None = None, language: Language = "en"
) -> list[tuple[str, str, int]]:
    """(part, formula, number) of each part of a model. Rows that pad the vocabulary do not count; parameters whose
    ids are in `seen` were counted before, and those counted now are added."""
    seen = set() if seen is None else seen
    shapes: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for name, parameter in model.named_parameters():
        if id(parameter) in seen:
            continue
        seen.add(id(parameter))
        part, num_copies = _part(name)
        for which in (part,) if num_copies == 1 else ("attention.query", "attention.key", "attention.value"):
            shapes[which].append(_shape(name, parameter, model.config.vocab_size, num_copies))
    found = []
    for part, title in PARTS[language].items():
        if part in shapes:
            number = sum(math.prod(shape) for shape in shapes[part])
            found.append((title, _formula(shapes[part]), number))
    assert len(found) == len(shapes), set(shapes) - set(PARTS[language])
    return found


def sharing_totals(*models: Transformer, language: Language = "en") -> list[tuple[str, str]]:
    """The number of parameters if the blocks of each model shared nothing, their attention, their feed-forward network
    or all. Parameters that several models have in common, such as the embeddings of an ELECTRA, count once."""
    totals, counted = dict.fromkeys(("none", "attention", "ffn", "all"), 0), set()
    for model in models:
        once: dict[str, int] = defaultdict(int)  # parameters of one block by part
        fixed, seen = 0, set()
        for name, parameter in model.named_parameters():
            if id(parameter) in counted:
                continue
            counted.add(id(parameter))
            number = math.prod(_shape(name, parameter, model.config.vocab_size, 1))
            inside = re.fullmatch(r"blocks\.\d+\.(.+)", name)
            if inside is None:
                fixed += number
            elif inside[1] not in seen:
                seen.add(inside[1])
                once[inside[1].partition(".")[0]] += number
        for mode, shared in SHARED_PARTS.items():
            num_layers = model.config.num_layers
            totals[mode] += fixed + sum(num * (1 if part in shared else num_layers) for part, num in once.items())
    names = {mode: say(language, f"shared.{mode}") for mode in totals}
    if len(ours := {model.config.sharing for model in models}) == 1:
        (mode,) = ours
        names[mode] = say(language, "this model", name=names[mode])
    return [(names[mode], f"{total:,}") for mode, total in totals.items()]


def _about(model: Transformer, has_embeddings: bool, said: Callable[..., str]) -> list[str]:
    """Sizes, and the parameters of the token embeddings; those of a generator may be the discriminator's."""
    config = model.config
    vocab_size, narrow, width = config.vocab_size, config.embedding_width, config.width
    size = said("size", layers=config.num_layers, width=width, inner=config.inner_width, heads=config.num_heads)
    if not has_embeddings:
        if model.project is None:
            return [size, said("its embeddings")]
        return [size, said("its projection", formula=f"{narrow:,} x {width:,}", number=narrow * width)]
    if model.project is None:
        return [size, said("vocabulary", formula=f"{vocab_size:,} x {width:,}", number=vocab_size * width)]
    formula = f"{vocab_size:,} x {narrow:,} + {narrow:,} x {width:,}"
    number = vocab_size * narrow + narrow * width
    return [size, said("factorised", formula=formula, number=number, full=vocab_size * width)]


def _part(name: str) -> tuple[str, int]:
    """(part, number of parts that the parameter holds) of a parameter."""
    name = re.sub(r"^blocks\.\d+\.", "blocks.", name)
    if name.startswith("blocks.attention.qkv"):
        return "attention.qkv", 3
    if name.startswith("blocks."):
        return re.match(r"blocks\.(attention\.out|\w+)", name)[1], 1
    if name.startswith("norm."):
        return "final", 1
    return re.match(r"embeddings\.\w+|\w+", name)[0], 1


def _shape(name: str, parameter: nn.Parameter, vocab_size: int, num_parts: int) -> tuple[int, ...]:
    rows, *rest = parameter.shape
    return (vocab_size if name in PADDED else rows // num_parts, *rest)


def _formula(shapes: list[tuple[int, ...]]) -> str:
    """`12 x (768 x 768 + 768)` for the same shapes in 12 blocks."""
    kinds = list(dict.fromkeys(shapes))
    counts = {shapes.count(kind) for kind in kinds}
    num = counts.pop() if len(counts) == 1 else 1
    listed = kinds if num > 1 or len(kinds) == len(shapes) else shapes
    text = " + ".join(" x ".join(f"{size:,}" for size in shape) for shape in listed)
    if num == 1:
        return text
    return f"{num} x ({text})" if "x" in text or "+" in text else f"{num} x {text}"
