"""Opening and writing model folders: `config.json` + `model.safetensors` + the tokenizer, in the names that
`transformers` uses, so that each side opens what the other trained."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from hornbook.files import read_json, write_json, write_tensors
from hornbook.models import registry
from hornbook.models.transformer import PADDED
from hornbook.text.tokenizer import Tokenizer

WEIGHTS = "model.safetensors"
EXPORTED = "model.onnx"
RESTORE = "the two files do not belong together; restore the right one"
# Heads of fine-tuned folders, buffers of old ones and tied weights written twice.
PASSED_OVER = (
    *("classifier.", "qa_outputs.", "sequence_summary.", "embeddings.position_ids"),
    *(".decoder.", "lm_head.weight", "vocab_projector.weight", "score.", "multiple_choice_head."),
    *(".attn.bias", ".attn.masked_bias"),
)


def save_model(folder: Path, model: nn.Module) -> None:
    """Writes config and weights; the weights last, so that a folder with weights is whole."""
    write_json(Path(folder) / "config.json", model.hf_config())
    write_tensors(Path(folder) / WEIGHTS, hf_weights(model), {"format": "pt"})


def hf_weights(model: nn.Module) -> dict[str, Tensor]:
    """The weights under their outside names, the vocabulary cut to its true size."""
    state, firsts, weights = model.state_dict(), first_names(model), {}
    for ours, outside in model.naming.hf_names(model).items():
        if outside[0] in weights:
            continue  # layers that share all are one outside too
        value = state[ours].detach()
        if ours in PADDED:
            value = value[: model.config.vocab_size]
        if firsts[ours] != ours:
            value = value.clone()  # a file holds no tensor twice
        if model.naming.is_transposed(ours):
            value = value.T
        for name, part in zip(outside, value.chunk(len(outside)), strict=True):
            weights[name] = part.contiguous().cpu()
    if not model.config.tied:
        weights |= {twin: weights[bias].clone() for bias, twin in _bias_twins(model) if bias in weights}
    return weights


def first_names(model: nn.Module) -> dict[str, str]:
    """For each name of a weight the first name of the same: layers may share it."""
    firsts: dict[nn.Parameter, str] = {}
    return {name: firsts.setdefault(held, name) for name, held in model.named_parameters(remove_duplicate=False)}


def _bias_twins(model: nn.Module) -> list[tuple[str, str]]:
    """The two names of the vocabulary head's bias: the second is read where its matrix is not the token embedding."""
    return [model.naming.bias_twins] if model.naming.bias_twins else []


def _tied_heads(model: nn.Module) -> list[str]:
    """The outside names of the heads that are the token embedding's matrix."""
    return [f"{model.naming.heads[head]}.weight" for head in model.naming.tied_heads]


def load_model(folder: Path) -> nn.Module:
    """The model of a folder, with those heads that its weights hold. In evaluation mode, float32, on the CPU."""
    folder = Path(folder)
    config_file = folder / "config.json"
    if not config_file.is_file():
        raise ValueError(f"{folder} is not a model folder: it has no config.json")
    outside = read_json(config_file)
    weights = read_weights(folder)
    try:
        family = registry.family(outside.get("model_type"))
        config = family.config_from_outside(outside)
        if config.num_layers > len(weights):
            raise ValueError(f"it asks for {config.num_layers} layers, which its weights do not hold")
        with torch.device("meta"):  # no memory is taken before the shapes are known to fit
            output = family.naming.output_in(outside, weights)
            model = family(config, family.naming.heads_in(set(weights), config.tied), output)
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RuntimeError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{config_file} cannot be used ({reason}): restore the file") from None
    fitting = _fitting(model, weights, folder)
    _put(model.to_empty(device="cpu"), fitting)
    return model.eval()


