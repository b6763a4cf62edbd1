"""Which families there are, by the model type that `config.json` names, and all their presets."""

import difflib
from types import ModuleType

from hornbook.models import bert

FAMILIES: dict[str, ModuleType] = {"bert": bert}
MODELS = {"bert": bert.Bert}
PRESETS = {name: preset for family in FAMILIES.values() for name, preset in family.PRESETS.items()}


def preset(name: str):
    """The published size of this name, or a `ValueError` with the nearest names."""
    if name not in PRESETS:
        near = difflib.get_close_matches(name, PRESETS, n=3, cutoff=0.5) or list(PRESETS)
        raise ValueError(f"there is no preset '{name}'; did you mean {' or '.join(near)}?")
    return PRESETS[name]


def family(model_type: str | None) -> ModuleType:
    """The module of the family that a `config.json` names."""
    if model_type not in FAMILIES:
        raise ValueError(f"its model_type is '{model_type}'; Hornbook opens {', '.join(FAMILIES)}")
    return FAMILIES[model_type]
