"""Augmented copies of labelled examples, as in TinyBERT (Jiao et al. 2019, arXiv 1909.10351, algorithm 1).

    hornbook.augment(["the old lamp fell"], "runs/first", copies=3)

Each replaceable word gets candidates. For a word that is one token they are the likeliest predictions of a
masked-language model at its position; for a word of several tokens they are the words with the nearest vectors. In
each copy, each word is replaced with probability 0.4 by one of its candidates. Copies equal to the text or to another
copy are dropped, so there may be fewer than requested.
"""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.inference.encoder import EncoderModel
from hornbook.inference.load import load
from hornbook.runs.augmentation.candidates import NearestWords, Word, WordFilling, in_case_of, replaceable
from hornbook.runs.finetuning.settings import AugmentationSettings
from hornbook.tasks.records import Changeable, Example, Replacement, TextExample, spliced
from hornbook.train.randomness import seed_of

CHUNK = 256  # examples per batch of work
Candidates = dict[int, tuple[str, ...]]  # by the index of the word


class Augmenter:
    """Proposes augmented copies of examples with a masked-language model and word vectors."""

    def __init__(
        self,
        encoder: EncoderModel,
        settings: AugmentationSettings,
        seed: int = 0,
        autocast: Callable[[], object] = contextlib.nullcontext,
    ):
        self.settings, self.seed, self.tokenizer = settings, seed, encoder.tokenizer
        self.filling = WordFilling(encoder, settings.candidates, settings.unmasked_segment, autocast)
        file = settings.vectors
        self.nearest = NearestWords.from_model(encoder) if file is None else NearestWords.from_file(Path(file))

    def changes(self, examples: Sequence[Example]) -> list[list[dict[str, Any]]]:
        """For each example, the changed fields of each of its copies. They depend only on the seed and the example."""
        candidates = self._candidates({field.text for example in examples for field in example.changeable()})
        return [
            [
                example.changes(field.field, replacements)
                for field in example.changeable()
                for replacements in self._draw(example, field, *candidates[field.text])
            ]
            for example in examples
        ]

    def _candidates(self, texts: set[str]) -> dict[str, tuple[list[Word], Candidates]]:
        """The replaceable words of each text with their candidates."""
        ordered = sorted(texts)
        encodings = self.tokenizer.encode_batch(ordered)
        words = [replaceable(text, encoding) for text, encoding in zip(ordered, encodings, strict=True)]
        candidates = self.filling.candidates(list(zip(encodings, words, strict=True)))
        multi_token = [word.text for text_words in words for word in text_words if word.token is None]
        nearest = self.nearest.near(multi_token, self.settings.candidates)
        for text_words, text_candidates in zip(words, candidates, strict=True):
            text_candidates |= {i: nearest[word.text] for i, word in enumerate(text_words) if word.token is None}
        return dict(zip(ordered, zip(words, candidates, strict=True), strict=True))

    def _draw(
        self, example: Example, field: Changeable, words: list[Word], candidates: Candidates
    ) -> list[list[Replacement]]:
        """The replacements of each copy of one text."""
        options = [
            (word, candidates[i])
            for i, word in enumerate(words)
            if candidates.get(i) and field.allows(word.start, word.stop)
        ]
        generator = np.random.default_rng(seed_of(self.seed, "augment", field.field, repr(example)))
        is_replaced = generator.random((self.settings.copies, len(options))) < self.settings.replace_probability
        draws = generator.random((self.settings.copies, len(options)))
        copies, seen = [], {field.text}
        for copy_is_replaced, copy_draws in zip(is_replaced, draws, strict=True):
            replacements = [
                (word.start, word.stop, in_case_of(word.text, others[int(draw * len(others))]))
                for (word, others), replace, draw in zip(options, copy_is_replaced, copy_draws, strict=True)
                if replace
            ]
            if (text := spliced(field.text, replacements)) not in seen:
                seen.add(text)
                copies.append(replacements)
        return copies


def open_masked_lm(name: str | Path, device: str = "auto") -> EncoderModel:
    """Loads a model that fills in masks; raises a `ValueError` for any other."""
    encoder = load(name, device=device)
    if not isinstance(encoder, EncoderModel):
        raise ValueError(f"{name} is a decoder and cannot fill in masks: name an encoder for augmentation")
    _ = encoder.masked_lm  # raises if the model has no mlm head
    return encoder


def augment(
    examples: Sequence[Example | str],
    model: str | Path,
    copies: int = 20,
    *,
    vectors: str | Path | None = None,
    replace_probability: float = 0.4,
    candidates: int = 15,
    seed: int = 0,
) -> list[list[Example | str]]:
    """Augmented copies of each example or plain text: at most `copies` for each of its texts.

    >>> import hornbook
    >>> len(hornbook.augment(["the river and the bridge"], "runs/first", copies=2))
    1

    `model` fills in masked words. `vectors` is a text file of word vectors; it defaults to the token embeddings of the
    model.
    """
    settings = AugmentationSettings(copies, replace_probability, candidates, model, vectors)
    augmenter = Augmenter(open_masked_lm(model), settings, seed)
    augmented: list[list[Example | str]] = []
    for first in range(0, len(examples), CHUNK):
        chunk = examples[first : first + CHUNK]
        records = [TextExample("", example) if isinstance(example, str) else example for example in chunk]
        for example, record, changes in zip(chunk, records, augmenter.changes(records), strict=True):
            new = [record.copy(changed) for changed in changes]
            augmented.append([copy.text for copy in new] if isinstance(example, str) else new)
    return augmented
