"""Spearman correlation on scored pairs (STS-B's dev.tsv) of an encoder's cosines, beside cosines of TF-IDF vectors.

python benchmarks/sts_scores.py glue/STS-B MODEL
"""

import sys
from pathlib import Path

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

import hornbook
from hornbook.tasks.reading.read import read


def spearman(task, examples: list, cosines: np.ndarray) -> float:
    from hornbook.tasks.kinds.similarity import SimilarityPrediction

    return task.scorer(examples, [SimilarityPrediction(float(each)) for each in cosines])(None)["spearman"]


def main() -> None:
    folder, model = Path(sys.argv[1]), sys.argv[2]
    data = read("similarity", folder)
    predictor = hornbook.load_predictor(model)
    for split in ("dev", "test"):
        examples = [each for each in data.splits[split] if each.score is not None]
        if not examples:
            continue
        words = TfidfVectorizer(sublinear_tf=True).fit([text for each in data.splits["train"] for text in each.texts])
        first, second = (words.transform([getattr(each, side) for each in examples]) for side in ("text", "pair"))
        by_words = np.asarray(first.multiply(second).sum(1)).ravel()
        cosines = np.array([each.similarity for each in predictor.predict_examples(examples)])
        scores = f"TF-IDF {spearman(predictor.task, examples, by_words):.4f}"
        print(f"{split}: {len(examples):,} pairs, {scores}, {model} {spearman(predictor.task, examples, cosines):.4f}")


if __name__ == "__main__":
    main()
