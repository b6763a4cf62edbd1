"""A server in a thread, and how a person uses its page in a browser.

    PYTHONPATH=tests python -m served_page docs/page.png docs/page.ko.png

takes the pictures of the page in the documents, in English and Korean; a font with Hangul must be installed.
"""

import json
import shutil
import sys
import threading
import time
from pathlib import Path

import uvicorn

from hornbook.serve.api import ServeSettings
from hornbook.serve.models import open_models
from hornbook.serve.server import build_app

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


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


def take_pictures(english: str, korean: str) -> None:
    """Masks filled in by the built-in models, on the page in each language."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for address in served(["en", "ko"], ServeSettings()):
            size = {"viewport": {"width": 1100, "height": 840}, "device_scale_factor": 1.5}
            page = browser.new_page(locale="en-GB", color_scheme="light", **size)
            page.goto(address)
            page.wait_for_selector("#run")
            for file in (english, korean):
                run(page, "fill-mask")
                page.mouse.move(0, 0)
                page.wait_for_timeout(1000)  # the bars grow
                page.screenshot(path=file)
                page.click("#language")
                page.reload()
                page.wait_for_selector("#run")
        browser.close()


if __name__ == "__main__":
    take_pictures(*sys.argv[1:])
