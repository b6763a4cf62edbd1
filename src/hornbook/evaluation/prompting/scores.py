"""Writes `scores.json` from the predictions of finished runs: scores with intervals by template and number of
examples, and those of baselines without a model: chance, sentences of the article, and word-by-word translation with a
dictionary."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hornbook.files import read_json_lines, refusing_damage, write_json
from hornbook.lifecycle.run_folder import SCORES
from hornbook.metrics.confidence_intervals import crossed_intervals
from hornbook.metrics.generation import signature
from hornbook.tasks.kinds.choice import ENOUGH_CHOICES
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.text_files import lines_of
from hornbook.tasks.text.definition import TextTask
from hornbook.tasks.text.metrics import METRICS, TextAnswer
from hornbook.tasks.text.sources import Item, ItemSplits
from hornbook.text.sentences import split_sentences
from hornbook.train.randomness import sample_of

if TYPE_CHECKING:
    from hornbook.evaluation.prompting.prompt import PromptRequest, PromptRun

PREDICTIONS = "predictions"  # the folder of prediction files, one per run
ALMOST_ALL = 0.95  # fraction of equal answers from which the model is considered to ignore the question
Statistics = dict[str, np.ndarray]  # for each metric, one row per question


def write_scores(
    out: Path, request: "PromptRequest", task: TextTask, runs: Sequence["PromptRun"], splits: ItemSplits
) -> dict[str, Any]:
    """Writes and returns the scores of all finished runs."""
    done = [run for run in runs if run.file(out).exists()]
    groups = dict.fromkeys((run.variant, run.shots) for run in done)
    with refusing_damage(out / PREDICTIONS, "remove its folder and resume"):
        points = [
            _point(out, task, [run for run in done if (run.variant, run.shots) == group], len(splits.test))
            for group in groups
        ]
    scores = {
        "kind": "prompt",
        "model": request.model,
        "task": task.name,
        "about": task.about,
        "data": request.data,
        "metric_for_best": task.metrics[0],
        "metrics": {name: _described(task, name) for name in task.metrics},
        "interval": "95% intervals by bootstrap over questions and seeds",
        "questions": len(splits.test),
        "runs": len(runs),
        "done": len(done),
        "points": points,
        "majority": majority(splits.test) if task.choices.is_given else None,
        "baselines": _baselines(task, splits.train, splits.test),
    }
    write_json(out / SCORES, scores)
    return scores


def _described(task: TextTask, name: str) -> dict[str, Any]:
    metric = METRICS[name]
    description = metric.description
    if name == "accuracy":
        description += f"; normalised by {task.choices.normalize}"
    if name == "bleu":
        description += f" ({signature()})"
    return {"words": description, "share": metric.is_share, "higher_is_better": metric.higher_is_better}


def _point(out: Path, task: TextTask, runs: Sequence["PromptRun"], num_questions: int) -> dict[str, Any]:
    """The scores over all seeds of one template and one number of examples."""
    by_seed = [_predictions(run.file(out), num_questions) for run in runs]
    lines = [line for of_seed in by_seed for line in of_seed]
    statistics = [
        {name: np.array([line["statistics"][name] for line in of_seed]) for name in task.metrics} for of_seed in by_seed
    ]
    nums = [line["examples"] for line in lines]
    return {
        "variant": runs[0].variant,
        "shots": runs[0].shots,
        "seeds": [run.seed for run in runs],
        "scores": scored(statistics),
        "shown": {"mean": float(np.mean(nums)), "fewest": min(nums), "whole": nums.count(runs[0].shots)},
        "cut": sum(line["cut"] for line in lines),
        "asked": len(lines),
        "degenerate": degenerate(by_seed) if task.choices.is_given else None,
    }


def _predictions(file: Path, num_questions: int) -> list[dict[str, Any]]:
    lines = read_json_lines(file)
    if len(lines) != num_questions:
        raise ValueError(
            f"{file} is damaged ({len(lines):,} valid lines for {num_questions:,} questions): remove it and resume"
        )
    return lines


def degenerate(by_seed: Sequence[Sequence[dict[str, Any]]]) -> str | None:
    """A message if a model gives almost always the same answer, from the prediction lines of each seed; else None.
    Choices are compared by their position, as each question may have its own."""
    lines = [line for of_seed in by_seed for line in of_seed]
    right = Counter(line["choices"].index(line["answers"][0]) for line in lines)
    most_given = [
        Counter(line["choices"].index(line["answer"]) for line in of_seed).most_common(1)[0] for of_seed in by_seed
    ]
    fraction = sum(num for _, num in most_given) / len(lines)
    if len(by_seed[0]) < ENOUGH_CHOICES or fraction < ALMOST_ALL or fraction <= max(right.values()) / len(lines):
        return None
    ((choice, _), *others) = most_given
    questions = f"{100 * fraction:.1f}% of the questions"
    if any(other != choice for other, _ in others):
        return f"it gives the same answer to {questions}, a different one for each seed"
    if len({tuple(line["choices"]) for line in lines}) == 1:
        return f"it answers '{lines[0]['choices'][choice]}' to {questions}"
    return f"it takes choice {choice + 1} for {questions}"


def scored(statistics: Sequence[Statistics]) -> dict[str, dict[str, Any]]:
    """For each metric the mean over seeds, its interval, and the score of each seed."""
    num_questions = len(next(iter(statistics[0].values())))

    def score(seed: int, chosen: np.ndarray) -> dict[str, float]:
        rows = statistics[seed]
        return {name: METRICS[name].score(values[chosen].sum(0), len(chosen)) for name, values in rows.items()}

    all_questions = np.arange(num_questions)
    by_seed = [score(seed, all_questions) for seed in range(len(statistics))]
    intervals = crossed_intervals(score, len(statistics), num_questions)
    return {
        name: {
            "value": float(np.mean([each[name] for each in by_seed])),
            "low": intervals[name][0],
            "high": intervals[name][1],
            "seeds": [each[name] for each in by_seed],
        }
        for name in statistics[0]
    }


def _baselines(task: TextTask, train: Sequence[Item], test: Sequence[Item]) -> dict[str, dict[str, Any]]:
    scores = {}
    if "accuracy" in task.metrics:
        scores |= {name: {"accuracy": {"value": value}} for name, value in chance(test).items()}
    text_metrics = [name for name in task.metrics if METRICS[name].needs == "text"]
    for name, answered in baselines(task, train, test).items():
        scores[name] = scored([{metric: METRICS[metric].rows(answered) for metric in text_metrics}])
    return scores


# ---- baselines without a model


TOKEN = re.compile(r"\w+(?:[-’]\w+)*['’]?|[^\w\s]")
NO_SPACE_BEFORE = re.compile(r"\s+([.,)\]%])")
NO_SPACE_AFTER = re.compile(r"(['’(\[])\s+")
NUM_ROUNDS = 5  # EM iterations for learning a dictionary
MAX_LEARNED = 20_000  # training pairs to learn it from: with 25 words each, they take 1.5 GB and 30 seconds


def baselines(task: TextTask, train: Sequence[Item], test: Sequence[Item]) -> dict[str, list[TextAnswer]]:
    """The answers of each of the task's baselines; a dictionary without data to learn from is left out."""
    field = task.baseline.field
    answers = {}
    for kind in task.baseline.kinds:
        if kind == "dictionary":
            if not train and not task.baseline.dictionary:
                continue
            file = task.baseline.dictionary
            learned_from = sample_of(train, MAX_LEARNED, "dictionary")
            words = read_dictionary(file) if file else learn_dictionary(learned_from, field)
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
    for line_number, line in enumerate(lines_of(Path(path), Reader()), 1):
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
