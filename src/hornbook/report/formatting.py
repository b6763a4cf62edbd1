"""Formats numbers and metric names for people."""

import math
from pathlib import Path

from hornbook.metrics.formatting import cut, number, percent  # noqa: F401

UNITS = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def amount(value: float) -> str:
    """12,345; 12.3 million; 3.30 billion.

    >>> amount(12345), amount(999_600_000), amount(3.3e9)
    ('12,345', '1.00 billion', '3.30 billion')
    """
    if abs(value) < 1e6:
        return f"{value:,.0f}"
    rounded = float(f"{value:.3g}")  # 999.6 million is 1.00 billion
    size, word = next(each for each in UNITS if abs(rounded) >= each[0])
    return f"{rounded / size:.3g} {word}" if abs(rounded) >= 10 * size else f"{rounded / size:.2f} {word}"


def parameters(trained: int | None, kept: int | None) -> str:
    """12.3 million; or 13.5 million (14.2 million in training) if only some of the trained parameters are kept."""
    if not trained:
        return ""
    if not kept or kept == trained:
        return amount(trained)
    return f"{amount(kept)} ({amount(trained)} in training)"


def counted(value: int, thing: str) -> str:
    """1 shard; 2 shards."""
    return f"{value:,} {thing}" if value == 1 else f"{value:,} {thing}s"


def duration(seconds: float) -> str:
    """42 s; 12 min 5 s; 3 h 12 min; 2 days 4 h.

    >>> duration(42), duration(59.7), duration(11520), duration(1e8)
    ('42 s', '1 min 0 s', '3 h 12 min', '1,157 days 9 h')
    """
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 59.5:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    minutes = round(seconds / 60)
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440:,} days {minutes % 1440 // 60} h"


def loss(value: float | None) -> str:
    if value is None:
        return "none yet"
    return f"{value:.3f}" if math.isfinite(value) else "not a number"


def perplexity(value: float) -> str:
    """exp(loss), formatted."""
    if not math.isfinite(value):
        return "not a number"
    result = math.exp(min(value, 700))
    if result >= 1e6:
        return f"{result:.1e}"
    return f"{result:,.0f}" if result >= 100 else f"{result:.3g}"


def times(value: float) -> str:
    """0.35 times; 12 times."""
    return f"{value:,.0f} times" if value >= 10 else f"{value:.2g} times"


def size(num_bytes: float) -> str:
    """A number of bytes.

    >>> size(1234), size(999_999)
    ('1.2 kB', '1.0 MB')
    """
    for unit, word in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if num_bytes >= 0.99995 * unit:
            return f"{num_bytes / unit:.1f} {word}"
    return f"{num_bytes:.0f} bytes"


METRICS = {
    "matthews": "Matthews correlation",
    "f1": "F1",
    "macro_f1": "macro F1",
    "micro_f1": "micro F1",
    "loose_micro_f1": "loose micro F1",
    "loose_macro_f1": "loose macro F1",
    "exact_match": "exact match of label sets",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
    "mean_absolute_error": "mean absolute error",
    "mean_squared_error": "mean squared error",
    "exact": "exact match",
    "entity_f1": "entity F1",
    "tag_accuracy": "tag accuracy",
    "HasAns_exact": "exact match, answerable",
    "HasAns_f1": "F1, answerable",
    "NoAns_exact": "exact match, unanswerable",
    "NoAns_f1": "F1, unanswerable",
    "coqa_f1": "F1",
    "coqa_exact": "exact match",
    "word": "last-word accuracy",
    "rouge1": "ROUGE-1",
    "rouge2": "ROUGE-2",
    "rougeL": "ROUGE-L",
    "bleu": "BLEU",
    "greedy": "greedy match",
    "last_token": "last-token accuracy",
}


def metric_label(name: str) -> str:
    """The display name of a metric."""
    return METRICS.get(name, name.replace("_", " "))


def is_fraction(name: str) -> bool:
    """Whether a metric is a fraction, shown in percent: every metric that no kind of task lists as a plain number."""
    from hornbook.tasks.kinds import KINDS

    return not any(name in kind.number_metrics for kind in KINDS.values())


def score(name: str, value: object) -> str:
    """84.3%, or 0.532 for metrics that are not fractions."""
    value = number(value)
    if not math.isfinite(value):
        return "not a number"
    if not is_fraction(name):
        return f"{value:.3f}"
    return percent(value)


def score_with_interval(name: str, interval: dict) -> str:
    """The score (`value`) with its interval (`low` to `high`), such as 84.3% (81.0% to 87.1%)."""
    value, *ends = (score(name, interval.get(key)) for key in ("value", "low", "high"))
    return f"{value} ({ends[0]} to {ends[1]})" if "not a number" not in ends else value


def named_scores(scores: dict[str, dict]) -> list[str]:
    """Each metric with its score and interval."""
    return [f"{metric_label(name)} {score_with_interval(name, value)}" for name, value in scores.items()]


def problem_rows(problems: dict | None) -> list[tuple[str, str]]:
    """A row for each kind of problem in the data: the count, and where it occurs first."""
    rows = []
    for kind, problem in (problems or {}).items():
        example = next(iter(problem.get("examples") or []), {})
        place = " ".join(str(example[name]) for name in ("file", "place", "detail") if example.get(name))
        text = f"{problem.get('count', 0):,} {problem.get('what', kind)}" + (f" (first: {place})" if place else "")
        rows.append(("problem", text))
    return rows


def binary_size(num_bytes: float) -> str:
    """A number of bytes in GiB, or below 1 GiB in MiB.

    >>> binary_size(1.5 * 2**30), binary_size(17.5e6)
    ('1.5 GiB', '17 MiB')
    """
    return f"{num_bytes / 2**30:,.1f} GiB" if num_bytes >= 2**30 else f"{num_bytes / 2**20:,.0f} MiB"


def split_label(split: str, data: object) -> str:
    """The split; for a file that was given to be scored, whose split is always `dev`, the name of the file."""
    is_file = isinstance(data, str | Path) and Path(data).is_file()
    return split.replace("dev", Path(data).name, 1) if is_file and split.startswith("dev") else split


def capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def setting(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)
