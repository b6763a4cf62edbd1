"""The names of a family's weights and settings in `transformers`, as data, and the conversions based on them.

Saved folders have the format of `transformers`, in both directions. Each family has one `Naming`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from hornbook.models.head_config import HeadConfig, hf_head_entries, read_head_config, reads_cls

OWN_HEAD = "hornbook_head"  # prefix of task heads that no `transformers` class has
BERT_SETTINGS = {
    "vocab_size": "vocab_size",
    "num_layers": "num_hidden_layers",
    "width": "hidden_size",
    "num_heads": "num_attention_heads",
    "inner_width": "intermediate_size",
    "max_positions": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "norm_eps": "layer_norm_eps",
    "init_std": "initializer_range",
    "tied": "tie_word_embeddings",
}
BERT_ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.segments": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
BERT_BLOCK = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "fc1": ("intermediate.dense",),
    "fc2": ("output.dense",),
    "norm": ("output.LayerNorm",),
}
ACTIVATIONS_READ = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
TASK_CLASSES = {
    "sequence": "ForSequenceClassification",
    "choice": "ForMultipleChoice",
    "tokens": "ForTokenClassification",
    "spans": "ForQuestionAnswering",
}


@dataclass(frozen=True)
class Naming:
    """`encoder` and `heads` map our module or parameter names to those of `transformers`. The names in `encoder` get
    `prefix` if the model has a head."""

    model_type: str
    stem: str  # start of the class names: Bert in BertForMaskedLM
    heads: Mapping[str, str]
    classes: tuple[tuple[tuple[str, ...], str], ...]  # (heads, ending of the class that has them); the first match
    causal: str = ""  # ending of the class of a left-to-right model with a vocabulary head
    encoder: Mapping[str, str] = field(default_factory=lambda: BERT_ENCODER)
    block: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: BERT_BLOCK)
    block_prefix: Callable[[Any, int], str] = lambda config, i: f"encoder.layer.{i}"  # of block i
    task: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # task heads by output, where not as in BERT
    defaults: Mapping[str, Any] = field(default_factory=dict)  # defaults of `transformers` where they differ from these
    tied_bias_names: tuple[str, ...] = ()  # the bias of the vocabulary head, and the name of its copy
    prefix: str = ""  # default: the model type
    settings: Mapping[str, str] = field(default_factory=lambda: BERT_SETTINGS)  # our settings -> keys of `config.json`
    activation: str = "hidden_act"
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS_READ)  # hf name -> name
    task_classes: Mapping[str, str] = field(default_factory=lambda: TASK_CLASSES)  # output -> class ending
    is_decoder: bool = False  # the family reads from left to right
    tied_heads: tuple[str, ...] = ()  # heads that have no weight if the embeddings are tied
    transposed: tuple[str, ...] = ()  # modules of a block whose matrices are stored as input x output

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", self.prefix or f"{self.model_type}.")

    def is_transposed(self, name: str) -> bool:
        return name.endswith(".weight") and name.startswith("blocks.") and name.split(".", 2)[2][:-7] in self.transposed

    def has_class(self, model: nn.Module) -> bool:
        """Whether `transformers` has a class with the layers of the model's task head. It has none for a GPT that reads
        in both directions, and none for a left-to-right encoder in a task that reads the last token: its classes read
        `[CLS]`, which then attends only to itself."""
        is_usual = model.config.direction == ("causal" if self.is_decoder else "bidirectional")
        if not is_usual and (self.is_decoder or reads_cls(model.head_config)):
            return False
        return model.head_config.has_transformers_class and model.head_config.output in self.task_classes

    def class_of(self, model: nn.Module) -> str:
        if model.head_config is not None:
            ending = self.task_classes[model.head_config.output] if self.has_class(model) else "Model"
        elif model.config.direction == "causal" and "mlm" in model.heads:
            ending = self.causal
        else:
            ending = next((ending for needed, ending in self.classes if set(needed) <= set(model.heads)), "Model")
        return self.stem + ending

    def heads_in(self, names: set[str], is_tied: bool) -> tuple[str, ...]:
        """The heads that a folder with weights of these names has."""
        bare = {name.removeprefix(self.prefix) for name in names}
        parts = {"pooler": self.encoder.get("pooler"), **self.heads}
        heads = [name.partition(".")[0] for name, hf_name in parts.items() if f"{hf_name}.weight" in bare]
        return tuple(dict.fromkeys([*heads, *(self.tied_heads if is_tied else ())]))

    def hf_names(self, model: nn.Module) -> dict[str, tuple[str, ...]]:
        """For each of our parameters its `transformers` name, or the names of the parameters that it concatenates."""
        prefix = "" if self.class_of(model) == f"{self.stem}Model" else self.prefix
        return {name: self._hf_name(name, model, prefix) for name in model.state_dict()}

    def _hf_name(self, name: str, model: nn.Module, prefix: str) -> tuple[str, ...]:
        stem, _, kind = name.rpartition(".")
        if stem.startswith("blocks."):
            _, i, part = stem.split(".", 2)
            block = self.block_prefix(model.config, int(i))
            return tuple(f"{prefix}{block}.{hf_name}.{kind}" for hf_name in self.block[part])
        tables = [(self.encoder, prefix), (self.heads, "")]
        if model.head_config is not None and self.has_class(model):
            tables.append((self._task_names(model.head_config), ""))
        for table, before in tables:
            if name in table or stem in table:
                return (before + (table.get(name) or f"{table[stem]}.{kind}"),)
        assert name.startswith("task."), name
        return (name.replace("task.", f"{OWN_HEAD}.", 1),)

    def _task_names(self, head_config: HeadConfig) -> Mapping[str, str]:
        return self.task.get(head_config.output, {"task.out": head_config.output_type.hf_weight})

    def head_config_in(self, hf_config: dict, weights: dict[str, Tensor]) -> HeadConfig | None:
        """The output of a folder's task head, if it has a supported one."""
        class_name = (hf_config.get("architectures") or [""])[0]
        output = next(
            (output for output, ending in self.task_classes.items() if class_name == self.stem + ending), None
        )
        name = f"{OWN_HEAD}.out" if output is None else self._task_names(HeadConfig(output))["task.out"]
        head = weights.get(f"{name}.weight")
        return read_head_config(hf_config, None if head is None else output, 1 if head is None else len(head))

    def hf_config(self, model: nn.Module) -> dict:
        """`config.json` as `transformers` writes it; settings that it does not have keep our names."""
        config = dataclasses.asdict(model.config)
        hf_config = {"architectures": [self.class_of(model)], "model_type": self.model_type, "dtype": "float32"}
        hf_config |= {hf_name: config[name] for name, hf_name in self.settings.items()}
        activations = {name: hf_name for hf_name, name in reversed(self.activations.items())}  # the first name
        hf_config[self.activation] = activations[model.config.activation]
        if model.head_config is not None:
            hf_config |= hf_head_entries(model.head_config)
        if model.config.positions != "learned":
            hf_config["position_kind"] = model.config.positions
        if config.get("direction") == "causal":
            hf_config |= {"attention_direction": "causal", "is_decoder": True}
        return hf_config

    def settings_in(self, hf_config: dict) -> dict[str, Any]:
        """Our settings for the contents of a `config.json`; `ValueError` for unsupported features."""
        needed = [self.settings[name] for name in ("vocab_size", "width", "num_layers")]
        if missing := [name for name in needed if name not in hf_config]:
            raise ValueError(f"it lacks {', '.join(missing)}")
        hf_config = dict(self.defaults) | hf_config
        if hf_config.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError(f"its position_embedding_type '{hf_config['position_embedding_type']}' is not supported")
        if hf_config.get("add_cross_attention"):
            raise ValueError("it has cross-attention (add_cross_attention), which is not supported")
        values = {name: hf_config[hf_name] for name, hf_name in self.settings.items() if hf_name in hf_config}
        if self.activation in hf_config:
            activation = hf_config[self.activation]
            if activation not in self.activations:
                raise ValueError(f"its {self.activation} '{activation}' is not one of {', '.join(self.activations)}")
            values["activation"] = self.activations[activation]
        default = "causal" if hf_config.get("is_decoder") else "bidirectional"
        values["direction"] = hf_config.get("attention_direction", default)
        values["positions"] = hf_config.get("position_kind", "learned")
        return values
