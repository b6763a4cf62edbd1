"""All settings of a fine-tuning run. Their published values are in `published.py`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from hornbook import config as configuration
from hornbook.config import MAX_COUNT, ValidatedSettings, setting
from hornbook.interop.sentence_transformers import EmbeddingPooling
from hornbook.models.head_config import HeadLayers, PairEncoding
from hornbook.objectives.distillation.objective import DistillationSettings
from hornbook.reasoning.settings import KagnetSettings
from hornbook.train.settings import (
    CheckpointSettings,
    LoopSettings,
    LossSpikeSettings,
    RuntimeSettings,
    ScheduleSettings,
)

STAGE_GROUPS = (  # settings and groups that may differ between stages
    *("epochs", "batch_size", "optimizer", "schedule", "layers"),
    *("batch", "validation", "checkpoint", "loss_spike"),
)
ONLY_IN_PRETRAINING = {  # settings of the loop, each with what replaces it in fine-tuning
    "schedule.steps": "the number of steps follows from epochs and batch_size",
    "batch.tokens": "a batch is a number of examples, batch_size",
    "batch.first_tokens": "a batch is a number of examples, batch_size",
    "batch.growth_fraction": "a batch is a number of examples, batch_size",
    "validation.tokens": "the whole dev split is validated on",
}


@dataclass(frozen=True)
class TaskSettings(ValidatedSettings, group="task"):
    head: HeadLayers = setting("linear", "layers of the task head; linear is the published one")
    pair_encoding: PairEncoding = setting(
        "joint", "encode two texts in one sequence, each separately, or in both orders and summed (GPT-1)"
    )
    format: Literal["tokenizer", "gpt1"] = setting(
        "tokenizer", "special tokens around texts: the tokenizer's, or GPT-1's start, delimiter and extract"
    )
    direction: Literal["causal", "bidirectional"] | None = setting(
        None, "attention of a hybrid GPT, which learned both kinds (objective.mlm_fraction); none: bidirectional"
    )
    lm_weight: float = setting(0.0, "weight of the auxiliary next-token loss, for a GPT (GPT-1: 0.5)", low=0, high=1e6)
    max_length: int | None = setting(
        None, "maximum sequence length in tokens; none: the model's limit, for spans at most 384", low=8, high=2**20
    )
    no_answer: Literal["span", "classifier"] = setting(
        "span", "how no answer is predicted: as a span at [CLS], or by a separate classifier on [CLS]"
    )
    new_head: bool = setting(False, "initialise a new head even if the model has one for the same labels")
    class_weights: bool = setting(
        False,
        "weigh classes by inverse frequency; with a teacher, in every stage that uses labels or logits",
    )
    swapped_pairs: bool = setting(False, "train on each pair in both orders")
    threshold_fraction: float = setting(
        0.05, "fraction of training articles held out to choose the no-answer threshold", low=0, below=1
    )

    graph: str | None = setting(
        None,
        "ERNIE, with entity typing and relations: folder of the graph to whose entities texts are linked",
    )
    pooling: EmbeddingPooling | None = setting(
        None, "similarity: how tokens are pooled into a vector; none: as in the model folder, else the mean"
    )
    temperature: float = setting(
        0.05, "similarity: divisor of the cosines in the loss over in-batch negatives", above=0, high=100
    )

    embedding_teacher: str | None = setting(
        None,
        "similarity: model folder or name whose cosines between texts are learned; none: learn from the data alone",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.swapped_pairs and self.pair_encoding == "both":
            raise ValueError("task.pair_encoding=both already encodes both orders: leave task.swapped_pairs out")


@dataclass(frozen=True)
class LayerSettings(ValidatedSettings, group="layers"):
    head_lr_ratio: float = setting(
        1.0, "learning rate of the new head, as a multiple of optimizer.lr", above=0, high=1e6
    )
    lr_decay: float = setting(
        1.0, "layer-wise learning-rate decay: each layer's rate relative to the layer above it", above=0, high=1
    )
    lr_decay_from: Literal["block", "head", "electra"] = setting(
        "block",
        "layer with the full learning rate: the top block, the head one step above it, or two steps above as in "
        "ELECTRA's code",
    )
    frozen: int = setting(
        0, "number of lowest layers to freeze, together with the embeddings; -1: all", low=-1, high=10_000
    )
    dropout: float | None = setting(
        None,
        "dropout of embeddings, hidden states and attention in training; none: that of pre-training",
        low=0,
        below=1,
    )


@dataclass(frozen=True)
class AugmentationSettings(ValidatedSettings, group="augment"):
    """The settings of augmentation, with the published values (TinyBERT, Jiao et al. 2019, arXiv 1909.10351)."""

    copies: int = setting(
        0, "augmented copies per training text (published: 20; small sets 30, large sets 10)", low=0, high=10_000
    )
    replace_probability: float = setting(0.4, "probability that a word is replaced in a copy", above=0, high=1)
    candidates: int = setting(
        15, "number of likeliest or nearest words that a replacement is drawn from", low=1, high=100_000
    )
    model: str | None = setting(
        None, "masked-language model that proposes words; none: the pre-trained model that the run fine-tunes"
    )
    vectors: str | None = setting(
        None, "text file of word vectors for words of several tokens; none: the token embeddings of the model"
    )
    unmasked_segment: bool = setting(
        True, "add the unmasked text as a second segment when filling in masks, as in TinyBERT's code"
    )


@dataclass(frozen=True)
class FinetuningLoopSettings(LoopSettings):
    """The groups of settings that the loop reads, with the defaults of fine-tuning."""

    schedule: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(steps=1, warmup_fraction=0.1))
    checkpoint: CheckpointSettings = field(
        default_factory=lambda: CheckpointSettings(
            every_steps=0, every_minutes=2.0, at_start=False, keep_optimizer=False, keep=1
        )
    )
    loss_spike: LossSpikeSettings = field(default_factory=lambda: LossSpikeSettings(deviations=0.0))
    runtime: RuntimeSettings = field(default_factory=lambda: RuntimeSettings(tensorboard=False, loader_workers=0))

    @property
    def unused(self) -> dict[str, str]:
        return super().unused | ONLY_IN_PRETRAINING


@dataclass(frozen=True)
class _FinetuningGroups(ValidatedSettings):
    epochs: float = setting(3.0, "passes over the training split", above=0, high=10_000)
    batch_size: int = setting(32, "examples per batch", low=1, high=1_000_000)
    examples: int | None = setting(
        None, "number of training examples to use, always the same ones; none: all", low=1, high=MAX_COUNT
    )
    task: TaskSettings = field(default_factory=TaskSettings)
    augment: AugmentationSettings = field(default_factory=AugmentationSettings)
    layers: LayerSettings = field(default_factory=LayerSettings)
    reason: KagnetSettings = field(default_factory=KagnetSettings)


@dataclass(frozen=True)
class FinetuneSettings(FinetuningLoopSettings, _FinetuningGroups):
    """All settings of a fine-tuning run, by group."""


@dataclass(frozen=True)
class TaskDistillationSettings(FinetuneSettings):
    """Settings of fine-tuning with a teacher. The last stage is the run itself; `stages` holds the settings in which
    earlier stages differ from it, by stage number and dotted name."""

    objective: DistillationSettings = field(default_factory=DistillationSettings)
    stages: dict[str, Any] = field(
        default_factory=dict, metadata={"doc": "settings of a stage before the last, such as stages.1.epochs=5"}
    )

    @property
    def unused(self) -> dict[str, str]:
        return super().unused | {"task.lm_weight": "a student learns only from its teacher and the labels"}

    def of_stage(self, number: int) -> "TaskDistillationSettings":
        """The settings of a stage before the last; stages are numbered from 1."""
        return configuration.with_overrides(self, for_stage(self.stages, number))


def for_stage(overrides: Mapping[str, Any], number: int) -> dict[str, Any]:
    """The overrides of a stage, out of those of all stages, whose names begin with the number of the stage."""
    prefix = f"{number}."
    return {name.removeprefix(prefix): value for name, value in overrides.items() if name.startswith(prefix)}
