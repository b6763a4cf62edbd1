"""Validated settings: dataclasses whose fields have a doc line and a range, with overrides by dotted name.

@dataclass(frozen=True)
class Optimizer(ValidatedSettings, group="optimizer"):
    lr: float = setting(1e-4, "peak learning rate", above=0, high=100)

with_overrides(run, {"optimizer.lr": "3e-4"})   # a copy; the error for an unknown name suggests the nearest known one
Optimizer(lr=-1)                                # ValueError: optimizer.lr must be above 0, not -1

Every value is validated when the dataclass is built, whether it comes from the command line, a file or Python.
"""

import contextlib
import dataclasses
import difflib
import functools
import math
import numbers
import os
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

S = TypeVar("S")
MAX_SHOWN = 60  # characters of a wrong value in an error
MAX_COUNT = 1_000_000_000  # upper limit of counts, larger than any in practice
LARGEST_SEED = 2**64 - 1
BOOLEANS = dict.fromkeys(("true", "yes", "on", "1"), True) | dict.fromkeys(("false", "no", "off", "0"), False)
THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
# Names of settings in other libraries, and ours.
ALIASES = {
    "learning_rate": "lr",
    "adam_beta1": "beta1",
    "adam_beta2": "beta2",
    "adam_epsilon": "eps",
    "hidden_size": "width",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "intermediate_size": "inner_width",
    "max_position_embeddings": "max_positions",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "max_steps": "steps",
}


class Range(NamedTuple):
    """Bounds of a number: `low` and `high` are inclusive, `above` and `below` exclusive."""

    low: float | None = None
    above: float | None = None
    high: float | None = None
    below: float | None = None

    def check(self, value: float, name: str) -> None:
        lower, upper = (("at least", self.low), ("above", self.above)), (("at most", self.high), ("below", self.below))
        if (self.low is not None and value < self.low) or (self.above is not None and value <= self.above):
            raise ValueError(f"{name} must be {_describe_bounds(*lower)}, not {short_repr(value)}")
        is_inside = (self.high is None or value <= self.high) and (self.below is None or value < self.below)
        if not is_inside or (isinstance(value, float) and not math.isfinite(value)):
            bounds = _describe_bounds(*lower, *upper) or "a finite number"
            raise ValueError(f"{name} must be {bounds}, not {short_repr(value)}")


def _describe_bounds(*bounds: tuple[str, float | None]) -> str:
    return " and ".join(
        f"{label} {bound:,}" if isinstance(bound, int) else f"{label} {bound:g}"
        for label, bound in bounds
        if bound is not None
    )


def short_repr(value: Any) -> str:
    """A wrong value as text for an error message: 0 for 0.0, truncated to 60 characters."""
    text = repr(value).removesuffix(".0") if isinstance(value, float) else repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."


def setting(default: Any, doc: str, **bounds: float) -> Any:
    """A dataclass field with a default, a doc line and, for numbers, the bounds of a `Range`. A subclass that
    redeclares the field without bounds inherits them."""
    return dataclasses.field(default=default, metadata={"doc": doc, "range": Range(**bounds)})


