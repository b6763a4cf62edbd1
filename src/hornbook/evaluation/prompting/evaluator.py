"""Querying a model: choices by their likelihood, generated answers, and the likelihood of the right answer.

evaluator = PromptEvaluator(task, hornbook.load("runs/gpt"))
evaluator.ask(items, prompts, 0, print)     # an answer per item
"""

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from hornbook.inference.decoder import DecoderModel
from hornbook.inference.scoring import ContinuationScore
from hornbook.tasks.text.definition import TextTask
from hornbook.tasks.text.metrics import TextAnswer
from hornbook.tasks.text.prompts import Prompt, answer
from hornbook.tasks.text.sources import Item
from hornbook.text.lemmas import STOP_WORDS
from hornbook.text.sentences import split_sentences

Progress = Callable[[int], None]  # receives the number of answered questions
QUESTIONS_PER_CALL = 256  # questions per call of the model
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


class PromptEvaluator:
    """Answers the questions of a task with a model."""

    def __init__(self, task: TextTask, model: DecoderModel):
        self.task, self.model = task, model
        self._unconditional: dict[str, ContinuationScore] = {}

    def answer_lengths(self, items: Sequence[Item]) -> list[int]:
        """The number of context tokens to reserve for the answer to each item."""
        context = self.model.model.config.max_positions
        generated = min(self.task.generation.max_new_tokens, context // 2) if "text" in self.task.needs else 0
        if self.task.needs == {"text"}:
            return [generated] * len(items)
        texts = [[answer(self.task, each) for each in item.choices or item.answers[:1]] for item in items]
        encoded = iter(self.model.tokenizer.encode_batch([text for of_item in texts for text in of_item]))
        return [max(generated, *(len(next(encoded).ids) for _ in of_item)) for of_item in texts]

    def ask(
        self, items: Sequence[Item], prompts: Sequence[Prompt], seed: int, on_progress: Progress
    ) -> list[TextAnswer]:
        """The answer to each item, given its prompt."""
        answers: list[TextAnswer] = []
        for start in range(0, len(items), QUESTIONS_PER_CALL):
            chunk = slice(start, start + QUESTIONS_PER_CALL)
            answers += self._ask(items[chunk], [prompt.text for prompt in prompts[chunk]], seed)
            on_progress(len(answers))
        return answers

    def _ask(self, items: Sequence[Item], prompts: list[str], seed: int) -> list[TextAnswer]:
        if "choice" in self.task.needs:
            return self._choose(items, prompts)
        texts = self._generate(prompts, seed) if "text" in self.task.needs else [""] * len(items)
        scored = self._score_answers(items, prompts) if "likelihood" in self.task.needs else [None] * len(items)
        return [self._reply(*each) for each in zip(items, texts, scored, strict=True)]

    def _reply(self, item: Item, text: str, scored: ContinuationScore | None) -> TextAnswer:
        details: dict[str, Any] = {"generated": text} if "text" in self.task.needs else {}
        answers, keep = item.answers, self.task.generation.keep
        if keep == "word":  # an uncased vocabulary, such as GPT-1's, generates no capitals
            answers = tuple(map(self.model.tokenizer.normalize, answers))
        if scored is None:
            return TextAnswer(answers, extract_answer(text, keep), extra=details)
        details["log_probability"] = scored.total
        per_token = (tuple(scored.log_probabilities.tolist()), tuple(scored.is_greedy.tolist()))
        return TextAnswer(answers, extract_answer(text, keep), *per_token, details)

    # ---- choices

    def _choose(self, items: Sequence[Item], prompts: list[str]) -> list[TextAnswer]:
        texts = [[answer(self.task, choice) for choice in item.choices] for item in items]
        pairs = [(prompt, text) for prompt, choices in zip(prompts, texts, strict=True) for text in choices]
        continuations = iter(self.model.continuations(pairs))
        if self.task.choices.normalize == "answer":
            self._score_unconditionally({text for choices in texts for text in choices})
        replies = []
        for item, choices in zip(items, texts, strict=True):
            scores = np.array([self._normalized(next(continuations), text) for text in choices])
            details = {"choices": list(item.choices), "scores": scores.tolist()}
            replies.append(TextAnswer(item.answers, item.choices[int(scores.argmax())], extra=details))
        return replies

    def _normalized(self, scored: ContinuationScore, text: str) -> float:
        normalize = self.task.choices.normalize
        if normalize == "token":
            return scored.total / len(scored.log_probabilities)
        if normalize == "byte":
            return scored.total / len(text.strip().encode())
        return scored.total - self._unconditional[text].total if normalize == "answer" else scored.total

    def _score_unconditionally(self, texts: set[str]) -> None:
        """The likelihood of each choice after "Answer:" without the question (Brown et al. 2020, arXiv 2005.14165,
        section 2.4)."""
        new = sorted(texts - self._unconditional.keys())
        scored = self.model.continuations([(self.task.choices.unconditional, text) for text in new]) if new else []
        self._unconditional |= zip(new, scored, strict=True)

    # ---- generated answers

    def _generate(self, prompts: list[str], seed: int) -> list[str]:
        generation = self.task.generation
        generated = self.model.generate(
            prompts,
            generation.max_new_tokens,
            temperature=generation.temperature,
            top_k=generation.top_k,
            top_p=generation.top_p,
            stop_strings=generation.stop,
            seed=seed,
            begin_suppress_tokens=() if generation.stop_words else self._not_first_tokens,
        )
        return [samples[0].text for samples in generated]

    def _score_answers(self, items: Sequence[Item], prompts: list[str]) -> list[ContinuationScore]:
        pairs = zip(prompts, (answer(self.task, item.answers[0]) for item in items), strict=True)
        return self.model.continuations(list(pairs))

    @cached_property
    def _not_first_tokens(self) -> list[int]:
        """Tokens that do not start a new word, or that are a stop word."""
        tokenizer = self.model.tokenizer
        (before,) = tokenizer.encode_batch(["word"])
        num_before = len(tokenizer.decode(before.ids))
        texts = tokenizer.backend.decode_batch([[*before.ids, i] for i in range(tokenizer.vocab_size)])
        return [i for i, text in enumerate(texts) if not _may_be_first(text[num_before:])]


def _may_be_first(text: str) -> bool:
    word = text.strip()
    return text[:1] == " " and word[:1].isalpha() and word.lower() not in STOP_WORDS


def extract_answer(text: str, keep: str) -> str:
    """The part of a generated text that is the answer, by the task's `generation.keep`.

    >>> extract_answer(" signs. And", "word"), extract_answer(" One. Two. Three. Four.", "three sentences")
    ('signs', 'One. Two. Three.')
    """
    if keep == "line":
        text = text.strip("\n").partition("\n")[0]
    elif keep == "word":
        match = WORD.search(text)
        text = match[0] if match else ""
    elif keep in ("sentence", "three sentences"):
        text = "".join(split_sentences(text.strip())[: 1 if keep == "sentence" else 3])
    return text.strip()
