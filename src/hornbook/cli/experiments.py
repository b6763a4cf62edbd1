"""The command `reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import Device, Json, Overwrite, app, check_writable, parse_overrides, print_json
from hornbook.cli.overwriting import overwriting
from hornbook.terminal import TrainingDisplay, log, print_result, table

EXAMPLE = "Example: hornbook reproduce equal-compute --corpus wiki --data tasks --out runs/equal --minutes-each 10"


@app.command("reproduce", epilog=EXAMPLE)
def reproduce_command(
    experiment: Annotated[str, typer.Argument(help="A shipped experiment: equal-compute, babylm; or a .toml file.")],
    corpus: Annotated[list[str], typer.Option(help="Corpus folder; FOLDER:WEIGHT to mix several.")],
    data: Annotated[Path, typer.Option(help="Folder that holds the task folders, such as glue for glue/CoLA.")],
    out: Annotated[Path, typer.Option(help="Folder to write the experiment to.")],
    arms: Annotated[
        str | None, typer.Option(help="Run only these arms, and judge the claims about them: bert-mlm,electra.")
    ] = None,
    flops: Annotated[float | None, typer.Option(help="Training FLOPs per arm, overriding the file's: 4.8e16.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of pre-training seeds per arm: the file's first, then further ones.")
    ] = None,
    override: Annotated[
        list[str] | None, typer.Option("--set", help="Override a pre-training setting of every arm: key=value.")
    ] = None,
    minutes_each: Annotated[
        float | None, typer.Option(help="Minutes per arm; the FLOPs that fit are measured once.")
    ] = None,
    stop_after: Annotated[
        float | None, typer.Option(help="Stop and save after this many minutes; --resume resumes.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Fine-tuning runs in parallel, sharing the device.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Resume the experiment in --out, or start it.")] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Share the runs with other processes that have the same --out and --join.")
    ] = False,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Run an experiment: pre-train arms at equal FLOPs, fine-tune, compare, and report verdicts. Ctrl-C saves."""
    check_writable(out)
    from hornbook.evaluation.experiments.runner import reproduce

    with overwriting(out, frozenset({"experiment"}), overwrite, resume or join), TrainingDisplay() as display:
        found = reproduce(
            experiment,
            corpus,
            data,
            out,
            arms=None if arms is None else [each.strip() for each in arms.split(",") if each.strip()],
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
    claims = found.results["claims"]
    if claims:
        table([(claim["verdict"], claim["words"]) for claim in claims], ("verdict", "claim"))
    print_result(f"{found.num_done} of {found.num_jobs} runs done; {out / 'report.html'}")
    if found.ended == "stopped":
        log("stopped and saved; run the same command with --resume to resume")
    elif found.failures:
        log(f"{len(found.failures)} runs failed; run the same command with --resume to retry them")
    verdicts = {claim["name"]: claim["verdict"] for claim in claims}
    ended = {"ended": found.ended, "done": found.num_done, "jobs": found.num_jobs}
    print_json(as_json, {"out": str(out), **ended, "verdicts": verdicts, "failures": found.failures})
    if found.ended != "finished":
        raise typer.Exit(130 if found.ended == "stopped" else 1)
