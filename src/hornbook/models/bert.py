"""BERT (Devlin et al. 2018, arXiv 1810.04805).

What is unusual about it: it reads in both directions at once, learned by filling in masked tokens (MLM), and it judges
whether a second segment follows the first (NSP) from the pooled `[CLS]`. Post-norm blocks, GELU, learned positions.

Shapes: T tokens, N sequences, K chosen positions, D width, V vocabulary (padded to a multiple of 64 inside).
"""

import dataclasses
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.batch import Batch
from hornbook.config import setting
from hornbook.models.outputs import (
    NEVER,
    ChoiceHead,
    Output,
    SequenceHead,
    SpanHead,
    TokenHead,
    first_tokens,
    outside_output,
    read_output,
)
from hornbook.nn.attention import Direction, runs_flash
from hornbook.nn.block import ACTIVATIONS, Block, initialise
from hornbook.nn.embeddings import Embeddings

VOCABULARY_MULTIPLE = 64  # matrix products over the vocabulary run on whole tiles


@dataclass(frozen=True)
class BertConfig:
    vocab_size: int = setting(30522, "number of tokens; taken from the corpus")
    num_layers: int = setting(12, "number of blocks")
    width: int = setting(768, "width of the hidden states")
    num_heads: int = setting(12, "attention heads in each block; must divide the width")
    inner_width: int = setting(3072, "width inside the feed-forward network")
    max_positions: int = setting(512, "longest sequence")
    num_segments: int = setting(2, "kinds of segment")
    dropout: float = setting(0.1, "dropout in the hidden states")
    attention_dropout: float = setting(0.1, "dropout of attention weights")
    activation: Literal["gelu", "gelu_tanh", "relu"] = setting("gelu", "of the feed-forward network")
    positions: Literal["learned", "sinusoidal"] = setting("learned", "position vectors: trained, or sines and cosines")
    direction: Direction = setting("both", "what a token attends to: both sides, or only the left or the right one")
    norm_eps: float = setting(1e-12, "added to the variance in each norm")
    init_std: float = setting(0.02, "standard deviation of the first weights")
    tied: bool = setting(True, "the MLM head reads the token embedding as its matrix")

    def __post_init__(self) -> None:
        for name in ("vocab_size", "num_layers", "width", "num_heads", "inner_width", "max_positions"):
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 1, not {getattr(self, name)}")
        if self.width % self.num_heads:
            near = [h for h in range(1, self.width + 1) if self.width % h == 0]
            best = min(near, key=lambda h: abs(h - self.num_heads))
            raise ValueError(
                f"model.num_heads={self.num_heads} does not divide model.width={self.width}; {best} would do"
            )
        for name in ("dropout", "attention_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"model.{name} must be at least 0 and below 1, not {getattr(self, name)}")

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE


class MlmHead(nn.Module):
    """A layer, the activation, a norm, then scores over the vocabulary through the token embedding's own matrix."""

    def __init__(self, config: BertConfig):
        super().__init__()
        self.activation = ACTIVATIONS[config.activation]
        self.dense = nn.Linear(config.width, config.width)
        self.norm = nn.LayerNorm(config.width, config.norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.padded_vocab_size))
        self.weight = None if config.tied else nn.Parameter(torch.zeros(config.padded_vocab_size, config.width))

    def forward(self, x_KD: Tensor, embedding_VD: Tensor) -> Tensor:
        transformed = self.norm(self.activation(self.dense(x_KD)))
        return F.linear(transformed, embedding_VD if self.weight is None else self.weight, self.bias)


def task_head(config: BertConfig, output: Output) -> nn.Module:
    """The published head for what a task wants."""
    if output.kind == "spans":
        return SpanHead(config.width, output.answerable)
    if output.kind == "tokens":
        return TokenHead(config.width, output.num_labels, config.dropout)
    if output.kind == "choice":
        return ChoiceHead(config.width, config.dropout)
    return SequenceHead(config.width, output, config.dropout)


def heads_for(output: Output) -> tuple[str, ...]:
    """What of the pre-training heads a task goes through: `[CLS]` is read through the pooler."""
    needs_pooler = output.kind == "choice" or (output.kind == "sequence" and output.head in ("linear", "mlp"))
    return ("pooler",) if needs_pooler else ()


