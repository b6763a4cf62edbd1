"""The names that the outside world gives to a family's weights and settings, as data; and what follows from them.

A folder is written as `transformers` writes it and read back from what it writes. A family file holds one `Naming`.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from hornbook.models.outputs import Output, hf_output, read_output, reads_cls

OWN_HEAD = "hornbook_head"  # layers that no class outside has
CONFIG_NAMES = {
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
ENCODER = {
    "embeddings.tokens": "embeddings.word_embeddings",
    "embeddings.positions": "embeddings.position_embeddings",
    "embeddings.segments": "embeddings.token_type_embeddings",
    "embeddings.norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
BLOCK = {
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
    """`encoder` and `heads` say which outside part each of our parts is; a part is a module or a single parameter.
    Names of the encoder stand behind `prefix` wherever a head is beside it."""

    model_type: str
    stem: str  # of the outside classes: Bert in BertForMaskedLM
    heads: Mapping[str, str]
    classes: tuple[tuple[tuple[str, ...], str], ...]  # (heads, ending of the class that has them), the first that fits
    causal: str = ""  # ending of the class of a left-to-right model with a vocabulary head
    encoder: Mapping[str, str] = field(default_factory=lambda: ENCODER)
    block: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: BLOCK)
    place_of_block: Callable[[Any, int], str] = lambda config, number: f"encoder.layer.{number}"
    task: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # of a kind of output, where unlike BERT's
    config: Mapping[str, str] = field(default_factory=dict)  # settings besides the usual ones
    defaults: Mapping[str, Any] = field(default_factory=dict)  # theirs for what `config.json` lacks, where unlike ours
    bias_twins: tuple[str, ...] = ()  # the bias of the vocabulary head: its name, and one that is a copy of it
    prefix: str = ""  # none: the model type
    settings: Mapping[str, str] = field(default_factory=lambda: CONFIG_NAMES)  # the usual ones
    activation: str = "hidden_act"
    activations: Mapping[str, str] = field(default_factory=lambda: ACTIVATIONS_READ)  # theirs, by name, in our words
    task_classes: Mapping[str, str] = field(default_factory=lambda: TASK_CLASSES)  # for which kinds, and its ending
    tied_heads: tuple[str, ...] = ()  # heads that have no weight of their own where the embeddings are tied
    transposed: tuple[str, ...] = ()  # parts of a block whose matrices are written input x output

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefix", self.prefix or f"{self.model_type}.")

    def is_transposed(self, ours: str) -> bool:
        """Whether a weight is written the other way round outside."""
        return ours.endswith(".weight") and ours.startswith("blocks.") and ours.split(".", 2)[2][:-7] in self.transposed

    def has_class(self, output: Output, is_causal: bool = False) -> bool:
        """Whether `transformers` has a class with the layers that answer this. Its encoders (`is_causal`: set to read
        left to right) read `[CLS]`, which then has seen nothing of the text."""
        return output.is_published and output.kind in self.task_classes and not (is_causal and reads_cls(output))

    def class_of(self, heads: tuple[str, ...], output: Output | None = None, is_causal: bool = False) -> str:
        """The name of the `transformers` class that holds these heads."""
        if output is not None:
            return self.stem + (self.task_classes[output.kind] if self.has_class(output, is_causal) else "Model")
        if is_causal and "mlm" in heads:
            return self.stem + self.causal
        fitting = (ending for wanted, ending in self.classes if set(wanted) <= set(heads))
        return self.stem + next(fitting, "Model")

    def heads_in(self, names: set[str], is_tied: bool) -> tuple[str, ...]:
        """Which heads the outside weights hold."""
        bare = {name.removeprefix(self.prefix) for name in names}
        parts = {"pooler": self.encoder.get("pooler"), **self.heads}
        found = [ours.partition(".")[0] for ours, outside in parts.items() if f"{outside}.weight" in bare]
        return tuple(dict.fromkeys([*found, *(self.tied_heads if is_tied else ())]))

    def hf_names(self, model: nn.Module) -> dict[str, tuple[str, ...]]:
        """For each of our parameters the outside one, or the outside ones that it is made of, end to end."""
        prefix = "" if self._class_of(model) == f"{self.stem}Model" else self.prefix
        return {ours: self._outside(ours, model, prefix) for ours in model.state_dict()}

    def _outside(self, ours: str, model: nn.Module, prefix: str) -> tuple[str, ...]:
        stem, _, kind = ours.rpartition(".")
        if stem.startswith("blocks."):
            _, number, part = stem.split(".", 2)
            place = self.place_of_block(model.config, int(number))
            return tuple(f"{prefix}{place}.{each}.{kind}" for each in self.block[part])
        tables = [(self.encoder, prefix), (self.heads, "")]
        if model.output is not None and self.has_class(model.output, self._is_causal(model)):
            tables.append((self._task_names(model.output), ""))
        for table, before in tables:
            if ours in table or stem in table:
                return (before + (table.get(ours) or f"{table[stem]}.{kind}"),)
        assert ours.startswith("task."), ours
        return (ours.replace("task.", f"{OWN_HEAD}.", 1),)

    def _is_causal(self, model: nn.Module) -> bool:
        """Whether it is an encoder that reads left to right; a GPT always does, and its classes expect it."""
        return bool(self.causal) and model.config.direction == "left"

    def _class_of(self, model: nn.Module) -> str:
        return self.class_of(model.heads, model.output, self._is_causal(model))

    def _task_names(self, output: Output) -> Mapping[str, str]:
        usual = {"task.out": "qa_outputs" if output.kind == "spans" else "classifier"}
        return self.task.get(output.kind, usual)

    def output_in(self, outside: dict, weights: dict[str, Tensor]) -> Output | None:
        """What the task head of a folder answers, if it has one that is known here."""
        named = (outside.get("architectures") or [""])[0]
        kind = next((kind for kind, ending in self.task_classes.items() if named == self.stem + ending), None)
        name = f"{OWN_HEAD}.out" if kind is None else self._task_names(Output(kind))["task.out"]
        head = weights.get(f"{name}.weight")
        return read_output(outside, None if head is None else kind, 1 if head is None else len(head))

    def hf_config(self, model: nn.Module) -> dict:
        """`config.json` as `transformers` writes it. What it has no name for stands under our own names."""
        config = dataclasses.asdict(model.config)
        names = dict(self.settings) | dict(self.config)
        outside = {
            "architectures": [self._class_of(model)],
            "model_type": self.model_type,
            "dtype": "float32",
        }
        outside |= {theirs: config[ours] for ours, theirs in names.items()}
        written = {ours: theirs for theirs, ours in reversed(self.activations.items())}  # the first of several names
        outside[self.activation] = written[model.config.activation]
        if model.output is not None:
            outside |= hf_output(model.output)
        if model.config.positions != "learned":
            outside["position_kind"] = model.config.positions
        if config.get("direction", "both") != "both":
            outside |= {"attention_direction": model.config.direction, "is_decoder": model.config.direction == "left"}
        return outside

    def settings_in(self, outside: dict) -> dict[str, Any]:
        """Our settings in a `config.json`; `ValueError` for what an encoder here cannot do."""
        names = dict(self.settings) | dict(self.config)
        missing = [names[n] for n in ("vocab_size", "width", "num_layers") if names[n] not in outside]
        if missing:
            raise ValueError(f"it lacks {', '.join(missing)}")
        outside = dict(self.defaults) | outside
        if outside.get("position_embedding_type", "absolute") != "absolute":
            raise ValueError(f"its position_embedding_type '{outside['position_embedding_type']}' is not supported")
        if outside.get("add_cross_attention"):
            raise ValueError("it has cross-attention, which an encoder here does not")
        values = {ours: outside[theirs] for ours, theirs in names.items() if theirs in outside}
        if self.activation in outside:
            activation = outside[self.activation]
            if activation not in self.activations:
                raise ValueError(f"its {self.activation} '{activation}' is not one of {', '.join(self.activations)}")
            values["activation"] = self.activations[activation]
        values["direction"] = outside.get("attention_direction", "left" if outside.get("is_decoder") else "both")
        values["positions"] = outside.get("position_kind", "learned")
        return values
