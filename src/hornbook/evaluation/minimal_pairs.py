"""Minimal pairs: how often a model gives the acceptable sentence the higher probability (BLiMP, Warstadt et al. 2020,
arXiv 1912.00582). No training: a GPT's log-probability, or the pseudo-log-likelihood of an encoder.

Several continuations of one context, of which the first is right, are judged in the same way, by the log-probability of
the continuation. Such are BabyLM's questions about entities (Kim and Schuster 2023, arXiv 2305.02363): which things a
box contains after a number of operations. Accuracies are averaged over paradigms: the files of BLiMP, and in entity
tracking each number of operations of each file.
"""

import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import starmap
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from hornbook.devices import inference_autocast
from hornbook.files import write_json_lines
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.load import load
from hornbook.inference.loaded_model import LoadedModel
from hornbook.lifecycle.run_folder import ignore
from hornbook.metrics.confidence_intervals import NORMAL_95, wilson_interval

GOOD, BAD = ("sentence_good", "good"), ("sentence_bad", "bad")  # keys of a line; the first that it has
PARADIGM = ("UID", "paradigm")  # otherwise the name of the file
CONTEXT, OPTIONS, OPERATIONS = ("input_prefix", "context"), "options", "numops"  # of a line with several continuations
PAIRS_AT_ONCE = 4096  # scored together with their context
Direction = Literal["causal", "bidirectional", "fused"]
DIRECTIONS = get_args(Direction)


class MinimalPair(NamedTuple):
    """A good and a bad sentence. With a `context`, they continue it, and there may be `others` that are bad too."""

    paradigm: str
    good: str
    bad: str
    context: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True)
class Accuracy:
    """The fraction of pairs whose good sentence is likelier (ties are wrong), with a 95% interval."""

    num_pairs: int
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class MinimalPairs:
    definition: str
    paradigms: dict[str, Accuracy]
    mean: Accuracy  # over paradigms, each with the same weight
    log_probabilities: list[tuple[MinimalPair, float, float]]  # of the good and the (likeliest) bad sentence

    def to_dict(self) -> dict[str, Any]:
        by_paradigm = {name: vars(each) for name, each in self.paradigms.items()}
        return {"definition": self.definition, "mean": vars(self.mean), "paradigms": by_paradigm}


def minimal_pairs(
    model: str | Path,
    data: str | Path,
    *,
    within_word: bool = False,
    direction: Direction | None = None,
    out: str | Path | None = None,
    weights: str = "float",
    device: str = "auto",
    on_progress: Callable[[int, int], None] = ignore,
) -> MinimalPairs:
    """Scores a model on minimal pairs: a JSONL file, or a folder of such files, with the keys `sentence_good` and
    `sentence_bad`. `out` is a JSONL file for the log-probabilities of all pairs. `within_word` scores the tokens of a
    word from left to right in an encoder: the tokens after the scored one are masked too. `direction` is for a hybrid
    GPT: `causal` (the default) is its likelihood, `bidirectional` its pseudo-log-likelihood, `fused` the sum of the
    two. On a GPU that supports it, the model runs in bfloat16.

    A line may have a context and several continuations, of which the first is right, instead: the keys `input_prefix`
    and `options`. The paradigm is then the file and the number of operations (`numops`), if it has one.

    >>> import hornbook
    >>> accuracies = hornbook.minimal_pairs("runs/first", "pairs.jsonl")
    >>> 0 <= accuracies.mean.value <= 1
    True
    """
    pairs = read_pairs(Path(data))
    readers = _readers(load(model, weights, device), direction)
    texts = list(dict.fromkeys((pair.context, text) for pair in pairs for text in (pair.good, pair.bad, *pair.others)))
    total: dict[tuple[str, str], float] = dict.fromkeys(texts, 0.0)
    for i, reader in enumerate(readers):

        def report(done: int, before: int = i * len(texts)) -> None:
            num_texts = len(readers) * len(texts)
            on_progress(min(before + done, num_texts), num_texts)

        is_last = i == len(readers) - 1  # the encoder, if there is one
        for key, value in _totals(reader, texts, within_word and is_last, report).items():
            total[key] += value
    log_probabilities: list[tuple[MinimalPair, float, float]] = []
    are_right: dict[str, list[bool]] = {}  # by paradigm
    for pair in pairs:
        good, *bad = (total[pair.context, text] for text in (pair.good, pair.bad, *pair.others))
        log_probabilities.append((pair, good, max(bad)))
        are_right.setdefault(pair.paradigm, []).append(good > max(bad))
    if out is not None:
        write_json_lines(Path(out), starmap(_row, log_probabilities))
    paradigms = {name: _accuracy(of_paradigm) for name, of_paradigm in are_right.items()}
    definition = " + ".join(reader.score_definition(within_word) for reader in readers)
    return MinimalPairs(definition, paradigms, mean_of(paradigms.values()), log_probabilities)


