"""Scores of a whole data set in one call, from the functions that the scorers of tasks use."""

from collections import Counter

import numpy as np

from hornbook.metrics.classification import as_indices, class_counts, multi_label_counts, multi_label_scores
from hornbook.metrics.regression import order, pearson, ranks
from hornbook.metrics.spans import COQA, KORQUAD, SQUAD_1, SQUAD_2, TRIVIA_QA
from hornbook.metrics.tagging import entities


def counted(gold, predicted):
    labels, gold_N, predicted_N = as_indices(gold, predicted)
    return class_counts(gold_N, predicted_N, len(labels))


def accuracy(gold, predicted):
    return counted(gold, predicted).accuracy()


def f1(gold, predicted, positive):
    labels = as_indices(gold, predicted)[0]
    return counted(gold, predicted).f1(labels.index(positive)) if positive in labels else 0.0


def macro_f1(gold, predicted):
    return counted(gold, predicted).macro_f1()


def matthews(gold, predicted):
    return counted(gold, predicted).matthews()


def multi_label_f1(gold, predicted, labels):
    counts = multi_label_counts(gold, predicted, labels)
    return multi_label_scores(counts.sum(0), len(counts))


def spearman(gold, predicted):
    return pearson(*(ranks(order(np.asarray(side, float))) for side in (gold, predicted)))


def exact_match(prediction, answers):
    return SQUAD_2.score(prediction, answers)[0]


def token_f1(prediction, answers):
    return SQUAD_2.score(prediction, answers)[1]


def coqa_f1(prediction, references):
    return COQA.score(prediction, references)[1]


def question_scores(predictions, gold, rules):
    """(exact match, F1) of each question, as fractions."""
    return {question: rules.score(predictions[question], answers) for question, answers in gold.items()}


def score_spans(predictions, gold, has_unanswerable):
    """`exact`, `f1` (percent) and `total`; with `has_unanswerable` also for the two kinds of questions."""
    scores = question_scores(predictions, gold, SQUAD_2 if has_unanswerable else SQUAD_1)
    result = percent(scores.values())
    if has_unanswerable:
        for name, is_answerable in (("HasAns", True), ("NoAns", False)):
            part = [score for question, score in scores.items() if bool(gold[question]) == is_answerable]
            if part:
                result |= {f"{name}_{metric}": value for metric, value in percent(part).items()}
    return result


def score_korquad(predictions, gold):
    return percent(question_scores(predictions, gold, KORQUAD).values())


def score_coqa(predictions, gold):
    return percent(question_scores(predictions, gold, COQA).values())


def score_trivia_qa(predictions, gold):
    return percent(question_scores(predictions, gold, TRIVIA_QA).values())


def percent(scores):
    exact, overlap = zip(*scores, strict=True)
    return {"exact": 100 * sum(exact) / len(exact), "f1": 100 * sum(overlap) / len(exact), "total": len(exact)}


def apply_threshold(predictions, no_answer_scores, threshold):
    """The predictions, empty where the no-answer score is above the threshold."""
    return {question: "" if no_answer_scores[question] > threshold else text for question, text in predictions.items()}


def entity_scores(gold, predicted):
    """`precision`, `recall`, `f1` and `support` over all entities, and the same per type under `types`."""
    in_gold, in_predicted, in_both = Counter(), Counter(), Counter()
    for gold_tags, predicted_tags in zip(gold, predicted, strict=True):
        gold_entities, predicted_entities = set(entities(gold_tags)), set(entities(predicted_tags))
        in_gold.update(kind for kind, _, _ in gold_entities)
        in_predicted.update(kind for kind, _, _ in predicted_entities)
        in_both.update(kind for kind, _, _ in gold_entities & predicted_entities)
    kinds = sorted(in_gold | in_predicted)
    return {
        **entity_score(in_both.total(), in_predicted.total(), in_gold.total()),
        "types": {kind: entity_score(in_both[kind], in_predicted[kind], in_gold[kind]) for kind in kinds},
    }


def entity_score(num_correct, num_predicted, num_gold):
    precision = num_correct / num_predicted if num_predicted else 0.0
    recall = num_correct / num_gold if num_gold else 0.0
    f1 = 2 * precision * recall / (precision + recall) if num_correct else 0.0
    return {"precision": precision, "recall": recall, "f1": f1, "support": num_gold}


def tag_accuracy(gold, predicted):
    pairs = [pair for tags in zip(gold, predicted, strict=True) for pair in zip(*tags, strict=True)]
    return sum(a == b for a, b in pairs) / len(pairs)
