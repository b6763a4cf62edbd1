"""Loads and saves model folders: `config.json`, `model.safetensors` and the tokenizer in the format of `transformers`,
so that either library opens the folders of the other."""

import hashlib
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from hornbook.config import checked
from hornbook.files import read_json, write_json, write_tensors
from hornbook.interop.files import WEIGHTS, checked_config_file, weights_file, weights_files
from hornbook.models import registry
from hornbook.models.transformer import VOCABULARY_PADDING
from hornbook.nn.int8 import WeightFormat, as_float, as_int8
from hornbook.text.tokenizer import Tokenizer

RESTORE = "the two files do not belong together; restore the right one"
# Weights that are ignored: heads of fine-tuned folders, buffers of old ones and tied weights saved twice.
IGNORED = ("classifier.", "qa_outputs.", "sequence_summary.", "score.", "multiple_choice_head.")
IGNORED += ("embeddings.position_ids", ".attn.bias", ".attn.masked_bias")
IGNORED += (".decoder.", "lm_head.weight", "vocab_projector.weight")


def save_model(folder: Path, model: nn.Module, weights: WeightFormat = "float") -> None:
    """Writes config and weights; the weights last, so that a folder with weights is complete. A folder with `int8`
    weights has a quarter of the size; only Hornbook opens it."""
    checked(weights, WeightFormat, "weights")
    write_json(Path(folder) / "config.json", model.hf_config())
    tensors = hf_weights(model)
    write_tensors(Path(folder) / WEIGHTS, as_int8(tensors) if weights == "int8" else tensors, {"format": "pt"})


def hf_weights(model: nn.Module) -> dict[str, Tensor]:
    """Returns the weights under their Hugging Face names, without the padding rows of the vocabulary."""
    state, firsts, weights = model.state_dict(), first_names(model), {}
    for name, hf_names in model.naming.hf_names(model).items():
        if hf_names[0] in weights:
            continue  # shared layers are saved once
        value = state[name].detach()
        if (unit := unit_of(model, name)) != 1:
            value = value * unit
        if name in VOCABULARY_PADDING:
            value = value[: model.config.vocab_size]
        if firsts[name] != name:
            value = value.clone()  # safetensors refuses tensors that share memory
        if model.naming.is_transposed(name):
            value = value.T
        for hf_name, part in zip(hf_names, value.chunk(len(hf_names)), strict=True):
            weights[hf_name] = part.contiguous().cpu()
    if not model.config.tied:
        weights |= {twin: weights[bias].clone() for bias, twin in _bias_twins(model) if bias in weights}
    return weights


def unit_of(model: nn.Module, name: str) -> float:
    """The unit in which a weight is held in memory (`HeadConfig.scale`); in files it is 1."""
    return model.head_config.scale if model.head_config is not None and name.startswith("task.out.") else 1.0


def first_names(model: nn.Module) -> dict[str, str]:
    """Maps each weight name to the first name of the same parameter, as layers may share parameters."""
    firsts: dict[nn.Parameter, str] = {}
    return {name: firsts.setdefault(weight, name) for name, weight in model.named_parameters(remove_duplicate=False)}


def _bias_twins(model: nn.Module) -> list[tuple[str, str]]:
    """The two names of the vocabulary head's bias; `transformers` reads the second if the embeddings are not tied."""
    return [model.naming.tied_bias_names] if model.naming.tied_bias_names else []


def load_model(folder: Path) -> nn.Module:
    """Loads the model of a folder, with the heads found in its weights. In evaluation mode, float32, on the CPU."""
    folder = Path(folder)
    hf_config = read_json(checked_config_file(folder))
    weights = read_weights(folder)
    try:
        model_class = registry.model_class(hf_config.get("model_type"))
        config = model_class.config_from_hf(hf_config)
        if config.num_layers > len(weights):
            raise ValueError(f"it has {config.num_layers} layers, and the weights fewer")
        with torch.device("meta"):
            head_config = model_class.naming.head_config_in(hf_config, weights)
            model = model_class(config, model_class.naming.heads_in(set(weights), config.tied), head_config)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        remedy = "use another model, or restore the file if it is damaged"
        raise ValueError(f"{folder / 'config.json'} cannot be used ({reason}): {remedy}") from None
    load_weights(model, weights, folder)
    return model.eval()


