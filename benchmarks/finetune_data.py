"""What both sides of `finetune.py` share: one recipe, and the same examples to train on and to score."""

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from hornbook.files import read_json
from hornbook.runs.finetuning.published import default_lr
from hornbook.tasks.datasets import find_task
from hornbook.tasks.kinds import KINDS
from hornbook.tasks.reading.read import by_article, read
from hornbook.tasks.records import DataSet, Example, SpanExample

PLACES = {
    "cola": "glue/CoLA",
    "sst-2": "glue/SST-2",
    "mrpc": "glue/MRPC",
    "sts-b": "glue/STS-B",
    "rte": "glue/RTE",
    "wnli": "glue/WNLI",
    "squad": "squad/dev-v1.1.json",
    "squad2": "squad/dev-v2.0.json",
    "conll2003": "conll2003",
    "ud-pos": "ud/UD_English-EWT",
    "commonsenseqa": "commonsenseqa",
}
SCORED_QUESTIONS = 2000


@dataclass(frozen=True)
class Recipe:
    """The settings of a run, the same on both sides."""

    model: str
    task: str
    seed: int
    epochs: int
    batch_size: int
    lr: float
    max_length: int
    threads: int
    device: str  # cpu or cuda
    warmup: float = 0.1
    weight_decay: float = 0.01
    clip: float = 1.0


def recipe_for(model: str, task: str, seed: int, threads: int, device: str, batch_size: int = 32, **more) -> Recipe:
    """Published epochs, and our default learning rate and lengths for the width of the model."""
    named, config = find_task(task), read_json(Path(model) / "config.json")
    max_positions = config["max_position_embeddings"]
    asked = {
        "epochs": named.epochs,
        "lr": default_lr(named, config["hidden_size"]),
        "max_length": min(max_positions, KINDS[named.kind].max_length or max_positions),
    } | {name: value for name, value in more.items() if value is not None}
    return Recipe(model, task, seed, batch_size=batch_size, threads=threads, device=device, **asked)


def chosen_data(place: Path, task: str, num_train: int | None, num_scored: int | None) -> DataSet:
    """The `train` and `dev` splits of the file or folder `place`, the same for every seed and side."""
    data = read(task, place)
    train, dev = data.splits.get("train"), data.splits["dev"]
    if isinstance(dev[0], SpanExample):
        train, dev = by_article(dev)  # only the development set is there
        num_scored = min(num_scored or SCORED_QUESTIONS, SCORED_QUESTIONS)
    return replace(data, splits={"train": _some(train, num_train, task), "dev": _some(dev, num_scored, task)})


def _some(examples: list[Example], num: int | None, task: str) -> list[Example]:
    """A sample of `num` examples, chosen by a hash of their positions, in their original order."""
    if num is None or num >= len(examples):
        return examples
    places = sorted(range(len(examples)), key=lambda place: _digest(f"{task}:{place}"))[:num]
    return [examples[place] for place in sorted(places)]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
