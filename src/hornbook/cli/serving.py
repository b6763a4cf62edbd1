"""The command `serve`."""

import os
from pathlib import Path

from hornbook.cli.app import app
from hornbook.cli.language import Weights
from hornbook.cli.options import MODEL, Device, argument, flag, option
from hornbook.terminal import log


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
    try:
        from hornbook.serve.server import ServeSettings, serve
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("hornbook"):
            raise
        raise ValueError(f'serving needs the package {error.name}: pip install "hornbook[serve]"') from None
    from hornbook.config import checked
    from hornbook.interop.hub import builtin_names

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
