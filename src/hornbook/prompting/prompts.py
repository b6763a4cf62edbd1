"""From examples to prompts: the description, some examples with their answers, and the question.

Examples are drawn by seed from the training part alone. One whose text is also asked in the test part is never drawn.
Where a prompt is longer than the model's context allows, it shows fewer examples; where it is too long without any, a
field loses its end, or the prompt its beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.prompting.definition import TextTask, filled
from hornbook.prompting.sources import Item, Log, Parts, read_items
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.randomness import seed_of

MOST_CUTS = 20  # a text that was cut may have a token more or less than its tokens that were kept


@dataclass(frozen=True)
class Prompt:
    text: str
    num_examples: int  # that are shown
    is_cut: bool = False  # whether a part of the question is missing


def question(task: TextTask, item: Item, template: str) -> str:
    return filled(template, item.fields, f"the template of {task.name}")


def check_templates(task: TextTask, item: Item) -> None:
    """Refuses a task that names fields which its examples do not have."""
    for template in task.templates.values():
        question(task, item, template)
    for name, named in (("shorten", task.shorten), ("baseline.field", task.baseline.field)):
        if named and named not in item.fields:
            raise ValueError(f"{name} names the field '{named}', and the data has {', '.join(item.fields)}")


def answer(task: TextTask, words: str) -> str:
    return task.answer.replace("{answer}", words)


def example(task: TextTask, item: Item, template: str) -> str:
    """A question with its answer, as it is shown."""
    return question(task, item, template) + answer(task, item.answers[0])


def composed(task: TextTask, shown: Sequence[str], asked: str) -> str:
    return task.separator.join([*([task.description] if task.description else []), *shown, asked])


def drawable(task: TextTask, train: Sequence[Item], test: Sequence[Item]) -> list[Item]:
    """What may be shown: training examples whose text is not asked, told apart but for case and white space."""
    asked = {_folded(task, item) for item in test}
    return [item for item in train if _folded(task, item) not in asked]


def _folded(task: TextTask, item: Item) -> str:
    return " ".join(question(task, item, task.example).lower().split())


def drawn(task: TextTask, pool_size: int, num: int, seed: int, number: int) -> list[int]:
    """Which examples are shown before question `number`. Fewer of them begin with the same."""
    if num > pool_size:
        raise ValueError(
            f"there are {pool_size:,} training examples to draw from, fewer than the {num} that --shots asks for: give "
            "more of them, or lower --shots"
        )
    draw = np.random.default_rng(seed_of("shots", seed, number if task.draw == "each" else "once"))
    found: dict[int, None] = {}
    while len(found) < num:
        found.setdefault(int(draw.integers(pool_size)))
    return list(found)


def pool_for(task: TextTask, parts: Parts, num: int, log: Log) -> list[Item]:
    """The training examples that may be shown."""
    if not num:
        return []
    if not parts.train:
        raise ValueError(
            f"the data has no training part to draw examples from, and none is drawn from what is asked: give a folder "
            f"with a training part ({', '.join(task.source.train or ('train',))}), or --shots 0"
        )
    pool = drawable(task, parts.train, parts.test)
    if len(pool) < len(parts.train):
        log(f"{len(parts.train) - len(pool):,} training examples are also asked, and are not shown")
    drawn(task, len(pool), num, 0, 0)  # refuses more than there are
    return pool


def shown_prompts(task: TextTask, data: str | Path, shots: Sequence[int]) -> list[dict[str, Any]]:
    """The first question with each number of examples under each template, whatever the context of a model."""
    parts = read_items(task, data, lambda words: None)
    pool, item = pool_for(task, parts, max(shots), lambda words: None), parts.test[0]
    found = []
    for num in shots:
        for variant, template in task.templates.items():
            shown = [example(task, pool[i], template) for i in drawn(task, len(pool), num, 0, 0)]
            text = composed(task, shown, question(task, item, template))
            words = [answer(task, each) for each in item.choices or item.answers[:1]]
            found.append({"shots": num, "variant": variant, "prompt": text, "answers": words})
    return found


class PromptWriter:
    """Prompts that fit a model's context, with room for an answer."""

    def __init__(self, task: TextTask, template: str, tokenizer: Tokenizer, context: int):
        self.task, self.template = task, template
        self.tokenizer, self.context = tokenizer, context
        self.lengths: dict[str, int] = {}

    def write(self, items: Sequence[Item], shown: Sequence[Sequence[Item]], rooms: Sequence[int]) -> list[Prompt]:
        """A prompt for each item, with its examples before it and `rooms` tokens left for its answer."""
        examples = [[example(self.task, each, self.template) for each in its] for its in shown]
        asked = [question(self.task, item, self.template) for item in items]
        limits = [max(self.context - room, 1) for room in rooms]
        nums = self._first_guess(examples, asked, limits)
        prompts = [Prompt("", 0)] * len(items)
        left = list(range(len(items)))
        while left:
            for i in left:
                prompts[i] = Prompt(composed(self.task, examples[i][: nums[i]], asked[i]), nums[i])
            lengths = self._counted([prompts[i].text for i in left])
            left = [i for i, length in zip(left, lengths, strict=True) if length > limits[i] and nums[i]]
            for i in left:
                nums[i] -= 1
        lengths = self._counted([prompt.text for prompt in prompts])
        return [
            prompt if length <= limit else self._cut(item, prompt, limit)
            for item, prompt, length, limit in zip(items, prompts, lengths, limits, strict=True)
        ]

    def _first_guess(self, examples: Sequence[Sequence[str]], asked: Sequence[str], limits: Sequence[int]) -> list[int]:
        """How many examples fit if tokens did not depend on what stands beside them; one more, to be sure."""
        separator, description = self.task.separator, self.task.description
        unknown = dict.fromkeys(text for its in examples for text in its if text not in self.lengths)
        self.lengths |= zip(unknown, self._counted([separator + text for text in unknown]), strict=True)
        around = self._counted([f"{description}{separator}{text}" for text in asked])
        found = []
        for its, length, limit in zip(examples, around, limits, strict=True):
            totals = length + np.cumsum([self.lengths[text] for text in its], dtype=int)
            found.append(min(int((totals <= limit).sum()) + 1, len(its)))
        return found

    def _counted(self, texts: Sequence[str]) -> list[int]:
        return [len(pieces.ids) for pieces in self.tokenizer.encode_batch(list(texts))] if texts else []

    def _cut(self, item: Item, prompt: Prompt, limit: int) -> Prompt:
        """The field that the task shortens loses its end; where that is not enough, the prompt its beginning."""
        text, field = prompt.text, self.task.shorten
        for _ in range(MOST_CUTS):
            excess = self._counted([text])[0] - limit
            if excess <= 0:
                return replace(prompt, text=text, is_cut=True)
            if field and item.fields.get(field):
                item = replace(item, fields=item.fields | {field: self._shortened(item.fields[field], excess)})
                text = composed(self.task, (), question(self.task, item, self.template))
            else:
                offsets = self.tokenizer.encode_batch([text])[0].offsets
                text = text[max(offsets[excess][0], 1) :]
        raise ValueError(f"example {item.key} cannot be cut to the {limit} tokens that the model has room for")

    def _shortened(self, text: str, excess: int) -> str:
        offsets = self.tokenizer.encode_batch([text])[0].offsets
        return text[: offsets[-excess - 1][1]].rstrip() if excess < len(offsets) else ""
