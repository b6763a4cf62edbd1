"""The model families by their `model_type` in `config.json`."""

from hornbook.models import albert, bert, distilbert, electra, ernie, gpt, roberta
from hornbook.models.transformer import Transformer

MODELS: dict[str, type[Transformer]] = {
    "bert": bert.Bert,
    "albert": albert.Albert,
    "roberta": roberta.Roberta,
    "electra": electra.Electra,
    "openai-gpt": gpt.Gpt1,
    "gpt2": gpt.Gpt2,
    "distilbert": distilbert.Distilbert,
    "hornbook-ernie": ernie.Ernie,
}


def family_of(config) -> type[Transformer]:
    """The family that a config belongs to."""
    return next(model for model in MODELS.values() if model.config_class is type(config))


def family(model_type: str | None) -> type[Transformer]:
    """The family of this `model_type` in a `config.json`."""
    if model_type not in MODELS:
        raise ValueError(f"its model_type is '{model_type}'; Hornbook opens {', '.join(MODELS)}")
    return MODELS[model_type]
