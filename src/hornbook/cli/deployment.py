"""The verbs for machines that use a model: `export`, `compare`."""

from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import Device, Json, Model, Overwrite, answer, app, check_writable, refuse_existing
from hornbook.cli.overwriting import overwriting
from hornbook.cli.tasks import Data, Label, Pair, Text

Threads = Annotated[int, typer.Option(help="Cores that the latency is measured on.")]
Length = Annotated[int, typer.Option(help="Tokens of the input that is timed.")]
Rounds = Annotated[int, typer.Option(help="How often each model is timed, by turns.")]


@app.command("export", epilog="Example: hornbook export runs/small-reviews --to onnx-int8 --out phone")
def export_verb(
    model: Model,
    to: Annotated[str, typer.Option(help="onnx (as exact as the model) or onnx-int8 (a quarter of the size).")],
    out: Annotated[Path | None, typer.Option(help="The folder to write; MODEL-onnx-int8 when not said.")] = None,
    data: Data = None,
    texts: Annotated[Path | None, typer.Option(help="Texts to compare the two models on, as predict takes.")] = None,
    length: Length = 128,
    rounds: Rounds = 100,
    threads: Threads = 1,
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Write a model for a phone or a small box, and say what it takes and how far it answers as before."""
    out = out or _beside(model, to)
    check_writable(out)
    from hornbook.deployment.export import export
    from hornbook.report.exported import measured_words
    from hornbook.terminal import counting_display, print_result, table

    with overwriting(out, frozenset({"exported model"}), overwrite), counting_display("opening the model") as show:
        refuse_existing(out, "model.onnx", "an exported model")
        refuse_existing(out, "model.safetensors", "a model")
        for name in ("README.md", "config.json"):
            refuse_existing(out, name, f"a {name}, which would be overwritten")
        record = export(
            model, to, out, data=data, texts=texts, length=length, rounds=rounds, threads=threads, show=show
        )
    table(measured_words(record))
    print_result(f"{out}: model.onnx, and README.md with a program that runs it")
    answer(as_json, {"out": str(out), **record})


@app.command(
    "compare", epilog="Example: hornbook compare runs/reviews runs/small-reviews phone --data reviews.csv --out c"
)
def compare_verb(
    models: Annotated[
        list[str], typer.Argument(help="Runs, models and exported folders; the others are held against the first.")
    ],
    data: Data = None,
    part: Annotated[str | None, typer.Option(help="Score this part of the data, such as test.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where the numbers, the picture and the page go; comparison when not said.")
    ] = None,
    length: Length = 128,
    rounds: Rounds = 100,
    threads: Threads = 1,
    batch_size: Annotated[int, typer.Option(help="Inputs at once, for the throughput.")] = 32,
    batch_threads: Annotated[int | None, typer.Option(help="Cores for the throughput; all when not said.")] = None,
    text: Text = None,
    pair: Pair = None,
    label: Label = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Set models side by side: size, FLOPs, latency, throughput, scores, and the share of the first that is kept."""
    from hornbook.deployment.comparison import compare, folder_for
    from hornbook.report.comparison import cells, headings, how_measured, write_comparison_page
    from hornbook.terminal import counting_display, print_result, say, table

    out = folder_for(models) if out is None else out
    check_writable(out)
    with overwriting(out, frozenset({"comparison"}), overwrite), counting_display("opening the models") as show:
        found = compare(
            models,
            data=data,
            part=part,
            text=text,
            pair=pair,
            label=label,
            out=out,
            length=length,
            rounds=rounds,
            threads=threads,
            batch_size=batch_size,
            batch_threads=batch_threads,
            device=device,
            show=show,
        )
    table(cells(found), headings(found))
    for line in how_measured(found):
        print_result(line)
    for note in found["notes"]:
        say(f"note: {note}")
    say(f"{write_comparison_page(out)} and {out / 'comparison.png'}")
    answer(as_json, found)


def _beside(model: str, to: str) -> Path:
    """Beside a folder, and here for a model of a hub."""
    folder = Path(model)
    return folder.with_name(f"{folder.resolve().name}-{to}") if folder.is_dir() else Path(f"{folder.name}-{to}")
