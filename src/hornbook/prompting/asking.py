"""Asking a model: choices by their likelihood, free answers written on, and the likelihood of the right answer.

asker = Asker(task, hornbook.load("runs/gpt"))
asker.ask(items, prompts, seed=0)         # what came of each, and what there is to write down about it
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hornbook.infer.decoder import DecoderModel
from hornbook.infer.scoring import Continuation
from hornbook.prompting.definition import TextTask
from hornbook.prompting.measures import Answered
from hornbook.prompting.prompts import Prompt, answer
from hornbook.prompting.sources import Item
from hornbook.prompting.stop_words import STOP_WORDS
from hornbook.text.sentences import split_sentences

Progress = Callable[[int], None]  # how many questions are answered
NUM_TOGETHER = 256  # questions that go to the model at a time
WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")


@dataclass(frozen=True)
class Reply:
    """What came of a question, and what is written down about it besides."""

    answered: Answered
    about: dict[str, Any] = field(default_factory=dict)


class Asker:
    def __init__(self, task: TextTask, model: DecoderModel):
        self.task, self.model = task, model
        self._alone: dict[str, Continuation] = {}
        self._not_first: list[int] | None = None

    def rooms(self, items: Sequence[Item]) -> list[int]:
        """How many tokens of the context each answer needs."""
        context = self.model.model.config.max_positions
        written = min(self.task.writing.max_tokens, context // 2) if "text" in self.task.needs else 0
        texts = [[answer(self.task, words) for words in item.choices or item.answers[:1]] for item in items]
        if self.task.needs == {"text"}:
            return [written] * len(items)
        encoded = iter(self.model.tokenizer.encode_batch([text for its in texts for text in its]))
        return [max(written, *(len(next(encoded).ids) for _ in its)) for its in texts]

    def ask(self, items: Sequence[Item], prompts: Sequence[Prompt], seed: int, progress: Progress) -> list[Reply]:
        found: list[Reply] = []
        for start in range(0, len(items), NUM_TOGETHER):
            chunk = slice(start, start + NUM_TOGETHER)
            found += self._ask(items[chunk], [prompt.text for prompt in prompts[chunk]], seed)
            progress(len(found))
        return found

    def _ask(self, items: Sequence[Item], prompts: list[str], seed: int) -> list[Reply]:
        if "choice" in self.task.needs:
            return self._chosen(items, prompts)
        texts = self._written(prompts, seed) if "text" in self.task.needs else [""] * len(items)
        likely = self._likely(items, prompts) if "likelihood" in self.task.needs else [None] * len(items)
        return [self._reply(*each) for each in zip(items, texts, likely, strict=True)]

    def _reply(self, item: Item, text: str, likely: Continuation | None) -> Reply:
        about: dict[str, Any] = {"generated": text} if "text" in self.task.needs else {}
        answers, keep = item.answers, self.task.writing.keep
        if keep == "word":  # a vocabulary without capitals, as GPT-1's, writes none
            answers = tuple(map(self.model.tokenizer.normalise, answers))
        if likely is None:
            return Reply(Answered(answers, kept(text, keep)), about)
        about["log_probability"] = likely.total
        scores = (tuple(likely.log_probabilities.tolist()), tuple(likely.is_likeliest.tolist()))
        return Reply(Answered(answers, kept(text, keep), *scores), about)

    # ---- choices

    def _chosen(self, items: Sequence[Item], prompts: list[str]) -> list[Reply]:
        texts = [[answer(self.task, choice) for choice in item.choices] for item in items]
        pairs = [(prompt, text) for prompt, its in zip(prompts, texts, strict=True) for text in its]
        found = iter(self.model.continuations(pairs))
        if self.task.choices.normalise == "answer":
            self._score_alone({text for its in texts for text in its})
        replies = []
        for item, its in zip(items, texts, strict=True):
            scores = np.array([self._normalised(next(found), text) for text in its])
            about = {"choices": list(item.choices), "scores": scores.tolist()}
            replies.append(Reply(Answered(item.answers, item.choices[int(scores.argmax())]), about))
        return replies

    def _normalised(self, found: Continuation, text: str) -> float:
        how = self.task.choices.normalise
        if how == "token":
            return found.total / len(found.log_probabilities)
        if how == "byte":
            return found.total / len(text.strip().encode())
        return found.total - self._alone[text].total if how == "answer" else found.total

    def _score_alone(self, texts: set[str]) -> None:
        """Brown et al. 2020 (arXiv 2005.14165, section 2.4): the likelihood of a choice after "Answer:" alone."""
        new = sorted(texts - self._alone.keys())
        scored = self.model.continuations([(self.task.choices.unconditional, text) for text in new]) if new else []
        self._alone |= zip(new, scored, strict=True)

    # ---- free answers

    def _written(self, prompts: list[str], seed: int) -> list[str]:
        writing = self.task.writing
        found = self.model.generate(
            prompts,
            writing.max_tokens,
            temperature=writing.temperature,
            top_k=writing.top_k,
            top_p=writing.top_p,
            stop=writing.stop,
            seed=seed,
            not_first=() if writing.stop_words else self._stop_tokens(),
        )
        return [its[0].text for its in found]

    def _likely(self, items: Sequence[Item], prompts: list[str]) -> list[Continuation]:
        pairs = zip(prompts, (answer(self.task, item.answers[0]) for item in items), strict=True)
        return self.model.continuations(list(pairs))

    def _stop_tokens(self) -> list[int]:
        """Tokens that begin no word behind another one, or that are a stop word."""
        if self._not_first is None:
            tokenizer = self.model.tokenizer
            (before,) = tokenizer.encode_batch(["word"])
            num_before = len(tokenizer.decode(before.ids))
            texts = tokenizer.backend.decode_batch([[*before.ids, i] for i in range(tokenizer.vocab_size)])
            new = [text[num_before:] for text in texts]
            self._not_first = [i for i, text in enumerate(new) if not _may_be_first(text)]
        return self._not_first


def _may_be_first(text: str) -> bool:
    word = text.strip()
    return text[:1] == " " and word[:1].isalpha() and word.lower() not in STOP_WORDS


def kept(text: str, what: str) -> str:
    """The part of a text that is the answer.

    >>> kept(" signs. And", "word"), kept(" One. Two. Three. Four.", "three sentences")
    ('signs', 'One. Two. Three.')
    """
    if what == "line":
        text = text.strip("\n").partition("\n")[0]
    elif what == "word":
        found = WORD.search(text)
        text = found[0] if found else ""
    elif what in ("sentence", "three sentences"):
        text = "".join(split_sentences(text.strip())[: 1 if what == "sentence" else 3])
    return text.strip()
