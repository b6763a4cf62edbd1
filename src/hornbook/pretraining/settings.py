"""All settings of a pre-training run, and what a preset sets them to."""

import dataclasses
from dataclasses import dataclass, field

from hornbook import config as configuration
from hornbook.data.examples import DataSettings, Layout
from hornbook.models import registry
from hornbook.models.electra import generator_config
from hornbook.models.encoder import EncoderConfig
from hornbook.models.flops import model_flops_per_token, shape_of
from hornbook.objectives.distillation import DistillationSettings
from hornbook.objectives.masking import MaskingSettings
from hornbook.objectives.pretraining import ObjectiveSettings
from hornbook.objectives.replaced import DetectionSettings
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

GPU_FLOPS_A_SECOND = 2e14  # about what plain code gets out of a large GPU: a run in minutes is sized by it


@dataclass(frozen=True)
class PretrainSettings:
    """A variant changes a field."""

    model: EncoderConfig = field(default_factory=EncoderConfig)
    data: DataSettings = field(default_factory=DataSettings)
    objective: ObjectiveSettings | DetectionSettings | DistillationSettings = field(default_factory=ObjectiveSettings)
    masking: MaskingSettings = field(default_factory=MaskingSettings)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    batch: BatchSettings = field(default_factory=BatchSettings)
    validation: ValidationSettings = field(default_factory=ValidationSettings)
    checkpoint: CheckpointSettings = field(default_factory=CheckpointSettings)
    guard: GuardSettings = field(default_factory=GuardSettings)
    runtime: RuntimeSettings = field(default_factory=RuntimeSettings)

    def __post_init__(self) -> None:
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
        sentence = self.objective.sentence
        if sentence != "none" and self.data.layout == "packed":
            raise ValueError(
                f"objective.sentence={sentence} judges pairs of segments, and data.layout=packed makes none: "
                "set data.layout=pairs, or objective.sentence=none"
            )
        if self.layout != "packed" and self.model.num_segments < 2:
            raise ValueError(
                "a pair has two segments: set model.num_segments=2, or do without pairs by objective.sentence=none "
                "and data.layout=packed"
            )

    @property
    def layout(self) -> Layout:
        """How the text is laid out in sequences, which follows from the sentence task and `data.layout`."""
        if self.objective.sentence != "none":
            return self.objective.sentence
        return "segments" if self.data.layout == "pairs" else "packed"

    def loop(self) -> LoopSettings:
        return LoopSettings(
            self.optimizer, self.schedule, self.batch, self.checkpoint, self.validation, self.guard, self.runtime
        )

    def planned_flops(self, minutes: float | None = None) -> float:
        """Useful FLOPs of the whole run; of a run in minutes, what a GPU would do in that time."""
        if minutes is not None:
            return minutes * 60 * GPU_FLOPS_A_SECOND
        tokens = self.schedule.steps * self.batch.tokens
        share = self.data.short_share
        a_token = {length: self.flops_per_token(length) for length in (self.data.short_length, self.data.length)}
        return tokens * (share * a_token[self.data.short_length] + (1 - share) * a_token[self.data.length])

    def flops_per_token(self, length: int) -> float:
        """Useful FLOPs of a step at a length, in the `model` convention."""
        objective, rate = self.objective, self.masking.rate
        if not isinstance(objective, DetectionSettings):
            return model_flops_per_token(shape_of(self.model, length, rate))
        generator = generator_config(self.model, objective.generator_share, objective.generator_layers)
        head = "rtd" if objective.learns.startswith("rtd") else "mlm"
        predicted = 1.0 if objective.learns == "all-tokens-mlm" else rate
        return model_flops_per_token(shape_of(generator, length, rate), shape_of(self.model, length, predicted, head))


def preset_settings(preset: str, changes: dict | None = None, has_teacher: bool = False) -> PretrainSettings:
    """The published settings of a preset, with changes by dotted name; with a teacher, the objective follows it."""
    found = registry.preset(preset)
    kind = _objective_kind(registry.family_of(found.model).family, has_teacher)
    published = {name: value for name, value in found.published.items() if not (has_teacher and "objective." in name)}
    settings = configuration.changed(PretrainSettings(objective=kind()), published)
    settings = dataclasses.replace(settings, model=found.model)  # last: RoBERTa's has no segments for the usual pairs
    return configuration.changed(settings, changes or {})


def _objective_kind(family: str, has_teacher: bool) -> type:
    if has_teacher:
        return DistillationSettings
    return DetectionSettings if family == "electra" else ObjectiveSettings


def settings_in(run: dict) -> PretrainSettings:
    """The settings that a `run.json` holds; the first version trained one family only and did not name it."""
    family = run.get("family", "bert")
    return configuration.from_dict(
        PretrainSettings,
        run["settings"],
        model=registry.MODELS[family].config_kind,
        objective=_objective_kind(family, run.get("verb") == "distill"),
    )
