"""All settings of a pre-training run, and what a preset sets them to."""

import dataclasses
from dataclasses import dataclass, field
from typing import TypeVar

from hornbook import config as configuration
from hornbook.data.examples import DataSettings, Layout
from hornbook.models import registry
from hornbook.models.electra import generator_config
from hornbook.models.encoder import EncoderConfig
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.models.gpt import GptConfig
from hornbook.models.transformer import TransformerConfig
from hornbook.objectives.clm import ClmSettings
from hornbook.objectives.distillation import DistillationSettings
from hornbook.objectives.masking import MaskingSettings
from hornbook.objectives.mlm import MlmSettings
from hornbook.objectives.rtd import RtdSettings
from hornbook.train.loop import LoopSettings
from hornbook.train.settings import (
    BatchSettings,
    CheckpointSettings,
    GuardSettings,
    OptimizerSettings,
    RuntimeSettings,
    ScheduleSettings,
    ValidationSettings,
)

S = TypeVar("S")
GPU_FLOPS_A_SECOND = 2e14  # about what plain code gets out of a large GPU: a run in minutes is sized by it


@dataclass(frozen=True)
class PretrainSettings(configuration.Typed, group=""):
    """A variant changes a field."""

    model: TransformerConfig = field(default_factory=EncoderConfig)
    data: DataSettings = field(default_factory=DataSettings)
    objective: MlmSettings | RtdSettings | ClmSettings | DistillationSettings = field(default_factory=MlmSettings)
    masking: MaskingSettings = field(default_factory=MaskingSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)

    def __post_init__(self) -> None:
        super().__post_init__()
        positions = self.model.max_positions
        for name, length in (("length", self.data.length), ("short_length", self.data.short_length)):
            if length > positions and self.data.uses(length):
                raise ValueError(
                    f"data.{name}={length} is more than model.max_positions={positions}; "
                    f"set data.{name}={positions} or raise model.max_positions"
                )
            if self.batch.tokens < length and self.data.uses(length):
                raise ValueError(
                    f"batch.tokens={self.batch.tokens} is less than one sequence of {length}; "
                    f"raise --batch-tokens or lower data.{name}"
                )
            if self.batch.grows and self.batch.first_tokens < length and self.data.uses(length):
                raise ValueError(
                    f"batch.first_tokens={self.batch.first_tokens} is less than one sequence of {length}; "
                    f"raise it or lower data.{name}"
                )
        if self.reads_documents:
            if self.data.layout is not None:
                raise ValueError(
                    f"data.layout={self.data.layout} is for encoders: a GPT reads documents end to end; "
                    "data.crosses_documents says whether it looks over their ends"
                )
            return
        sentence = self.objective.sentence
        self._refuse_one_sided(sentence)
        if sentence != "none" and self.data.layout == "packed":
            raise ValueError(
                f"objective.sentence={sentence} judges pairs of segments, and data.layout=packed makes none: "
                "set data.layout=pairs, or objective.sentence=none"
            )

    def _refuse_one_sided(self, sentence: str) -> None:
        """An encoder that reads one side only is the BERT paper's left-to-right model, trained on next tokens alone."""
        direction = self.model.direction
        if direction == "right":
            raise ValueError(
                "model.direction=right cannot be pre-trained, because transformers would open the model as one that "
                "reads both sides: set model.direction=left or both"
            )
        if direction == "left" and isinstance(self.objective, RtdSettings):
            raise ValueError(
                "model.direction=left predicts next tokens, and ELECTRA detects replaced ones: use a BERT or RoBERTa "
                "preset, or set model.direction=both"
            )
        if direction == "left" and sentence != "none":
            raise ValueError(
                f"objective.sentence={sentence} reads [CLS], which sees only itself with model.direction=left: set "
                "objective.sentence=none, as in the BERT paper's left-to-right model"
            )

    @property
    def reads_documents(self) -> bool:
        """A GPT reads documents end to end, without special tokens around them."""
        return isinstance(self.model, GptConfig) or isinstance(self.objective, ClmSettings)

    @property
    def predicts_next(self) -> bool:
        """A model that reads left to right predicts every next token, also beside a teacher."""
        return self.reads_documents or self.model.direction == "left"

    @property
    def _vocabulary_head(self) -> str:
        return registry.family_of(self.model).vocabulary_head

    @property
    def is_distilled(self) -> bool:
        return isinstance(self.objective, DistillationSettings)

    @property
    def unused(self) -> dict[str, str]:
        """Settings and groups of them that nothing reads in this run, and why."""
        alike = (
            {} if self.batch.grows else {"batch.growth_fraction": "batches are all alike; set batch.first_tokens too"}
        )
        if self.predicts_next:
            alike["masking"] = "a left-to-right model predicts every next token and masks none"
            if self.is_distilled:
                alike["objective.soft_targets"] = "a left-to-right model has all tokens as soft targets"
        if self.reads_documents:
            pairs = "a GPT reads documents end to end, and no pairs"
            unused = dict.fromkeys(
                ("data.layout", "data.short_sequence_probability", "data.single_segment_probability"), pairs
            )
            return alike | unused
        return alike | {"data.crosses_documents": "it is for a GPT, which reads documents end to end"}

    @property
    def layout(self) -> Layout:
        """How the text is laid out in sequences, which follows from the sentence task and `data.layout`."""
        if self.reads_documents:
            return "documents"
        if self.objective.sentence != "none":
            return self.objective.sentence
        return "segments" if self.data.layout == "pairs" else "packed"

    def loop(self) -> LoopSettings:
        return LoopSettings(
            self.optimizer, self.schedule, self.batch, self.checkpoint, self.validation, self.guard, self.runtime
        )

    def planned_flops(self, minutes: float | None = None, teacher: TransformerConfig | None = None) -> float:
        """Useful FLOPs of the whole run, a teacher's passes among them; of a run in minutes, what a GPU would do in
        that time."""
        if minutes is not None:
            return minutes * 60 * GPU_FLOPS_A_SECOND
        tokens = self.schedule.steps * self.batch.mean_tokens
        share = self.data.short_fraction
        lengths = (self.data.short_length, self.data.length)
        token_seconds = {length: self.flops_per_token(length, teacher) for length in lengths}
        return tokens * (share * token_seconds[self.data.short_length] + (1 - share) * token_seconds[self.data.length])

    def flops_per_token(self, length: int, teacher: TransformerConfig | None = None) -> float:
        """Useful FLOPs of a step at a length, in the `model` convention."""
        objective, rate = self.objective, self.masking.probability
        if isinstance(objective, DistillationSettings):
            return self._taught_flops_per_token(length, objective, teacher)
        if self.predicts_next:
            return model_flops_per_token(shape_of(self.model, length, 1.0, self._vocabulary_head))
        if not isinstance(objective, RtdSettings):
            return model_flops_per_token(shape_of(self.model, length, rate))
        generator = generator_config(self.model, objective.generator_size, objective.generator_layers)
        head = "+".join(head for head in ("rtd", "mlm") if head in objective.heads)
        predicted = 1.0 if objective.learns == "all-tokens-mlm" else rate
        return model_flops_per_token(shape_of(generator, length, rate), shape_of(self.model, length, predicted, head))

    def _taught_flops_per_token(
        self, length: int, objective: DistillationSettings, teacher: TransformerConfig | None
    ) -> float:
        """The student's own, and the teacher's way forward, which is a third of what training it would take."""
        (recipe,) = objective.stages(is_task=False)
        has_scores = any(match.quantity == "logits" for match in recipe.matches)
        everywhere = self.predicts_next or (has_scores and objective.soft_targets == "all")
        share, vocabulary = 1.0 if everywhere else self.masking.probability, self._vocabulary_head
        head = vocabulary if has_scores or recipe.hard_label_weight else "none"
        flops = model_flops_per_token(shape_of(self.model, length, share, head))
        if teacher is not None:
            theirs = shape_of(teacher, length, share, vocabulary if has_scores else "none")
            flops += model_flops_per_token(theirs) / 3
        return flops


