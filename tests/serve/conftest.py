"""Tiny models of every kind that is served, and a browser."""

import pytest
from fastapi.testclient import TestClient
from finetuned import (
    asked_questions,
    completed,
    encoder,
    finetuned,
    labelled_texts,
    numbered_pairs,
    tagged_words,
)
from served_api import SETTINGS
from served_page import CHROMIUM
from small_gpts import saved_gpt
from tiny_runs import run
from tool_questions import questions, write_graph

from hornbook.runs.finetuning.finetune import finetune
from hornbook.serve.models import open_models
from hornbook.serve.server import build_app

NAMES = ("first", "texts", "tags", "answers", "choices", "numbers", "alike", "gpt")
PAIRS = [
    (f"the river {word}", f"a river {word}") for word in ["teacher", "lantern", "bridge", "garden", "bread", "letters"]
] * 3


@pytest.fixture(scope="session")
def folders(tmp_path_factory, tiny_tokenizer, tiny_run):
    root = tmp_path_factory.mktemp("served")
    model = encoder(root / "encoder", tiny_tokenizer)
    finetuned(root / "texts", model, "classification", labelled_texts())
    finetuned(root / "tags", model, "tagging", tagged_words())
    finetuned(root / "answers", model, "spans-or-none", asked_questions())
    finetuned(root / "choices", model, "choice", completed())
    finetuned(root / "numbers", model, "regression", numbered_pairs())
    finetuned(root / "alike", model, "similarity", [{"text": a, "pair": b} for a, b in PAIRS])
    saved_gpt(root / "gpt", end=None, n_positions=2000)
    (root / "first").symlink_to(tiny_run)
    return {name: root / name for name in NAMES}


@pytest.fixture(scope="session")
def electra(tmp_path_factory, tiny_corpus):
    """A generator and a discriminator, trained for two steps."""
    folder = tmp_path_factory.mktemp("served") / "electra"
    run(folder, tiny_corpus, steps=2, family="electra")
    return folder


@pytest.fixture(scope="session")
def kagnet(tmp_path_factory, tiny_run):
    """A model that reads a knowledge graph, trained for one epoch."""
    root = tmp_path_factory.mktemp("served")
    rows = questions("en")
    options = {"reason": "kagnet", "graph": write_graph(root / "graph", "en"), "epochs": 1, "batch_size": 8}
    fast = {"runtime.threads": 1, "layers.frozen": -1, "reason.width": 32}
    data = {"train": rows, "dev": rows[:8]}
    finetune(tiny_run, data, "choice", root / "kagnet", overrides=fast, log=lambda words: None, **options)
    return root / "kagnet"


@pytest.fixture(scope="module")  # longer, its event loop would be in the way of other modules
def browser():
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def client(folders):
    with TestClient(build_app(open_models([str(folder) for folder in folders.values()]), SETTINGS)) as client:
        yield client
