"""The verb `reproduce`."""

from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import Json, answer, app, changes_in, check_writable

EXAMPLE = "Example: hornbook reproduce equal-compute --corpus wiki --data tasks --out runs/equal --minutes-each 10"


@app.command("reproduce", epilog=EXAMPLE)
def reproduce_verb(
    experiment: Annotated[str, typer.Argument(help="A shipped one (equal-compute), or a .toml file of your own.")],
    corpus: Annotated[list[str], typer.Option(help="A corpus folder, with :WEIGHT when mixing several.")],
    data: Annotated[Path, typer.Option(help="The folder that holds the tasks, such as glue/CoLA.")],
    out: Annotated[Path, typer.Option(help="The folder of the experiment.")],
    arms: Annotated[
        str | None, typer.Option(help="Only these of its arms, and the claims about them: bert-mlm,electra.")
    ] = None,
    flops: Annotated[float | None, typer.Option(help="Of every arm, in place of those of the file: 4.8e16.")] = None,
    seeds: Annotated[
        int | None, typer.Option(help="Pre-train every arm with so many seeds: the file's, then more.")
    ] = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of every arm's pre-training, as for pretrain.")
    ] = None,
    minutes_each: Annotated[
        float | None, typer.Option(help="Measure, once, the FLOPs that every arm can do in so many minutes.")
    ] = None,
    stop_after: Annotated[
        float | None, typer.Option(help="Stop and save after so many minutes; --resume goes on.")
    ] = None,
    processes: Annotated[int, typer.Option(help="Fine-tunings that run at a time, sharing the device.")] = 1,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the experiment in --out, or begin it.")] = False,
    as_json: Json = False,
) -> None:
    """Run an experiment to a page with verdicts: arms at equal FLOPs, fine-tuned, compared. Stop it at any moment."""
    check_writable(out)
    from hornbook.experiments.runner import reproduce
    from hornbook.terminal import PieceDisplay, say, table

    with PieceDisplay() as display:
        found = reproduce(
            experiment,
            corpus,
            data,
            out,
            arms=None if arms is None else [each.strip() for each in arms.split(",") if each.strip()],
            flops=flops,
            seeds=seeds,
            changes=changes_in(change),
            minutes_each=minutes_each,
            stop_after=stop_after,
            processes=processes,
            resume=resume,
            watch=display,
            say=say,
        )
    claims = found.results["claims"]
    if claims:
        table([(claim["verdict"], claim["words"]) for claim in claims], ("verdict", "claim"))
    say(f"{found.num_done} of {found.num_pieces} pieces; {out / 'report.html'}")
    if found.ended == "stopped":
        say("stopped and saved; the same command with --resume goes on")
    elif found.failures:
        say(f"{len(found.failures)} pieces failed; the same command with --resume tries them again")
    verdicts = {claim["name"]: claim["verdict"] for claim in claims}
    ended = {"ended": found.ended, "done": found.num_done, "pieces": found.num_pieces}
    answer(as_json, {"out": str(out), **ended, "verdicts": verdicts, "failures": found.failures})
    if found.ended != "finished":
        raise typer.Exit(130 if found.ended == "stopped" else 1)
