"""Logistic and ridge regression of scikit-learn on features, for probes and baselines.

The models return logits like a network's head, so that a task decodes them in the same way. The regularisation strength
is chosen by cross-validation on the training split: by log-likelihood or, if the task's metric is the Matthews
correlation, by that, because the likeliest model then often predicts a single class.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from hornbook.lifecycle.run_folder import Log
from hornbook.models.head_config import MASKED_LOGIT
from hornbook.runs.finetuning.inputs import LabelledTask
from hornbook.tasks.task import Predict, Task
from hornbook.train.randomness import sample_of

Matrix = Any  # a NumPy array or a SciPy sparse matrix
DecisionFunction = Callable[[Matrix], np.ndarray]  # N x F to N x L
DENSE_CS = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # for columns of variance 1
SPARSE_CS = (1e-1, 1.0, 1e1, 1e2, 1e3)  # for rows of length 1
ALPHAS = tuple(np.logspace(-2, 6, 17))
NUM_FOLDS = 5
MAX_FOR_ALL_FOLDS = 2_000  # examples; beyond, one fold is enough
MAX_WORDS = 50_000  # training words at most for regression on words, which holds all of them in memory
MAX_FOR_CV = 10_000  # examples for choosing C, which hardly depends on their number
MAX_FOR_ALPHA = 2_000  # the same for alpha, where the time grows with the cube of the number: 70 seconds for 4,000
MAX_ITERATIONS = 300


class Fitted(NamedTuple):
    decision_function: DecisionFunction
    params: dict[str, Any]  # C (multi-label: one per class; one class only: none), or alpha of ridge regression


@contextmanager
def _quietly() -> Iterator[None]:
    """Context without convergence warnings: weakly regularised models do not converge on separable data, and lose the
    cross-validation anyway. It also limits the solver to one thread."""
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    # The solver multiplies small matrices and vectors: spreading that over two busy cores took 30 times as long.
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        yield


def fit_texts(labelled: LabelledTask, features: Callable[[list], Matrix]) -> tuple[Predict, dict[str, Any]]:
    """A linear model on the `features` of examples: the function that predicts, and what was fitted."""
    task, train, seed = labelled.spec.task, labelled.train, labelled.settings.runtime.seed
    model = fit_labels(task, features(train), task.targets(train), seed)

    def predict(examples: list) -> list:
        return task.decode(list(model.decision_function(features(examples))), None, examples)

    return predict, model.params


def fit_labels(task: Task, features: Matrix, targets: np.ndarray, seed: int) -> Fitted:
    """The linear model for the problem type of a task, fitted on one target per row; unknown classes are left out."""
    if task.problem_type == "regression":
        return fit_ridge(features, targets, seed)
    if task.problem_type == "multi_label_classification":
        return fit_multi_label(features, targets, seed)
    known = targets >= 0
    return fit_logistic(features[known], targets[known], task.head_config.num_labels, seed, task.metrics[0])


@_quietly()
def fit_logistic(
    features: Matrix, targets: np.ndarray, num_labels: int, seed: int, metric_for_best: str = ""
) -> Fitted:
    """Logistic regression for one of `num_labels` classes. Classes without training examples are never predicted."""
    classes = np.unique(targets)
    if len(classes) == 1:
        return Fitted(lambda x: _spread(np.zeros((x.shape[0], 1)), classes, num_labels), {})
    best_c = _best_c(features, targets, seed, metric_for_best)
    model = _logistic(features, best_c)
    model.fit(features, targets)

    def decision_function(x: Matrix) -> np.ndarray:
        logits = model.decision_function(x)
        logits = np.stack([np.zeros_like(logits), logits], 1) if logits.ndim == 1 else logits
        return _spread(logits, classes, num_labels)

    return Fitted(decision_function, {"C": best_c})


def fit_multi_label(features: Matrix, holds: np.ndarray, seed: int) -> Fitted:
    """A separate logistic regression per class (multi-label); `holds` is N x L of 0 and 1."""
    models = [fit_logistic(features, column.astype(int), 2, seed) for column in holds.T]

    def decision_function(x: Matrix) -> np.ndarray:
        logits = [model.decision_function(x) for model in models]
        return np.stack([each[:, 1] - each[:, 0] for each in logits], 1)

    return Fitted(decision_function, {"C": [model.params.get("C") for model in models]})


@_quietly()
def fit_ridge(features: Matrix, targets: np.ndarray, seed: int) -> Fitted:
    """Ridge regression; its alpha is chosen by generalised cross-validation."""
    from sklearn.linear_model import Ridge, RidgeCV

    sample = _sample(len(targets), MAX_FOR_ALPHA, seed)
    model = _scaled(features, RidgeCV(ALPHAS)).fit(features[sample], targets[sample])
    alpha = float(model[-1].alpha_)
    if len(sample) < len(targets):
        model = _scaled(features, Ridge(alpha)).fit(features, targets)
    return Fitted(lambda x: model.predict(x)[:, None], {"alpha": alpha})


def sampled_words(num_words: int, seed: int, log: Log) -> np.ndarray:
    """The indices of the training words that regression on words uses: all, or a random sample of `MAX_WORDS`."""
    if num_words <= MAX_WORDS:
        return np.arange(num_words)
    log(f"logistic regression on a random sample of {MAX_WORDS:,} of {num_words:,} training words")
    return np.array(sample_of(range(num_words), MAX_WORDS, seed, "words"))


def _sample(num: int, most: int, seed: int) -> np.ndarray:
    """The indices of `most` of `num` examples, or of all, in ascending order."""
    return np.sort(np.random.default_rng(seed).permutation(num)[:most])


def _spread(logits: np.ndarray, classes: np.ndarray, num_labels: int) -> np.ndarray:
    """Logits of some classes as logits of all classes."""
    all_logits = np.full((len(logits), num_labels), MASKED_LOGIT)
    all_logits[:, classes] = logits
    return all_logits


def _logistic(features: Matrix, c: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    return _scaled(features, LogisticRegression(C=c, max_iter=MAX_ITERATIONS))


def _scaled(features: Matrix, model: Any) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler() if isinstance(features, np.ndarray) else "passthrough", model)


def _best_c(features: Matrix, targets: np.ndarray, seed: int, metric_for_best: str) -> float:
    """The best C by cross-validation on the classes with two or more examples; the middle one without two of those."""
    from sklearn.metrics import log_loss, matthews_corrcoef
    from sklearn.model_selection import StratifiedKFold

    candidates = DENSE_CS if isinstance(features, np.ndarray) else SPARSE_CS
    if len(targets) > MAX_FOR_CV:
        sample = _sample(len(targets), MAX_FOR_CV, seed)
        features, targets = features[sample], targets[sample]
    _, inverse, counts = np.unique(targets, return_inverse=True, return_counts=True)
    if (counts > 1).sum() < 2:
        return candidates[len(candidates) // 2]
    features, targets = features[counts[inverse] > 1], targets[counts[inverse] > 1]
    num_folds = min(NUM_FOLDS, int(counts[counts > 1].min()))
    splits = list(StratifiedKFold(num_folds, shuffle=True, random_state=seed % 2**32).split(features, targets))
    if len(targets) > MAX_FOR_ALL_FOLDS:
        splits = splits[:1]
    gold, classes = np.concatenate([targets[held_out] for _, held_out in splits]), np.unique(targets)
    scores = []
    for c in candidates:
        of_folds = []
        for train, held_out in splits:
            model = _logistic(features, c)
            model.fit(features[train], targets[train])
            of_folds.append(model.predict_proba(features[held_out]))
        probabilities = np.concatenate(of_folds)
        if metric_for_best == "matthews":
            scores.append(matthews_corrcoef(gold, classes[probabilities.argmax(1)]))
        else:
            scores.append(-log_loss(gold, probabilities, labels=classes))
    return candidates[int(np.argmax(scores))]