class Bert(nn.Module):
    """The encoder and, as far as `heads` names them, the pooler and the two published pre-training heads; and, where an
    `output` is wanted, the head of a task.

    >>> model = Bert(PRESETS["bert-tiny"].model)
    >>> sum(p.numel() for p in model.parameters()) > 4e6
    True
    """

    family = "bert"

    def __init__(
        self, config: BertConfig, heads: tuple[str, ...] = ("pooler", "mlm", "nsp"), output: Output | None = None
    ):
        super().__init__()
        self.config = config
        self.heads = tuple(heads)
        self.output = output
        self.embeddings = Embeddings(
            config.padded_vocab_size,
            config.width,
            config.max_positions,
            config.num_segments,
            config.positions,
            config.dropout,
            config.norm_eps,
        )
        self.blocks = nn.ModuleList(
            Block(
                config.width,
                config.num_heads,
                config.inner_width,
                config.activation,
                config.dropout,
                config.attention_dropout,
                config.norm_eps,
                config.direction,
            )
            for _ in range(config.num_layers)
        )
        self.pooler = nn.Linear(config.width, config.width) if "pooler" in heads else None
        self.mlm = MlmHead(config) if "mlm" in heads else None
        self.nsp = nn.Linear(config.width, 2) if "nsp" in heads else None
        self.task = None if output is None else task_head(config, output)

    def initialise(self, generator: torch.Generator) -> None:
        """Published start of every weight; rows that pad the vocabulary are 0 and stay 0."""
        initialise(self, self.config.init_std, generator)
        self.embeddings.fill_sinusoidal()
        with torch.no_grad():
            self.embeddings.tokens.weight[self.config.vocab_size :] = 0
            if self.mlm is not None:
                self.mlm.bias.zero_()
                self.mlm.bias[self.config.vocab_size :] = NEVER
                if self.mlm.weight is not None:
                    self.mlm.weight.copy_(self.embeddings.tokens.weight)

    def compile_parts(self) -> None:
        """Compiles the block, which all layers share as code, and the two ends; the number of tokens stays open."""
        # Dropout by the library's kernel: four numbers from one round of the generator, where a compiled kernel makes
        # a round for each; 4% more tokens a second at length 128 (H200), and the same draws as without compiling.
        options = {"fallback_random": True}
        for part in (self.embeddings, *self.blocks, *([] if self.mlm is None else [self.mlm])):
            part.compile(dynamic=True, options=options)

    def forward(self, batch: Batch, kept: list[Tensor] | None = None) -> Tensor:
        """The last block's hidden states, T x D. `kept` gets what goes into each block, and these."""
        if batch.longest > self.config.max_positions:
            raise ValueError(
                f"a sequence of {batch.longest} tokens is longer than the model's {self.config.max_positions} positions"
            )
        x_TD = self.embeddings(batch.ids_T, batch.positions_T, batch.segments_T)
        if x_TD.is_cuda and torch.is_autocast_enabled("cuda"):
            # The stream between blocks in half precision: post-norm brings it back to unit size after every part.
            x_TD = x_TD.to(torch.get_autocast_dtype("cuda"))
        starts_host = None if runs_flash(x_TD) else batch.starts_host
        for block in self.blocks:
            if kept is not None:
                kept.append(x_TD)
            x_TD = block(x_TD, batch.starts, starts_host, batch.longest)
        if kept is not None:
            kept.append(x_TD)
        return x_TD

    def hidden_states(self, batch: Batch) -> list[Tensor]:
        """What goes into the first block and what comes out of each, T x D: one more than there are blocks."""
        kept: list[Tensor] = []
        self(batch, kept)
        return kept

    def pooled(self, cls_ND: Tensor) -> Tensor:
        """tanh of a layer over the hidden states at `[CLS]`, N x D."""
        return torch.tanh(self.pooler(cls_ND))

    def mlm_logits(self, x_KD: Tensor) -> Tensor:
        """Scores over the padded vocabulary for hidden states at chosen positions, K x V."""
        return self.mlm(x_KD, self.embeddings.tokens.weight)

    def nsp_logits(self, cls_ND: Tensor) -> Tensor:
        """Scores of (is next, is random), N x 2."""
        return self.nsp(self.pooled(cls_ND))

    def outputs(self, batch: Batch) -> Tensor:
        """What the task wants of each sequence or token (`models/outputs.py` lists the shapes)."""
        x_TD = self(batch)
        needs_pooler = "pooler" in heads_for(self.output)
        return self.task(x_TD, batch, self.pooled(x_TD[first_tokens(x_TD, batch)]) if needs_pooler else None)

    def depth_of(self, name: str) -> int:
        """How far up a parameter stands: 0 the embeddings, 1 to L the blocks, L + 1 pooler and heads."""
        part, _, rest = name.partition(".")
        if part == "embeddings":
            return 0
        return int(rest.partition(".")[0]) + 1 if part == "blocks" else self.config.num_layers + 1