class ValidatedSettings:
    """Base of dataclasses that validate the type and range of every field. `group` is the prefix of the dotted names in
    error messages."""

    _group: ClassVar[str | None] = None

    def __init_subclass__(cls, group: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if group is not None:
            cls._group = group

    def __post_init__(self) -> None:
        for name, (kind, bounds) in _rules(type(self)).items():
            value = getattr(self, name)
            converted = checked(value, kind, self._name_of(name), **bounds._asdict())
            if converted is not value:
                object.__setattr__(self, name, converted)

    def _name_of(self, field: str) -> str:
        if self._group is not None:
            return f"{self._group}.{field}".removeprefix(".")
        return f"{field} of {getattr(self, 'name', '') or type(self).__name__.lower()}"


_hints = functools.cache(typing.get_type_hints)


@functools.cache
def _rules(kind: type) -> dict[str, tuple[Any, Range]]:
    """The type and range of each field; a field without a range inherits that of the base class."""
    hints, rules = _hints(kind), {}
    for field in dataclasses.fields(kind):
        declared = [getattr(base, "__dataclass_fields__", {}).get(field.name) for base in kind.__mro__]
        ranges = [each.metadata["range"] for each in declared if each is not None and "range" in each.metadata]
        rules[field.name] = hints[field.name], next((each for each in ranges if each != Range()), Range())
    return rules


def checked(value: Any, kind: Any, name: str, **bounds: float | None) -> Any:
    """`value`, validated against the type `kind` and the bounds of `Range`; raises a `ValueError` that names the
    allowed values. Integral floats are converted to int where `kind` is int, and numpy scalars to Python numbers.

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
        return checked(value, groups or next(each for each in arguments if each is not type(None)), name, **bounds)
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(checked(each, arguments[0], name, **bounds) for each in value)
    if (kind is float and _is_number(value)) or (kind is int and _is_whole(value)):
        try:
            value = kind(value)
        except OverflowError:  # an integer with hundreds of digits
            value = math.inf
        Range(**bounds).check(value, name)
        return value
    if origin is Literal:
        is_valid = isinstance(value, str) and value in arguments
    elif kind is Any:
        is_valid = True
    else:
        is_valid = kind not in (int, float) and origin is not tuple and isinstance(value, origin or kind)
    if not is_valid:
        raise ValueError(f"{name} must be {_describe_kind(kind)}, not {short_repr(value)}")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, numbers.Integral) or (math.isfinite(value) and value == int(value)))


def _describe_kind(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(typing.get_args(kind))
    if typing.get_origin(kind) is tuple:
        return "a list"
    names = {int: "a whole number", float: "a number", str: "a string", bool: "true or false"}
    return names.get(kind, "a table of settings")


class Setting(NamedTuple):
    name: str
    value: Any
    doc: str


def iter_settings(settings: Any, prefix: str = "") -> Iterator[Setting]:
    """Yields every setting with its dotted name, value and doc line, in declaration order."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            yield from iter_settings(value, f"{prefix}{field.name}.")
        else:
            yield Setting(prefix + field.name, value, field.metadata.get("doc", ""))


def why_unused(settings: Any, name: str) -> str | None:
    """The reason why a run with these settings does not use the setting `name`, or None if it does. The property
    `settings.unused`, if there is one, maps settings and groups to reasons."""
    reasons = getattr(settings, "unused", {})
    return next((why for prefix, why in reasons.items() if f"{name}.".startswith(f"{prefix}.")), None)


def unused_names(settings: Any) -> list[str]:
    """The dotted names of all settings that a run with these settings does not use."""
    return [each.name for each in iter_settings(settings) if why_unused(settings, each.name)]


def refuse_unused(settings: Any, names: Iterable[str]) -> None:
    """Raises a ValueError for the first of `names` that would have no effect in this run."""
    for name in names:
        if why := why_unused(settings, name):
            raise ValueError(f"{name} would have no effect: {why}")


def with_overrides(settings: S, overrides: Mapping[str, Any], prefix: str = "") -> S:
    """A copy of `settings` with `overrides` (dotted name -> value) applied; strings are parsed as the field's type."""
    known = [each.name for each in iter_settings(settings)]
    hints, values = _hints(type(settings)), {}
    by_group: dict[str, dict[str, Any]] = {}
    for name, value in overrides.items():
        if name not in known:
            raise _unknown(name, known)
        head, _, rest = name.partition(".")
        if rest:
            by_group.setdefault(head, {})[rest] = value
        else:
            values[head] = parsed(value, hints[head], prefix + name) if isinstance(value, str) else value
    for head, group in by_group.items():
        values[head] = with_overrides(getattr(settings, head), group, f"{prefix}{head}.")
    return dataclasses.replace(settings, **values)


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "", most: int = 1) -> str:
    """The names among `known` that are most like an unknown one, for an error message; `otherwise` if none is."""
    similar = difflib.get_close_matches(name, known, most, cutoff=0.5)
    return f"did you mean {' or '.join(similar)}?" if similar else otherwise


