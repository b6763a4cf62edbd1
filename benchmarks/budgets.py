"""Compares the published and the budget recipe of `hornbook pretrain` at equal minutes: loss on held-out text, and the
mean of five tasks of GLUE after fine-tuning.

    python benchmarks/budgets.py pretrain bert-small --corpus CORPUS --minutes 1 --minutes 5 --out cells
    python benchmarks/budgets.py pretrain bert-small gpt2-small --corpus CORPUS --minutes 15 --out cells --side-by-side
    python benchmarks/budgets.py score --data GLUE --out cells [--seeds 3] [--processes 5]
    python benchmarks/budgets.py report --out cells
    python benchmarks/budgets.py draw --table docs/budgets.md --picture docs/budgets.png

Every cell is a run folder in `cells`, named after the preset, the minutes and the recipe. A cell that is done is not
trained again, and one that was stopped is resumed. With `--side-by-side`, the steps of each cell are planned while the
others wait, then all run at once: each has the steps of its minutes alone, and narrow models share a GPU well under
CUDA MPS. Cells of several occasions and machines are drawn from the table that collects the rows of their reports. The
loss is that of the last validation, on masked tokens or next tokens, at the lengths of the recipe. Fine-tuning uses the
default settings.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from itertools import product
from pathlib import Path
from threading import Thread
from typing import NamedTuple

from electra_scores import FIVE, mean_and_reach, run_job
from jobs import run_jobs

import hornbook
from hornbook.files import num_cores, read_json, write_json
from hornbook.lifecycle.run_folder import read_metrics

RECIPES = ("published", "budget")
COLUMNS = 3  # of the picture
LOSSES = ("mlm", "clm")  # the first that a validation has
PLANNED = re.compile("a step takes [0-9]|^resum")  # in the log of a run whose steps are known


class Cell(NamedTuple):
    preset: str
    minutes: float
    recipe: str

    @property
    def name(self) -> str:
        return f"{self.preset}_{self.minutes:g}_{self.recipe}"

    @classmethod
    def of(cls, name: str) -> "Cell":
        preset, minutes, recipe = name.rsplit("_", 2)
        return cls(preset, float(minutes), recipe)


def pretrain(args: argparse.Namespace) -> None:
    args.out.mkdir(parents=True, exist_ok=True)
    cells = [Cell(*each) for each in product(args.presets, args.minutes, args.recipes)]
    cells = [cell for cell in cells if not (args.out / f"{cell.name}.json").exists()]
    if args.side_by_side:
        return pretrain_side_by_side(cells, args)
    overrides = dict(change.split("=", 1) for change in args.set)
    for cell in cells:
        run = args.out / cell.name
        try:
            outcome = hornbook.pretrain(
                *(cell.preset, args.corpus, run),
                minutes=cell.minutes,
                recipe=cell.recipe,
                overrides={"checkpoint.keep_optimizer": False, "runtime.tensorboard": False, **overrides},
                resume=True,
            )
        except hornbook.Stopped as stopped:
            return print(f"{cell.name} is stopped after {stopped.outcome.step} steps; the same command resumes it")
        validation = [line for line in read_metrics(run) if line["kind"] == "validation"][-1]
        about = read_json(run / "run.json")
        found = {
            "loss": next(validation[name] for name in LOSSES if name in validation),
            "steps": outcome.step,
            "tokens": outcome.tokens,
            "seconds": outcome.seconds,
            "device": about["runtime"]["reason"],
        }
        for unneeded in ("checkpoints", "best"):
            shutil.rmtree(run / unneeded, ignore_errors=True)
        write_json(args.out / f"{cell.name}.json", found)
        print(cell.name, found, flush=True)


def pretrain_side_by_side(cells: list[Cell], args: argparse.Namespace) -> None:
    """Each cell in a process of its own, which waits from when its steps are planned until those of all are."""
    processes: list[subprocess.Popen] = []
    try:
        for cell in cells:
            options = ["--corpus", args.corpus, "--minutes", f"{cell.minutes:g}", "--recipes", cell.recipe]
            options += ["--out", str(args.out), *(word for change in args.set for word in ("--set", change))]
            processes.append(
                subprocess.Popen(
                    [sys.executable, __file__, "pretrain", cell.preset, *options],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            )
            for line in processes[-1].stdout:
                print(f"{cell.name}: {line}", end="", flush=True)
                if PLANNED.search(line):
                    os.killpg(processes[-1].pid, signal.SIGSTOP)
                    break
        printers = [Thread(target=print_lines, args=each) for each in zip(cells, processes, strict=True)]
        for process, printer in zip(processes, printers, strict=True):
            signal_group(process, signal.SIGCONT)
            printer.start()
        for printer in printers:
            printer.join()
    except KeyboardInterrupt:
        for process in processes:
            signal_group(process, signal.SIGCONT)
            signal_group(process, signal.SIGINT)
        for process in processes:
            process.wait()


def signal_group(process: subprocess.Popen, number: signal.Signals) -> None:
    """Signals the process and those it started, if it still runs."""
    if process.poll() is None:
        os.killpg(process.pid, number)


def print_lines(cell: Cell, process: subprocess.Popen) -> None:
    for line in process.stdout:
        print(f"{cell.name}: {line}", end="", flush=True)


def score(args: argparse.Namespace) -> None:
    threads = max(1, num_cores() // args.processes)
    jobs = [
        (str(args.out / name), str(args.data), task, seed, threads, str(args.out / f"{name}.scores"), {})
        for seed in range(args.seeds)
        for task in FIVE  # slowest first
        for name in trained(args.out)
        if not (args.out / f"{name}.scores" / f"{task}-{seed}.json").exists()
    ]
    for name in trained(args.out):
        (args.out / f"{name}.scores").mkdir(exist_ok=True)
    for _, found, error in run_jobs(run_job, jobs, args.processes):
        print(error or found, flush=True)


def trained(out: Path) -> list[str]:
    return sorted(file.stem for file in out.glob("*_*_*.json"))


def report(args: argparse.Namespace) -> None:
    """Prints a table with a row for each cell."""
    cells = {Cell.of(name): read_json(args.out / f"{name}.json") for name in trained(args.out)}
    print("| model | minutes | recipe | steps | tokens | loss | five tasks |\n|---|---|---|---|---|---|---|")
    for cell, found in sorted(cells.items(), key=lambda item: (item[0][:2], RECIPES.index(item[0].recipe))):
        mean = mean_of(args.out / f"{cell.name}.scores")
        five = "" if mean is None else "{:.1f} ± {:.1f}".format(*mean)
        numbers = f"{found['steps']:,} | {found['tokens'] / 1e6:,.1f} million | {found['loss']:.2f}"
        print(f"| {cell.preset} | {cell.minutes:g} | {cell.recipe} | {numbers} | {five} |")


def mean_of(folder: Path) -> tuple[float, float] | None:
    """The mean over tasks and half of its interval; none if a task has no score."""
    scores = {task: [read_json(file)["score"] for file in folder.glob(f"{task}-*.json")] for task in FIVE}
    return mean_and_reach(scores) if all(scores.values()) else None


def means_in(table: str) -> dict[Cell, tuple[float, float]]:
    """The means of the five tasks in the rows that `report` prints, with half of their intervals."""
    means = {}
    for row in table.splitlines():
        columns = [column.strip(" *") for column in row.strip("|").split("|")]
        if len(columns) == 7 and columns[2] in RECIPES and "±" in columns[6]:
            mean, reach = columns[6].replace("*", "").split(" ± ")
            means[Cell(columns[0], float(columns[1].split(",")[0]), columns[2])] = float(mean), float(reach)
    return means


def draw(args: argparse.Namespace) -> None:
    means = means_in(args.table.read_text(encoding="utf-8"))
    from matplotlib.figure import Figure

    presets = sorted({cell.preset for cell in means})
    num_rows = -(-len(presets) // COLUMNS)
    figure = Figure(figsize=(2.9 * COLUMNS, 0.5 + 2.5 * num_rows), layout="constrained")
    panels = figure.subplots(num_rows, COLUMNS, sharey=True, squeeze=False)
    for axes in panels.flat[len(presets) :]:
        axes.remove()
    for axes, preset in zip(panels.flat, presets, strict=False):
        minutes = sorted({cell.minutes for cell in means if cell.preset == preset})
        for recipe, colour in (("published", "#888888"), ("budget", "#b5412b")):
            shown = [(at, *means[cell]) for at, m in enumerate(minutes) if (cell := Cell(preset, m, recipe)) in means]
            places, values, errors = zip(*shown, strict=True) if shown else ((), (), ())
            axes.errorbar(places, values, errors, color=colour, marker="o", capsize=3, label=recipe)
        axes.set(title=preset, xticks=range(len(minutes)), xticklabels=[f"{each:g}" for each in minutes])
        axes.set(xlabel="minutes", xlim=(-0.5, len(minutes) - 0.5))
    for axes in panels[:, 0]:
        axes.set_ylabel("mean of five GLUE tasks")
    figure.legend(*figure.axes[0].get_legend_handles_labels(), frameon=False, loc="outside upper center", ncols=2)
    figure.savefig(args.picture, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    of_pretrain = commands.add_parser("pretrain")
    of_pretrain.add_argument("presets", nargs="+", metavar="preset")
    of_pretrain.add_argument("--corpus", required=True)
    of_pretrain.add_argument("--minutes", type=float, action="append", required=True)
    of_pretrain.add_argument("--recipes", nargs="+", choices=RECIPES, default=RECIPES)
    of_pretrain.add_argument(
        "--side-by-side", action="store_true", help="plan one after the other, then run all at once"
    )
    of_pretrain.add_argument("--set", action="append", default=[], help="another setting of both recipes, key=value")
    of_pretrain.set_defaults(run=pretrain)
    of_score = commands.add_parser("score")
    of_score.add_argument("--data", type=Path, required=True, help="the folder with CoLA, SST-2, MRPC, STS-B and RTE")
    of_score.add_argument("--seeds", type=int, default=3)
    of_score.add_argument("--processes", type=int, default=1)
    of_score.set_defaults(run=score)
    of_report = commands.add_parser("report")
    of_report.set_defaults(run=report)
    for each in (of_pretrain, of_score, of_report):
        each.add_argument("--out", type=Path, required=True)
    of_draw = commands.add_parser("draw")
    of_draw.add_argument("--table", type=Path, required=True, help="a Markdown file with the rows of reports")
    of_draw.add_argument("--picture", type=Path, required=True)
    of_draw.set_defaults(run=draw)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