def flops_per_token(config: BertConfig, length: int, predicted_share: float) -> float:
    """Useful FLOPs of one training step a token: six for each multiply-add weight, forward and back, twelve for each
    position attended to and unit of width, and the vocabulary head on the predicted positions only."""
    block = 4 * config.width**2 + 2 * config.width * config.inner_width
    attended = length if config.direction == "both" else length / 2
    head = config.width * config.vocab_size + config.width**2
    return config.num_layers * (6 * block + 12 * attended * config.width) + predicted_share * 6 * head


@dataclass(frozen=True)
class Preset:
    """A published size with the batch, rate and length of training that it was published with."""

    model: BertConfig
    lr: float = 1e-4
    steps: int = 1_000_000
    batch_tokens: int = 256 * 512
    warmup_fraction: float = 0.01


def _size(num_layers: int, width: int) -> Preset:
    config = BertConfig(num_layers=num_layers, width=width, num_heads=width // 64, inner_width=4 * width)
    return Preset(config)


PRESETS = {
    "bert-tiny": _size(2, 128),
    "bert-mini": _size(4, 256),
    "bert-small": _size(4, 512),
    "bert-medium": _size(8, 512),
    "bert-base": _size(12, 768),
    "bert-large": _size(24, 1024),
}

# --- The names that the outside world gives to all this -------------------------------------------------------------

_CONFIG_NAMES = {
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
_ACTIVATION_NAMES = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
_ACTIVATIONS_READ = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}
_EMBEDDING_NAMES = {
    "embeddings.tokens.weight": "embeddings.word_embeddings.weight",
    "embeddings.positions.weight": "embeddings.position_embeddings.weight",
    "embeddings.segments.weight": "embeddings.token_type_embeddings.weight",
    "embeddings.norm": "embeddings.LayerNorm",
    "pooler": "pooler.dense",
}
_BLOCK_NAMES = {
    "attention.qkv": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "expand": "intermediate.dense",
    "contract": "output.dense",
    "norm": "output.LayerNorm",
}
_HEAD_NAMES = {
    "mlm.dense": "cls.predictions.transform.dense",
    "mlm.norm": "cls.predictions.transform.LayerNorm",
    "mlm.bias": "cls.predictions.bias",
    "mlm.weight": "cls.predictions.decoder.weight",
    "nsp": "cls.seq_relationship",
}
_TASK_CLASSES = {
    "sequence": "BertForSequenceClassification",
    "choice": "BertForMultipleChoice",
    "tokens": "BertForTokenClassification",
    "spans": "BertForQuestionAnswering",
}
_TASK_HEADS = {"sequence": "classifier", "choice": "classifier", "tokens": "classifier", "spans": "qa_outputs"}
OWN_HEAD = "hornbook_head"  # layers that no class outside has
PREFIX = "bert."
PADDED = {"embeddings.tokens.weight": 0.0, "mlm.bias": NEVER, "mlm.weight": 0.0}  # cut to the vocabulary outside


def architecture(heads: tuple[str, ...], output: Output | None = None) -> str:
    """The name of the `transformers` class that holds these heads."""
    if output is not None:
        return _TASK_CLASSES[output.kind] if output.is_published else "BertModel"
    if "mlm" in heads and "nsp" in heads:
        return "BertForPreTraining"
    if "mlm" in heads:
        return "BertForMaskedLM"
    return "BertForNextSentencePrediction" if "nsp" in heads else "BertModel"


def heads_in(names: set[str]) -> tuple[str, ...]:
    """Which heads the outside weights hold."""
    found = {
        "pooler": any(name.endswith("pooler.dense.weight") for name in names),
        "mlm": "cls.predictions.transform.dense.weight" in names,
        "nsp": "cls.seq_relationship.weight" in names,
    }
    return tuple(head for head, is_there in found.items() if is_there)


def outside_names(model: Bert) -> dict[str, tuple[str, ...]]:
    """For each of our parameters the outside one, or the outside ones that it is made of, end to end."""
    prefix = "" if architecture(model.heads, model.output) == "BertModel" else PREFIX
    names: dict[str, tuple[str, ...]] = {}
    for ours in model.state_dict():
        stem, _, kind = ours.rpartition(".")
        if ours in _HEAD_NAMES or stem in _HEAD_NAMES:
            names[ours] = (_HEAD_NAMES.get(ours) or f"{_HEAD_NAMES[stem]}.{kind}",)
        elif stem == "task.out" and model.output.is_published:
            names[ours] = (f"{_TASK_HEADS[model.output.kind]}.{kind}",)
        elif ours.startswith("task."):
            names[ours] = (ours.replace("task.", f"{OWN_HEAD}.", 1),)
        elif stem.startswith("blocks."):
            _, number, part = stem.split(".", 2)
            outside = _BLOCK_NAMES[part]
            parts = outside if isinstance(outside, tuple) else (outside,)
            names[ours] = tuple(f"{prefix}encoder.layer.{number}.{each}.{kind}" for each in parts)
        else:
            names[ours] = (prefix + (_EMBEDDING_NAMES.get(ours) or f"{_EMBEDDING_NAMES[stem]}.{kind}"),)
    return names


def output_in(outside: dict, weights: dict[str, Tensor]) -> Output | None:
    """What the task head of a folder answers, if it has one that is known here."""
    named = (outside.get("architectures") or [None])[0]
    kind = next((kind for kind, name in _TASK_CLASSES.items() if name == named), None)
    head = weights.get(f"{_TASK_HEADS.get(kind, OWN_HEAD + '.out')}.weight")
    num_labels = 1 if head is None else len(head)
    return read_output(outside, None if head is None else kind, num_labels)


def outside_config(model: Bert) -> dict:
    """`config.json` as `transformers` writes it. What it has no name for stands under our own names."""
    config = dataclasses.asdict(model.config)
    outside = {"architectures": [architecture(model.heads, model.output)], "model_type": "bert", "dtype": "float32"}
    outside |= {theirs: config[ours] for ours, theirs in _CONFIG_NAMES.items()}
    outside["hidden_act"] = _ACTIVATION_NAMES[model.config.activation]
    if model.output is not None:
        outside |= outside_output(model.output)
    if model.config.positions != "learned":
        outside["position_kind"] = model.config.positions
    if model.config.direction != "both":
        outside |= {"attention_direction": model.config.direction, "is_decoder": model.config.direction == "left"}
    return outside


def config_from_outside(outside: dict) -> BertConfig:
    """Our config for a `config.json` of model type `bert`; `ValueError` for what this family cannot do."""
    missing = [n for n in ("vocab_size", "hidden_size", "num_hidden_layers") if n not in outside]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")
    if outside.get("position_embedding_type", "absolute") != "absolute":
        raise ValueError(f"its position_embedding_type '{outside['position_embedding_type']}' is not supported")
    if outside.get("add_cross_attention"):
        raise ValueError("it has cross-attention, which an encoder here does not")
    activation = outside.get("hidden_act", "gelu")
    if activation not in _ACTIVATIONS_READ:
        raise ValueError(f"its hidden_act '{activation}' is not one of {', '.join(_ACTIVATIONS_READ)}")
    values = {ours: outside[theirs] for ours, theirs in _CONFIG_NAMES.items() if theirs in outside}
    direction = outside.get("attention_direction", "left" if outside.get("is_decoder") else "both")
    positions = outside.get("position_kind", "learned")
    return BertConfig(**values, activation=_ACTIVATIONS_READ[activation], direction=direction, positions=positions)
