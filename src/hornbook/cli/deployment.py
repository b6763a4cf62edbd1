"""The verbs for machines that use a model: `export`, `compare`."""

from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import Json, Model, answer, app, check_writable, refuse_existing
from hornbook.cli.tasks import Data

Threads = Annotated[int, typer.Option(help="Cores that the latency is measured on.")]
Length = Annotated[int, typer.Option(help="Tokens of the input that is timed.")]
Rounds = Annotated[int, typer.Option(help="How often each model is timed, by turns.")]


@app.command("export", epilog="Example: hornbook export runs/small-reviews --to onnx-int8 --out phone")
def export_verb(
    model: Model,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    to: Annotated[str, typer.Option(help="onnx (as exact as the model) or onnx-int8 (a quarter of the size).")],
    data: Data = None,
    texts: Annotated[Path | None, typer.Option(help="Texts to compare the two models on, as predict takes.")] = None,
    length: Length = 128,
    rounds: Rounds = 100,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Write a model for a phone or a small box, and say what it takes and how far it answers as before."""
    check_writable(out)
    refuse_existing(out, "model.onnx", "an exported model")
    refuse_existing(out, "model.safetensors", "a model")
    from hornbook.deployment.export import export, numbers_in_words
    from hornbook.terminal import counting_display, say, table

    with counting_display("opening the model") as show:
        record = export(
            model, to, out, data=data, texts=texts, length=length, rounds=rounds, threads=threads, show=show
        )
    table(numbers_in_words(record))
    say(f"{out}: model.onnx, and README.md with a program that runs it")
    answer(as_json, {"out": str(out), **record})
