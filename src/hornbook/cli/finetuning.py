"""Commands for fine-tuning on labelled data: `check`, `finetune`."""

import shlex
from pathlib import Path
from typing import Any

from hornbook.cli.app import (
    app,
    given_options,
    print_json,
    refuse_missing,
    refuse_unused_options,
    show_recorded_settings,
    show_settings,
    training,
)
from hornbook.cli.options import (
    MODEL,
    Device,
    OptionalSeed,
    Overrides,
    Overwrite,
    Reading,
    Resume,
    Show,
    argument,
    as_options,
    flag,
    option,
    parse_overrides,
    with_reading_options,
)
from hornbook.cli.overwriting import refuse_both
from hornbook.lifecycle.requests import as_overrides
from hornbook.terminal import log, print_result, table
from hornbook.train.parallel.torchrun import as_restarted, refuse_command

TaskName = option(str, "Data set (mrpc, squad2, conll2003 ...) or task kind.", "--task")
TaskToLearn = option(str | None, "Data set (mrpc, squad2 ...) or task kind; defaults to classification.", "--task")
Data = option(str | None, "The folder of a known data set, or your own .csv, .tsv, .jsonl, .parquet, .xlsx.")
MAX_ROWS = 50  # classes that are printed


@app.command("check", epilog="Example: hornbook check reviews.csv --task classification --model runs/first")
@with_reading_options()
def check_command(
    data: argument(str, "The folder of a known data set, or your own table."),
    task: TaskName = "classification",
    model: option(str | None, "The model to fine-tune: adds lengths in tokens and the expected training time.") = None,
    reading: Reading = None,
    device: Device = "auto",
) -> None:
    """Summarize labelled data without training: columns, classes, lengths, duplicates, overlap of the splits."""
    from hornbook.runs.finetuning.checking import check

    print_summary(check(data, task, model, **reading, device=device))


