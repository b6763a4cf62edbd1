"""Reads the examples of a task as text: the fields for its templates, the right answers, and the choices if there are
any. They come from a known data set, the columns of a table, or one of a few published layouts.

| source | fields |
|---|---|
| a known data set of texts | text, pair, label |
| a known data set of questions on passages | question, passage, title |
| a known multiple-choice data set | context, beginning |
| `columns` | the columns of the table |
| `lambada` | context, word |
| `coqa` | story, history, question |
| `parallel` | one per language, such as en and fr |
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hornbook.data.problems import problem_lines
from hornbook.lifecycle.run_folder import Log
from hornbook.tasks.reading.cells import as_text, is_missing
from hornbook.tasks.reading.coqa import read_conversations
from hornbook.tasks.reading.layout import custom_patterns, find_splits, no_files_message
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.rows import key_of
from hornbook.tasks.reading.table_files import read_table
from hornbook.tasks.reading.text_files import read_text
from hornbook.tasks.records import Example
from hornbook.tasks.text.definition import ExampleSource, TextTask

CONVERSATIONS = {"train": ("coqa*train*.json", "train.json"), "test": ("coqa*dev*.json", "dev.json")}
LAMBADA = {"train": ("*train*.jsonl", "*train*.txt"), "test": ("lambada_test*", "*test*.jsonl", "*test*.txt")}


@dataclass(frozen=True)
class Item:
    """One example. `answers` are all right answers; the first one is used in prompts. `choices` may be empty."""

    key: str
    fields: dict[str, str]
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ItemSplits:
    train: list[Item]
    test: list[Item]


def read_items(task: TextTask, data: str | Path, log: Log) -> ItemSplits:
    """Reads the training and test splits, and logs bad rows."""
    path = Path(data).expanduser()
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the spelling of data=")
    train, test = _known(task, path, log) if task.source.known else _from_files(task, path, log)
    if not test:
        raise ValueError(f"{path} has no examples with an answer: {_expected(task)}")
    return ItemSplits(train, test)


def _expected(task: TextTask) -> str:
    """A description of the test split that the task needs."""
    source = task.source
    if source.known:
        return f"the task needs the split {' or '.join(source.test or ('dev',))} of {source.known}"
    return f"the task looks for {', '.join(_patterns(source)['test'])}"


# ---- known data sets


def _known(task: TextTask, path: Path, log: Log) -> list[list[Item]]:
    source = task.source
    data = read(source.known, path, held_out=0.0, default_split="dev")
    for message in (*data.messages, *problem_lines(data.problems.to_dict())):
        log(message)
    split_names = (source.train or ("train",), source.test or ("dev", "test"))
    splits = [next((data.splits[name] for name in names if name in data.splits), []) for names in split_names]
    return [[item for each in split if (item := _item(task, each)) is not None] for split in splits]


def _item(task: TextTask, example: Example) -> Item | None:
    """The example as an item; None if it has no answer."""
    prompt = example.prompt()
    if prompt is None:
        name = task.source.known
        raise ValueError(f"{name} is a tagging task, which cannot be prompted: choose another source.known")
    fields, answers, choices = prompt
    fields, answers = {name: as_text(value) for name, value in fields.items()}, tuple(map(as_text, answers))
    if not answers:
        return None
    if task.choices.from_example and choices:
        return Item(example.key, fields, answers, choices)
    return _labelled(task, example.key, fields, answers)


def _labelled(task: TextTask, key: str, fields: dict[str, str], answers: tuple[str, ...]) -> Item:
    """The item, with its label as text if the task has `choices.labels`."""
    labels = task.choices.labels
    if task.choices.from_example:
        raise ValueError(
            "choices.from_example is for known data sets with choices, such as commonsenseqa: leave it out"
        )
    if not labels:
        return Item(key, fields, answers)
    if answers[0] not in labels:
        known = ", ".join(labels)
        raise ValueError(f"example {key} has the label '{answers[0]}', and choices.labels has {known}: add it there")
    return Item(key, fields, (labels[answers[0]],), tuple(labels.values()))


# ---- files


def _patterns(source: ExampleSource) -> dict[str, tuple[str, ...]]:
    """File name patterns of each split."""
    if source.layout == "columns":
        patterns = custom_patterns()
        default = {"train": tuple(patterns["train"]), "test": (*patterns["test"], *patterns["dev"])}
    elif source.layout == "parallel":
        suffix = source.languages[0]
        default = {"train": (f"train*.{suffix}",), "test": (f"test*.{suffix}", f"dev*.{suffix}")}
    else:
        default = CONVERSATIONS if source.layout == "coqa" else LAMBADA
    return {"train": source.train or default["train"], "test": source.test or default["test"]}


def _from_files(task: TextTask, path: Path, log: Log) -> list[list[Item]]:
    reader, patterns = Reader(), _patterns(task.source)
    files = find_splits(path, patterns, default_split="test")
    if path.is_file() and "train" not in files:
        files = {"test": [path]}
    if not files:
        raise ValueError(no_files_message(path, patterns))
    read_file = {"columns": _columns, "lambada": _lambada, "coqa": _coqa, "parallel": _sentences}[task.source.layout]
    splits = [[item for file in files.get(split, ()) for item in read_file(task, file, reader)] for split in patterns]
    for message in (*reader.messages, *problem_lines(reader.problems.to_dict())):
        log(message)
    return splits


def _columns(task: TextTask, path: Path, reader: Reader) -> Iterator[Item]:
    table = read_table(path, reader)
    if not task.gold:
        raise ValueError("the task does not name the column with the right answer: set gold, such as gold = 'answer'")
    table.require(task.gold, "gold")
    for index, row in enumerate(table.rows):
        if row.defect:
            reader.add_problem(row.defect[0], str(path), row.place, row.defect[1])
            continue
        cell = row.fields.get(task.gold)
        answers = tuple(map(as_text, cell)) if isinstance(cell, list | tuple) else (as_text(cell),)
        if not answers or is_missing(answers[0]):
            reader.add_problem("no_label", str(path), row.place, f"'{task.gold}' is empty")
            continue
        fields = {name: as_text(row.fields.get(name)) for name in table.columns}
        yield _labelled(task, key_of(row, task.source.key or None, index), fields, answers)


def _lambada(task: TextTask, path: Path, reader: Reader) -> Iterator[Item]:
    """JSON lines with a text, or one text per line as first published, which is detokenised."""
    if path.suffix == ".jsonl":
        texts = [as_text(row.fields.get("text")) for row in read_table(path, reader).rows if not row.defect]
    else:
        texts = [detokenized(line) for line in read_text(path, reader).split("\n") if line.strip()]
    for index, text in enumerate(texts):
        context, _, word = text.rstrip().rpartition(" ")
        if not context or not word:
            reader.add_problem("empty_text", str(path), f"text {index + 1}", "there is no last word to predict")
            continue
        yield Item(str(index), {"context": context, "word": word}, (word,))


def detokenized(text: str) -> str:
    """Undoes the tokenization of a text, in which spaces separate words and punctuation.

    >>> detokenized("`` i do n't know , '' she said .")
    '"i don\\'t know," she said.'
    """
    text = re.sub(r"(``|“)\s*", '"', text)
    text = re.sub(r"\s*(''|”)", '"', text)
    text = re.sub(r"\s+(n't|'(?:s|m|d|ll|re|ve))\b", r"\1", text)
    return re.sub(r"\s+([.,!?;:)\]])", r"\1", text).strip()


def _coqa(task: TextTask, path: Path, reader: Reader) -> Iterator[Item]:
    for conversation in read_conversations(path, reader):
        history = ""
        for turn, question, answers in conversation.turns:
            if not answers:
                continue
            fields = {"story": conversation.story.strip(), "history": history, "question": question}
            yield Item(f"{conversation.key}-{turn}", fields, answers)
            history += f"Q: {question}\nA: {answers[0]}\n"


def _sentences(task: TextTask, path: Path, reader: Reader) -> Iterator[Item]:
    """Two files with the same name but for the suffix, which are translations of each other line by line."""
    first, second = task.source.languages
    other = path.with_suffix(f".{second}")
    if path.suffix != f".{first}" or not other.is_file():
        raise ValueError(f"{path} must end in .{first}, with its translations in the same folder in {other.name}")
    sides = [read_text(file, reader).rstrip("\n").split("\n") for file in (path, other)]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"{path} has {len(sides[0]):,} lines and {other.name} {len(sides[1]):,}: make them match")
    for index, (text, translation) in enumerate(zip(*sides, strict=True)):
        if text.strip() and translation.strip():
            yield Item(str(index), {first: text.strip(), second: translation.strip()}, (translation.strip(),))
