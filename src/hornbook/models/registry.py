"""The model families by their `model_type` in `config.json`, and all presets."""

import difflib

from hornbook.models import albert, bert, distilbert, electra, gpt, roberta
from hornbook.models.transformer import Preset, Transformer

MODELS: dict[str, type[Transformer]] = {
    "bert": bert.Bert,
    "albert": albert.Albert,
    "roberta": roberta.Roberta,
    "electra": electra.Electra,
    "openai-gpt": gpt.Gpt1,
    "gpt2": gpt.Gpt2,
    "distilbert": distilbert.Distilbert,
}
PRESETS: dict[str, Preset] = (
    bert.PRESETS | albert.PRESETS | roberta.PRESETS | electra.PRESETS | gpt.PRESETS | distilbert.PRESETS
)


def preset(name: str) -> Preset:
    """The preset of this name, or a `ValueError` with the nearest names."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(PRESETS)}"
        raise ValueError(f"there is no preset '{name}'; {hint}")
    return PRESETS[name]


def presets_of(family: str) -> dict[str, Preset]:
    return {name: preset for name, preset in PRESETS.items() if family_of(preset.model).family == family}


def family_of(config) -> type[Transformer]:
    """The family that a config belongs to."""
    return next(model for model in MODELS.values() if model.config_kind is type(config))


def family(model_type: str | None) -> type[Transformer]:
    """The family of this `model_type` in a `config.json`."""
    if model_type not in MODELS:
        raise ValueError(f"its model_type is '{model_type}'; Hornbook opens {', '.join(MODELS)}")
    return MODELS[model_type]
