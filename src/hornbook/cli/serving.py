"""The command `serve`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from hornbook.cli.app import MODEL, Device, app
from hornbook.cli.language import Weights
from hornbook.terminal import log


@app.command("serve", epilog="Example: hornbook serve runs/reviews runs/gpt --port 8080")
def serve_command(
    models: Annotated[
        list[str] | None, typer.Argument(help=f"Models: {MODEL[0].lower()}{MODEL[1:]} By default en and ko.")
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; any but loopback needs --api-key.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port; 0 chooses a free one.", min=0, max=65535)] = 8000,
    api_key: Annotated[
        str | None, typer.Option(help="Key that clients must send; defaults to the variable HORNBOOK_API_KEY.")
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds per request.")] = 60.0,
    queue: Annotated[int, typer.Option(help="Requests that may wait per model; more are refused.", min=1)] = 64,
    batch_tokens: Annotated[int, typer.Option(help="Tokens of requests that are computed together.", min=1)] = 4096,
    slots: Annotated[int, typer.Option(help="Texts that a GPT generates at the same time.", min=1, max=64)] = 4,
    runs: Annotated[Path | None, typer.Option(help="Show the runs in this folder on the page, as they train.")] = None,
    log_texts: Annotated[bool, typer.Option("--log-texts", help="Log the texts of requests.")] = False,
    weights: Weights = "float",
    device: Device = "auto",
) -> None:
    """Serve models over HTTP, with a page to use them in the browser and the API of OpenAI."""
    try:
        from hornbook.serve.server import ServeSettings, serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hornbook"):
            raise
        raise ValueError(f'serving needs the package {error.name}: pip install "hornbook[serve]"') from None
    from hornbook.config import checked
    from hornbook.interop.builtin import builtin_names

    checked(timeout, float, "--timeout", above=0, high=86_400)
    if runs is not None and not runs.is_dir():
        raise ValueError(f"{runs} is not a folder: give the folder that contains your runs")
    settings = ServeSettings(
        api_key=api_key or os.environ.get("HORNBOOK_API_KEY") or None,
        timeout=timeout,
        max_queue=queue,
        batch_tokens=batch_tokens,
        slots=slots,
        runs=runs,
        log_text=log if log_texts else None,
    )
    serve(models or builtin_names(), host, port, settings, device, weights, log)
