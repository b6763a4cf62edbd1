"""The settings of a pre-training run."""

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from hornbook import config as configuration
from hornbook.config import ValidatedSettings, setting
from hornbook.data.sequences import SequenceLayout
from hornbook.models import registry
from hornbook.models.electra import generator_config
from hornbook.models.encoder import EncoderConfig
from hornbook.models.ernie import ErnieConfig
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.models.gpt import GptConfig
from hornbook.models.transformer import TransformerConfig
from hornbook.objectives.clm import ClmSettings
from hornbook.objectives.distillation.objective import DistillationSettings
from hornbook.objectives.ernie import ErnieSettings
from hornbook.objectives.masking import MaskingSettings
from hornbook.objectives.mlm import MlmSettings
from hornbook.objectives.rtd import RtdSettings
from hornbook.train.settings import LoopSettings

S = TypeVar("S")
GPU_FLOPS_PER_SECOND = 2e14  # typical on a large GPU; used to estimate the FLOPs of a run given in minutes


@dataclass(frozen=True)
class DataSettings(ValidatedSettings, group="data"):
    length: int = setting(512, "maximum tokens per sequence", low=8, high=2**20)
    short_length: int = setting(128, "maximum tokens per sequence in the first part of training", low=8, high=2**20)
    short_fraction: float = setting(0.9, "fraction of the steps that train on short sequences", low=0, high=1)
    repeat_positions: bool = setting(
        False,
        "after the steps on short sequences, set the position embeddings beyond short_length to repetitions of the "
        "trained ones; false: they stay as they were initialised, as published",
    )
    layout: Literal["full-sentences", "pairs"] | None = setting(
        None,
        "full-sentences: across documents (RoBERTa); pairs: two segments of one document; none: pairs if there is a "
        "sentence task, else full-sentences",
    )
    short_sequence_probability: float = setting(
        0.1, "probability that a pair has a random shorter length (ELECTRA: 0.05)", low=0, high=1
    )
    single_segment_probability: float = setting(
        0.1, "probability of a single segment instead of a pair, without a sentence task", low=0, high=1
    )
    crosses_documents: bool = setting(
        False, "GPT: attend across document boundaries in a chunk, as published; false: within each document"
    )
    shift_chunks: bool = setting(
        False, "GPT: cut the text into sequences at other places in each epoch, for text that is read many times"
    )
    held_out_fraction: float = setting(0.01, "fraction of the documents held out for validation", low=0, high=1)

    def uses(self, length: int) -> bool:
        """Whether any step has this length limit."""
        return (length == self.short_length and self.short_fraction > 0) or (
            length == self.length and self.short_fraction < 1
        )

    def length_at(self, step: int, num_steps: int) -> tuple[int, int]:
        """(length limit, steps already done at this limit) at a step of the run. After skipped batches, steps go
        beyond the number of steps."""
        if self.short_length == self.length:
            return self.length, step
        switch = self.num_short_steps(num_steps) if self.short_fraction < 1 else math.inf
        return (self.short_length, step) if step < switch else (self.length, step - switch)

    def num_short_steps(self, num_steps: int) -> int:
        return round(self.short_fraction * num_steps)


@dataclass(frozen=True)
class _PretrainingGroups(configuration.ValidatedSettings):
    model: TransformerConfig = field(default_factory=EncoderConfig)
    data: DataSettings = field(default_factory=DataSettings)
    objective: MlmSettings | ErnieSettings | RtdSettings | ClmSettings | DistillationSettings = field(
        default_factory=MlmSettings
    )
    masking: MaskingSettings = field(default_factory=MaskingSettings)


