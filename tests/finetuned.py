"""Runs of fine-tuning so small that each takes a second: a random encoder, one epoch."""

import random as chance
from pathlib import Path

import torch
from tiny import ENGLISH

from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.runs.finetuning.single_run import open_and_run
from hornbook.text.tokenizer import Tokenizer

LENGTH = 24  # tokens that the model takes


def words(draw: chance.Random, num: int) -> str:
    return " ".join(draw.choice(ENGLISH.split()) for _ in range(num))


def encoder(folder: Path, tokenizer_folder: Path, seed: int = 0) -> Path:
    """A random encoder without a head."""
    tokenizer = Tokenizer.load(tokenizer_folder)
    config = BertConfig(
        vocab_size=tokenizer.vocab_size, num_layers=1, width=32, num_heads=2, inner_width=64, max_positions=LENGTH
    )
    model = Bert(config, ("pooler",))
    model.initialize(torch.Generator().manual_seed(seed))
    tokenizer.save(folder, LENGTH)
    save_model(folder, model)
    return folder


def finetuned(out: Path, model: Path, task: str, data, seed: int = 0, **overrides) -> Path:
    overrides = {"runtime.threads": 1, "schedule.warmup_fraction": 0.0} | overrides
    request = FinetuneRequest(str(model), task, None, epochs=1, lr=1e-2, batch_size=8, seed=seed, overrides=overrides)
    open_and_run(out, request, data, lambda status: None, lambda said: None)
    return out


def labelled_texts(num: int = 60) -> list[dict]:
    """A class by whether the text has a lantern."""
    draw = chance.Random(1)
    texts = [words(draw, draw.randint(2, 12)) for _ in range(num)]
    return [{"text": text, "label": "light" if "lantern" in text else "dark"} for text in texts]


def numbered_pairs(num: int = 40) -> list[dict]:
    draw = chance.Random(2)
    pairs = [(words(draw, 5), words(draw, 4)) for _ in range(num)]
    return [{"sentence1": a, "sentence2": b, "score": len(set(a.split()) & set(b.split()))} for a, b in pairs]


def tagged_words(num: int = 40) -> list[dict]:
    """Places are entities of one or two words, in BIOES."""
    draw = chance.Random(3)
    rows = []
    for _ in range(num):
        found = words(draw, 8).split()
        tags = ["S-PLACE" if word in ("river", "harbour") else "O" for word in found]
        found[2:4], tags[2:4] = ["silver", "bridge"], ["B-PLACE", "E-PLACE"]
        rows.append({"words": found, "tags": tags})
    return rows


def asked_questions(num: int = 24) -> list[dict]:
    """Every third has no answer."""
    draw = chance.Random(4)
    rows = []
    for number in range(num):
        passage = words(draw, 9)
        answer = passage.split()[draw.randrange(9)]
        rows.append(
            {"id": f"q{number}", "question": "the garden", "passage": passage, "answer": answer if number % 3 else ""}
        )
    return rows


def completed(num: int = 24, num_choices: int = 3) -> list[dict]:
    draw = chance.Random(5)
    return [
        {"context": words(draw, 5), "choices": [words(draw, 2) for _ in range(num_choices)], "label": number % 3}
        for number in range(num)
    ]
