"""Several runs: the trials of several learning rates or seeds (`trials.json`) and scores by number of labels
(`curve.json`), with their plots `trials.png` and `curve.png`, their page and their description."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hornbook.files import read_json
from hornbook.metrics.formatting import number
from hornbook.report import formatting
from hornbook.report.rendering import Table

if TYPE_CHECKING:
    from hornbook.report.plots.drawing import Plot

TRIALS, CURVE = "trials.json", "curve.json"
SWEEP = "sweep.json"  # the record of a sweep, each of whose trials has its own
METHODS = {
    "finetune": "fine-tuning",
    "features": "frozen features",
    "from-scratch": "from scratch",
    "tfidf": "TF-IDF",
    "vectors": "averaged word vectors",
}
TITLES = {"lr_search": "Search over learning rates", "seeds": "Seeds"}


@dataclass(frozen=True)
class ScoredRuns:
    """The contents of trials.json or curve.json; `rows` are the trials or points that have a score."""

    contents: dict
    rows: list[dict]

    @property
    def metric_for_best(self) -> str:
        return str(self.contents.get("metric_for_best") or "score")

    def format_score(self, value: object) -> str:
        return formatting.score(self.metric_for_best, value)

    def format_interval(self, row: dict) -> str:
        return formatting.score_with_interval(self.metric_for_best, row | {"value": row["score"]})


def read_trials(folder: str | Path) -> ScoredRuns | None:
    return _read(Path(folder) / TRIALS, "trials")


def read_curve(folder: str | Path) -> ScoredRuns | None:
    return _read(Path(folder) / CURVE, "points")


def _read(path: Path, name: str) -> ScoredRuns | None:
    if not path.is_file():
        return None
    contents = read_json(path)
    rows = [row for row in contents.get(name) or [] if math.isfinite(number(row.get("score")))]
    if not rows:
        raise ValueError(f"{path} has no {name} with a score: let the runs finish first")
    return ScoredRuns(contents, rows)


def is_several(folder: str | Path) -> bool:
    """Whether a folder contains several runs and is not a fine-tuned model itself."""
    trials, curve, sweep, record = (Path(folder) / name for name in (TRIALS, CURVE, SWEEP, "run.json"))
    if not record.is_file():
        return trials.is_file() or curve.is_file() or sweep.is_file()
    return curve.is_file() and read_json(record).get("command") == "label-curve"


def describe_several(folder: Path) -> dict:
    trials, curve = read_trials(folder), read_curve(folder)
    is_sweep = trials is not None or (folder / SWEEP).is_file()
    lines = []
    if trials is not None:
        for row in trials.rows:
            mark = ", no better than chance" if row["degenerate"] else ""
            lines.append((row["name"], trials.format_interval(row) + mark))
        lines.append(("best", trials.contents["best"]))
    if curve is not None:
        for row in curve.rows:
            name = f"{METHODS.get(row.get('method'), row.get('method'))}, {row['examples']:,} labels"
            lines.append((name, curve.format_interval(row)))
    # The folder of a finished sweep is also the run of its best trial, and described as that.
    is_finished = bool(curve and curve.contents.get("finished"))
    lines.append(("state", "finished" if is_finished else "not finished"))
    scored, result = trials or curve, ""
    if scored is not None:
        best = scored.format_score(max(number(row["score"]) for row in scored.rows))
        result = f"best {scored.metric_for_best} {best}"
    return {
        "kind": "several runs",
        "title": "learning rates or seeds" if is_sweep and curve is None else "label curve",
        "finished": is_finished,
        "result": result,
        "trials": trials and trials.contents,
        "curve": curve and curve.contents,
        "lines": lines,
    }


# ---- page


def several_sections(folder: Path) -> dict[str, dict | None]:
    """What `several_sections.html` shows of `trials.json` and `curve.json`; also writes their plots into the folder."""
    trials, curve = read_trials(folder), read_curve(folder)
    return {
        "trials": trials
        and {
            "title": TITLES.get(str(trials.contents.get("kind")), "Trials"),
            "summary": summary(trials),
            "plot": draw(folder, trials),
            "table": trials_table(trials),
        },
        "curve": curve and {"plot": draw(folder, curve), "table": curve_table(curve)},
    }


def draw(folder: Path, scored: ScoredRuns) -> "Plot":
    """The plot of trials, which is also written to `trials.png`, or of scores by number of labels, to `curve.png`."""
    from hornbook.report.plots.drawing import render_png
    from hornbook.report.plots.scores import curve_figure, trials_figure

    if "trials" in scored.contents:
        return render_png(trials_figure(scored), "Scores of the trials", folder / "trials.png")
    return render_png(curve_figure(scored), "Scores by number of labelled examples", folder / "curve.png")


def summary(trials: ScoredRuns) -> str:
    num_degenerate = sum(bool(row.get("degenerate")) for row in trials.rows)
    parts = [
        f"best {trials.contents['best']}",
        f"median {trials.format_score(trials.contents['median'])}",
        f"spread {trials.format_score(trials.contents['spread'])}",
        f"{num_degenerate or 'none'} of {len(trials.rows)} no better than chance",
    ]
    return f"By {formatting.metric_label(trials.metric_for_best)} on dev: {'; '.join(parts)}."


def trials_table(trials: ScoredRuns) -> Table:
    rows = [
        (
            row["name"] + (" ★" if row["name"] == trials.contents["best"] else ""),
            f"{row['lr']:g}",
            str(row["seed"]),
            trials.format_interval(row),
            formatting.duration(row["seconds"]),
            row["degenerate"] or "",
        )
        for row in trials.rows
    ]
    return Table(("trial", "learning rate", "seed", "score, 95% interval", "time", ""), rows)


def curve_table(curve: ScoredRuns) -> Table:
    scores = {(str(row.get("method")), int(row["examples"])): curve.format_interval(row) for row in curve.rows}
    sizes = sorted({size for _, size in scores})
    methods = dict.fromkeys(method for method, _ in scores)
    rows = [(METHODS.get(method, method), *(scores.get((method, size), "") for size in sizes)) for method in methods]
    return Table(("method", *(f"{size:,}" for size in sizes)), rows)
