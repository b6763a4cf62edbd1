"""Exact match and F1 of text answers, by the rules of each data set's official script.

Scores are fractions between 0 and 1, which the official scripts print in percent.

SQUAD_1.score("The Eiffel Tower!", ("Eiffel tower", "tower"))    # (1.0, 1.0)
"""

import math
import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

ARTICLES = re.compile(r"\b(a|an|the)\b")
DROP_PUNCTUATION = str.maketrans("", "", string.punctuation)
# TriviaQA replaces punctuation by a space where the others drop it, so that "a-b" is two words.
SPACE_PUNCTUATION = str.maketrans(dict.fromkeys(string.punctuation + "‘’´", " "))
SPACE_KOREAN_QUOTES = str.maketrans(dict.fromkeys("'\"《》<>〈〉()‘’", " "))


def normalize_answer(text: str) -> str:
    """SQuAD's normalisation: lower case, without ASCII punctuation, articles and extra white space.

    Punctuation outside ASCII (curly quotes, long dashes, 「」) stays, as in the official script.
    """
    return _spaced(ARTICLES.sub(" ", text.lower().translate(DROP_PUNCTUATION)))


def trivia_qa_normalized(text: str) -> str:
    return _spaced(ARTICLES.sub(" ", text.lower().translate(SPACE_PUNCTUATION)))


def korquad_normalized(text: str) -> str:
    return _spaced(text.translate(SPACE_KOREAN_QUOTES).lower().translate(DROP_PUNCTUATION))


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _characters(text: str) -> list[str]:
    return list(text.replace(" ", ""))


@dataclass(frozen=True)
class Rules:
    normalize: Callable[[str], str] = normalize_answer
    units: Callable[[str], list[str]] = str.split
    empty_f1: float = 0.0  # F1 of two texts that are both empty once normalised
    drops_empty_answers: bool = False  # drop gold answers that normalise to ""; if none remains, gold is ""
    leaves_one_out: bool = False  # leave-one-out mean over the gold answers, as the human score is computed

    def score(self, prediction: str, answers: Sequence[str]) -> tuple[float, float]:
        """(exact match, F1) of one question, as fractions."""
        gold = [self.normalize(answer) for answer in answers]
        if self.drops_empty_answers:
            gold = [answer for answer in gold if answer] or [""]
        if not gold and self.empty_f1:
            gold = [""]  # unanswerable: the empty prediction is correct
        if not gold:
            raise ValueError("a question has no gold answer: use rules=SQUAD_2 for data with unanswerable questions")
        predicted = self.normalize(prediction)
        exact = [float(predicted == answer) for answer in gold]
        overlap = [_f1(self.units(predicted), self.units(answer), self.empty_f1) for answer in gold]
        return self._combined(exact), self._combined(overlap)

    def _combined(self, scores: list[float]) -> float:
        if not self.leaves_one_out or len(scores) == 1:
            return max(scores)
        return sum(max(scores[:left_out] + scores[left_out + 1 :]) for left_out in range(len(scores))) / len(scores)


SQUAD_1 = Rules()
SQUAD_2 = Rules(empty_f1=1.0, drops_empty_answers=True)
COQA = Rules(empty_f1=1.0, leaves_one_out=True)
TRIVIA_QA = Rules(normalize=trivia_qa_normalized)
KORQUAD = Rules(normalize=korquad_normalized, units=_characters)


def best_threshold(
    no_answer_scores: Sequence[float],
    predictions: Sequence[str],
    gold: Sequence[Sequence[str]],
    rules: Rules = SQUAD_2,
) -> tuple[float, float]:
    """(best F1, threshold): questions with a no-answer score above the threshold are left unanswered.

    This is SQuAD 2.0's search: questions are answered one by one, from the lowest no-answer score, and the first best
    point counts. With tied no-answer scores the search may stop within a tie, and then no threshold reaches the
    returned F1. If answering nothing is best, the official threshold is 0, which suits probabilities; for scores that
    reach 0 or below we return a threshold just below the lowest.
    """
    # F1 of each question when left unanswered: some of several annotators may have marked it as unanswerable.
    unanswered = [
        rules.score("", answers)[1] if answers and rules.leaves_one_out else float(not answers) for answers in gold
    ]
    answered = [
        rules.score(prediction, answers)[1] if answers else float(not prediction)
        for prediction, answers in zip(predictions, gold, strict=True)
    ]
    order = np.argsort(no_answer_scores, kind="stable")
    totals = np.cumsum([sum(unanswered), *np.subtract(answered, unanswered)[order]])
    num_answered = int(totals.argmax())
    if num_answered:
        threshold = no_answer_scores[order[num_answered - 1]]
    else:
        lowest = no_answer_scores[order[0]]
        threshold = 0.0 if lowest > 0 else math.nextafter(lowest, -math.inf)
    return float(totals[num_answered] / len(gold)), threshold


def threshold_curve(
    no_answer_scores: Sequence[float],
    predictions: Sequence[str],
    gold: Sequence[Sequence[str]],
    rules: Rules = SQUAD_2,
) -> list[tuple[float, float, float]]:
    """(threshold, exact match, F1), by rising threshold: questions with a no-answer score above it are left unanswered.
    The first point answers nothing; the others are at the scores, and hold up to the next one.

    >>> threshold_curve([-2.0, 1.0], ["Oslo", "Rome"], [["Oslo"], []])[1:]
    [(-2.0, 1.0, 1.0), (1.0, 0.5, 0.5)]
    """
    order = np.argsort(no_answer_scores, kind="stable")
    ordered = np.array(no_answer_scores, float)[order]
    unanswered_N2, answered_N2 = (
        np.array([rules.score(text, answers) for text, answers in zip(texts, gold, strict=True)])[order]
        for texts in ([""] * len(gold), predictions)
    )
    totals_N2 = unanswered_N2.sum(0) + np.cumsum(answered_N2 - unanswered_N2, 0)
    is_last = np.append(ordered[1:] != ordered[:-1], True)  # equal scores are answered together
    points = [(math.nextafter(ordered[0], -math.inf), *unanswered_N2.mean(0).tolist())]
    others = zip(ordered[is_last].tolist(), (totals_N2[is_last] / len(gold)).tolist(), strict=True)
    return points + [(threshold, *scores) for threshold, scores in others]


def _f1(predicted: list[str], gold: list[str], empty_f1: float) -> float:
    if not predicted and not gold:
        return empty_f1
    num_shared = (Counter(predicted) & Counter(gold)).total()
    if num_shared == 0:
        return 0.0
    precision, recall = num_shared / len(predicted), num_shared / len(gold)
    return 2 * precision * recall / (precision + recall)


def have_common_word(answer: str, gold: str) -> bool:
    """Whether two answers share a word, regardless of case; articles count only if there are no other words."""
    return bool(_plain_words(answer) & _plain_words(gold))


def _plain_words(text: str) -> set[str]:
    """A text without letters or digits counts as one word."""
    words = set(re.findall(r"\w+", text.lower()))
    return words - {"a", "an", "the"} or words or {text.strip()} - {""}
