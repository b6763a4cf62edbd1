"""The request of a command: its options, and overrides of settings by dotted name.

A resumed command compares its request with the recorded one: an option that is given again must have the recorded
value, and one that is left out is taken from the record.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from hornbook import config as configuration
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
SHOWN_AS = {"init_from": "init_from="}  # in errors; `cli/options.py` turns it into the option, --from


def as_overrides(**options: Any) -> dict[str, Any]:
    """The options that are given (not None) as overrides by dotted name.

    >>> as_overrides(lr=1e-4, seed=None)
    {'optimizer.lr': 0.0001}
    """
    return {SETTING_OF[name]: value for name, value in options.items() if value is not None}


def with_device(overrides: Mapping[str, Any] | None, device: str) -> dict[str, Any]:
    """The overrides with the device of the run; `auto` leaves the choice to the run.

    >>> with_device({"epochs": 1}, "cpu")
    {'epochs': 1, 'runtime.device': 'cpu'}
    """
    return {**(overrides or {}), **as_overrides(device=None if device == "auto" else device)}


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
        return {name: value for name, value in vars(self).items() if name not in SETTING_OF and name != "overrides"}

    def to_dict(self) -> dict[str, Any]:
        """The request as recorded, with the values of overrides as text."""
        return asdict(self) | {"overrides": {name: str(value) for name, value in self.overrides.items()}}


class Difference(NamedTuple):
    name: str  # dotted setting or option
    recorded: Any
    requested: Any


def option_differences(recorded: Mapping[str, Any], options: Mapping[str, Any]) -> list[Difference]:
    """The options whose value differs from the recorded one. None and False mean: not given."""
    return [
        Difference(SHOWN_AS.get(name, name), recorded.get(name), value)
        for name, value in options.items()
        if value is not None and value is not False and value != recorded.get(name)
    ]


def changed_values(recorded: Mapping[str, Any], requested: Mapping[str, Any], prefix: str = "") -> list[Difference]:
    """All values that differ from the recorded ones or are left out, for a command that takes none from its record."""
    differences = []
    for name, value in json.loads(json.dumps(requested)).items():  # as it would be recorded
        before = recorded.get(name)
        if isinstance(value, dict) and isinstance(before, dict):
            differences += changed_values(before, dict.fromkeys(before) | value, f"{prefix}{name}.")
        elif before != value:
            differences.append(Difference(f"{prefix}{name}", before, value))
    return differences


def refuse_other_source(recorded: Mapping[str, Any], source: Mapping[str, Any], made_from: str, fix: str) -> None:
    """Raises a `ValueError` if what a stored result depends on differs from `source`."""
    if changed := [each.name for each in changed_values(recorded, source)]:
        raise ValueError(f"{made_from} other {', '.join(changed)}: {fix}, or choose another folder")


def request_differences(recorded: Mapping[str, Any], request: RunRequest, settings: Any = None) -> list[Difference]:
    """The options and settings of a request that differ from the recorded request and from the `settings` that were
    resolved from it; without settings, overrides are compared only as they were given."""
    before = type(request)(**recorded)
    recorded_overrides = before.overrides | before.all_overrides()
    differences = option_differences(recorded, request.options())
    for name, value in (request.overrides | request.all_overrides()).items():
        if name in recorded_overrides and str(recorded_overrides[name]) == str(value):
            continue
        group, _, inside = name.partition(".")
        if settings is None or name.startswith(request.not_settings):
            differences.append(Difference(name, recorded_overrides.get(name), value))
        elif isinstance(values := getattr(settings, group, None), dict):  # such as stages, whose names are not fields
            if str(values.get(inside)) != str(value):
                differences.append(Difference(name, values.get(inside), value))
        elif (resolved := _value(settings, name)) != _overridden(settings, name, value):
            differences.append(Difference(name, resolved, value))
    return differences


def _overridden(settings: Any, name: str, value: Any) -> Any:
    """The value that a setting would have if it were overridden; the error if it would be invalid."""
    try:
        overridden = _value(configuration.with_overrides(settings, {name: value}), name)
    except configuration.UnknownSetting:
        raise
    except ValueError as error:  # invalid together with the recorded settings, so it differs
        return error
    return tuple(overridden) if isinstance(overridden, list) else overridden


def _value(settings: Any, name: str) -> Any:
    return next((each.value for each in configuration.iter_settings(settings) if each.name == name), None)