def preset_settings(preset: str, overrides: dict | None = None, has_teacher: bool = False) -> PretrainSettings:
    """The published settings of a preset, with changes by dotted name; with a teacher, the objective follows it."""
    found = registry.preset(preset)
    family = registry.family_of(found.model).family
    usual, groups = PretrainSettings(objective=_objective_kind(family, has_teacher)()), {}
    for name, value in found.published.items():
        group, _, inside = name.partition(".")
        if not (has_teacher and group == "objective"):
            groups.setdefault(group, {})[inside] = value
    # All at once: the model alone, or the data alone, need not fit what is usual.
    changed = {group: configuration.with_overrides(getattr(usual, group), values) for group, values in groups.items()}
    settings = dataclasses.replace(usual, model=found.model, **changed)
    overrides = dict(overrides or {})
    if "schedule.warmup_fraction" in overrides:  # what a person says of it wins over a published number of steps
        overrides.setdefault("schedule.warmup_steps", None)
    settings = changed_of_family(settings, overrides, family)
    configuration.refuse_unused(settings, overrides)
    return settings


def changed_of_family(settings: S, overrides: dict, family: str) -> S:
    """Settings with a group `model`, changed by dotted name; a setting of another family says whose it is."""
    try:
        return configuration.with_overrides(settings, overrides)
    except configuration.UnknownSetting as error:
        owners = [name for name, model in registry.MODELS.items() if _has_setting(model.config_kind, error.name)]
        if not owners or family in owners:
            raise
        have = "has it" if len(owners) == 1 else "have it"
        raise ValueError(f"there is no setting '{error.name}' of {family}; {' and '.join(owners)} {have}") from None


def _has_setting(kind: type, name: str) -> bool:
    return name.removeprefix("model.") in {field.name for field in dataclasses.fields(kind)}


def _objective_kind(family: str, has_teacher: bool) -> type:
    if has_teacher:
        return DistillationSettings
    kinds = {"electra": RtdSettings, "openai-gpt": ClmSettings, "gpt2": ClmSettings}
    return kinds.get(family, MlmSettings)


def settings_in(run: dict) -> PretrainSettings:
    """The settings that a `run.json` holds; the first version trained one family only and did not name it."""
    family = run.get("family", "bert")
    return configuration.from_dict(
        PretrainSettings,
        run["settings"],
        model=registry.MODELS[family].config_kind,
        objective=_objective_kind(family, run.get("command") == "distill"),
    )
