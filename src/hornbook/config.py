"""Typed settings: dataclasses whose fields carry a doc line and a range each, changed by dotted names.

@dataclass(frozen=True)
class Optimizer(Typed, group="optimizer"):
    lr: float = setting(1e-4, "peak learning rate", above=0, high=100)

with_overrides(run, {"optimizer.lr": "3e-4"})      # a new value; an unknown name is an error with the nearest known one
Optimizer(lr=-1)                            # optimizer.lr must be above 0, not -1

Every value is checked when the dataclass is built, so the command line, files and Python meet the same checks.
"""

import contextlib
import dataclasses
import difflib
import functools
import math
import numbers
import os
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

S = TypeVar("S")
LONGEST_SHOWN = 60  # characters of a wrong value in an error
MANY = 1_000_000_000  # a limit for counts that nobody reaches
LARGEST_SEED = 2**64 - 1


class Range(NamedTuple):
    """Where a number must lie; `low` and `high` are allowed themselves, `above` and `below` are not."""

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None

    def check(self, value: float, name: str) -> None:
        least = _joined(("at least", self.low), ("above", self.above))
        if (self.low is not None and value < self.low) or (self.above is not None and value <= self.above):
            raise ValueError(f"{name} must be {least}, not {shown(value)}")
        is_inside = (self.high is None or value <= self.high) and (self.below is None or value < self.below)
        if not is_inside or (isinstance(value, float) and not math.isfinite(value)):
            whole = _joined(
                ("at least", self.low), ("above", self.above), ("at most", self.high), ("below", self.below)
            )
            raise ValueError(f"{name} must be {whole or 'a finite number'}, not {shown(value)}")


def _joined(*bounds: tuple[str, float | None]) -> str:
    said = [
        f"{words} {bound:,}" if isinstance(bound, int) else f"{words} {bound:g}"
        for words, bound in bounds
        if bound is not None
    ]
    return " and ".join(said)


def shown(value: Any) -> str:
    """A wrong value as an error shows it: 0 for 0.0, and no more than its beginning."""
    text = repr(value).removesuffix(".0") if isinstance(value, float) else repr(value)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def setting(
    default: Any,
    doc: str,
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    below: float | None = None,
) -> Any:
    """A dataclass field with its default, its doc line and, for numbers, its range. A subclass that only changes the
    default keeps the range."""
    return dataclasses.field(default=default, metadata={"doc": doc, "range": Range(low, above, high, below)})