def load_weights(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> None:
    """Puts outside weights into the model; a name or a shape that does not fit is a `ValueError`."""
    _put(model, _fitting(model, weights, folder))


def _put(model: nn.Module, fitting: dict[str, Tensor]) -> None:
    state = model.state_dict()
    for name, value in fitting.items():
        target = state[name]
        target[: len(value)].copy_(value)
        target[len(value) :] = PADDED.get(name, 0.0)


def _fitting(model: nn.Module, weights: dict[str, Tensor], folder: Path) -> dict[str, Tensor]:
    """The outside weights by our names, each once and of the right shape, the vocabulary not yet padded."""
    where, config_file = _weights_file(folder), folder / "config.json"
    weights = _as_named(model, weights)
    state, firsts, fitting = model.state_dict(), first_names(model), {}
    hf_names = {
        ours: [name.removeprefix(model.naming.prefix) for name in names]
        for ours, names in model.naming.hf_names(model).items()
    }
    for ours, outside in hf_names.items():
        missing = [name for name in outside if name not in weights]
        if missing:
            raise ValueError(f"{where} lacks {missing[0]}, which {config_file} asks for: {RESTORE}")
        num_rows = model.config.vocab_size if ours in PADDED else len(state[ours])
        shape = (num_rows // len(outside), *state[ours].shape[1:])
        shape = shape[::-1] if model.naming.is_transposed(ours) else shape
        for name in outside:
            _refuse_unfit(name, weights[name], shape, where, config_file)
        if firsts[ours] == ours:
            found = torch.cat([weights[name] for name in outside])
            fitting[ours] = found.T if model.naming.is_transposed(ours) else found
            continue
        for first, name in zip(hf_names[firsts[ours]], outside, strict=True):
            if first != name and not torch.equal(weights[first], weights[name]):
                raise ValueError(
                    f"{name} in {where} is not the same as {first}, but {config_file} says that layers share them: "
                    'set its "sharing" to "none", or restore the right file'
                )
    used = {name for names in hf_names.values() for name in names}
    rest = [name for name in weights if name not in used and not any(part in name for part in PASSED_OVER)]
    if rest:
        raise ValueError(
            f"{where} holds {len(rest)} weights that {model.in_words()} model of {config_file} has no place for, "
            f"the first is {rest[0]}: {RESTORE}"
        )
    return fitting


def _as_named(model: nn.Module, weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Under one name each, and what some classes leave out filled in from its twin."""
    # Some published folders write the encoder's names without their prefix, fine-tuned ones with it.
    weights = {name.removeprefix(model.naming.prefix): value for name, value in weights.items()}
    for bias, twin in _bias_twins(model):
        if twin in weights and (bias not in weights or not model.config.tied):
            weights[bias] = weights[twin]
    if model.config.tied and (tied := [each for each in _tied_heads(model) if each in weights]):
        # Of a tied matrix some classes write the head alone (OpenAIGPTDoubleHeadsModel).
        weights.setdefault(f"{model.naming.encoder['embeddings.tokens']}.weight", weights[tied[0]])
    return weights


def _refuse_unfit(name: str, weight: Tensor, shape: tuple[int, ...], where: Path, config_file: Path) -> None:
    if weight.shape != shape:
        found = tuple(weight.shape)
        raise ValueError(f"{name} in {where} has shape {found}, but {config_file} asks for {shape}: {RESTORE}")
    if not weight.is_floating_point():
        raise ValueError(
            f"{name} in {where} holds {weight.dtype}, not floating-point numbers: "
            "copy the file again from where it came"
        )


def _weights_file(folder: Path) -> Path:
    """The file to name in a message."""
    index = folder / f"{WEIGHTS}.index.json"
    return index if index.exists() and not (folder / WEIGHTS).exists() else folder / WEIGHTS


def read_weights(folder: Path) -> dict[str, Tensor]:
    """All tensors of a folder by name, from one safetensors file or from several with an index."""
    folder = Path(folder)
    weights: dict[str, Tensor] = {}
    for file in weights_files(folder):
        if not file.is_file():
            raise ValueError(f"{file} is missing: copy it again from where the folder came")
        try:
            with safe_open(file, "pt") as opened:
                weights |= {_modern(name): opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            reason = str(error).splitlines()[0]
            raise ValueError(f"{file} is damaged or cut short ({reason}): copy it again from where it came") from None
    return weights


def weights_files(folder: Path) -> list[Path]:
    """The files that hold the weights; a pickle is refused."""
    index = folder / f"{WEIGHTS}.index.json"
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if index.exists():
        names = read_json(index).get("weight_map")
        if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
            raise ValueError(f"{index} has no weight_map of names to files: copy it again from where it came")
        if outside := next((name for name in names.values() if Path(name).name != name), None):
            raise ValueError(f"{index} names {outside!r}, which is not a file of its own folder: copy it again")
        return [folder / name for name in sorted(set(names.values()))]
    pickles = sorted([*folder.glob("*model*.bin"), *folder.glob("*.pt"), *folder.glob("*.ckpt*")])
    if pickles:
        raise ValueError(
            f"{pickles[0]} is a pickle, which can run any code when opened, so it is refused; convert it once with: "
            'python -c "from transformers import AutoModelForPreTraining as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    if (folder / EXPORTED).is_file():
        raise ValueError(
            f"{folder} holds an exported model ({EXPORTED}), for predict, evaluate and compare alone: give the run or "
            "model that it was made of"
        )
    raise ValueError(
        f"{folder} has no {WEIGHTS}: it holds no model, or only a pickle, which is neither downloaded nor opened; "
        "open it once in transformers and save it with save_pretrained"
    )


def _modern(name: str) -> str:
    """Old folders call a norm's weight gamma and its bias beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def load_folder(folder: Path) -> tuple[nn.Module, Tokenizer]:
    """Model and tokenizer of a folder, checked against each other."""
    model, tokenizer = load_model(folder), Tokenizer.load(folder)
    if tokenizer.vocab_size > model.config.vocab_size:
        raise ValueError(
            f"the tokenizer in {folder} has {tokenizer.vocab_size} tokens but the model only "
            f"{model.config.vocab_size}: put the tokenizer that the model was trained with beside it"
        )
    return model, tokenizer
