"""Small made-up tasks, each with a rule that can be learned to the end, and a random encoder that reads their words."""

import json
import random as chance
from pathlib import Path

import torch

from hornbook.interop.folder import save_model
from hornbook.models.registry import MODELS
from hornbook.text.training import train_tokenizer

PEOPLE = ["Daniel", "Sandra", "Mary"]
PLACES = ["office", "garden", "kitchen", "hallway"]
THINGS = ["lamp", "apple", "stone", "river", "bread", "chair", "letter", "window"]
FILLERS = ["the", "old", "little", "with", "near", "under", "green", "quiet", "two", "some"]
TITLES = ["Doctor", "Captain"]
NAMES = ["Rivers", "Stone", "Baker", "Woods", "Field", "Marsh"]
OTHERS = ["went", "to", "Then", "they", "and", "in", "Where", "is", "said", "hello", "what", "has", "that", ".", "?"]
WORDS = PEOPLE + PLACES + THINGS + FILLERS + TITLES + NAMES + OTHERS


def random_encoder(folder: Path, family: str = "bert", heads: tuple[str, ...] | None = None, **overrides) -> Path:
    """A folder with a model of two layers of width 64 with random weights, and a tokenizer with one token per word."""
    sentences = [" ".join(WORDS)] * 20
    tokenizer = train_tokenizer(sentences, vocab_size=400)
    size = {"num_layers": 2, "width": 64, "num_heads": 4, "inner_width": 128, "max_positions": 48}
    # With a wider start than published so narrow a network learns in fewer steps.
    settings = size | {"dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.2} | overrides
    kind = MODELS[family]
    config = kind.for_tokenizer(kind.config_class(vocab_size=tokenizer.vocab_size, **settings), tokenizer.pad_id)
    usual = ("pooler",) if "pooler" in kind.head_factories else ()
    model = kind(config, usual if heads is None else heads)
    model.initialize(torch.Generator().manual_seed(0))
    tokenizer.save(folder, settings["max_positions"], config.num_segments)
    save_model(folder, model)
    return folder


def random_gpt(folder: Path, family: str = "openai-gpt", dropout: float = 0.0, **overrides) -> Path:
    """The same for a GPT: weights as before any training, and the same vocabulary with nothing put around a text."""
    tokenizer = train_tokenizer([" ".join(WORDS)] * 20, vocab_size=400).without_special_tokens()
    size = {"num_layers": 2, "width": 64, "num_heads": 4, "inner_width": 256, "max_positions": 48, "init_std": 0.2}
    dropouts = dict.fromkeys(("dropout", "attention_dropout", "embedding_dropout", "head_dropout"), dropout)
    kind = MODELS[family]
    config = kind.config_class(vocab_size=tokenizer.vocab_size, **size | dropouts | overrides)
    model = kind(kind.for_tokenizer(config, tokenizer.pad_id, tokenizer.eos_id))
    model.initialize(torch.Generator().manual_seed(0))
    tokenizer.save(folder, config.max_positions, config.num_segments)
    save_model(folder, model)
    return folder


def write_rows(folder: Path, rows: list[dict], num_dev: int) -> Path:
    """`train.jsonl` and, of the last rows, `dev.jsonl`."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, split in (("train", rows[:-num_dev]), ("dev", rows[-num_dev:])):
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in split]
        (folder / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    return folder


def keyword_pair(draw: chance.Random) -> dict:
    """`yes` where both the lamp and the apple are there."""
    words = draw.sample(THINGS[2:] + FILLERS, draw.randint(3, 8))
    words += [word for word in ("lamp", "apple") if draw.random() < 0.7]
    draw.shuffle(words)
    return {"text": " ".join(words), "label": "yes" if {"lamp", "apple"} <= set(words) else "no"}


def named_word(draw: chance.Random) -> dict:
    """`yes` where the second text holds the thing that the first names."""
    named, *others = draw.sample(THINGS[:4], 3)
    words = [others[0], named if draw.random() < 0.5 else others[1], *draw.sample(FILLERS, 2)]
    draw.shuffle(words)
    return {"text": f"what has that {named} ?", "pair": " ".join(words), "label": "yes" if named in words else "no"}


def same_kind(draw: chance.Random) -> dict:
    """`same` where both texts have a person, or both a place: each can be read without the other."""
    kinds = [draw.choice([PEOPLE, PLACES]) for _ in range(2)]
    texts = [" ".join([*draw.sample(FILLERS, 2), draw.choice(kind), *draw.sample(THINGS, 1)]) for kind in kinds]
    return {"text": texts[0], "pair": texts[1], "label": "same" if kinds[0] is kinds[1] else "other"}


def things_there(draw: chance.Random) -> dict:
    """All of the first four things that the text names, perhaps none."""
    there = [word for word in THINGS[:4] if draw.random() < 0.4]
    words = there + draw.sample(FILLERS + THINGS[4:], draw.randint(2, 5))
    draw.shuffle(words)
    return {"text": " ".join(words), "labels": there}


def count_of_lamps(draw: chance.Random) -> dict:
    count = draw.randint(0, 5)
    words = ["lamp"] * count + draw.sample(FILLERS + THINGS[1:], draw.randint(3, 7))
    draw.shuffle(words)
    return {"text": " ".join(words), "score": float(count)}


def who_is_where(draw: chance.Random) -> dict:
    """Two or three moves of one or two people, or of those who moved last; the question is the last place of one of
    them."""
    places, movers, at, text = draw.sample(PLACES, 3), [], {}, ""
    for place in places[: draw.randint(2, 3)]:
        if len(movers) == 2 and draw.random() < 0.5:
            text += "Then they went to the "
        else:
            movers = draw.sample(PEOPLE, draw.randint(1, 2))
            text += " and ".join(movers) + " went to the "
        at |= dict.fromkeys(movers, (place, len(text)))
        text += place + ". "
    # Places alike: of people alike, most would be where the last move went.
    answer, start = draw.choice(sorted(set(at.values())))
    person = draw.choice([each for each in at if at[each] == (answer, start)])
    return {"question": f"Where is {person}?", "context": text.strip(), "answer": answer, "start": start}


def place_if_told(draw: chance.Random) -> dict:
    """Where someone is, if the text states it."""
    people = draw.sample(PEOPLE, 2)
    told = [(person, draw.choice(PLACES)) for person in people]
    text = " ".join(f"{person} is in the {place}." for person, place in told)
    asked = draw.choice(PEOPLE)
    answer = dict(told).get(asked, "")
    start = text.index(f"{asked} is in the ") + len(f"{asked} is in the ") if answer else None
    return {"question": f"Where is {asked}?", "context": text, "answer": answer, "start": start}


def place_told(draw: chance.Random) -> dict:
    """Where someone is; the text always states it."""
    while not (row := place_if_told(draw))["answer"]:
        pass
    return row


def titled_names(draw: chance.Random) -> dict:
    """What follows a title is a person; the same words alone are not."""
    words: list[str] = []
    tags: list[str] = []
    for _ in range(draw.randint(2, 4)):
        names = draw.sample(NAMES, draw.randint(1, 2))
        if draw.random() < 0.5:
            words += [draw.choice(TITLES), *names]
            tags += ["O", "B-PER", "I-PER"][: 1 + len(names)]
        else:
            words += [draw.choice(FILLERS), *names]
            tags += ["O"] * (1 + len(names))
        filler = draw.sample([*FILLERS, "said", "hello"], 2)
        words, tags = words + filler, [*tags, "O", "O"]
    return {"words": words, "tags": tags}


def choice_with_the_thing(draw: chance.Random) -> dict:
    """The right choice names the thing of the context."""
    things = draw.sample(THINGS, 4)
    label = draw.randrange(4)
    choices = [f"{draw.choice(FILLERS)} {thing} {draw.choice(FILLERS)}" for thing in things]
    return {"context": f"what has that {things[label]} ?", "choices": choices, "label": label}
