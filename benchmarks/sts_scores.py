"""Spearman correlation on scored pairs (STS-B's dev.tsv) of an encoder's cosines, beside those of TF-IDF vectors and of
averaged word vectors (a text file as GloVe's).

    python benchmarks/sts_scores.py glue/STS-B MODEL [VECTORS]
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import TfidfVectorizer

import hornbook
from hornbook.tasks.reading.read import read
from hornbook.text.word_vectors import read_vectors


def averaged(texts: list[str], file: Path) -> np.ndarray:
    """The mean of the vectors of the words of each text; words without a vector are left out."""
    words = [re.findall(r"\w+|[^\w\s]", text.lower()) for text in texts]
    vectors, width = read_vectors(file, {word for its in words for word in its})
    means = [np.mean([vectors[word] for word in its if word in vectors] or [np.zeros(width)], 0) for its in words]
    return np.stack(means) / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)


def cosines(vectors_of: Callable[[list[str]], np.ndarray], examples: list) -> np.ndarray:
    first, second = (vectors_of([getattr(each, side) for each in examples]) for side in ("text", "pair"))
    return np.asarray((first * second).sum(1)).ravel()


def main() -> None:
    folder, model = Path(sys.argv[1]), sys.argv[2]
    data = read("similarity", folder)
    words = TfidfVectorizer(sublinear_tf=True).fit([text for each in data.splits["train"] for text in each.texts])
    methods = {"TF-IDF": lambda texts: words.transform(texts).toarray()}
    if len(sys.argv) > 3:
        methods["averaged word vectors"] = partial(averaged, file=Path(sys.argv[3]))
    methods[model] = partial(hornbook.load(model).embed, normalize=True)
    for split in ("dev", "test"):
        examples = [each for each in data.splits[split] if each.score is not None]
        if examples:
            scores = [each.score for each in examples]
            found = {name: spearmanr(cosines(its, examples), scores).statistic for name, its in methods.items()}
            print(f"{split}: {len(examples):,} pairs,", ", ".join(f"{name} {its:.4f}" for name, its in found.items()))


if __name__ == "__main__":
    main()