def _readers(loaded: LoadedModel, direction: Direction | None) -> list[LoadedModel]:
    """The models whose log-probabilities are summed: a hybrid GPT can be read in two directions."""
    if direction is not None and direction not in DIRECTIONS:
        raise ValueError(f"direction must be {', '.join(DIRECTIONS[:-1])} or {DIRECTIONS[-1]}, not '{direction}'")
    if direction is None or (direction == "causal" and isinstance(loaded, DecoderModel)):
        return [loaded]
    if not isinstance(loaded, DecoderModel):
        raise ValueError(f"direction={direction} is for a hybrid GPT, and {loaded.folder} is an encoder: leave it out")
    return [loaded.encoder] if direction == "bidirectional" else [loaded, loaded.encoder]


def _totals(
    loaded: LoadedModel, texts: Sequence[tuple[str, str]], within_word: bool, on_progress: Callable[[int], None]
) -> dict[tuple[str, str], float]:
    """The log-probability of each text, or of each continuation of a context."""
    without_context = [text for context, text in texts if not context]
    with_context = [pair for pair in texts if pair[0]]
    with inference_autocast(loaded.device):
        options = {"within_word": within_word, "on_progress": on_progress}
        scores = loaded.score(without_context, **options) if without_context else []
        totals = {("", text): score.total for text, score in zip(without_context, scores, strict=True)}
        for first in range(0, len(with_context), PAIRS_AT_ONCE):
            pairs = with_context[first : first + PAIRS_AT_ONCE]
            totals |= {pair: score.total for pair, score in zip(pairs, loaded.continuations(pairs), strict=True)}
            on_progress(len(totals))
    return totals


def read_pairs(path: Path) -> list[MinimalPair]:
    """The pairs of a JSONL file, or of all such files in a folder; raises a `ValueError` at a line that has none."""
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the path of the minimal pairs")
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    pairs = [pair for file in files for pair in _read_file(file)]
    if not pairs:
        raise ValueError(f"{path} has no minimal pairs: give a .jsonl file, or a folder with such files")
    return pairs


def _read_file(file: Path) -> Iterable[MinimalPair]:
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text: give a .jsonl file") from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            values = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{file}: line {number} is not JSON ({error}): give one JSON object per line") from None
        if isinstance(values, dict) and OPTIONS in values:
            yield _with_options(values, f"{file}: line {number}", file.stem)
            continue
        good, bad = (_first(values, names) for names in (GOOD, BAD))
        if not good or not bad:
            raise ValueError(
                f"{file}: line {number} has no {GOOD[0]} and {BAD[0]}; each line is a JSON object with both"
            )
        yield MinimalPair(_first(values, PARADIGM) or file.stem, good, bad)


def _with_options(values: dict[str, Any], where: str, stem: str) -> MinimalPair:
    """A context with several continuations."""
    context, options = _first(values, CONTEXT), values[OPTIONS]
    is_list = isinstance(options, list) and all(isinstance(each, str) and each.strip() for each in options)
    if not context or not is_list or len(options) < 2 or options[0] in options[1:]:
        raise ValueError(
            f"{where} needs {CONTEXT[0]} and at least two {OPTIONS}, which continue it; the first is right and differs "
            "from the others"
        )
    good, bad, *others = options
    operations = f"_{values[OPERATIONS]}_ops" if OPERATIONS in values else ""
    return MinimalPair(_first(values, PARADIGM) or f"{stem}{operations}", good, bad, context, tuple(others))


def _first(values: Any, names: Sequence[str]) -> str:
    """The first of the named values that is a text; empty if there is none."""
    candidates = (values.get(name) for name in names) if isinstance(values, dict) else ()
    return next((value for value in candidates if isinstance(value, str) and value.strip()), "")


def _accuracy(are_right: Sequence[bool]) -> Accuracy:
    value = sum(are_right) / len(are_right)
    return Accuracy(len(are_right), value, *wilson_interval(value, len(are_right)))


def mean_of(paradigms: Iterable[Accuracy]) -> Accuracy:
    """The mean over paradigms. The interval covers sampling of pairs, not of paradigms; it is that of Price and Bonett
    (2004, Computational Statistics & Data Analysis 45): of the rates with two right and two wrong pairs added, spread
    over the paradigms, so that it covers the truth of a few pairs too and is not empty where all are right."""
    accuracies = list(paradigms)
    num, added = len(accuracies), 2 / len(accuracies)
    sizes = [each.num_pairs + 2 * added for each in accuracies]
    rates = [(each.value * each.num_pairs + added) / size for each, size in zip(accuracies, sizes, strict=True)]
    variance = sum(rate * (1 - rate) / size for rate, size in zip(rates, sizes, strict=True)) / num**2
    centre, margin = sum(rates) / num, NORMAL_95 * math.sqrt(variance)
    mean, num_pairs = sum(each.value for each in accuracies) / num, sum(each.num_pairs for each in accuracies)
    return Accuracy(num_pairs, mean, max(0.0, centre - margin), min(1.0, centre + margin))


def _row(pair: MinimalPair, good: float, bad: float) -> dict[str, Any]:
    """A line of the file of log-probabilities."""
    row = {"paradigm": pair.paradigm, "sentence_good": pair.good, "sentence_bad": pair.bad}
    row |= {"context": pair.context, "others": pair.others} if pair.context else {}
    return row | {"log_probability_good": good, "log_probability_bad": bad, "is_right": good > bad}
