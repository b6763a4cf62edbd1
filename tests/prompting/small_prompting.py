"""A small GPT with random weights and made-up data of each layout, for tasks as text."""

import json
from functools import cache
from pathlib import Path

import torch
from tiny import tiny_text

from hornbook.interop.folder import save_model
from hornbook.models import registry
from hornbook.models.gpt import Gpt2Config
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer

CONTEXT = 160
QUESTION = """
description = "Say which colour it is."
example = "{text} is"
gold = "label"
metrics = ["accuracy"]
[choices]
labels = {r = "red", g = "dark green"}
"""
WRITING = """
example = "{text} is"
separator = "\\n"
gold = "label"
metrics = ["exact", "f1"]
[generation]
max_new_tokens = 4
"""


@cache
def bytes_tokenizer() -> Tokenizer:
    return train_tokenizer(tiny_text(60).split("\n\n"), kind="bpe", vocab_size=300, cased=True).without_special_tokens()


def saved_small_gpt(folder: Path, context: int = CONTEXT) -> Path:
    """So loud that its guesses differ."""
    tokenizer = bytes_tokenizer()
    size = {"num_layers": 1, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": context, "init_std": 0.3}
    config = Gpt2Config(vocab_size=tokenizer.vocab_size, eos_id=tokenizer.eos_id, **size)
    model = registry.model_class_of(config)(config, ("clm",))
    model.initialize(torch.Generator().manual_seed(1))
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder, model)
    tokenizer.save(folder)
    return folder


def write_colours(folder: Path, num_train: int = 12, num_test: int = 9) -> Path:
    """Tables of things and their colours; no text of the one is in the other."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, num in (("train", num_train), ("test", num_test)):
        rows = [{"text": f"{split} {i}", "label": "rg"[i % 2]} for i in range(num)]
        write_rows(folder / f"{split}.jsonl", rows)
    return folder


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_task(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