def load_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Copies weights under Hugging Face names into the model; a wrong name or shape is a `ValueError`."""
    matched = _matched(model, weights, folder)
    if next(model.parameters()).is_meta:  # memory is allocated only after the shapes are checked
        model.to_empty(device="cpu")
    state = model.state_dict()
    for name, value in matched.items():
        target = state[name]
        target[: len(value)].copy_(value)
        if (unit := unit_of(model, name)) != 1:
            target.div_(unit)
        target[len(value) :] = VOCABULARY_PADDING.get(name, 0.0)


def _matched(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """Returns the weights under our names, each once, with checked shapes and the vocabulary not yet padded."""
    file, config_file = weights_file(folder), folder / "config.json"
    weights = _normalized(model, weights)
    state, firsts, matched = model.state_dict(), first_names(model), {}
    hf_names = {
        name: [hf_name.removeprefix(model.naming.prefix) for hf_name in names]
        for name, names in model.naming.hf_names(model).items()
    }
    for name, sources in hf_names.items():
        missing = [source for source in sources if source not in weights]
        if missing:
            raise ValueError(f"{file} lacks {missing[0]}, which {config_file} requires: {RESTORE}")
        num_rows = model.config.vocab_size if name in VOCABULARY_PADDING else len(state[name])
        shape = (num_rows // len(sources), *state[name].shape[1:])
        shape = shape[::-1] if model.naming.is_transposed(name) else shape
        for source in sources:
            _check_weight(source, weights[source], shape, file, config_file)
        if firsts[name] == name:
            value = torch.cat([weights[source] for source in sources])
            matched[name] = value.T if model.naming.is_transposed(name) else value
            continue
        for first, source in zip(hf_names[firsts[name]], sources, strict=True):
            if first != source and not torch.equal(weights[first], weights[source]):
                raise ValueError(
                    f"{source} in {file} differs from {first}, but {config_file} declares them shared: "
                    'set its "sharing" to "none", or restore the right file'
                )
    used = {name for names in hf_names.values() for name in names}
    rest = [name for name in weights if name not in used and not any(part in name for part in IGNORED)]
    if rest:
        raise ValueError(
            f"{file} has {len(rest)} weights that {model.described()} model of {config_file} does not have, "
            f"the first is {rest[0]}: {RESTORE}"
        )
    return matched


def _normalized(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights without the prefix of their names, and with biases and tied matrices that some classes save once."""
    # Some published folders save the encoder's names without their prefix, fine-tuned ones with it.
    weights = {name.removeprefix(model.naming.prefix): value for name, value in weights.items()}
    for bias, twin in _bias_twins(model):
        if twin in weights and (bias not in weights or not model.config.tied):
            weights[bias] = weights[twin]
    tied_heads = [f"{model.naming.heads[head]}.weight" for head in model.naming.tied_heads]
    if model.config.tied and (tied := [name for name in tied_heads if name in weights]):
        # Some classes save only the head of a tied matrix (OpenAIGPTDoubleHeadsModel).
        weights.setdefault(f"{model.naming.encoder['embeddings.tokens']}.weight", weights[tied[0]])
    return weights


def _check_weight(name: str, weight: Tensor, shape: tuple[int, ...], file: Path, config_file: Path) -> None:
    if weight.shape != shape:
        raise ValueError(
            f"{name} in {file} has shape {tuple(weight.shape)}, but {config_file} requires {shape}: {RESTORE}"
        )
    if not weight.is_floating_point():
        raise ValueError(f"{name} in {file} is {weight.dtype}, not floating point: copy the file again from its source")


def read_weights(folder: Path) -> dict[str, Tensor]:
    """Reads all tensors of a folder by name, from one safetensors file or from several with an index; matrices that are
    stored in int8 as float32."""
    folder = Path(folder)
    weights: dict[str, Tensor] = {}
    for file in weights_files(folder):
        if not file.is_file():
            raise ValueError(f"{file} is missing: copy it again from the source of the folder")
        try:
            with safe_open(file, "pt") as opened:
                for name in opened.keys():  # noqa: SIM118
                    modern = name.replace("LayerNorm.gamma", "LayerNorm.weight")  # names in old folders
                    weights[modern.replace("LayerNorm.beta", "LayerNorm.bias")] = opened.get_tensor(name)
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{file} is damaged or truncated ({reason}): copy it again from its source") from None
    try:
        return as_float(weights)
    except ValueError as error:
        raise ValueError(f"{weights_file(folder)} is damaged ({error}): copy it again from its source") from None


def weights_fingerprint(folder: Path) -> str:
    """SHA-256 of the bytes of all weight files."""
    digest = hashlib.sha256()
    for path in weights_files(folder):
        with path.open("rb") as file:
            hashlib.file_digest(file, lambda: digest)
    return digest.hexdigest()


def load_folder(folder: Path) -> tuple[nn.Module, Tokenizer]:
    """Loads the model and the tokenizer of a folder, and checks that they match."""
    model, tokenizer = load_model(folder), Tokenizer.load(folder)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer in {folder} has {tokenizer.vocab_size} tokens but the model only "
            f"{model.config.vocab_size}: restore the tokenizer that the model was trained with"
        )
    return model, tokenizer
