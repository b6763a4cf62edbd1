"""The command `check`: a summary of labelled data before training."""

from typing import Any

from hornbook.cli.app import app, print_json
from hornbook.cli.option_names import as_options
from hornbook.cli.options import Device, Reading, argument, option, parse_overrides, reads_data
from hornbook.cli.tasks import MAX_ROWS, TaskName
from hornbook.terminal import log, print_result, table


@app.command("check", epilog="Example: hornbook check reviews.csv --task classification --model runs/first")
@reads_data()
def check_command(
    data: argument(str, "The folder of a known data set, or your own table."),
    task: TaskName = "classification",
    model: option(str | None, "The model to fine-tune: adds lengths in tokens and the expected training time.") = None,
    reading: Reading = None,
    device: Device = "auto",
) -> None:
    """Summarize labelled data without training: columns, classes, lengths, duplicates, overlap of the splits."""
    from hornbook.runs.finetuning.checking import check

    print_summary(check(data, task, model, **reading, overrides=parse_overrides(None, device)))


def print_dry_run(
    model: str | None, data: str | None, task: str | None, seeds: int, lr_search: bool, **options: Any
) -> None:
    """Prints the summary of `finetune --dry-run`."""
    from hornbook.runs.finetuning.checking import AUTO, check
    from hornbook.runs.finetuning.settings import SEARCHED_LRS

    if data is None:
        raise ValueError("finetune --dry-run needs --data; see 'hornbook finetune --help'")
    num_runs = (len(SEARCHED_LRS) if lr_search else 1) + seeds - 1
    print_summary(check(data, task or "classification", model or AUTO, **options, num_runs=num_runs))


def print_summary(summary: dict[str, Any]) -> None:
    """Prints a summary of data, for `check` and `finetune --dry-run`."""
    from hornbook.data.problems import problem_lines
    from hornbook.tasks.summary import in_short

    if summary["columns"]:
        table([(name, role or "not used") for name, role in summary["columns"].items()], ("column", "role"))
    names = ("examples", "unlabelled", "duplicates", "also_in_train")
    rows = [
        (split, *(f"{counts[name]:,}" if name in counts else "" for name in names), _range(counts["characters"]))
        for split, counts in summary["splits"].items()
    ]
    table(rows, ("split", "examples", "unlabelled", "duplicates", "also in train", "characters"))
    if classes := summary.get("classes"):
        rows = [(label, *(f"{count:,}" for count in counts.values())) for label, counts in classes.items()]
        table(rows[:MAX_ROWS], ("label", *summary["splits"]))
        if len(classes) > MAX_ROWS:
            log(f"and {len(classes) - MAX_ROWS} more labels (--json has all)")
    if numbers := summary.get("numbers"):
        print_result(f"numbers from {numbers['min']:g} to {numbers['max']:g}, mean {numbers['mean']:.3g}")
    _print_cost(summary)
    notes = [line for line in in_short(summary) if line.startswith("note")]
    for line in [*summary["inferred"], *problem_lines(summary["problems"]), *notes]:
        print_result(as_options(line))
    print_json(summary)


def _range(stats: dict[str, int]) -> str:
    if not stats:
        return ""
    return f"{stats['min']:,} to {stats['max']:,}, median {stats['median']:,}, 95% up to {stats['p95']:,}"


def _print_cost(summary: dict[str, Any]) -> None:
    """Prints the lengths in tokens and the expected training time, if a model is named."""
    from hornbook.report.formatting import amount, counted, duration

    for split, stats in summary.get("tokens", {}).items():
        if split != "max_length":
            cut = f"; {stats['cut']:,} truncated to {summary['tokens']['max_length']}" if stats["cut"] else ""
            print_result(f"tokens per sequence of {split}: {_range(stats)}{cut}")
    if training := summary.get("training"):
        runs = f" for {training['runs']} runs" if training["runs"] > 1 else ""
        print_result(
            f"expected training time: {duration(training['seconds'])}{runs} "
            f"({counted(training['steps'], 'step')} in {training['epochs']:g} epochs, {amount(training['parameters'])} "
            f"parameters; from {training['based_on']})"
        )
