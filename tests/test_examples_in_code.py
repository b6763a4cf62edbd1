"""Examples in docstrings are true."""

import doctest
import importlib
from pathlib import Path

import pytest
import torch

import hornbook
from hornbook.runs.finetuning.finetune import finetune

ROOT = Path(hornbook.__file__).parent
WITH_EXAMPLES = sorted(
    str(file.relative_to(ROOT.parent).with_suffix("")).replace("/", ".").removesuffix(".__init__")
    for file in ROOT.rglob("*.py")
    if ">>> " in file.read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_run, tiny_corpus, tiny_tokenizer, tiny_text_file):
    """Where examples run: the files and runs of the README, tiny."""
    folder = tmp_path_factory.mktemp("examples")
    (folder / "runs").mkdir()
    for name, target in (("runs/first", tiny_run), ("corpus", tiny_corpus), ("vocabulary", tiny_tokenizer)):
        (folder / name).symlink_to(target)
    (folder / "texts.txt").symlink_to(tiny_text_file)
    (folder / "pairs.jsonl").write_text('{"sentence_good": "the river", "sentence_bad": "river the"}\n')
    lines = [f"{word} film {i},{label}" for i in range(12) for word, label in (("charming", "good"), ("slow", "bad"))]
    (folder / "reviews.csv").write_text("\n".join(["review,label", *lines]))
    facts = "plant AtLocation garden|trowel UsedFor garden|trowel IsA tool|plant Needs water|water RelatedTo tool"
    (folder / "facts.tsv").write_text(facts.replace(" ", "\t").replace("|", "\n"))
    (folder / "moon.json").write_text('{"moon": {"label": "moon"}}')
    (folder / "notes.txt").write_text("Two trowels lay in the garden.\nNothing else.\n")
    hornbook.build_graph([folder / "facts.tsv", folder / "moon.json"], folder / "graph")
    hornbook.embed_graph(folder / "graph", folder / "trained-vectors", epochs=1, width=4, held_out=0, device="cpu")
    (folder / "beir" / "qrels").mkdir(parents=True)
    for name, text in (("corpus", "a river"), ("queries", "the river")):
        (folder / "beir" / f"{name}.jsonl").write_text(f'{{"_id": "1", "text": "{text}"}}\n')
    (folder / "beir" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\t1\t1\n")
    settings = {"epochs": 1, "overrides": {"runtime.threads": 1}, "log": lambda words: None}
    finetune(tiny_run, folder / "reviews.csv", out=folder / "runs" / "reviews", **settings)
    rows = [
        {"context": f"To plant {i}?", "choices": ["trowel", "moon"][:: 1 - 2 * (i % 2)], "label": i % 2}
        for i in range(8)
    ]
    reason = {"task": "choice", "reason": "kagnet", "graph": folder / "graph"}
    finetune(tiny_run, rows, out=folder / "runs" / "tools", **reason, **settings)
    return folder


def test_there_are_some():
    assert "hornbook.evaluation.experiments.scores" in WITH_EXAMPLES and len(WITH_EXAMPLES) > 20


WITHOUT_VALUES = ("hornbook.models.gpt", "hornbook.models.roberta", "hornbook.models.distilbert")  # of large models


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_examples_are_true(name, folder, monkeypatch):
    monkeypatch.chdir(folder)
    with torch.device("meta" if name in WITHOUT_VALUES else "cpu"):
        found = doctest.testmod(importlib.import_module(name), report=False)
    assert found.failed == 0
