"""The request of a command: its options, and overrides of settings by dotted name."""

from dataclasses import asdict, dataclass, field
from typing import Any

from hornbook.config import ValidatedSettings

# The setting that each option of a command, or argument of its Python function, sets.
SETTING_OF = {
    "steps": "schedule.steps",
    "batch_tokens": "batch.tokens",
    "epochs": "epochs",
    "batch_size": "batch_size",
    "lr": "optimizer.lr",
    "seed": "runtime.seed",
    "device": "runtime.device",
    "head": "task.head",
    "pair_encoding": "task.pair_encoding",
    "augment": "augment.copies",
    "word_vectors": "augment.vectors",
    "augment_model": "augment.model",
    "cache_teacher": "objective.cache",
    "reason": "reason.method",
    "reason_graph": "reason.graph",
    "reason_vectors": "reason.vectors",
}


def as_overrides(**options: Any) -> dict[str, Any]:
    """The options that are given (not None) as overrides by dotted name.

    >>> as_overrides(lr=1e-4, seed=None)
    {'optimizer.lr': 0.0001}
    """
    return {SETTING_OF[name]: value for name, value in options.items() if value is not None}


@dataclass(frozen=True)
class RunRequest(ValidatedSettings, group=""):
    """Base of the requests of commands. A field named in `SETTING_OF` is a setting with an option of its own."""

    overrides: dict = field(default_factory=dict, kw_only=True)

    @property
    def not_settings(self) -> tuple[str, ...]:
        """Prefixes of the overrides that are not settings of the run itself."""
        return ()

    def all_overrides(self) -> dict[str, Any]:
        """The overrides by dotted name, including those given by options of their own such as --steps."""
        overrides = {name: value for name, value in self.overrides.items() if not name.startswith(self.not_settings)}
        return overrides | as_overrides(**{name: value for name, value in vars(self).items() if name in SETTING_OF})

    def options(self) -> dict[str, Any]:
        """The fields that are not settings."""
        return {name: value for name, value in vars(self).items() if name not in SETTING_OF and name != "overrides"}

    def to_dict(self) -> dict[str, Any]:
        """The request as recorded, with the values of overrides as text."""
        return asdict(self) | {"overrides": {name: str(value) for name, value in self.overrides.items()}}
