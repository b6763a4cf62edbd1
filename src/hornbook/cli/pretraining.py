"""The verb `pretrain`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import Json, answer, app, changes_in, check_writable, show_settings

PRESET_HELP = (
    "bert-tiny, -mini, -small, -medium, -base or -large; albert-base, -large, -xlarge or -xxlarge; "
    "roberta-base or -large; electra-small, -base or -large; tinybert-4 or -6; distilbert."
)


@app.command(
    "pretrain", epilog="Example: hornbook pretrain bert-base --corpus wiki:3 --corpus law --out runs/law --minutes 60"
)
def pretrain_verb(
    preset: Annotated[str, typer.Argument(help=PRESET_HELP)],
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    corpus: Annotated[list[str] | None, typer.Option(help="A corpus folder, with :WEIGHT when mixing several.")] = None,
    base: Annotated[
        str | None, typer.Option("--from", help="Go on from this model (its size wins over the preset's).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of updates.")] = None,
    tokens: Annotated[int | None, typer.Option(help="Or: number of tokens.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Or: minutes, measured and turned into steps.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens in a batch.")] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random follows from it.")] = None,
    change: Annotated[list[str] | None, typer.Option("--set", help="key=value; --show lists the keys.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in --out, or start it.")] = False,
    show: Annotated[bool, typer.Option("--show", help="List all settings with their values, and stop.")] = False,
    as_json: Json = False,
) -> None:
    """Pre-train a model on corpora. Stop it at any moment; --resume goes on as if nothing had happened."""
    changes = changes_in(change)
    if sum(each is not None for each in (steps, tokens, minutes)) > 1:
        raise ValueError("give only one of --steps, --tokens and --minutes")
    numbers = {"--steps": (steps, 1), "--tokens": (tokens, 1), "--batch-tokens": (batch_tokens, 8), "--seed": (seed, 0)}
    for option, (number, least) in numbers.items():
        if number is not None and number < least:
            raise ValueError(f"{option} must be at least {least}, not {number}")
    if minutes is not None and not 0 < minutes < float("inf"):
        raise ValueError(f"--minutes must be above 0, not {minutes:g}")
    if show:
        flags = {"schedule.steps": steps, "batch.tokens": batch_tokens, "runtime.seed": seed}
        named = {name: value for name, value in flags.items() if value is not None}
        from hornbook.pretraining.settings import preset_settings

        show_settings(preset_settings(preset, changes | named), as_json)
        return
    if out is None or (not corpus and not (resume and (out / "run.json").exists())):
        missing = "--out" if out is None else "--corpus"
        raise ValueError(f"pretrain needs {missing}; see 'hornbook pretrain --help'")
    check_writable(out)
    from hornbook.pretraining.run import pretrain
    from hornbook.terminal import TrainingDisplay, say

    with TrainingDisplay() as display:
        outcome = pretrain(
            preset,
            corpus or [],
            out,
            base=base,
            steps=steps,
            tokens=tokens,
            minutes=minutes,
            batch_tokens=batch_tokens,
            seed=seed,
            changes=changes,
            resume=resume,
            watch=display,
            say=say,
        )
    say_outcome(out, outcome)
    answer(as_json, {"out": str(out), **vars(outcome)})
    if outcome.ended == "stopped":
        sys.stdout.flush()
        raise typer.Exit(130)


def say_outcome(out: Path, outcome, can_fill_masks: bool = True) -> None:
    from hornbook.terminal import duration, say, short

    if outcome.ended == "already finished":
        say(f"{out} is finished: there is nothing to do")
        return
    seen = f"{outcome.step:,} steps, {short(outcome.tokens)} tokens, {duration(outcome.seconds)}"
    if outcome.ended == "stopped":
        say(f"stopped and saved at {seen}; the same command with --resume goes on")
        return
    terms = [name for name in outcome.last if f"validation_{name}" in outcome.last and name != "loss"]
    summed = f" ({' + '.join(terms)})" if len(terms) > 1 else ""
    best = f", best validation loss {outcome.best:.3f}{summed}" if outcome.best is not None else ""
    say(f"{out}: finished, {seen}{best}")
    fill_mask = f'      hornbook fill-mask {out} "...[MASK]..."' if can_fill_masks else ""
    say(f"  hornbook report {out}{fill_mask}")
