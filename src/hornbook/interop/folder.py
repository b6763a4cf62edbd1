"""Opening and writing model folders: `config.json` + `model.safetensors` + the tokenizer, in the names that
`transformers` uses, so that each side opens what the other trained."""

import math
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from hornbook.files import read_json, replacing, write_json
from hornbook.models import registry
from hornbook.text.tokenizer import Tokenizer

WEIGHTS = "model.safetensors"
# Heads of fine-tuned folders and buffers of old ones, which say nothing about the encoder.
PASSED_OVER = ("classifier.", "qa_outputs.", "embeddings.position_ids", "cls.predictions.decoder.bias")


def save_model(folder: Path, model: nn.Module) -> None:
    """Writes config and weights; the weights last, so that a folder with weights is whole."""
    family = registry.FAMILIES[model.family]
    write_json(Path(folder) / "config.json", family.outside_config(model))
    with replacing(Path(folder) / WEIGHTS) as temporary:
        save_file(outside_weights(model), temporary, metadata={"format": "pt"})


def outside_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights under their outside names, the vocabulary cut to its true size."""
    family = registry.FAMILIES[model.family]
    state, weights = model.state_dict(), {}
    for ours, outside in family.outside_names(model).items():
        value = state[ours].detach()
        if ours in family.PADDED:
            value = value[: model.config.vocab_size]
        for name, part in zip(outside, value.chunk(len(outside)), strict=True):
            weights[name] = part.contiguous().cpu()
    return weights


def load_model(folder: Path) -> nn.Module:
    """The model of a folder, with those heads that its weights hold. In evaluation mode, float32, on the CPU."""
    folder = Path(folder)
    config_file = folder / "config.json"
    if not config_file.exists():
        raise ValueError(f"{folder} is not a model folder: it has no config.json")
    outside = read_json(config_file)
    try:
        family = registry.family(outside.get("model_type"))
        config = family.config_from_outside(outside)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{config_file} cannot be used: {error}") from None
    weights = read_weights(folder)
    model = registry.MODELS[outside["model_type"]](config, family.heads_in(set(weights)))
    load_weights(model, weights, folder)
    return model.eval()


def load_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Puts outside weights into the model; a name or a shape that does not fit is a `ValueError`."""
    family = registry.FAMILIES[model.family]
    # Some published folders write the encoder's names without their prefix, fine-tuned ones with it.
    weights = {name.removeprefix(family.PREFIX): value for name, value in weights.items()}
    state, used = model.state_dict(), set()
    for ours, outside in family.outside_names(model).items():
        outside = tuple(name.removeprefix(family.PREFIX) for name in outside)
        missing = [name for name in outside if name not in weights]
        if missing:
            raise ValueError(
                f"{folder / WEIGHTS} lacks {missing[0]}, which {folder / 'config.json'} asks for: "
                "the two files do not belong together; restore the right one"
            )
        used.update(outside)
        value = torch.cat([weights[name] for name in outside]).to(state[ours].dtype)
        target = state[ours]
        if ours in family.PADDED and value.shape[:1] == (model.config.vocab_size,):
            target.fill_(family.PADDED[ours])
            target = target[: model.config.vocab_size]
        if value.shape != target.shape:
            raise ValueError(
                f"{outside[0]} in {folder / WEIGHTS} has shape {tuple(value.shape)}, but {folder / 'config.json'} "
                f"asks for {tuple(target.shape)}: the two files do not belong together; restore the right one"
            )
        target.copy_(value)
    tied = "cls.predictions.decoder.weight"
    rest = [n for n in weights if n not in used and n != tied and not any(part in n for part in PASSED_OVER)]
    if rest:
        raise ValueError(
            f"{folder / WEIGHTS} holds {len(rest)} weights that a {model.family} model of this config.json has no place "
            f"for, the first is {rest[0]}: the two files do not belong together; restore the right one"
        )


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by name, from one safetensors file or from several with an index."""
    folder = Path(folder)
    index = folder / f"{WEIGHTS}.index.json"
    if (folder / WEIGHTS).exists():
        files = [folder / WEIGHTS]
    elif index.exists():
        files = [folder / name for name in sorted(set(read_json(index)["weight_map"].values()))]
    else:
        pickles = [*folder.glob("*.bin"), *folder.glob("*.pt"), *folder.glob("*.ckpt*")]
        if pickles:
            raise ValueError(
                f"{pickles[0]} is a pickle, which can run any code when opened, so it is refused; convert it once with: "
                'python -c "from transformers import AutoModelForPreTraining as M; '
                f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
        raise ValueError(f"{folder} has no {WEIGHTS}: it holds no model")
    weights: dict[str, Tensor] = {}
    for file in files:
        try:
            with safe_open(file, "pt") as opened:
                weights |= {_modern(name): opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{file} is damaged or cut short ({error}): copy it again from where it came") from None
    return weights


def _modern(name: str) -> str:
    """Old folders call a norm's weight gamma and its bias beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def load_folder(folder: Path) -> tuple[nn.Module, Tokenizer]:
    """Model and tokenizer of a folder, checked against each other."""
    model, tokenizer = load_model(folder), Tokenizer.load(folder)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer in {folder} has {tokenizer.vocab_size} tokens but the model only {model.config.vocab_size}: "
            "put the tokenizer that the model was trained with beside it"
        )
    return model, tokenizer


def describe(folder: Path) -> dict:
    """What `info` says of a model folder, read without building the model."""
    weights = {}
    with safe_open(Path(folder) / WEIGHTS, "pt") as opened:
        for name in opened.keys():  # noqa: SIM118
            weights[name] = opened.get_slice(name).get_shape()
    parameters = sum(math.prod(shape) for shape in weights.values())
    return {"parameters": parameters, "tensors": len(weights), "config": read_json(Path(folder) / "config.json")}
