"""A text classifier as an estimator of scikit-learn: `fit`, `predict`, `predict_proba`, and what scikit-learn builds of
these, such as `GridSearchCV` and `Pipeline`."""

import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import unique_labels
from sklearn.utils.validation import check_is_fitted

from hornbook.devices import chosen_device
from hornbook.inference.predictor import Predictor, load_predictor
from hornbook.lifecycle.run_folder import ignore
from hornbook.runs.finetuning.finetune import finetune
from hornbook.tasks.reading.cells import is_missing
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.rows import in_memory


class TextClassifier(ClassifierMixin, BaseEstimator):
    """Fine-tunes a pre-trained model on texts and classes. A tenth of the texts is held out to choose the best epoch.

    Args:
        model: A run folder, a folder that `transformers` wrote, a Hugging Face name or a built-in model; by default the
            built-in model for the language of the texts.
        epochs, lr, batch_size: They default to the published values for the model.
        max_length: Maximum tokens per text; longer ones are truncated.
        seed: Random seed.
        out: A folder to keep the run in; by default it is not kept.
        overrides: Any setting of `hornbook finetune` by its dotted name.
        device: `cpu`, `cuda`, `cuda:1`; defaults to a GPU if there is one.

    After `fit`: `classes_`, `score_` (on the held-out texts) and `predictor_`.

    >>> from hornbook import TextClassifier
    >>> texts = ["a charming film", "a slow film"] * 10
    >>> classifier = TextClassifier("runs/first", epochs=1).fit(texts, ["good", "bad"] * 10)
    >>> classifier.predict_proba(["a charming film"]).shape, classifier.classes_.tolist()
    ((1, 2), ['bad', 'good'])
    """

    def __init__(
        self,
        model: str | Path | None = None,
        *,
        epochs: float | None = None,
        lr: float | None = None,
        batch_size: int | None = None,
        max_length: int | None = None,
        seed: int = 0,
        out: str | Path | None = None,
        overrides: dict | None = None,
        device: str = "auto",
    ):
        self.model, self.epochs, self.lr, self.batch_size = model, epochs, lr, batch_size
        self.max_length, self.seed, self.out, self.overrides, self.device = max_length, seed, out, overrides, device

    def fit(self, X: Any, y: Sequence[Any]) -> "TextClassifier":
        """Trains on texts (a list, an array, a Series, or a frame or list of one or two texts per row; of
        pandas, polars or datasets)."""
        items, labels = _items(X), _labels(y)
        if len(items) != len(labels):
            raise ValueError(f"there are {len(items):,} texts and {len(labels):,} labels: give one label per text")
        self.classes_ = unique_labels(labels)
        if len(self.classes_) < 2:
            raise ValueError(f"all labels are '{self.classes_[0]}': a classifier needs at least two classes")
        names = dict(zip(self.classes_.tolist(), self._names(), strict=True))
        rows = [
            {"text": item, "label": names[label]}
            if isinstance(item, str)
            else {"text": item[0], "pair": item[1], "label": names[label]}
            for item, label in zip(items, labels.tolist(), strict=True)
        ]
        columns = {"text": "text", "label": "label"} | ({} if isinstance(items[0], str) else {"pair": "pair"})
        overrides = dict(self.overrides or {})
        if self.max_length is not None:
            overrides["task.max_length"] = self.max_length
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run" if self.out is None else Path(self.out)
            settings = {"epochs": self.epochs, "lr": self.lr, "batch_size": self.batch_size, "seed": self.seed}
            result = finetune(
                self.model,
                rows,
                "classification",
                out,
                **columns,
                **settings,
                overrides=overrides,
                device=self.device,
                log=ignore,
            )
            self.score_ = result.score
            self.predictor_: Predictor = load_predictor(out, self.device)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, texts x classes, in the order of `classes_`."""
        check_is_fitted(self)
        items, names = _items(X), self._names()
        probabilities = np.full((len(items), len(names)), 1 / len(names))  # of an empty text, which has no prediction
        for row, prediction in enumerate(self.predictor_.predict(items)):
            if prediction is not None:
                probabilities[row] = [prediction.probabilities.get(name, 0.0) for name in names]
        return probabilities

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each text."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]

    def _names(self) -> list[str]:
        """The labels of the run, in the order of `classes_`: the classes as text, or numbers if that is ambiguous."""
        names = [str(label) for label in self.classes_.tolist()]
        is_unambiguous = len(set(names)) == len(names) and all(name and name == name.strip() for name in names)
        return names if is_unambiguous else [str(index) for index in range(len(names))]

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        if "predictor_" in state and self.predictor_.device.type != "cpu":  # a pickle must open where there is no GPU
            state = state | {"predictor_": copy.deepcopy(self.predictor_).to("cpu")}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "predictor_" in state:
            self.predictor_.to(chosen_device(self.device))


def _labels(y: Any) -> np.ndarray:
    """One class per text. A `ValueError` for several, or for one that is missing."""
    labels = np.asarray(y if hasattr(y, "__array__") else list(y))
    if labels.ndim > 1 and labels.shape[1] > 1:
        raise ValueError(
            f"y has {labels.shape[1]} columns: give one class per text; for several, hornbook.finetune with "
            "task='multi-label'"
        )
    labels = labels.ravel()
    for row, label in enumerate(labels.tolist(), 1):
        if not isinstance(label, str) and is_missing(label):
            raise ValueError(f"row {row} of y has no label: leave the row out of X and y")
    return labels


def _items(X: Any) -> list:
    """Texts, or pairs of texts, of whatever scikit-learn passes on."""
    if isinstance(X, str):
        raise ValueError("X is one text: give a list of texts")
    if hasattr(X, "column_names"):  # a table of pyarrow or datasets
        X = [list(row.fields.values()) for row in in_memory(X, "X", Reader()).rows]
    values = X.to_numpy() if hasattr(X, "to_numpy") else X
    rows = [row.tolist() if isinstance(row, np.ndarray) else row for row in values]
    items = [row[0] if isinstance(row, list | tuple) and len(row) == 1 else row for row in rows]
    if not items:
        raise ValueError("X has no texts: give at least one")
    for row, item in enumerate(items, 1):
        is_pair = isinstance(item, list | tuple) and len(item) == 2 and all(isinstance(text, str) for text in item)
        if not isinstance(item, str) and not is_pair:
            raise ValueError(f"row {row} of X is not a text or a pair of texts: give one or two columns of text")
        if isinstance(item, str) != isinstance(items[0], str):
            raise ValueError(f"X mixes texts and pairs of texts (rows 1 and {row}): give only one of them")
    return [item if isinstance(item, str) else tuple(item) for item in items]
