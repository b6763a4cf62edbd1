"""One rule for every command with --resume: the recorded settings hold. An option that is given again must equal the
record; one that is not given is taken from it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hornbook import config as configuration


class Difference(NamedTuple):
    name: str  # of a setting or an option
    recorded: Any
    given: Any


def other_options(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> list[Difference]:
    """The options whose given value (None and False: not given) is not the recorded one."""
    return [
        Difference(name, recorded.get(name), value)
        for name, value in given.items()
        if value is not None and value is not False and value != recorded.get(name)
    ]


def other_settings(settings: Any, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> list[Difference]:
    """The given settings, by dotted name, whose value in the recorded `settings` is another one.

    `recorded` has the values as they were given at the start: they may have been resolved to other ones since.
    """
    found = []
    for name, value in given.items():
        if name in recorded and str(recorded[name]) == str(value):
            continue
        before, now = _value(settings, name), value
        try:
            now = _value(configuration.with_overrides(settings, {name: value}), name)
        except configuration.UnknownSetting:
            raise
        except ValueError:  # it does not fit the recorded settings, so it is another value
            found.append(Difference(name, before, value))
            continue
        if before != (tuple(now) if isinstance(now, list) else now):
            found.append(Difference(name, before, value))
    return found


def refuse(folder: Path, differences: list[Difference]) -> None:
    """Raises a ValueError that names every difference, if there are any."""
    if differences:
        words = "; ".join(
            f"{name} is {'not set' if recorded is None else recorded}, not {given}"
            for name, recorded, given in differences
        )
        raise ValueError(
            f"{folder} was started with other settings: {words}; leave these options out to resume, or choose another "
            "--out"
        )


def _value(settings: Any, name: str) -> Any:
    return next((each.value for each in configuration.iter_settings(settings) if each.name == name), None)