class Typed:
    """A dataclass that checks type and range of every field, wherever the value comes from. `group` is what its dotted
    names begin with; "--" names fields as options of a command."""

    _group: ClassVar[str | None] = None

    def __init_subclass__(cls, group: str | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if group is not None:
            cls._group = group

    def __post_init__(self) -> None:
        for name, (kind, bounds) in _rules(type(self)).items():
            value = getattr(self, name)
            right = checked(value, kind, self._name_of(name), **bounds._asdict())
            if right is not value:
                object.__setattr__(self, name, right)

    def _name_of(self, field: str) -> str:
        if self._group == "--":
            return f"--{field.replace('_', '-')}"
        if self._group is not None:
            return f"{self._group}.{field}".removeprefix(".")
        return f"{field} of {getattr(self, 'name', '') or type(self).__name__.lower()}"


_hints = functools.cache(typing.get_type_hints)


@functools.cache
def _rules(kind: type) -> dict[str, tuple[Any, Range]]:
    """The type and range of each field; a range that a subclass does not repeat is that of its base."""
    hints, rules = _hints(kind), {}
    for field in dataclasses.fields(kind):
        declared = [getattr(base, "__dataclass_fields__", {}).get(field.name) for base in kind.__mro__]
        ranges = [each.metadata["range"] for each in declared if each is not None and "range" in each.metadata]
        rules[field.name] = hints[field.name], next((each for each in ranges if each != Range()), Range())
    return rules


def checked(value: Any, kind: Any, name: str, **bounds: float | None) -> Any:
    """`value` as one of the type `kind` and within the bounds of `Range`, or a `ValueError` that says what is right.
    Whole floats become ints, and scalars of numpy Python's own numbers.

    >>> checked(1e3, int, "steps", low=1)
    1000
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        groups = tuple(each for each in arguments if dataclasses.is_dataclass(each))
        kind = groups if groups else next(each for each in arguments if each is not type(None))
        return checked(value, kind, name, **bounds)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(checked(each, arguments[0], name, **bounds) for each in value)
    if (kind is float and _is_number(value)) or (kind is int and _is_whole(value)):
        value = _converted(value, kind)
        Range(**bounds).check(value, name)
        return value
    if origin is Literal:
        is_right = isinstance(value, str) and value in arguments
    elif kind is Any:
        is_right = True
    else:
        is_right = kind not in (int, float) and origin is not tuple and isinstance(value, origin or kind)
    if not is_right:
        raise ValueError(f"{name} must be {_kind_in_words(kind)}, not {shown(value)}")
    return value


def _converted(value: Any, kind: type) -> float:
    try:
        return kind(value)
    except OverflowError:  # a whole number of hundreds of digits
        return math.inf


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, numbers.Integral) or (math.isfinite(value) and value == int(value)))


def _kind_in_words(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    if kind in names:
        return names[kind]
    is_list = typing.get_origin(kind) is tuple
    return "a list" if is_list else "a table of settings"


class Setting(NamedTuple):
    name: str
    value: Any
    doc: str


def iter_settings(settings: Any, prefix: str = "") -> Iterator[Setting]:
    """Every setting with its dotted name, value and doc line, in the order in which they are declared."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from iter_settings(value, f"{prefix}{field.name}.")
        else:
            yield Setting(prefix + field.name, value, field.metadata.get("doc", ""))


def why_unused(settings: Any, name: str) -> str | None:
    """Why nothing reads a setting in such a run, where the settings say so themselves: `unread` holds the names of
    settings and groups, each with the reason."""
    reasons = getattr(settings, "unused", {})
    return next((why for part, why in reasons.items() if f"{name}.".startswith(f"{part}.")), None)


def unused_names(settings: Any) -> list[str]:
    """The dotted names of all settings that nothing reads in such a run."""
    return [each.name for each in iter_settings(settings) if why_unused(settings, each.name)]


def refuse_unused(settings: Any, names: Iterable[str]) -> None:
    """A setting that would do nothing is not taken in silence."""
    for name in names:
        if why := why_unused(settings, name):
            raise ValueError(f"{name} would do nothing here: {why}")


def with_overrides(settings: S, overrides: Mapping[str, Any], prefix: str = "") -> S:
    """A copy of `settings` with the dotted names in `overrides` set; text is read as the field's type."""
    by_group: dict[str, dict[str, Any]] = {}
    direct: dict[str, Any] = {}
    hints = _hints(type(settings))
    for name, value in overrides.items():
        head, _, rest = name.partition(".")
        is_group = head in hints and dataclasses.is_dataclass(getattr(settings, head))
        if head not in hints or is_group != bool(rest):
            raise _unknown(name, [known.name for known in iter_settings(settings)])
        if is_group:
            by_group.setdefault(head, {})[rest] = value
        else:
            direct[head] = parsed(value, hints[head], prefix + name) if isinstance(value, str) else value
    for head, group in by_group.items():
        try:
            direct[head] = with_overrides(getattr(settings, head), group, f"{prefix}{head}.")
        except UnknownSetting as error:
            raise _unknown(f"{head}.{error.name}", [known.name for known in iter_settings(settings)]) from None
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
        raise ValueError(f"{name} must be one of {', '.join(map(str, arguments))}, not {shown(text)}")
    if origin is tuple:
        return tuple(parsed(part.strip(), arguments[0], name) for part in text.split(",") if part.strip())
    if kind is bool:
        if text.lower() in ("true", "yes", "on", "1"):
            return True
        if text.lower() in ("false", "no", "off", "0"):
            return False
        raise ValueError(f"{name} must be true or false, not {shown(text)}")
    if kind is int:
        digits = text.replace("_", "").replace(",", "")
        with contextlib.suppress(ValueError):
            return int(digits)  # exactly, however long a seed is
        with contextlib.suppress(ValueError):
            if (number := float(digits)).is_integer():
                return int(number)
        raise ValueError(f"{name} must be a whole number, not {shown(text)}")
    if kind is float:
        with contextlib.suppress(ValueError):
            if not math.isnan(number := float(text)):
                return number
        raise ValueError(f"{name} must be a number, not {shown(text)}")
    return text


def to_dict(settings: Any) -> dict[str, Any]:
    return dataclasses.asdict(settings)


def from_dict(kind: type[S], values: Mapping[str, Any], prefix: str = "", **kinds: type) -> S:
    """The settings that `to_dict` wrote down. Names that are not known any more are an error. `kinds` says of which
    class a group is, where that is not the declared one itself. A field `tuple[Group, ...]` is a list of groups."""
    hints = _hints(kind)
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            raise _unknown(prefix + name, [prefix + known for known in hints])
        if dataclasses.is_dataclass(group := kinds.get(name, hints[name])):
            if not isinstance(value, Mapping):
                raise ValueError(f"{prefix}{name} must be a table of settings, not {shown(value)}")
            value = from_dict(group, value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            inside = (*typing.get_args(group), None)[0]
            if dataclasses.is_dataclass(inside):
                value = [from_dict(inside, each, f"{prefix}{name}[{i}].") for i, each in enumerate(value)]
            value = tuple(value)
        arguments[name] = value
    return kind(**arguments)