def check_name(name: str, where: str = "") -> None:
    """Raises a `ValueError` if a name of a task, arm or variant cannot be used in file names."""
    if not re.fullmatch(r"[a-z0-9]+(?:[.-][a-z0-9]+)*", name):
        raise ValueError(f"'{name}'{where} is not a valid name: use lower-case letters, digits, dots and hyphens")


class UnknownSetting(ValueError):
    def __init__(self, name: str, message: str):
        super().__init__(message)
        self.name = name


def _unknown(name: str, known: list[str]) -> UnknownSetting:
    """The error for a name that is not among the `known` settings, with the most similar of these."""
    group, dot, last = name.rpartition(".")
    siblings = [each.rpartition(".")[2] for each in known if dot and each.rpartition(".")[0] == group]
    alias = ALIASES.get(last)
    similar = [alias] if alias in siblings else difflib.get_close_matches(last, siblings, n=1)
    same_group = [f"{group}.{each}" for each in similar]
    other_group = [each for each in known if each.rpartition(".")[2] in (last, alias)]
    suggestions = same_group or other_group or difflib.get_close_matches(name, known, n=1, cutoff=0.4)
    if suggestions:
        return UnknownSetting(name, f"there is no setting '{name}'; did you mean '{suggestions[0]}'?")
    kind = "groups" if any("." in each for each in known) else "settings"
    top_level = dict.fromkeys(each.partition(".")[0] for each in known)
    return UnknownSetting(name, f"there is no setting '{name}'; the {kind} are {', '.join(top_level)}")


def parsed(text: str, kind: Any, name: str) -> Any:
    """`text` parsed as a value of the type `kind`; raises a `ValueError` that names the allowed values."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        if text.lower() in ("none", "null", "") and type(None) in arguments:
            return None
        return parsed(text, next(each for each in arguments if each is not type(None)), name)
    if origin is tuple:
        return tuple(parsed(part.strip(), arguments[0], name) for part in text.split(",") if part.strip())
    if kind is bool and text.lower() in BOOLEANS:
        return BOOLEANS[text.lower()]
    if kind is int:
        digits = text.replace("_", "")
        digits = digits.replace(",", "") if THOUSANDS.fullmatch(digits) else digits
        with contextlib.suppress(ValueError):
            return int(digits)  # exact for long seeds, which a float is not
        with contextlib.suppress(ValueError):
            if (number := float(digits)).is_integer():
                return int(number)
    if kind is float:
        with contextlib.suppress(ValueError):
            if not math.isnan(number := float(text)):
                return number
    if kind in (bool, int, float) or (origin is Literal and text not in arguments):
        raise ValueError(f"{name} must be {_describe_kind(kind)}, not {short_repr(text)}")
    return text


def from_dict(kind: type[S], values: Mapping[str, Any], prefix: str = "", **kinds: type) -> S:
    """The settings from the values of `dataclasses.asdict`. An unknown name is an error. `kinds` gives the class of a
    group whose declared type is a base class or a union. A field of type `tuple[Group, ...]` is read from a list of
    tables."""
    if not isinstance(values, Mapping):
        raise ValueError(f"{prefix.removesuffix('.')} must be a table of settings, not {short_repr(values)}")
    hints = _hints(kind)
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            raise _unknown(prefix + name, [prefix + known for known in hints])
        if dataclasses.is_dataclass(group := kinds.get(name, hints[name])):
            value = from_dict(group, value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            item_kind = (*typing.get_args(group), None)[0]
            if dataclasses.is_dataclass(item_kind):
                value = [from_dict(item_kind, each, f"{prefix}{name}[{i}].") for i, each in enumerate(value)]
            value = tuple(value)
        arguments[name] = value
    return kind(**arguments)
