"""Commands for deployment: `export`, `compare`, `push`, `serve`."""

import os
from pathlib import Path

from hornbook.cli.app import app, print_json
from hornbook.cli.finetuning import Data
from hornbook.cli.language import Weights
from hornbook.cli.options import MODEL, Device, Model, Overwrite, Reading, argument, flag, option, with_reading_options
from hornbook.cli.overwriting import overwriting, refuse_existing
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
    from hornbook.deployment.export import export
    from hornbook.report.measured import measurement_rows

    out = out or _default_out(model, format)
    with overwriting(out, {"exported model"}, overwrite), counting_display("opening the model") as show:
        refuse_existing(out, "model.onnx", "an exported model")
        refuse_existing(out, "model.safetensors", "a model")
        for name in ("README.md", "config.json"):
            refuse_existing(out, name, f"a {name}")
        timing = {"length": length, "rounds": rounds, "threads": threads}
        record = export(model, out, format, data=data, texts=texts, **timing, on_progress=show)
    table(measurement_rows(record))
    print_result(f"{out}: model.onnx, and README.md with a program that runs the model")
    print_json({"out": str(out), **record})


@app.command(
    "compare", epilog="Example: hornbook compare runs/reviews runs/small-reviews phone --data more-reviews.csv --out c"
)
@with_reading_options("strict")
def compare_command(
    models: argument(list[str], "Runs, models and exported folders; all are compared with the first."),
    data: Data = None,
    split: option(str | None, "Score this split, such as test.") = None,
    out: option(Path, "Folder for the numbers, plot and report.") = Path("comparison"),
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
    from hornbook.deployment.comparison import compare
    from hornbook.report.measured import comparison_table, how_measured, write_comparison_page

    timing = {"length": length, "rounds": rounds, "threads": threads, "device": device}
    timing |= {"batch_size": batch_size, "batch_threads": batch_threads}
    with overwriting(out, {"comparison"}, overwrite), counting_display("opening the models") as show:
        comparison = compare(models, data=data, split=split, **reading, **timing, out=out, on_progress=show)
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


@app.command("serve", epilog="Example: hornbook serve runs/reviews runs/gpt --port 8080")
def serve_command(
    models: argument(list[str] | None, f"Models: {MODEL[0].lower()}{MODEL[1:]} By default en and ko.") = None,
    host: option(str, "Address to listen on; non-loopback addresses require --api-key.") = "127.0.0.1",
    port: option(int, "Port; 0 chooses a free one.", min=0, max=65535) = 8000,
    api_key: option(str | None, "Key that clients must send; defaults to the variable HORNBOOK_API_KEY.") = None,
    timeout: option(float, "Seconds per request.") = 60.0,
    queue: option(int, "Requests that may wait per model; more are refused.", min=1) = 64,
    batch_tokens: option(int, "Tokens of requests that are computed together.", min=1) = 4096,
    slots: option(int, "Texts that a GPT generates at the same time.", min=1, max=64) = 4,
    runs: option(Path | None, "Show the runs in this folder on the page, as they train.") = None,
    log_texts: flag("--log-texts", "Log the texts of requests.") = False,
    weights: Weights = "float",
    device: Device = "auto",
) -> None:
    """Serve models over HTTP, with a page to use them in the browser and an OpenAI-compatible API."""
    from hornbook.config import checked
    from hornbook.extras import import_extra
    from hornbook.interop.hub import builtin_names

    server = import_extra("hornbook.serve.server", "serve", "serving needs")

    checked(timeout, float, "--timeout", above=0, high=86_400)
    if runs is not None and not runs.is_dir():
        raise ValueError(f"{runs} is not a folder: give the folder that contains your runs")
    key = api_key or os.environ.get("HORNBOOK_API_KEY") or None
    log_text = (lambda text: log(repr(text))) if log_texts else None  # raw line breaks could forge lines of the log
    load = {"timeout": timeout, "max_queue": queue, "batch_tokens": batch_tokens, "slots": slots}
    settings = server.ServeSettings(api_key=key, **load, runs=runs, log_text=log_text)
    server.serve(models or builtin_names(), host, port, settings, device, weights, log)
