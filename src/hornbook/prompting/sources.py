"""The examples of a task as text: fields that its templates name, the right answers, and the choices where there are
some. They come from a known data set, the columns of a table, or one of a few published layouts.

| source | fields |
|---|---|
| a known data set of texts | text, pair, label |
| of questions about passages | question, passage, title |
| of endings | context, beginning |
| `columns` | the columns of the table |
| `lambada` | context, word |
| `coqa` | story, history, question |
| `parallel` | one a language, such as en and fr |
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from hornbook.data.problems import problem_lines
from hornbook.prompting.definition import Source, TextTask
from hornbook.tasks.reading.content import read_text
from hornbook.tasks.reading.coqa import read_conversations
from hornbook.tasks.reading.layout import find_parts, no_files_message, own_patterns
from hornbook.tasks.reading.notes import Notes
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.rows import is_missing, read_table
from hornbook.tasks.reading.texts import key_of, plain
from hornbook.tasks.records import ChoiceExample, Example, SpanExample, TextExample

Log = Callable[[str], None]
CONVERSATIONS = {"train": ("coqa*train*.json", "train.json"), "test": ("coqa*dev*.json", "dev.json")}
LAMBADA = {"train": ("*train*.jsonl", "*train*.txt"), "test": ("lambada_test*", "*test*.jsonl", "*test*.txt")}


@dataclass(frozen=True)
class Item:
    """One example. `answers` are all that are right, the first of which is shown; `choices` what is chosen from."""

    key: str
    fields: dict[str, str]
    answers: tuple[str, ...]
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Parts:
    train: list[Item]
    test: list[Item]


def read_items(task: TextTask, data: str | Path, log: Log) -> Parts:
    """Both parts of the data; what was wrong in it is said."""
    path = Path(data).expanduser()
    if not path.exists():
        raise ValueError(f"{path} does not exist: check the spelling of --data")
    train, test = _known(task, path, log) if task.source.known else _from_files(task, path, log)
    if not test:
        raise ValueError(f"{path} has no examples with an answer to ask for: {_wanted(task)}")
    return Parts(train, test)


def _wanted(task: TextTask) -> str:
    source = task.source
    if source.known:
        return f"the task asks for the part {' or '.join(source.test or ('dev',))} of {source.known}"
    return f"it looks for {', '.join(_patterns(source)['test'])}"


# ---- known data sets


def _known(task: TextTask, path: Path, log: Log) -> list[list[Item]]:
    source = task.source
    found = read(source.known, path, held_out=0.0, default_split="dev")
    for words in (*found.messages, *problem_lines(found.problems.as_dict())):
        log(words)
    wanted_parts = (source.train or ("train",), source.test or ("dev", "test"))
    parts = [next((found.parts[name] for name in names if name in found.parts), []) for names in wanted_parts]
    return [[item for each in part if (item := _item(task, each)) is not None] for part in parts]


def _item(task: TextTask, example: Example) -> Item | None:
    """None where the answer is not known."""
    if isinstance(example, TextExample):
        fields = {"text": example.text, "pair": example.pair or "", "label": plain(example.label)}
        return None if example.label is None else _labelled(task, example.key, fields, (fields["label"],))
    if isinstance(example, SpanExample):
        fields = {"question": example.question, "passage": example.passage, "title": example.title}
        return _labelled(task, example.key, fields, example.answers) if example.answers else None
    if isinstance(example, ChoiceExample):
        fields = {"context": example.context, "beginning": example.beginning}
        if example.label is None:
            return None
        if not task.choices.from_example:
            return _labelled(task, example.key, fields, (example.endings[example.label],))
        return Item(example.key, fields, (example.endings[example.label],), example.endings)
    raise ValueError(f"{task.source.known} gives tags of words, which are no task as text: choose another source.known")


def _labelled(task: TextTask, key: str, fields: dict[str, str], answers: tuple[str, ...]) -> Item:
    """With the words of its label, where the task has words for labels."""
    labels = task.choices.labels
    if task.choices.from_example:
        raise ValueError("choices.from_example is for known data sets that bring choices, such as commonsenseqa")
    if not labels:
        return Item(key, fields, answers)
    if answers[0] not in labels:
        known = ", ".join(labels)
        raise ValueError(f"example {key} has the label '{answers[0]}', and choices.labels has {known}: add it there")
    return Item(key, fields, (labels[answers[0]],), tuple(labels.values()))


# ---- files


def _patterns(source: Source) -> dict[str, tuple[str, ...]]:
    usual = {"columns": _own(), "coqa": CONVERSATIONS, "lambada": LAMBADA, "parallel": _parallel(source)}[source.layout]
    return {"train": source.train or usual["train"], "test": source.test or usual["test"]}


def _own() -> dict[str, tuple[str, ...]]:
    patterns = own_patterns()
    return {"train": tuple(patterns["train"]), "test": (*patterns["test"], *patterns["dev"])}


def _parallel(source: Source) -> dict[str, tuple[str, ...]]:
    if not source.languages:
        return {"train": (), "test": ()}
    ending = source.languages[0]
    return {"train": (f"train*.{ending}",), "test": (f"test*.{ending}", f"dev*.{ending}")}


def _from_files(task: TextTask, path: Path, log: Log) -> list[list[Item]]:
    notes, patterns = Notes(), _patterns(task.source)
    files = find_parts(path, patterns)
    if path.is_file():  # a lone file is asked, unless its name says that it is for training
        part = "train" if "train" in path.name.lower() and "train" in files else "test"
        files = {part: [path]}
    if not files:
        raise ValueError(no_files_message(path, patterns))
    read_one = {"columns": _columns, "lambada": _lambada, "coqa": _coqa, "parallel": _sentences}[task.source.layout]
    found = [[item for file in files.get(part, ()) for item in read_one(task, file, notes)] for part in patterns]
    for words in (*notes.messages, *problem_lines(notes.problems.as_dict())):
        log(words)
    return found


def _columns(task: TextTask, path: Path, notes: Notes) -> Iterator[Item]:
    table = read_table(path, notes)
    if not task.gold:
        raise ValueError("the task names no column with the right answer: set gold, such as gold = 'answer'")
    table.require(task.gold, "gold")
    for number, row in enumerate(table.rows):
        if row.broken:
            notes.problem(row.broken[0], str(path), row.place, row.broken[1])
            continue
        cell = row.fields.get(task.gold)
        answers = tuple(map(plain, cell)) if isinstance(cell, list | tuple) else (plain(cell),)
        if not answers or is_missing(answers[0]):
            notes.problem("no_label", str(path), row.place, f"'{task.gold}' is empty")
            continue
        fields = {name: plain(row.fields.get(name)) for name in table.columns}
        yield _labelled(task, key_of(row, task.source.key or None, number), fields, answers)


def _lambada(task: TextTask, path: Path, notes: Notes) -> Iterator[Item]:
    """JSON lines with a text, or a text a line as first published, which is detokenised."""
    if path.suffix == ".jsonl":
        texts = [plain(row.fields.get("text")) for row in read_table(path, notes).rows if not row.broken]
    else:
        texts = [detokenised(line) for line in read_text(path, notes).split("\n") if line.strip()]
    for number, text in enumerate(texts):
        context, _, word = text.rstrip().rpartition(" ")
        if not context or not word:
            notes.problem("empty_text", str(path), f"text {number + 1}", "there is no last word to ask for")
            continue
        yield Item(str(number), {"context": context, "word": word}, (word,))


def detokenised(text: str) -> str:
    """A text whose words and marks stand apart, as people write it.

    >>> detokenised("`` i do n't know , '' she said .")
    '"i don\\'t know," she said.'
    """
    text = re.sub(r"(``|“)\s*", '"', text)
    text = re.sub(r"\s*(''|”)", '"', text)
    text = re.sub(r"\s+(n't|'(?:s|m|d|ll|re|ve))\b", r"\1", text)
    return re.sub(r"\s+([.,!?;:)\]])", r"\1", text).strip()


def _coqa(task: TextTask, path: Path, notes: Notes) -> Iterator[Item]:
    for conversation in read_conversations(path, notes):
        history = ""
        for turn, question, answers in conversation.turns:
            if not answers:
                continue
            fields = {"story": conversation.story.strip(), "history": history, "question": question}
            yield Item(f"{conversation.key}-{turn}", fields, answers)
            history += f"Q: {question}\nA: {answers[0]}\n"


def _sentences(task: TextTask, path: Path, notes: Notes) -> Iterator[Item]:
    """Two files of one name, whose lines are translations of each other."""
    first, second = task.source.languages
    other = path.with_suffix(f".{second}")
    if path.suffix != f".{first}" or not other.is_file():
        raise ValueError(f"{path} must end in .{first} and have its translations beside it in {other.name}")
    sides = [read_text(file, notes).rstrip("\n").split("\n") for file in (path, other)]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(f"{path} has {len(sides[0]):,} lines and {other.name} {len(sides[1]):,}: they must match")
    for number, (text, translation) in enumerate(zip(*sides, strict=True)):
        if text.strip() and translation.strip():
            yield Item(str(number), {first: text.strip(), second: translation.strip()}, (translation.strip(),))
