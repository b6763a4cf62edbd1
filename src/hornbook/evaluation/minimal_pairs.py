"""Minimal pairs: how often a model finds the good one of two sentences likelier (BLiMP, Warstadt et al. 2020, arXiv
1912.00582). No training: a GPT's log-probability, or the pseudo-log-likelihood of an encoder."""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from hornbook.files import replacing
from hornbook.inference.opening import load

GOOD, BAD = ("sentence_good", "good"), ("sentence_bad", "bad")  # keys of a line; the first that it has
PARADIGM = ("UID", "paradigm")  # otherwise the name of the file
NORMAL_95 = 1.959964


class Pair(NamedTuple):
    paradigm: str
    good: str
    bad: str


@dataclass(frozen=True)
class Accuracy:
    """The share of pairs whose good sentence is likelier, with a 95% interval; equally likely ones count as wrong."""

    num_pairs: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MinimalPairs:
    definition: str
    paradigms: dict[str, Accuracy]
    mean: Accuracy  # over paradigms, each with the same weight
    log_probabilities: list[tuple[Pair, float, float]]  # of the good and the bad sentence

    def as_dict(self) -> dict[str, Any]:
        by_paradigm = {name: vars(each) for name, each in self.paradigms.items()}
        return {"definition": self.definition, "mean": vars(self.mean), "paradigms": by_paradigm}


def minimal_pairs(
    model: str | Path,
    data: str | Path,
    *,
    within_word: bool = False,
    to: str | Path | None = None,
    weights: str = "float",
    device: str = "auto",
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> MinimalPairs:
    """Scores a model on minimal pairs: a JSONL file, or a folder of such files, with the keys `sentence_good` and
    `sentence_bad`. `to` is a JSONL file for the log-probabilities of all pairs. `within_word` scores the tokens of a
    word from left to right in an encoder: the tokens after the scored one are masked too.

    >>> import hornbook
    >>> found = hornbook.minimal_pairs("runs/first", "pairs.jsonl")
    >>> 0 <= found.mean.value <= 1
    True
    """
    pairs = read_pairs(Path(data))
    loaded = load(model, weights, device)
    sentences = list(dict.fromkeys(text for pair in pairs for text in (pair.good, pair.bad)))
    scores = loaded.score(
        sentences, within_word=within_word, progress=lambda done: on_progress(min(done, len(sentences)), len(sentences))
    )
    total = {text: each.total for text, each in zip(sentences, scores, strict=True)}
    found = [(pair, total[pair.good], total[pair.bad]) for pair in pairs]
    if to is not None:
        _write(Path(to), found)
    paradigms = {name: _accuracy(its) for name, its in _by_paradigm(found).items()}
    return MinimalPairs(loaded.score_definition(within_word), paradigms, mean_of(paradigms.values()), found)


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a JSONL file, or of all such files in a folder; raises a `ValueError` at a line that has none."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the path of the minimal pairs")
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    found = [pair for file in files for pair in _read_file(file)]
    if not found:
        raise ValueError(f"{path} has no minimal pairs: give a .jsonl file, or a folder with such files")
    return found


def _read_file(file: Path) -> Iterable[Pair]:
    try:
        lines = file.read_text(encoding="utf-8").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text: give a .jsonl file") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except ValueError:
            values = None
        good, bad = (_first(values, names) for names in (GOOD, BAD))
        if not good or not bad:
            raise ValueError(
                f"{file}: line {number} has no {GOOD[0]} and {BAD[0]}; each line is a JSON object with both"
            )
        yield Pair(_first(values, PARADIGM) or file.stem, good, bad)


def _first(values: Any, names: Sequence[str]) -> str:
    """The first of the named values that is a text; empty if there is none."""
    found = (values.get(name) for name in names) if isinstance(values, dict) else ()
    return next((value for value in found if isinstance(value, str) and value.strip()), "")


def _by_paradigm(found: Sequence[tuple[Pair, float, float]]) -> dict[str, list[bool]]:
    are_right: dict[str, list[bool]] = {}
    for pair, good, bad in found:
        are_right.setdefault(pair.paradigm, []).append(good > bad)
    return are_right


def _accuracy(are_right: Sequence[bool]) -> Accuracy:
    """With Wilson's interval, which stays within 0 and 1.

    >>> found = _accuracy([True, True, True, False])
    >>> round(found.low, 3), found.value, round(found.high, 3)
    (0.301, 0.75, 0.954)
    """
    num, z = len(are_right), NORMAL_95
    share = sum(are_right) / num
    centre, width = share + z * z / (2 * num), z * math.sqrt(share * (1 - share) / num + z * z / (4 * num * num))
    return Accuracy(num, share, (centre - width) / (1 + z * z / num), (centre + width) / (1 + z * z / num))


def mean_of(paradigms: Iterable[Accuracy]) -> Accuracy:
    """The mean over paradigms; the interval is that of the pairs, the paradigms being given."""
    all_of_them = list(paradigms)
    mean = sum(each.value for each in all_of_them) / len(all_of_them)
    variance = sum(each.value * (1 - each.value) / each.num_pairs for each in all_of_them) / len(all_of_them) ** 2
    margin = NORMAL_95 * math.sqrt(variance)
    return Accuracy(sum(each.num_pairs for each in all_of_them), mean, max(0.0, mean - margin), min(1.0, mean + margin))


def _write(file: Path, found: Sequence[tuple[Pair, float, float]]) -> None:
    with replacing(file) as temporary, open(temporary, "w", encoding="utf-8") as opened:
        for pair, good, bad in found:
            values = {"paradigm": pair.paradigm, "sentence_good": pair.good, "sentence_bad": pair.bad}
            values |= {"log_probability_good": good, "log_probability_bad": bad, "is_right": good > bad}
            opened.write(json.dumps(values, ensure_ascii=False) + "\n")
