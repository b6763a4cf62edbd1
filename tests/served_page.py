"""A server in a thread, and how a person uses its page in a browser."""

import json
import threading
import time
from pathlib import Path

import uvicorn

from hornbook.serve.api import ServeSettings, build_app
from hornbook.serve.models import open_models


def served(names: list[Path | str], settings: ServeSettings):
    """A server in a thread; yields its address."""
    server = uvicorn.Server(
        uvicorn.Config(build_app(open_models([str(name) for name in names]), settings), port=0, log_level="error")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    thread.join()


def run(page, panel, **texts):
    page.click(f"#tab-{panel}")
    for name, text in texts.items():
        page.fill(f"#{name}", text)
    page.click("#run")
    page.wait_for_selector("#result > *")


def tabs(page) -> list[str]:
    return [each.get_attribute("id").removeprefix("tab-") for each in page.query_selector_all("[role=tab]")]


def written_run(folder, source, losses, **terms):
    """A folder with the record of the run `source` and these losses, one per step."""
    folder.mkdir(parents=True)
    for name in ("run.json", "config.json", "tokenizer_config.json"):
        (folder / name).write_bytes((source / name).read_bytes())
    lines = [{"kind": "train", "step": i, "loss": loss, **terms} for i, loss in enumerate(losses, 1)]
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return folder
