"""Checks for every command with --resume: options that are given must equal the recorded ones; the others are taken
from the record."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hornbook import config as configuration


class Difference(NamedTuple):
    name: str  # dotted setting or option
    recorded: Any
    given: Any


def other_options(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> list[Difference]:
    """The options whose given value differs from the recorded one. None and False mean: not given."""
    return [
        Difference(name, recorded.get(name), value)
        for name, value in given.items()
        if value is not None and value is not False and value != recorded.get(name)
    ]


def other_settings(settings: Any, recorded: Mapping[str, Any], given: Mapping[str, Any]) -> list[Difference]:
    """The given settings, by dotted name, whose value differs from the one in the resolved `settings`.

    `recorded` has the values as first given, before they were resolved; a value equal to that one is not a difference.
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
        except ValueError:  # invalid together with the recorded settings, so it differs
            found.append(Difference(name, before, value))
            continue
        if before != (tuple(now) if isinstance(now, list) else now):
            found.append(Difference(name, before, value))
    return found


def refuse(folder: Path, differences: list[Difference]) -> None:
    """Raises a ValueError that lists the differences, if there are any."""
    if differences:
        details = "; ".join(
            f"{name} is {'not set' if recorded is None else recorded}, not {given}"
            for name, recorded, given in differences
        )
        raise ValueError(
            f"{folder} was started with other settings: {details}; leave these options out to resume, or choose "
            "another --out"
        )


def _value(settings: Any, name: str) -> Any:
    return next((each.value for each in configuration.iter_settings(settings) if each.name == name), None)