@dataclass(frozen=True)
class PretrainSettings(LoopSettings, _PretrainingGroups):
    """All settings of a pre-training run."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positions = self.model.max_positions
        for name, length in (("length", self.data.length), ("short_length", self.data.short_length)):
            if not self.data.uses(length):
                continue
            if length > positions:
                raise ValueError(
                    f"data.{name}={length} is more than model.max_positions={positions}; "
                    f"set data.{name}={positions} or raise model.max_positions"
                )
            if self.batch.tokens < length:
                raise ValueError(
                    f"batch.tokens={self.batch.tokens} is less than one sequence of {length}; "
                    f"raise batch.tokens or lower data.{name}"
                )
            if self.batch.grows and self.batch.first_tokens < length:
                raise ValueError(
                    f"batch.first_tokens={self.batch.first_tokens} is less than one sequence of {length}; "
                    f"raise it or lower data.{name}"
                )
        if self.reads_documents:
            if self.data.layout is not None:
                raise ValueError(
                    f"data.layout={self.data.layout} is for encoders: a GPT reads concatenated documents; "
                    "data.crosses_documents sets whether it attends across their boundaries"
                )
            self._check_hybrid()
            return
        sentence = self.objective.sentence
        self._check_direction(sentence)
        if sentence != "none" and self.data.layout == "full-sentences":
            raise ValueError(
                f"objective.sentence={sentence} needs pairs of segments, but data.layout=full-sentences makes none: "
                "set data.layout=pairs, or objective.sentence=none"
            )

    def _check_hybrid(self) -> None:
        if self.model.direction != "causal":
            raise ValueError(
                "model.direction=bidirectional is for fine-tuning: set objective.mlm_fraction for a hybrid model"
            )
        if self.mlm_fraction and any(self.model.windows):
            raise ValueError(
                "objective.mlm_fraction reads text in both directions, but model.window looks to the left only: "
                "set model.window=none"
            )

    def _check_direction(self, sentence: str) -> None:
        """Of unidirectional encoders, only the BERT paper's left-to-right model can be pre-trained."""
        direction = self.model.direction
        if direction == "causal" and isinstance(self.objective, RtdSettings):
            raise ValueError(
                "model.direction=causal predicts next tokens, but ELECTRA detects replaced ones: use a BERT or RoBERTa "
                "preset, or set model.direction=bidirectional"
            )
        if direction == "causal" and sentence != "none":
            raise ValueError(
                f"objective.sentence={sentence} reads [CLS], which sees only itself with model.direction=causal: set "
                "objective.sentence=none, as in the BERT paper's left-to-right model"
            )

    @property
    def reads_documents(self) -> bool:
        """Whether the model reads concatenated documents without special tokens around them, as a GPT does."""
        return isinstance(self.model, GptConfig) or isinstance(self.objective, ClmSettings)

    @property
    def reads_entities(self) -> bool:
        """Whether the model reads the entities that texts mention."""
        return isinstance(self.model, ErnieConfig)

    @property
    def predicts_next(self) -> bool:
        """Whether the model is left-to-right and predicts every next token, with or without a teacher."""
        return self.reads_documents or self.model.direction == "causal"

    @property
    def mlm_fraction(self) -> float:
        """The fraction of the text that a GPT reads in both directions, with masked tokens."""
        return self.objective.mlm_fraction if isinstance(self.objective, ClmSettings) else 0.0

    @property
    def masks_nothing(self) -> bool:
        """Whether no text is masked: every token is predicted from those before it."""
        return self.predicts_next and not self.mlm_fraction

    @property
    def _vocabulary_head(self) -> str:
        return registry.model_class_of(self.model).vocabulary_head

    @property
    def unused(self) -> dict[str, str]:
        unused = super().unused
        if self.masks_nothing:
            unused["masking"] = "a left-to-right model predicts every next token and masks none"
            if isinstance(self.objective, DistillationSettings):
                unused["objective.soft_targets"] = "a left-to-right model uses soft targets at all tokens"
        elif self.masking.unit != "ngram":
            unused["masking.max_ngram"] = "it is for masking.unit=ngram"
        if self.reads_documents:
            names = ("data.layout", "data.short_sequence_probability", "data.single_segment_probability")
            return unused | dict.fromkeys(names, "a GPT reads concatenated documents, not pairs")
        if self.objective.sentence == "none":
            unused["objective.sentence_weight"] = "there is no sentence task; set objective.sentence too"
        if self.layout == "full-sentences":
            unused["data.short_sequence_probability"] = "it is for pairs of segments; set data.layout=pairs too"
        names = ("data.crosses_documents", "data.shift_chunks")
        return unused | dict.fromkeys(names, "it is for a GPT, which reads concatenated documents")

    @property
    def lengths(self) -> list[int]:
        """The sequence lengths that the run trains on."""
        return [length for length in (self.data.short_length, self.data.length) if self.data.uses(length)]

    @property
    def layout(self) -> SequenceLayout:
        """The layout of sequences, which follows from the sentence task and `data.layout`."""
        if self.reads_documents:
            return "documents"
        if self.objective.sentence != "none":
            return self.objective.sentence
        return self.data.layout or "full-sentences"

    def planned_flops(self, minutes: float | None = None, teacher: TransformerConfig | None = None) -> float:
        """Model FLOPs of the whole run, including the teacher's forward passes. With `minutes`, an estimate: the FLOPs
        of a large GPU in that time."""
        if minutes is not None:
            return minutes * 60 * GPU_FLOPS_PER_SECOND
        return self.schedule.steps * self.batch.mean_tokens * self.mean_flops_per_token(teacher)

    def mean_flops_per_token(self, teacher: TransformerConfig | None = None) -> float:
        """Model FLOPs per token of a training step, averaged over the two sequence lengths."""
        short, long = (self.flops_per_token(length, teacher) for length in (self.data.short_length, self.data.length))
        return self.data.short_fraction * short + (1 - self.data.short_fraction) * long

    def flops_per_token(self, length: int, teacher: TransformerConfig | None = None) -> float:
        """Model FLOPs per token of a training step at a sequence length (`model` convention of models/flops.py)."""
        objective, masked = self.objective, self.masking.mean_probability
        if isinstance(objective, DistillationSettings):
            return self._distillation_flops_per_token(length, objective, teacher)
        if self.predicts_next:
            flops = model_flops_per_token(shape_of(self.model, length, 1.0, self._vocabulary_head))
            if not self.mlm_fraction:
                return flops
            bidirectional = dataclasses.replace(self.model, direction="bidirectional")
            masked_flops = model_flops_per_token(shape_of(bidirectional, length, masked, self._vocabulary_head))
            return flops + self.mlm_fraction * (masked_flops - flops)
        if not isinstance(objective, RtdSettings):
            return model_flops_per_token(shape_of(self.model, length, masked))
        generator = generator_config(self.model, objective.generator_size, objective.generator_layers)
        head = "+".join(head for head in ("rtd", "mlm") if head in objective.heads)
        predicted = 1.0 if objective.discriminator_task == "all-tokens-mlm" else masked
        return model_flops_per_token(shape_of(generator, length, masked), shape_of(self.model, length, predicted, head))

    def _distillation_flops_per_token(
        self, length: int, objective: DistillationSettings, teacher: TransformerConfig | None
    ) -> float:
        """FLOPs of the student, plus the teacher's forward pass, which is a third of a training step."""
        (recipe,) = objective.stages(is_task=False)
        has_logits = any(match.quantity == "logits" for match in recipe.matches)
        predicts_all = self.predicts_next or (has_logits and objective.soft_targets == "all")
        predicted = 1.0 if predicts_all else self.masking.mean_probability
        head = self._vocabulary_head if has_logits or recipe.hard_label_weight else "none"
        flops = model_flops_per_token(shape_of(self.model, length, predicted, head))
        if teacher is not None:
            teacher_head = self._vocabulary_head if has_logits else "none"
            flops += model_flops_per_token(shape_of(teacher, length, predicted, teacher_head)) / 3
        return flops


def with_model_overrides(settings: S, overrides: dict) -> S:
    """Applies overrides to settings with a group `model`; the error for another family's setting names it."""
    try:
        return configuration.with_overrides(settings, overrides)
    except configuration.UnknownSetting as error:
        fields = {name: dataclasses.fields(model.config_class) for name, model in registry.MODELS.items()}
        setting, family = error.name.removeprefix("model."), registry.model_class_of(settings.model).naming.model_type
        owners = [name for name in fields if any(field.name == setting for field in fields[name])]
        if not owners or family in owners:
            raise
        have = "has it" if len(owners) == 1 else "have it"
        raise ValueError(f"{family} has no setting '{error.name}'; {' and '.join(owners)} {have}") from None


def settings_in(record: dict) -> PretrainSettings:
    """The settings in a `run.json`."""
    family = record["family"]
    kinds = {"electra": RtdSettings, "openai-gpt": ClmSettings, "gpt2": ClmSettings, "hornbook-ernie": ErnieSettings}
    objective = DistillationSettings if record.get("command") == "distill" else kinds.get(family, MlmSettings)
    model = registry.MODELS[family].config_class
    return configuration.from_dict(PretrainSettings, record["settings"], model=model, objective=objective)
