"""Small labelled data with rules that words decide, and a tiny encoder with random weights."""

import random as chance
from pathlib import Path

import torch

from hornbook.interop.folder import save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.text.tokenizer import Tokenizer

WORDS = [
    "the",
    "a",
    "of",
    "and",
    "river",
    "teacher",
    "bridge",
    "morning",
    "letters",
    "windows",
    "children",
    "garden",
    "silver",
]
KEYWORD, OTHER = "lantern", "harbour"
FAST = {"runtime.threads": 1, "runtime.device": "cpu"}


def tiny_encoder(folder: Path, tokenizer_folder: Path, num_layers: int = 2) -> Path:
    tokenizer = Tokenizer.load(tokenizer_folder)
    size = {"num_layers": num_layers, "width": 32, "num_heads": 2, "inner_width": 64, "max_positions": 64}
    model = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **size), heads=("pooler",))
    model.initialize(torch.Generator().manual_seed(0))
    with torch.no_grad():  # far enough from 0 that words stand apart
        model.embeddings.tokens.weight.mul_(20)
    tokenizer.save(folder, 64)
    save_model(folder, model)
    return folder


def sentence(draw: chance.Random, *more: str) -> str:
    words = [draw.choice(WORDS) for _ in range(draw.randint(3, 7))] + list(more)
    draw.shuffle(words)
    return " ".join(words)


def splits(make, num_train: int, num_dev: int) -> dict[str, list[dict]]:
    draw = chance.Random(0)
    rows = [make(draw, number) for number in range(num_train + num_dev)]
    return {"train": rows[:num_train], "dev": rows[num_train:]}


def keyword_rule(num_train: int = 80, num_dev: int = 40) -> dict[str, list[dict]]:
    """`yes` where the keyword is there; three in eight."""

    def make(draw: chance.Random, number: int) -> dict:
        is_there = number % 8 < 3
        return {"text": sentence(draw, KEYWORD if is_there else OTHER), "label": "yes" if is_there else "no"}

    return splits(make, num_train, num_dev)


def three_classes(num_train: int = 90, num_dev: int = 45) -> dict[str, list[dict]]:
    def make(draw: chance.Random, number: int) -> dict:
        return {"text": sentence(draw, (KEYWORD, OTHER, "bread")[number % 3]), "label": "abc"[number % 3]}

    return splits(make, num_train, num_dev)


def same_words(num_train: int = 80, num_dev: int = 40) -> dict[str, list[dict]]:
    """Pairs: `same` where the second text has the words of the first in another order."""

    def make(draw: chance.Random, number: int) -> dict:
        first = sentence(draw)
        words = first.split()
        draw.shuffle(words)
        second = " ".join(words) if number % 2 else sentence(draw)
        return {"text": first, "pair": second, "label": "same" if number % 2 else "other"}

    return splits(make, num_train, num_dev)


def how_many(num_train: int = 80, num_dev: int = 40) -> dict[str, list[dict]]:
    """A number: how often the keyword is there."""

    def make(draw: chance.Random, number: int) -> dict:
        return {"text": sentence(draw, *[KEYWORD] * (number % 4)), "score": number % 4 + 0.5}

    return splits(make, num_train, num_dev)


def several_words(num_train: int = 80, num_dev: int = 40) -> dict[str, list[dict]]:
    def make(draw: chance.Random, number: int) -> dict:
        held = [word for bit, word in enumerate((KEYWORD, OTHER)) if number >> bit & 1]
        return {"text": sentence(draw, *held), "labels": "|".join(held) or "none"}

    return splits(make, num_train, num_dev)


def choices(num_train: int = 60, num_dev: int = 40) -> dict[str, list[dict]]:
    """The right choice has the keyword, and so has the context."""

    def make(draw: chance.Random, number: int) -> dict:
        found = [sentence(draw, OTHER), sentence(draw, OTHER), sentence(draw, OTHER)]
        found[number % 3] = sentence(draw, KEYWORD, KEYWORD)
        row = {f"choice{i}": choice for i, choice in enumerate(found)}
        return {"context": sentence(draw, KEYWORD, KEYWORD), **row, "label": number % 3}

    return splits(make, num_train, num_dev)


def write_tags(folder: Path, num_train: int = 60, num_dev: int = 30, follows: bool = False) -> Path:
    """Column files: `X` for the keyword, or (`follows`) for the word after it; `O` for the others, which are most."""
    draw = chance.Random(0)
    folder.mkdir()
    for split, num in (("train", num_train), ("dev", num_dev)):
        lines = []
        for _ in range(num):
            words = sentence(draw, KEYWORD).split()
            if follows and words[-1] == KEYWORD:
                words.append(draw.choice(WORDS))
            marked = words.index(KEYWORD) + follows
            lines += [f"{word} {'B-X' if place == marked else 'O'}" for place, word in enumerate(words)] + [""]
        (folder / f"{split}.txt").write_text("\n".join(lines) + "\n")
    return folder