@app.command("finetune", epilog="Example: hornbook finetune --data reviews.csv --out runs/reviews")
@with_reading_options()
def finetune_command(
    model: argument(str | None, f"{MODEL} By default the built-in model for the language of the texts.") = None,
    task: TaskToLearn = None,
    data: Data = None,
    out: option(Path | None, "Run folder to write.") = None,
    epochs: option(float | None, "Passes over the training split.") = None,
    lr: option(float | None, "Peak learning rate.") = None,
    batch_size: option(int | None, "Examples per batch.") = None,
    seed: OptionalSeed = None,
    head: option(str | None, "Task head: linear (published), mlp, cnn, bilstm or attention.") = None,
    pair_encoding: option(
        str | None, "Encode a pair jointly (joint), separately (separate), or in both orders (both)."
    ) = None,
    reason: option(str | None, "kagnet: multiple choice also reads the paths of --graph to each answer.") = None,
    graph: option(Path | None, "Graph folder: for --reason, or the one whose entities an ERNIE reads.") = None,
    vectors: option(Path | None, "Folder that 'hornbook graph embed' wrote, for --reason.") = None,
    seeds: option(int, "Number of runs with different seeds; the best is kept.") = 1,
    lr_search: flag(
        "--lr-search", "Try the four published learning rates (higher for narrow models) and keep the best."
    ) = False,
    reading: Reading = None,
    override: Overrides = None,
    resume: Resume = False,
    show: Show = False,
    dry_run: flag("--dry-run", "Summarize the data and the expected training time, and exit.") = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Fine-tune a pre-trained model on a task. Ctrl-C saves a checkpoint; --resume resumes."""
    refuse_both(overwrite, resume)
    resume, overwrite = as_restarted(resume, overwrite)
    overrides = parse_overrides(override, device)
    overrides |= as_overrides(head=head, pair_encoding=pair_encoding)
    if any(value is not None for value in (reason, graph, vectors)):
        from hornbook.runs.finetuning.finetune import graph_overrides

        overrides |= graph_overrides(reason, graph, vectors)
    settings = {"epochs": epochs, "lr": lr, "batch_size": batch_size, "seed": seed}
    options = {**reading, **settings, "overrides": overrides}
    if data is None and model is not None and Path(model).is_file():
        raise ValueError(f"{model} is a file, not a model: give it as --data {model}")
    if show and show_recorded_settings(out, resume):
        return
    if task == "text" or (task is None and resume and _is_text_run(out)):
        refuse_command("finetune --task text")
        unused = given_options(*reading, "seeds", "lr_search", "reason", "head", "pair_encoding")
        refuse_unused_options("with --task text", unused)
        if model is None and not resume:
            raise ValueError("--task text needs a GPT, and the built-in models are encoders: name a GPT first")
        finetune_as_text(model, data, out, overrides | as_overrides(**settings), resume, overwrite, show)
        return
    if show:
        _show(model, data, task, options)
    elif dry_run:
        _dry_run(model, data, task, options, num_seeds=seeds, lr_search=lr_search)
    else:
        options |= {"seeds": seeds, "lr_search": lr_search, "resume": resume}
        _train(model, data, task, out, options, overwrite)


def _show(model: str | None, data: str | None, task: str | None, options: dict[str, Any]) -> None:
    from hornbook.runs.finetuning.finetune import resolve_settings
    from hornbook.runs.finetuning.record import FinetuneRequest

    request = FinetuneRequest.of(model, data, task or "classification", **options)
    show_settings(resolve_settings(request, data, log=log))


def _dry_run(
    model: str | None, data: str | None, task: str | None, options: dict[str, Any], num_seeds: int, lr_search: bool
) -> None:
    from hornbook.runs.finetuning.checking import AUTO, check
    from hornbook.runs.finetuning.published import SEARCHED_LRS

    if data is None:
        raise ValueError("finetune --dry-run needs --data; see 'hornbook finetune --help'")
    num_runs = (len(SEARCHED_LRS) if lr_search else 1) + num_seeds - 1
    print_summary(check(data, task or "classification", model or AUTO, **options, num_runs=num_runs))


def _train(
    model: str | None, data: str | None, task: str | None, out: Path | None, options: dict[str, Any], overwrite: bool
) -> None:
    resume = options["resume"]
    if resume and data is None:
        from hornbook.runs.finetuning.finetune import recorded_request

        data = recorded_request(out).get("data")
    if data is None or out is None:
        refuse_missing("--data" if data is None else "--out", "finetune", out, resume)
    from hornbook.runs.finetuning.finetune import finetune

    with training(out, overwrite, resume) as display:
        result = finetune(model, data, task, out, **options, on_progress=display, log=log)
    report_result(result)


def _is_text_run(out: Path | None) -> bool:
    """Whether a folder holds a run of --task text, which may be resumed without giving the task again."""
    from hornbook.lifecycle.run_folder import recorded

    return recorded(out).get("command") == "finetune-text"


def finetune_as_text(
    model: str, data: str | None, out: Path | None, overrides: dict, resume: bool, overwrite: bool, show: bool
) -> None:
    """`finetune --task text`: fine-tunes a GPT on all tasks that the .toml file `data` names."""
    from hornbook.runs.finetuning.finetune_text import finetune_text, resolve_settings

    if show:
        show_settings(resolve_settings(model, data, overrides, log))
        return
    if out is None or (data is None and not resume):
        raise ValueError(f"finetune --task text needs --{'out' if out is None else 'data'}; --data is a .toml file")
    with training(out, overwrite, resume) as display:
        outcome = finetune_text(model, data, out, overrides=overrides, resume=resume, on_progress=display, log=log)
    print_result(f"{out}: {outcome.ended}")
    log(f"  hornbook prompt {shlex.quote(str(out))} --task NAME --data PATH --shots 0 --out SCORES")
    print_json({"out": str(out), **vars(outcome)})


def print_summary(summary: dict[str, Any]) -> None:
    """Prints a summary of data, for `check` and `finetune --dry-run`."""
    from hornbook.data.problems import problem_lines
    from hornbook.metrics.formatting import cut
    from hornbook.tasks.summary import summary_lines

    if summary["columns"]:
        rows = [(cut(name, 60), role or "not used") for name, role in summary["columns"].items()]
        table(rows, ("column", "role"))
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
    notes = [line for line in summary_lines(summary) if line.startswith("note")]
    for line in [*summary["inferred"], *problem_lines(summary["problems"]), *summary["hints"], *notes]:
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


def report_result(result, advice: str = "--seeds 5, another --lr or more --epochs") -> None:
    from hornbook.interop.sentence_transformers import MODULES
    from hornbook.lifecycle.run_folder import recorded
    from hornbook.report.formatting import counted, duration
    from hornbook.report.run_files import read_stages
    from hornbook.report.trials import TRIALS, read_trials, summary, trials_table

    if (result.out / TRIALS).exists():
        trials = read_trials(result.out)
        headings, rows = trials_table(trials)
        table(rows, headings)
        print_result(summary(trials))
    outcome, earlier = result.outcome, [stage.run for stage in read_stages(result.out)]
    steps = outcome.step + sum(run.step for run in earlier)
    seconds = outcome.seconds + sum(run.seconds for run in earlier)
    stages = f" in {len(earlier) + 1} stages" if earlier else ""
    print_result(f"{result.out}: {outcome.ended}, {counted(steps, 'step')}{stages}, {duration(seconds)}")
    print_scores(result.scores)
    if result.degenerate:
        if (epochs := recorded(result.out).get("settings", {}).get("epochs", 1)) < 1:
            advice = f"more --epochs first, as this run had {epochs:g}"
        log(f"note: {result.degenerate}; try {advice}")
    embeds = (result.out / MODULES).is_file()
    folder = shlex.quote(str(result.out))
    use = f"embed FILE --model {folder} --out INDEX" if embeds else f'predict {folder} "..."'
    log(f"  hornbook {use}      hornbook report {folder}")
    print_json({"out": str(result.out), "scores": result.scores, "degenerate": result.degenerate})


def print_scores(splits: dict) -> None:
    from hornbook.report import formatting

    rows = [
        (split, metric, *(formatting.score(metric, score[name]) for name in ("value", "low", "high")))
        for split, scores in splits.items()
        for metric, score in scores.items()
    ]
    rows = [(*row, f"{low} to {high}") for *row, low, high in rows]
    table(rows, ("split", "metric", "score", "95% interval"))
    if any("accuracy" in scores for scores in splits.values()):
        log("intervals over the examples: of accuracy by Wilson's formula, of other scores by bootstrap")
