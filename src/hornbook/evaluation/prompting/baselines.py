"""Baselines of tasks as text, without a model: chance, sentences of the article, and word-by-word translation with a
dictionary."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hornbook.tasks.text.definition import TextTask
from hornbook.tasks.text.metrics import TextAnswer
from hornbook.tasks.text.sources import Item
from hornbook.text.sentences import split_sentences
from hornbook.train.randomness import sample_of

TOKEN = re.compile(r"\w+(?:[-’]\w+)*['’]?|[^\w\s]")
NO_SPACE_BEFORE = re.compile(r"\s+([.,)\]%])")
NO_SPACE_AFTER = re.compile(r"(['’(\[])\s+")
NUM_ROUNDS = 5  # EM iterations for learning a dictionary


def baselines(task: TextTask, train: Sequence[Item], test: Sequence[Item]) -> dict[str, list[TextAnswer]]:
    """The answers of each of the task's baselines; a dictionary without data to learn from is left out."""
    field = task.baseline.field
    answers = {}
    for kind in task.baseline.kinds:
        if kind == "dictionary":
            if not train and not task.baseline.dictionary:
                continue
            file = task.baseline.dictionary
            words = read_dictionary(file) if file else learn_dictionary(train, field)
            texts = [translate_words(item.fields[field], words) for item in test]
        else:
            texts = [_three_sentences(item, field, kind == "random-3") for item in test]
        answers[kind] = [TextAnswer(item.answers, text) for item, text in zip(test, texts, strict=True)]
    return answers


def chance(test: Sequence[Item]) -> dict[str, float]:
    """Accuracy in percent of a random choice and, if all questions have the same choices, of always giving the most
    frequent answer."""
    accuracies = {"chance": 100 * float(np.mean([1 / len(item.choices) for item in test]))}
    if len({item.choices for item in test}) == 1:
        accuracies["commonest answer"] = majority(test)
    return accuracies


def majority(test: Sequence[Item]) -> float:
    """Accuracy in percent of always taking the choice at the position that is right most often."""
    return 100 * max(Counter(item.choices.index(item.answers[0]) for item in test).values()) / len(test)


def _three_sentences(item: Item, field: str, is_random: bool) -> str:
    sentences = [sentence.strip() for sentence in split_sentences(item.fields[field])]
    if is_random:
        return " ".join(sample_of(sentences, 3, "random-3", item.key))
    return " ".join(sentences[:3])


# ---- word-by-word translation


def translate_words(text: str, words: Mapping[str, str]) -> str:
    """The text with each word replaced by its translation; a word without one is kept.

    >>> translate_words("The cat, here.", {"the": "le", "cat": "chat"})
    'Le chat, here.'
    """
    translated = " ".join(words.get(token.lower(), token) for token in TOKEN.findall(text))
    translated = NO_SPACE_AFTER.sub(r"\1", NO_SPACE_BEFORE.sub(r"\1", translated))
    return translated[:1].upper() + translated[1:]


def read_dictionary(path: str | Path) -> dict[str, str]:
    """Reads a file with a word and its translation per line, separated by white space; a word's first one counts."""
    translations: dict[str, str] = {}
    for line_number, line in enumerate(Path(path).read_text(encoding="utf-8-sig").split("\n"), 1):
        if line.strip():
            word, _, translation = line.strip().partition("\t" if "\t" in line else " ")
            if not translation.strip():
                raise ValueError(
                    f"{path} line {line_number} has a word and no translation: write both, separated by a tab"
                )
            translations.setdefault(word.lower(), translation.strip())
    return translations


def learn_dictionary(train: Sequence[Item], field: str) -> dict[str, str]:
    """For each word its best translation by the product of both directions in IBM model 1 (Brown et al. 1993)."""
    pairs = [tuple(_tokens(text) for text in (item.fields[field], item.answers[0])) for item in train]
    spelled = [list(dict.fromkeys(word for pair in pairs for word in pair[side])) for side in (0, 1)]
    numbers = [{word: i for i, word in enumerate(side)} for side in spelled]
    # All pairs of a word of a sentence and a word of its translation, as (word, other word, sentence).
    columns = [
        (
            np.repeat([numbers[0][word] for word in first], len(second)),
            np.tile([numbers[1][word] for word in second], len(first)),
            np.full(len(first) * len(second), sentence),
        )
        for sentence, (first, second) in enumerate(pairs)
        if first and second
    ]
    words, others, sentences = (np.concatenate(column) for column in zip(*columns, strict=True))
    both = words.astype(np.int64) * len(numbers[1]) + others
    known, pair_of = np.unique(both, return_inverse=True)
    score = _translation_probabilities(known // len(numbers[1]), known % len(numbers[1]), pair_of, others, sentences)
    score *= _translation_probabilities(known % len(numbers[1]), known // len(numbers[1]), pair_of, words, sentences)
    best: dict[str, str] = {}
    for i in np.argsort(-score, kind="stable"):
        word, other = divmod(int(known[i]), len(numbers[1]))
        best.setdefault(spelled[0][word], spelled[1][other])
    return best


def _translation_probabilities(
    source: np.ndarray, target: np.ndarray, pair_of: np.ndarray, target_words: np.ndarray, sentences: np.ndarray
) -> np.ndarray:
    """p(target | source) of each known pair, by expectation maximisation: each occurrence of a target word is
    distributed over the source words of its sentence.

    `source` and `target` are the words of each known pair. For each co-occurrence in the data, `pair_of` is the index
    of its pair, `target_words` its target word and `sentences` its sentence.
    """
    _, occurrence = np.unique(sentences * (int(target.max()) + 1) + target_words, return_inverse=True)
    probability = np.ones(len(source))
    for _ in range(NUM_ROUNDS):
        expected = probability[pair_of]
        expected /= np.bincount(occurrence, expected)[occurrence]
        counts = np.bincount(pair_of, expected, len(source))
        probability = counts / np.bincount(source, counts)[source]
    return probability


def _tokens(text: str) -> list[str]:
    return [token.lower() for token in TOKEN.findall(text)]
