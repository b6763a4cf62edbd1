"""Linear models from scikit-learn on any features. They return logits like a network's head, so that a task decodes
them in the same way.

The regularisation strength is chosen by cross-validation on the training split: by log-likelihood or, if the task's
metric is the Matthews correlation, by that, because the likeliest model then often predicts a single class.
"""

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from hornbook.models.head_config import MASKED_LOGIT
from hornbook.tasks.kind import TaskKind
from hornbook.train.randomness import seed_of

Matrix = Any  # a NumPy array or a SciPy sparse matrix
Score = Callable[[Matrix], np.ndarray]  # N x F to N x L
DENSE_STRENGTHS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # C, for columns of variance 1
SPARSE_STRENGTHS = (1e-1, 1.0, 1e1, 1e2, 1e3)  # C, for rows of length 1
ALPHAS = tuple(np.logspace(-2, 6, 17))
NUM_FOLDS = 5
FEW = 2_000  # examples up to which all folds are used; beyond, one fold is enough
MAX_WORDS = 50_000  # training words at most for regression on words, which holds all of them in memory
MANY = 10_000  # examples at most for choosing the strength, which hardly depends on their number
MAX_ITERATIONS = 300


class Fitted(NamedTuple):
    score: Score
    strength: float | list[float] | None  # C (one per class for multi-label), or alpha for numbers


def fit_labels(task: TaskKind, features: Matrix, targets: np.ndarray, seed: int) -> Fitted:
    """The linear model for the kind of label of a task, fitted on one target per row; unknown classes are left out."""
    if task.label_kind == "number":
        return fit_number(features, targets)
    if task.label_kind == "classes":
        return fit_several(features, targets, seed)
    known = targets >= 0
    return fit_classes(features[known], targets[known], task.head_config.num_labels, seed, task.metrics[0])


def fit_classes(features: Matrix, numbers: np.ndarray, num_labels: int, seed: int, metric_for_best: str = "") -> Fitted:
    """Logistic regression for one of `num_labels` classes. Classes without training examples are never predicted."""
    kinds = np.unique(numbers)
    if len(kinds) == 1:

        def always(x: Matrix) -> np.ndarray:
            return _spread(np.zeros((x.shape[0], 1)), kinds, num_labels)

        return Fitted(always, None)
    strength = _best_strength(features, numbers, seed, metric_for_best)
    model = _logistic(features, strength)
    _quietly(model.fit, features, numbers)

    def score(x: Matrix) -> np.ndarray:
        found = model.decision_function(x)
        found = np.stack([np.zeros_like(found), found], 1) if found.ndim == 1 else found
        return _spread(found, kinds, num_labels)

    return Fitted(score, strength)


def fit_several(features: Matrix, holds: np.ndarray, seed: int) -> Fitted:
    """A separate logistic regression per class (multi-label); `holds` is N x L of 0 and 1."""
    each = [fit_classes(features, column.astype(int), 2, seed) for column in holds.T]

    def score(x: Matrix) -> np.ndarray:
        found = [fitted.score(x) for fitted in each]
        return np.stack([two[:, 1] - two[:, 0] for two in found], 1)

    return Fitted(score, [fitted.strength for fitted in each])


def fit_number(features: Matrix, numbers: np.ndarray) -> Fitted:
    """Ridge regression; its strength is chosen by generalised cross-validation."""
    from sklearn.linear_model import RidgeCV

    model = _scaled(features, RidgeCV(ALPHAS))
    _quietly(model.fit, features, numbers)
    return Fitted(lambda x: model.predict(x)[:, None], float(model[-1].alpha_))


def sampled_words(num_words: int, seed: int, log: Callable[[str], None]) -> np.ndarray:
    """The indices of the training words that regression on words uses: all, or a random sample of `MAX_WORDS`."""
    if num_words <= MAX_WORDS:
        return np.arange(num_words)
    log(f"logistic regression on a random sample of {MAX_WORDS:,} of {num_words:,} training words")
    return np.sort(np.random.default_rng(seed_of(seed, "words")).permutation(num_words)[:MAX_WORDS])


def _spread(logits: np.ndarray, kinds: np.ndarray, num_labels: int) -> np.ndarray:
    """Logits of the classes `kinds` as logits of all classes."""
    found = np.full((len(logits), num_labels), MASKED_LOGIT)
    found[:, kinds] = logits
    return found


def _logistic(features: Matrix, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return _scaled(features, LogisticRegression(C=strength, max_iter=MAX_ITERATIONS))


def _scaled(features: Matrix, model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler() if isinstance(features, np.ndarray) else "passthrough", model)


def _best_strength(features: Matrix, numbers: np.ndarray, seed: int, metric_for_best: str) -> float:
    """The best C by cross-validation on the classes with at least two examples; the middle one if fewer than two
    classes have that many."""
    from sklearn.metrics import log_loss, matthews_corrcoef
    from sklearn.model_selection import StratifiedKFold

    strengths = DENSE_STRENGTHS if isinstance(features, np.ndarray) else SPARSE_STRENGTHS
    if len(numbers) > MANY:
        some = np.sort(np.random.default_rng(seed).permutation(len(numbers))[:MANY])
        features, numbers = features[some], numbers[some]
    kinds, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    if (counts > 1).sum() < 2:
        return strengths[len(strengths) // 2]
    features, numbers = features[counts[inverse] > 1], numbers[counts[inverse] > 1]
    rarest = int(counts[counts > 1].min())
    splits = list(
        StratifiedKFold(min(NUM_FOLDS, rarest), shuffle=True, random_state=seed % 2**32).split(features, numbers)
    )
    if len(numbers) > FEW:
        splits = splits[:1]
    right, kinds = np.concatenate([numbers[left_out] for _, left_out in splits]), np.unique(numbers)
    scores = []
    for strength in strengths:
        found = []
        for kept, left_out in splits:
            model = _logistic(features, strength)
            _quietly(model.fit, features[kept], numbers[kept])
            found.append(model.predict_proba(features[left_out]))
        probabilities = np.concatenate(found)
        if metric_for_best == "matthews":
            scores.append(matthews_corrcoef(right, kinds[probabilities.argmax(1)]))
        else:
            scores.append(-log_loss(right, probabilities, labels=kinds))
    return strengths[int(np.argmax(scores))]


def _quietly(fit: Callable, *arguments: Any) -> None:
    """Fits without convergence warnings: weakly regularised models do not converge on separable data, and lose the
    cross-validation anyway."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # The solver multiplies small matrices and vectors: spreading that over two busy cores took 30 times as long.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit(*arguments)
