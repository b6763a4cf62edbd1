"""Commands for deployment: `export`, `compare`, `push`."""

from pathlib import Path

from hornbook.cli.app import app, print_json, refuse_existing
from hornbook.cli.options import Device, Model, Overwrite, Reading, argument, flag, option, reads_data
from hornbook.cli.overwriting import overwriting
from hornbook.cli.tasks import Data
from hornbook.terminal import counting_display, log, print_result, table

Threads = option(int, "CPU threads for the latency measurement.")
Length = option(int, "Length in tokens of the timed input.")
Rounds = option(int, "Timed repetitions per model, interleaved.")


@app.command("export", epilog="Example: hornbook export runs/small-reviews --format onnx-int8 --out phone")
def export_command(
    model: Model,
    format: option(str, "onnx (float32, same outputs) or onnx-int8 (a quarter of the size)."),
    out: option(Path | None, "Folder to write; defaults to MODEL-onnx or MODEL-onnx-int8.") = None,
    data: Data = None,
    texts: option(Path | None, "File of texts to compare both models on, as for predict --file.") = None,
    length: Length = 128,
    rounds: Rounds = 100,
    threads: Threads = 1,
    overwrite: Overwrite = False,
) -> None:
    """Export a model to ONNX, and measure its size, memory, latency and agreement with the original."""
    out = out or _default_out(model, format)
    from hornbook.deployment.export import export
    from hornbook.report.measured import measurement_rows

    with overwriting(out, frozenset({"exported model"}), overwrite), counting_display("opening the model") as show:
        refuse_existing(out, "model.onnx", "an exported model")
        refuse_existing(out, "model.safetensors", "a model")
        for name in ("README.md", "config.json"):
            refuse_existing(out, name, f"a {name}")
        record = export(
            model, format, out, data=data, texts=texts, length=length, rounds=rounds, threads=threads, on_progress=show
        )
    table(measurement_rows(record))
    print_result(f"{out}: model.onnx, and README.md with a program that runs the model")
    print_json({"out": str(out), **record})


@app.command(
    "compare", epilog="Example: hornbook compare runs/reviews runs/small-reviews phone --data more-reviews.csv --out c"
)
@reads_data("strict")
def compare_command(
    models: argument(list[str], "Runs, models and exported folders; all are compared with the first."),
    data: Data = None,
    split: option(str | None, "Score this split, such as test.") = None,
    out: option(Path | None, "Folder for the numbers, plot and report; defaults to comparison.") = None,
    length: Length = 128,
    rounds: Rounds = 100,
    threads: Threads = 1,
    batch_size: option(int, "Batch size for the throughput measurement.") = 32,
    batch_threads: option(int | None, "CPU threads for the throughput; defaults to all.") = None,
    reading: Reading = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
) -> None:
    """Compare models: size, FLOPs, latency, throughput, scores, and scores relative to the first."""
    from hornbook.deployment.comparison import compare, folder_for
    from hornbook.report.measured import comparison_table, how_measured, write_comparison_page

    out = folder_for(models) if out is None else out
    with overwriting(out, frozenset({"comparison"}), overwrite), counting_display("opening the models") as show:
        comparison = compare(
            models,
            data=data,
            split=split,
            **reading,
            out=out,
            length=length,
            rounds=rounds,
            threads=threads,
            batch_size=batch_size,
            batch_threads=batch_threads,
            device=device,
            on_progress=show,
        )
    headings, rows = comparison_table(comparison)
    table(rows, headings)
    for line in how_measured(comparison):
        print_result(line)
    for note in comparison["notes"]:
        log(f"note: {note}")
    log(f"{write_comparison_page(out)} and {out / 'comparison.png'}")
    print_json(comparison)


def _default_out(model: str, format: str) -> Path:
    """Returns MODEL-FORMAT next to the model's folder, or in the current directory for a Hugging Face name."""
    folder = Path(model)
    return folder.with_name(f"{folder.resolve().name}-{format}") if folder.is_dir() else Path(f"{folder.name}-{format}")


@app.command("push", epilog="Example: hornbook push runs/reviews me/reviews --private")
def push_command(
    run: argument(Path, "Finished run, model folder or exported folder."),
    name: argument(str, "owner/name on the Hugging Face Hub, or name for a repository of yours."),
    private: flag("--private", "Create a private repository.") = False,
    dry_run: flag("--dry-run", "Only list the files.") = False,
) -> None:
    """Upload a model with its model card to the Hugging Face Hub."""
    from hornbook.deployment.push import push

    upload = push(run, name, private=private, dry_run=dry_run, log=log)
    if dry_run:
        for path, size in upload.files.items():
            print_result(f"{path}  {size / 1e6:,.2f} MB")
        log(f"nothing is uploaded; without --dry-run, these files go to {name}")
    else:
        print_result(f"{upload.url}: {len(upload.files)} files")
    print_json({"name": upload.name, "url": upload.url, "files": upload.files})
