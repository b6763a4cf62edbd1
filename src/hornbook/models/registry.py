"""The model classes by their `model_type` in `config.json`."""

from hornbook.models.albert import Albert
from hornbook.models.bert import Bert
from hornbook.models.distilbert import Distilbert
from hornbook.models.electra import Electra
from hornbook.models.ernie import Ernie
from hornbook.models.gpt import Gpt1, Gpt2
from hornbook.models.roberta import Roberta
from hornbook.models.transformer import Transformer

MODELS: dict[str, type[Transformer]] = {
    model.naming.model_type: model for model in (Bert, Albert, Roberta, Electra, Gpt1, Gpt2, Distilbert, Ernie)
}


def model_class_of(config) -> type[Transformer]:
    return next(model for model in MODELS.values() if model.config_class is type(config))


def model_class(model_type: str | None) -> type[Transformer]:
    if model_type not in MODELS:
        raise ValueError(f"its model_type is '{model_type}'; Hornbook opens {', '.join(MODELS)}")
    return MODELS[model_type]
