"""All settings of a pre-training run, and what a preset sets them to."""

import dataclasses
from dataclasses import dataclass, field

from hornbook import config as configuration
from hornbook.config import setting
from hornbook.data.examples import DataSettings
from hornbook.models import registry
from hornbook.models.encoder import EncoderConfig, flops_per_token
from hornbook.objectives.masking import MaskingSettings
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
class ObjectiveSettings:
    nsp: bool = setting(True, "also predict whether the second segment follows the first; without it, text is packed")
    nsp_weight: float = setting(1.0, "how much that loss counts beside the masked tokens'")


@dataclass(frozen=True)
class PretrainSettings:
    """A variant changes a field."""

    model: EncoderConfig = field(default_factory=EncoderConfig)
    data: DataSettings = field(default_factory=DataSettings)
    objective: ObjectiveSettings = field(default_factory=ObjectiveSettings)
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
        if self.objective.nsp and self.model.num_segments < 2:
            raise ValueError("objective.nsp needs model.num_segments=2: each pair has two segments")

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
        short = flops_per_token(self.model, self.data.short_length, self.masking.rate)
        return tokens * (share * short + (1 - share) * flops_per_token(self.model, self.data.length, self.masking.rate))


def preset_settings(preset: str, changes: dict | None = None) -> PretrainSettings:
    """The published settings of a preset, with changes by dotted name."""
    found = registry.preset(preset)
    # The model last: one kind of segment does not go with the usual objective.
    settings = dataclasses.replace(configuration.changed(PretrainSettings(), found.published), model=found.model)
    return configuration.changed(settings, changes or {})


def settings_in(run: dict) -> PretrainSettings:
    """The settings that a `run.json` holds; the first version trained one family only and did not name it."""
    model = registry.MODELS[run.get("family", "bert")]
    return configuration.from_dict(PretrainSettings, run["settings"], model=model.config_kind)
