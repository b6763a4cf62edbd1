"""Builds prompts: the description, some in-context examples with their answers, and the question.

Examples are drawn by seed from the training split only, and never if their text is also in the test split. If a prompt
does not fit the model's context, it gets fewer examples; if it does not fit without any, a field loses its end, or the
prompt its beginning.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.lifecycle.run_folder import Log
from hornbook.tasks.text.definition import TextTask, filled
from hornbook.tasks.text.sources import Item, ItemSplits, read_items
from hornbook.text.tokenizer import Tokenizer
from hornbook.train.randomness import seed_of

MAX_CUTS = 20  # attempts: a truncated text may encode to a different number of tokens than were kept


@dataclass(frozen=True)
class Prompt:
    text: str
    num_examples: int  # in-context examples
    is_cut: bool = False  # whether the question was truncated


def question(task: TextTask, item: Item, template: str) -> str:
    return filled(template, item.fields, f"the template of {task.name}")


def check_templates(task: TextTask, item: Item) -> None:
    """Raises a `ValueError` if the task names fields that its examples do not have."""
    for template in task.templates.values():
        question(task, item, template)
    for name, named in (("shorten", task.shorten), ("baseline.field", task.baseline.field)):
        if named and named not in item.fields:
            raise ValueError(f"{name} names the field '{named}', and the data has {', '.join(item.fields)}")


def answer(task: TextTask, text: str) -> str:
    return task.answer.replace("{answer}", text)


def example(task: TextTask, item: Item, template: str) -> str:
    """A question with its answer, as an in-context example."""
    return question(task, item, template) + answer(task, item.answers[0])


def composed(task: TextTask, examples: Sequence[str], query: str) -> str:
    """The prompt: the description, the examples and the question."""
    return task.separator.join([*([task.description] if task.description else []), *examples, query])


def drawable(task: TextTask, train: Sequence[Item], test: Sequence[Item]) -> list[Item]:
    """The training examples whose text is not in the test split, ignoring case and white space."""
    tested = {_folded(task, item) for item in test}
    return [item for item in train if _folded(task, item) not in tested]


def _folded(task: TextTask, item: Item) -> str:
    return " ".join(question(task, item, task.example).lower().split())


def drawn(task: TextTask, pool_size: int, num: int, seed: int, question_index: int) -> list[int]:
    """Indices of the `num` examples for the question of this index. A smaller `num` gives a prefix of a larger one."""
    if num > pool_size:
        raise ValueError(
            f"there are {pool_size:,} training examples to draw from, fewer than the {num} that shots= needs: give "
            "more of them, or lower shots="
        )
    generator = np.random.default_rng(seed_of("shots", seed, question_index if task.draw == "each" else "once"))
    indices: dict[int, None] = {}
    while len(indices) < num:
        indices.setdefault(int(generator.integers(pool_size)))
    return list(indices)


def pool_for(task: TextTask, splits: ItemSplits, num: int, log: Log) -> list[Item]:
    """The training examples that may be drawn for prompts with `num` examples."""
    if not num:
        return []
    if not splits.train:
        raise ValueError(
            f"the data has no training split to draw examples from: give a folder with a training split "
            f"({', '.join(task.source.train or ('train',))}), or set shots= to 0"
        )
    pool = drawable(task, splits.train, splits.test)
    if len(pool) < len(splits.train):
        log(f"{len(splits.train) - len(pool):,} training examples are also in the test split and are not used")
    drawn(task, len(pool), num, 0, 0)  # raises if there are fewer than `num`
    return pool


def shown_prompts(task: TextTask, data: str | Path, shots: Sequence[int]) -> list[dict[str, Any]]:
    """The prompts of the first question, for each number of examples and each template, without a length limit."""
    splits = read_items(task, data, lambda message: None)
    pool, item = pool_for(task, splits, max(shots), lambda message: None), splits.test[0]
    prompts = []
    for num in shots:
        for variant, template in task.templates.items():
            examples = [example(task, pool[i], template) for i in drawn(task, len(pool), num, 0, 0)]
            text = composed(task, examples, question(task, item, template))
            answers = [answer(task, each) for each in item.choices or item.answers[:1]]
            prompts.append({"shots": num, "variant": variant, "prompt": text, "answers": answers})
    return prompts


class PromptWriter:
    """Builds prompts that fit a model's context of `context` tokens together with an answer."""

    def __init__(self, task: TextTask, template: str, tokenizer: Tokenizer, context: int):
        self.task, self.template = task, template
        self.tokenizer, self.context = tokenizer, context
        self.lengths: dict[str, int] = {}

    def write(self, items: Sequence[Item], shots: Sequence[Sequence[Item]], reserved: Sequence[int]) -> list[Prompt]:
        """A prompt for each item with its in-context examples `shots`, leaving `reserved` tokens for its answer."""
        examples = [[example(self.task, each, self.template) for each in items_shown] for items_shown in shots]
        queries = [question(self.task, item, self.template) for item in items]
        limits = [max(self.context - num, 1) for num in reserved]
        nums = self._first_guess(examples, queries, limits)
        prompts, lengths = [Prompt("", 0)] * len(items), [0] * len(items)
        left = list(range(len(items)))
        while left:
            for i in left:
                prompts[i] = Prompt(composed(self.task, examples[i][: nums[i]], queries[i]), nums[i])
            for i, length in zip(left, self._num_tokens([prompts[i].text for i in left]), strict=True):
                lengths[i] = length
            left = [i for i in left if lengths[i] > limits[i] and nums[i]]
            for i in left:
                nums[i] -= 1
        return [
            prompt if length <= limit else self._cut(item, prompt, limit)
            for item, prompt, length, limit in zip(items, prompts, lengths, limits, strict=True)
        ]

    def _first_guess(
        self, examples: Sequence[Sequence[str]], queries: Sequence[str], limits: Sequence[int]
    ) -> list[int]:
        """The number of examples that fit, assuming that texts are tokenized independently, plus one as a margin."""
        separator, description = self.task.separator, self.task.description
        unknown = dict.fromkeys(text for texts in examples for text in texts if text not in self.lengths)
        self.lengths |= zip(unknown, self._num_tokens([separator + text for text in unknown]), strict=True)
        around = self._num_tokens([f"{description}{separator}{text}" for text in queries])
        nums = []
        for texts, length, limit in zip(examples, around, limits, strict=True):
            totals = length + np.cumsum([self.lengths[text] for text in texts], dtype=int)
            nums.append(min(int((totals <= limit).sum()) + 1, len(texts)))
        return nums

    def _num_tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(encoding.ids) for encoding in self.tokenizer.encode_batch(list(texts))] if texts else []

    def _cut(self, item: Item, prompt: Prompt, limit: int) -> Prompt:
        """Truncates the end of the field `shorten`; if that is not enough, the beginning of the prompt."""
        text, field = prompt.text, self.task.shorten
        for _ in range(MAX_CUTS):
            excess = self._num_tokens([text])[0] - limit
            if excess <= 0:
                return replace(prompt, text=text, is_cut=True)
            if field and item.fields.get(field):
                item = replace(item, fields=item.fields | {field: self._shortened(item.fields[field], excess)})
                text = composed(self.task, (), question(self.task, item, self.template))
            else:
                offsets = self.tokenizer.encode_batch([text])[0].offsets
                text = text[max(offsets[excess][0], 1) :]
        raise ValueError(
            f"example {item.key} cannot be truncated to the {limit} tokens that are left for it: use a model with a "
            "longer context, or a shorter template"
        )

    def _shortened(self, text: str, excess: int) -> str:
        offsets = self.tokenizer.encode_batch([text])[0].offsets
        return text[: offsets[-excess - 1][1]].rstrip() if excess < len(offsets) else ""
