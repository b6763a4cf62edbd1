"""Typed settings: dataclasses whose fields carry one doc line each, changed by dotted names from the command line.

@dataclass(frozen=True)
class Optimizer:
    lr: float = setting(1e-4, "peak learning rate")

changed(run, {"optimizer.lr": "3e-4"})      # a new value; an unknown name is an error with the nearest known one
"""

import contextlib
import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeVar

S = TypeVar("S")


def setting(default: Any, doc: str) -> Any:
    """A dataclass field with its default and its doc line."""
    return dataclasses.field(default=default, metadata={"doc": doc})


class Typed:
    """A dataclass that refuses a text where a number must be, and the like: for settings that come out of a file."""

    def __post_init__(self) -> None:
        hints = typing.get_type_hints(type(self))
        for each in dataclasses.fields(self):
            value, kind = getattr(self, each.name), hints[each.name]
            if typing.get_origin(kind) is tuple and isinstance(value, tuple):
                kind = typing.get_args(kind)[0]
                wrong = [item for item in value if not _is_kind(item, kind)]
            else:
                wrong = [] if _is_kind(value, kind) else [value]
            if wrong:
                whose = getattr(self, "name", "") or type(self).__name__.lower()
                raise ValueError(f"{each.name} of {whose} must be {_kind_in_words(kind)}, not {wrong[0]!r}")


def _is_kind(value: Any, kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return any(_is_kind(value, each) for each in typing.get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    return isinstance(value, typing.get_origin(kind) or kind) and not (kind is int and isinstance(value, bool))


def _kind_in_words(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    names = {int: "a whole number", float: "a number", str: "a text", dict: "a table of settings"}
    return names.get(kind, "a number" if isinstance(kind, types.UnionType) else "a list")


class Setting(NamedTuple):
    name: str
    value: Any
    doc: str


def listed(settings: Any, prefix: str = "") -> Iterator[Setting]:
    """Every setting with its dotted name, value and doc line, in the order in which they are declared."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from listed(value, f"{prefix}{field.name}.")
        else:
            yield Setting(prefix + field.name, value, field.metadata.get("doc", ""))


def why_unread(settings: Any, name: str) -> str | None:
    """Why nothing reads a setting in such a run, where the settings say so themselves: `unread` holds the names of
    settings and groups, each with the reason."""
    reasons = getattr(settings, "unread", {})
    return next((why for part, why in reasons.items() if f"{name}.".startswith(f"{part}.")), None)


def unread_names(settings: Any) -> list[str]:
    """The dotted names of all settings that nothing reads in such a run."""
    return [each.name for each in listed(settings) if why_unread(settings, each.name)]


def refuse_unread(settings: Any, names: Iterable[str]) -> None:
    """A setting that would do nothing is not taken in silence."""
    for name in names:
        if why := why_unread(settings, name):
            raise ValueError(f"{name} would do nothing here: {why}")


def changed(settings: S, changes: Mapping[str, Any], prefix: str = "") -> S:
    """A copy of `settings` with the dotted names in `changes` set; text is read as the field's type."""
    by_group: dict[str, dict[str, Any]] = {}
    direct: dict[str, Any] = {}
    hints = typing.get_type_hints(type(settings))
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        is_group = head in hints and dataclasses.is_dataclass(getattr(settings, head))
        if head not in hints or is_group != bool(rest):
            raise _unknown(name, [known.name for known in listed(settings)])
        if is_group:
            by_group.setdefault(head, {})[rest] = value
        else:
            direct[head] = parsed(value, hints[head], prefix + name) if isinstance(value, str) else value
    for head, group in by_group.items():
        try:
            direct[head] = changed(getattr(settings, head), group, f"{prefix}{head}.")
        except UnknownSetting as error:
            raise _unknown(f"{head}.{error.name}", [known.name for known in listed(settings)]) from None
    return dataclasses.replace(settings, **direct)


class UnknownSetting(ValueError):
    """A name that no setting has."""

    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


def _unknown(name: str, known: list[str]) -> UnknownSetting:
    group, dot, last = name.rpartition(".")
    of_group = [each.rpartition(".")[2] for each in known if dot and each.rpartition(".")[0] == group]
    beside = [f"{group}.{each}" for each in difflib.get_close_matches(last, of_group, n=1)]
    elsewhere = [each for each in known if each.rpartition(".")[2] == last][:1]
    near = beside or elsewhere or difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    first = dict.fromkeys(each.partition(".")[0] for each in known)
    hint = f"; did you mean '{near[0]}'?" if near else f"; names begin with {', '.join(first)}"
    return UnknownSetting(name, f"there is no setting '{name}'{hint}")


def parsed(text: str, kind: Any, name: str) -> Any:
    """`text` as a value of the type `kind`, or a `ValueError` that says what would be right."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if text.lower() in ("none", "null", "") and type(None) in arguments:
            return None
        kind = next(a for a in arguments if a is not type(None))
        return parsed(text, kind, name)
    if origin is Literal:
        if text in arguments:
            return text
        raise ValueError(f"{name} must be one of {', '.join(map(str, arguments))}, not '{text}'")
    if origin is tuple:
        return tuple(parsed(part.strip(), arguments[0], name) for part in text.split(",") if part.strip())
    if kind is bool:
        if text.lower() in ("true", "yes", "on", "1"):
            return True
        if text.lower() in ("false", "no", "off", "0"):
            return False
        raise ValueError(f"{name} must be true or false, not '{text}'")
    if kind is int:
        digits = text.replace("_", "").replace(",", "")
        with contextlib.suppress(ValueError):
            return int(digits)  # exactly, however long a seed is
        with contextlib.suppress(ValueError):
            if (number := float(digits)).is_integer():
                return int(number)
        raise ValueError(f"{name} must be a whole number, not '{text}'")
    if kind is float:
        with contextlib.suppress(ValueError):
            if not math.isnan(number := float(text)):
                return number
        raise ValueError(f"{name} must be a number, not '{text}'")
    return text


def to_dict(settings: Any) -> dict[str, Any]:
    return dataclasses.asdict(settings)


def from_dict(kind: type[S], values: Mapping[str, Any], prefix: str = "", **kinds: type) -> S:
    """The settings that `to_dict` wrote down. Names that are not known any more are an error. `kinds` says of which
    class a group is, where that is not the declared one itself. A field `tuple[Group, ...]` is a list of groups."""
    hints = typing.get_type_hints(kind)
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            raise _unknown(prefix + name, [prefix + known for known in hints])
        if dataclasses.is_dataclass(group := kinds.get(name, hints[name])):
            value = from_dict(group, value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            inside = (*typing.get_args(group), None)[0]
            if dataclasses.is_dataclass(inside):
                value = [from_dict(inside, each, f"{prefix}{name}[{i}].") for i, each in enumerate(value)]
            value = tuple(value)
        arguments[name] = value
    return kind(**arguments)
