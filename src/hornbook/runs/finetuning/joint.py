"""Joint training on several tasks as text (after McCann et al. 2018, arXiv 1806.08730): the training splits of all
tasks, formatted as questions and answers, in one training set.

joint = read_joint("joint.toml")
documents(joint, tokenizer, context=1024, learns="answer", log=print).train      # EncodedExamples for the loop

    [[tasks]]
    task = "sst-2-question"          # a shipped task, or a .toml file
    data = "glue/SST-2"              # its data, relative to this file
    examples = 5000                  # number of examples; by default all
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from hornbook.config import ValidatedSettings, from_dict, setting
from hornbook.files import read_toml
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.text.definition import TextTask, read_task
from hornbook.tasks.text.prompts import PromptWriter, answer, check_templates, drawable
from hornbook.tasks.text.sources import Item, Log, read_items
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.randomness import seed_of

Learns = Literal["answer", "all"]
HELD_OUT_SHARE, MAX_HELD_OUT = 0.05, 500  # of each task's training split, for validation


@dataclass(frozen=True)
class JointTask(ValidatedSettings):
    task: str = setting("", "a shipped task, or a .toml file")
    data: str = setting("", "its data, relative to the file that names it")
    examples: int | None = setting(
        None, "number of training examples to use, always the same ones; none: all", low=2, high=1_000_000_000
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.task or not self.data:
            raise ValueError("an entry of [[tasks]] lacks its task or its data: give both")


@dataclass(frozen=True)
class Joint(ValidatedSettings):
    tasks: tuple[JointTask, ...] = setting((), "the tasks to train on")
    folder: str = setting(".", "folder that data paths are relative to")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.tasks:
            raise ValueError("there are no [[tasks]]: give at least one with its data")


@dataclass(frozen=True)
class Documents:
    """Training and validation splits as token sequences; `tasks` has the number of training examples per task."""

    train: EncodedExamples
    held_out: EncodedExamples
    tasks: list[dict]


def read_joint(path: str | Path) -> Joint:
    path = Path(path).expanduser()
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the spelling")
    if not path.is_file() or path.suffix != ".toml":
        raise ValueError(f"{path} is not a .toml file: the task text needs one that lists tasks and their data")
    values = read_toml(path)
    try:
        return from_dict(Joint, values | {"folder": str(path.resolve().parent)})
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from None


def documents(joint: Joint, tokenizer: Tokenizer, context: int, learns: Learns, log: Log) -> Documents:
    """The training examples of all tasks as documents, without those whose question is also in the test split.
    `context` is the model's context length in tokens."""
    train, held_out, tasks = [], [], []
    for entry in joint.tasks:
        task = read_task(entry.task if Path(entry.task).suffix != ".toml" else Path(joint.folder) / entry.task)
        splits = read_items(task, Path(joint.folder) / entry.data, log)
        if len(splits.train) < 2:
            raise ValueError(f"{entry.data} has no training split for {task.name}: add one")
        check_templates(task, splits.train[0])
        items = drawable(task, splits.train, splits.test)
        if num_dropped := len(splits.train) - len(items):
            log(f"{task.name}: {num_dropped:,} training examples are also in the test split: dropped")
        order = np.random.default_rng(seed_of("joint", task.name)).permutation(len(items))[: entry.examples]
        num_held_out = max(1, min(MAX_HELD_OUT, round(HELD_OUT_SHARE * len(order))))
        num_train = len(order) - num_held_out
        encoded = _encoded(task, [items[i] for i in order], tokenizer, context, learns)
        held_out += encoded[:num_held_out]
        train += encoded[num_held_out:]
        tasks.append({"task": task.name, "data": str(entry.data), "examples": num_train})
        log(f"{task.name}: {num_train:,} examples to train on, {num_held_out:,} to validate on")
    return Documents(_as_encoded_examples(train), _as_encoded_examples(held_out), tasks)


def _encoded(
    task: TextTask, items: Sequence[Item], tokenizer: Tokenizer, context: int, learns: Learns
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Input ids and next-token targets of each item; positions without a loss have the target -1."""
    answers = [answer(task, item.answers[0]) for item in items]
    reserved = [len(encoding.ids) + 1 for encoding in tokenizer.encode_batch(answers)]
    prompts = PromptWriter(task, task.example, tokenizer, context).write(items, [()] * len(items), reserved)
    end = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
    encoded = []
    pairs = [(prompt.text, text) for prompt, text in zip(prompts, answers, strict=True)]
    for prompt_ids, answer_ids in tokenizer.split_encode(pairs):
        ids = np.array([*prompt_ids, *answer_ids, *end], np.int64)[: context + 1]
        targets = ids[1:].copy()
        if learns == "answer":
            targets[: max(len(prompt_ids) - 1, 0)] = -1
        encoded.append((ids[:-1], targets))
    return encoded


def _as_encoded_examples(sequences: list[tuple[np.ndarray, np.ndarray]]) -> EncodedExamples:
    return EncodedExamples(
        ids=[ids for ids, _ in sequences],
        segments=[np.zeros(len(ids), np.int64) for ids, _ in sequences],
        example_ids=np.arange(len(sequences)),
        num_examples=len(sequences),
        token_labels=[targets for _, targets in sequences],
    )
