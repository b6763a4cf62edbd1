"""Numbers of any type as floats, and numbers and texts as short strings."""

import math


def number(value: object) -> float:
    """The value as a float; NaN if it is not a number."""
    return float(value) if isinstance(value, int | float) else math.nan


def percent(share: float) -> str:
    return f"{100 * share:.1f}%" if math.isfinite(share) else "not a number"


def one_line(text: str, max_length: int) -> str:
    """The text with single spaces instead of line ends and other white space, truncated to `max_length` characters."""
    return cut(" ".join(text.split()), max_length)


def cut(text: str, max_length: int = 400) -> str:
    """The text truncated to `max_length` characters, with an ellipsis if it was cut."""
    return text if len(text) <= max_length else text[: max_length - 1].rstrip() + "…"
