"""Results of several runs: the tries of a search or of restarts (`tries.json`), and scores by number of labels
(`curve.json`)."""

import math
from dataclasses import dataclass
from pathlib import Path

from hornbook.files import read_json
from hornbook.report import wording
from hornbook.report.run import number

TRIES, CURVE = "tries.json", "curve.json"
METHODS = {
    "finetune": "fine-tuning",
    "features": "frozen features",
    "scratch": "random weights",
    "tfidf": "TF-IDF",
    "vectors": "averaged word vectors",
}


@dataclass(frozen=True)
class Scored:
    """The contents of tries.json or curve.json; `rows` are the tries or points that have a score."""

    about: dict
    rows: list[dict]

    @property
    def decided_by(self) -> str:
        return str(self.about.get("decided_by") or "score")

    @property
    def in_percent(self) -> bool:
        """Whether scores are in percent, as those of span tasks are; the others are fractions."""
        return any(number(row.get("score")) > 1.5 for row in self.rows)

    def format_score(self, value: object) -> str:
        return wording.score(self.decided_by, number(value), self.in_percent)

    def interval_words(self, row: dict) -> str:
        known = {"value": number(row.get("score")), "low": number(row.get("low")), "high": number(row.get("high"))}
        return wording.score_with_interval(self.decided_by, known, self.in_percent)


def read_tries(folder: str | Path) -> Scored | None:
    return _read(Path(folder) / TRIES, "tries")


def read_curve(folder: str | Path) -> Scored | None:
    return _read(Path(folder) / CURVE, "points")


def _read(path: Path, name: str) -> Scored | None:
    if not path.is_file():
        return None
    about = read_json(path)
    rows = [row for row in about.get(name) or [] if math.isfinite(number(row.get("score")))]
    if not rows:
        raise ValueError(f"{path} has no {name} with a score: let the runs finish first")
    return Scored(about, rows)


def is_several(folder: str | Path) -> bool:
    """Whether a folder contains several runs and is not a run itself."""
    folder = Path(folder)
    has_several = (folder / TRIES).is_file() or (folder / CURVE).is_file()
    return has_several and not (folder / "run.json").is_file()
