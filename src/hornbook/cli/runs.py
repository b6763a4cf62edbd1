"""Commands on the folders of runs: `info`, `report`, `runs list`, `runs clean`."""

from pathlib import Path

import typer
from typer.core import TyperGroup

from hornbook.cli.app import app, print_json
from hornbook.cli.options import argument, flag
from hornbook.cli.overwriting import PLOTS
from hornbook.terminal import log, print_result, table

Folder = argument(Path, "The folder that holds the runs.")


@app.command("info", epilog="Example: hornbook info runs/first")
def info(path: argument(str, "Any folder that hornbook or transformers wrote, or a built-in model (en, ko).")) -> None:
    """Describe a folder: what it is, parameters, tokens, data, loss or scores."""
    from hornbook.report.info import describe

    description = describe(path)
    table(description["lines"])
    print_json(description)


@app.command("report", epilog="Example: hornbook report runs/first")
def report(run: argument(Path, "Run folder, or a folder with several runs to compare.")) -> None:
    """Write report.html and its plots into a run folder, or compare all runs in a folder."""
    from hornbook.report.page import write_report

    page = str(write_report(run))
    plots = [str(run / name) for name in PLOTS if (run / name).exists()]
    print_result("\n".join([page, *plots]))
    print_json({"page": page, "pictures": plots})


class RunsGroup(TyperGroup):
    """`hornbook runs FOLDER` is short for `hornbook runs list FOLDER`."""

    def parse_args(self, ctx, args: list[str]) -> list[str]:
        is_complete = bool(args) and (args[0] in self.commands or args[0] == "--help")
        return super().parse_args(ctx, args if is_complete else ["list", *args])


runs_app = typer.Typer(cls=RunsGroup, help="List the runs in a folder, or remove checkpoints that nothing needs.")
app.add_typer(runs_app, name="runs")


@runs_app.command("list", epilog="Example: hornbook runs list runs")
def list_command(folder: Folder = Path("runs")) -> None:
    """List the runs in a folder: what each is, its state, its score or loss, its size and its age."""
    from hornbook.report.run_list import HEADINGS, disk_usage, find_runs, row, summarize_run

    runs = [summarize_run(run) | disk_usage(run) for run in find_runs(folder)]
    if runs:
        table([row(run, folder) for run in runs], HEADINGS)
    else:
        log(f"there are no runs in {folder}")
    print_json({"runs": runs})


@runs_app.command("clean", epilog="Example: hornbook runs clean runs --dry-run")
def clean_command(
    folder: Folder = Path("runs"),
    dry_run: flag("--dry-run", "Print what would be freed and remove nothing.") = False,
) -> None:
    """Remove the checkpoints of finished runs. Their weights stay; runs that are not finished are not touched."""
    from hornbook.report.formatting import counted, size
    from hornbook.report.run_list import find_runs
    from hornbook.runs.cleaning import remove_checkpoints

    freed = {str(run): remove_checkpoints(run, dry_run) for run in find_runs(folder)}
    freed = {run: num_bytes for run, num_bytes in freed.items() if num_bytes}
    if freed:
        table([(run, size(num_bytes)) for run, num_bytes in freed.items()], ("run", "checkpoints"))
    total = sum(freed.values())
    print_result(f"{size(total)} {'would be freed' if dry_run else 'freed'} in {counted(len(freed), 'run')}")
    print_json({"freed": freed, "bytes": total, "dry_run": dry_run})
