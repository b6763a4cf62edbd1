"""The command `reproduce`."""

from pathlib import Path

import typer

from hornbook.cli.app import app, print_json
from hornbook.cli.options import Device, Overwrite, argument, comma_separated, flag, option, parse_overrides
from hornbook.cli.overwriting import overwriting
from hornbook.terminal import TrainingDisplay, log, print_result, table

EXAMPLE = "Example: hornbook reproduce equal-compute --corpus wiki --data tasks --out runs/equal --minutes-each 10"


@app.command("reproduce", epilog=EXAMPLE)
def reproduce_command(
    experiment: argument(str, "A shipped experiment: equal-compute, babylm; or a .toml file."),
    corpus: option(list[str], "Corpus folder; FOLDER:WEIGHT to mix several."),
    data: option(Path, "Folder that holds the task folders, such as glue for glue/CoLA."),
    out: option(Path, "Folder to write the experiment to."),
    arms: option(str | None, "Run only these arms, and judge the claims about them: bert-mlm,electra.") = None,
    flops: option(float | None, "Training FLOPs per arm, overriding the file's: 4.8e16.") = None,
    seeds: option(int | None, "Number of pre-training seeds per arm: the file's first, then further ones.") = None,
    override: option(list[str] | None, "Override a pre-training setting of every arm: key=value.", "--set") = None,
    minutes_each: option(float | None, "Minutes per arm; the FLOPs that fit are measured once.") = None,
    stop_after: option(float | None, "Stop and save after this many minutes; --resume resumes.") = None,
    processes: option(int, "Fine-tuning runs in parallel, sharing the device.") = 1,
    resume: flag("--resume", "Resume the experiment in --out, or start it.") = False,
    join: flag("--join", "Share the runs with other processes that have the same --out and --join.") = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Run an experiment: pre-train arms at equal FLOPs, fine-tune, compare, and report verdicts. Ctrl-C saves."""
    from hornbook.evaluation.experiments.runner import reproduce
    from hornbook.report.experiment import final_scores

    with overwriting(out, frozenset({"experiment"}), overwrite, resume or join), TrainingDisplay() as display:
        outcome = reproduce(
            experiment,
            corpus,
            data,
            out,
            arms=comma_separated(arms),
            flops=flops,
            seeds=seeds,
            overrides=parse_overrides(override),
            minutes_each=minutes_each,
            stop_after=stop_after,
            processes=processes,
            resume=resume,
            join=join,
            device=device,
            on_progress=display,
            log=log,
        )
        display.pending = None  # the score of each job is logged instead of its last step
    claims, results = outcome.results["claims"], outcome.results
    if results["scores"]:
        headings, rows = final_scores(results)
        table(rows, headings)
    for claim in claims:
        print_result(f"{claim['verdict']}: {claim['description']}")
        print_result(f"  {claim['reason']}")
        if claim["would_decide"]:
            print_result(f"  to decide it: {claim['would_decide']}")
    print_result(f"{outcome.num_done} of {outcome.num_jobs} runs done; {out / 'report.html'}")
    if outcome.ended == "stopped":
        log("stopped and saved; rerun with --resume")
    elif outcome.failures:
        log(f"{len(outcome.failures)} runs failed; rerun with --resume to retry them")
    verdicts = {claim["name"]: claim["verdict"] for claim in claims}
    progress = {"ended": outcome.ended, "done": outcome.num_done, "jobs": outcome.num_jobs}
    print_json({"out": str(out), **progress, "verdicts": verdicts, "failures": outcome.failures})
    if outcome.ended != "finished":
        raise typer.Exit(130 if outcome.ended == "stopped" else 1)
