"""The page of a folder with several runs: a list of them, the losses of pre-training runs in one plot, and the settings
in which these differ."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hornbook.report.formatting import counted
from hornbook.report.rendering import Table, write_page
from hornbook.report.run_files import TOKENS, ReportedRun
from hornbook.report.run_list import HEADINGS, disk_usage, row, summarize_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from hornbook.report.plots.drawing import Plot

NOT_COMPARED = {"runtime.device", "runtime.threads", "runtime.loader_workers", "runtime.tensorboard"}
Runs = dict[str, ReportedRun]  # by name: the path below the folder


def write_runs_page(folder: Path, folders: list[Path]) -> Path:
    """Writes the page of the runs in `folders`, which are below `folder`."""
    rows = [row(summarize_run(run) | disk_usage(run), folder) for run in folders]
    compared = _pretraining_runs(folders, folder)
    return write_page(
        folder,
        "runs.html",
        f"{counted(len(folders), 'run')} in {folder.resolve().name}",
        runs=Table(HEADINGS, rows),
        curves=_render(compared, folder / "curves.png") if compared else None,
        num_corpora=len({str(_corpora(run)) for run in compared.values()}),
        settings=_different_settings(compared),
    )


def _pretraining_runs(folders: list[Path], root: Path) -> Runs:
    """The runs that predict tokens and have been validated; what cannot be read is in the list of runs only."""
    runs = {}
    for folder in folders:
        try:
            run = ReportedRun.load(folder)
        except (ValueError, KeyError):
            continue
        if not run.is_of_task and any(term in line for line in run.validations for term in TOKENS):
            runs[folder.relative_to(root).as_posix()] = run
    return runs


def _corpora(run: ReportedRun) -> list:
    return [(corpus.get("fingerprint"), corpus.get("weight")) for corpus in run.inputs.get("corpora") or []]


def _different_settings(runs: Runs) -> Table:
    """A row for each setting that is not the same in all runs."""
    settings = [
        {"preset": run.preset, "recipe": run.recipe, "from": str(run.record.get("from") or "")}
        | {name: value for group in run.setting_groups.values() for name, value in group.items()}
        for run in runs.values()
    ]
    names = dict.fromkeys(name for of_run in settings for name in of_run if name not in NOT_COMPARED)
    rows = [(name, *(of_run.get(name, "") for of_run in settings)) for name in names]
    return Table(("setting", *runs), [each for each in rows if len(set(each[1:])) > 1])


# ---- plot


def _render(runs: Runs, file: Path) -> "Plot":
    from hornbook.report.plots.drawing import render_png

    return render_png(losses_figure(runs), "Validation losses of the runs by tokens and by FLOPs", file)


def losses_figure(runs: Runs) -> "Figure":
    """Validation losses of all runs: for each kind of predicted token, by tokens seen and by model FLOPs."""
    from hornbook.report.plots.drawing import grid_of

    terms = [term for term in TOKENS if any(term in line for run in runs.values() for line in run.validations)]
    return grid_of([partial(_draw_losses, runs, term, by) for term in terms for by in (_tokens, _flops)])


def _draw_losses(runs: Runs, term: str, amount: "Callable[[ReportedRun], float]", axes: "Axes") -> None:
    from matplotlib.ticker import EngFormatter

    from hornbook.report.plots.drawing import PALETTE

    axes.set_title(f"Validation loss on {TOKENS[term]}s ({term})")
    for number, (name, run) in enumerate(runs.items()):
        steps, losses = run.column("validation", "step"), run.column("validation", term)
        if amount(run) and np.isfinite(losses).any():
            style = {"color": PALETTE[number % len(PALETTE)], "linestyle": ("-", "--", ":")[number // len(PALETTE) % 3]}
            axes.plot(steps / max(1, run.step) * amount(run), losses, marker="o", markersize=3, label=name, **style)
    axes.set_xlabel("tokens seen" if amount is _tokens else "model FLOPs")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    if axes.lines:
        axes.legend()


def _tokens(run: ReportedRun) -> float:
    return float(run.tokens)


def _flops(run: ReportedRun) -> float:
    """Model FLOPs so far; 0 if the run has not recorded them."""
    return float(run.record.get("planned_flops") or 0.0) * run.step / max(1, run.num_steps)
