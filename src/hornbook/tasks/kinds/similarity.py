"""Similarity: texts are embedded separately, so that similar ones get vectors of high cosine.

The form of the training data decides the loss (`objectives/similarity.py`): pairs, triplets and single texts are
trained with in-batch negatives, scored pairs by the squared error of the cosine. Scored pairs are judged by rank
correlation, others by whether each text finds its pair among all pairs of the split.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hornbook.interop.sentence_transformers import EmbeddingSettings, write_embedding_settings
from hornbook.metrics import regression
from hornbook.metrics.breakdown import Mistake
from hornbook.metrics.formatting import number
from hornbook.models.head_config import HeadConfig, HeadOptions
from hornbook.tasks.encoded import EncodedExamples, Outputs, Scorer, l2_normalized, mean_scorer
from hornbook.tasks.kinds.regression import number_range
from hornbook.tasks.kinds.sequence import as_encoded_examples, encode_texts
from hornbook.tasks.reading.reader import Reader
from hornbook.tasks.reading.similarity import CustomSimilarity
from hornbook.tasks.records import DataSet, SimilarityExample, Splits, TextExample
from hornbook.tasks.task import Predict, RegisteredTask, Task, is_list_of_texts

if TYPE_CHECKING:
    from hornbook.text.tokenizer import Tokenizer

SCORED, RANKED = ("spearman", "pearson"), ("mrr", "accuracy")  # metrics of scored pairs, and of others
SAME_VECTORS = 1e-4  # standard deviation of cosines below which all texts have the same vector
ROWS_AT_ONCE = 1024  # of the matrix of all cosines


@dataclass(frozen=True)
class SimilarityPrediction:
    """`similarity`: cosine of text and pair. `rank`: rank of the pair among all pairs of the split, by similarity to
    the text, from 1; `nearest_wrong`: the most similar text that is not the pair, with its similarity
    (`wrong_similarity`)."""

    similarity: float
    rank: int = 1
    nearest_wrong: str | None = None
    wrong_similarity: float | None = None


@dataclass(frozen=True)
class Similarity(Task):
    """`score_range`: the lowest and highest score of the training split, which become cosines of 0 and 1."""

    kind = "similarity"
    description = "vectors that are similar for similar texts"
    accepted_inputs = "a (text, pair), or a dictionary with text and pair"
    example = SimilarityExample
    custom_layout = CustomSimilarity()
    output = "vectors"
    problem_type = "regression"
    default_metrics = SCORED
    other_metrics = RANKED
    saved_fields = ("metrics", "score_range")
    max_length = 256
    tab_separated = "a text and its pair"
    min_scored = 2
    has_baselines = False
    mistake_order = "nearest wrong results"
    hf_class = "Model"

    head_config: HeadConfig
    metrics: tuple[str, ...]
    score_range: tuple[float, float] | None = None

    # ---- reading

    @classmethod
    def from_list(cls, key: str, items: Sequence[Any]) -> SimilarityExample | None:
        return SimilarityExample(key, *items) if len(items) in (2, 3) and is_list_of_texts(items) else None

    @classmethod
    def in_scored_form(cls, splits: Splits, reader: Reader) -> Splits:
        """Single texts are scored by whether the first half of a text finds its second half."""
        for name in [name for name in splits if name != "train" and any(each.pair is None for each in splits[name])]:
            reader.log(f"{name} has single texts: scored by finding the second half of each text by its first half")
            splits = splits | {name: [_halves(each) if each.pair is None else each for each in splits[name]]}
        return splits

    @classmethod
    def refuse_training(cls, data: DataSet) -> None:
        forms = {(each.pair is None, each.negative is None, each.score is None) for each in data.splits["train"]}
        if len(forms) > 1:
            raise ValueError("the training rows mix pairs, scored pairs, triplets or single texts: give one form only")
        if len({each.texts for each in data.splits["train"]}) < 2:
            raise ValueError("all training rows have the same texts, so there is nothing to learn: give more rows")

    @classmethod
    def statistics(cls, data: DataSet) -> dict[str, Any]:
        scores = [each.score for split in data.splits.values() for each in split if each.score is not None]
        return {"numbers": number_range(scores)} if scores else {}

    # ---- making a task

    @classmethod
    def head_config_for(cls, data: DataSet, options: HeadOptions) -> HeadConfig:
        if options.pair_encoding != "joint":
            raise ValueError("similarity always encodes the texts of a pair separately: leave out task.pair_encoding=")
        first = (data.splits.get("train") or next(iter(data.splits.values())))[0]
        problem_type = "single_label_classification" if first.score is None else "regression"
        return HeadConfig("vectors", problem_type=problem_type, layers=options.layers)

    @classmethod
    def details_for(cls, registered: RegisteredTask, data: DataSet) -> dict[str, Any]:
        scores = [each.score for each in data.splits.get("train", ()) if each.score is not None]
        if len(scores) > 1 and min(scores) == max(scores):
            raise ValueError(
                f"all scores of train are {scores[0]:g}, so nothing can be learned from them: leave out that column to "
                "learn from similar pairs without scores"
            )
        is_scored = all(each.score is not None for each in data.splits.get("dev", ()))
        metrics = list(SCORED if is_scored else RANKED)
        return {"metrics": metrics, "score_range": [min(scores), max(scores)] if scores else None}

    @classmethod
    def build(cls, head_config: HeadConfig, details: Mapping[str, Any]) -> Self:
        score_range = details.get("score_range")
        metrics = tuple(details.get("metrics") or cls.default_metrics)
        return cls(head_config, metrics, (float(score_range[0]), float(score_range[1])) if score_range else None)

    # ---- encoding, decoding, scoring

    def encode(self, examples: Sequence[SimilarityExample], tokenizer: "Tokenizer", max_length: int) -> EncodedExamples:
        """Each text is a sequence. A single text is encoded twice, so that it has two dropout masks. Labels are the
        scores as cosines or, for in-batch negatives, a number for each different text."""
        num_texts = max((len(each.texts) for each in examples), default=2)
        groups = [padded_texts(each, max(2, num_texts)) for each in examples]
        texts = [text for group in groups for text in group]
        encodings = encode_texts([TextExample("", text) for text in texts], tokenizer, max_length)
        encoded = as_encoded_examples(*encodings, max(2, num_texts), None)
        if not examples:
            return encoded
        if all(each.score is not None for each in examples):
            labels = np.repeat(self._as_cosines([each.score for each in examples]), encoded.group_size)
            return replace(encoded, labels=labels.astype(np.float32))
        return replace(encoded, labels=numbered(texts))

    def _as_cosines(self, scores: Sequence[float]) -> np.ndarray:
        low, high = self.score_range or (min(scores), max(scores))
        return (np.array(scores, float) - low) / ((high - low) or 1.0)

    def decode(
        self, outputs: Outputs, encoded: EncodedExamples | None, examples: Sequence[SimilarityExample]
    ) -> list[SimilarityPrediction]:
        if not outputs:
            return []
        vectors_KGD = l2_normalized(np.stack(outputs).astype(np.float32))
        texts = [each.text for each in examples]
        pairs = [each.pair or each.text for each in examples]
        negatives = [each.negative for each in examples] if all(each.negative for each in examples) else []
        others_CD = np.concatenate([vectors_KGD[:, 1], *([vectors_KGD[:, 2]] if negatives else [])])
        return ranked(vectors_KGD[:, 0], others_CD, texts, pairs, [*pairs, *negatives])

    def average(self, logits: np.ndarray) -> np.ndarray:
        """The concatenation of several models' vectors, so that their cosines are averaged."""
        return np.concatenate(list(l2_normalized(logits)), -1)

    def decision(self, outputs: np.ndarray) -> None:
        return None

    def scorer(self, examples: Sequence[SimilarityExample], predictions: list[SimilarityPrediction]) -> Scorer:
        if self.compares_examples(examples):
            ranks = np.array([each.rank for each in predictions], float)
            return mean_scorer({"mrr": 1 / ranks, "accuracy": ranks == 1})
        return regression.correlations([each.score for each in examples], [each.similarity for each in predictions])

    @classmethod
    def compares_examples(cls, examples: Sequence[SimilarityExample]) -> bool:
        return any(each.score is None for each in examples)

    def describe(self, example: SimilarityExample, prediction: SimilarityPrediction) -> dict[str, Any]:
        row = example.inputs | {"similarity": prediction.similarity}
        if prediction.nearest_wrong is None:
            return row
        return row | {name: getattr(prediction, name) for name in ("rank", "nearest_wrong", "wrong_similarity")}

    # ---- baselines

    def best_constant(self, gold: list) -> tuple[str, Predict] | None:
        if not all(isinstance(each, float) for each in gold):
            return None
        same = SimilarityPrediction(1.0)
        return "giving all texts the same vector", lambda examples: [same] * len(examples)

    def degenerate(self, examples: Sequence[SimilarityExample], predictions: list[SimilarityPrediction]) -> str | None:
        wrong = [each.wrong_similarity for each in predictions if each.wrong_similarity is not None]
        values = np.array([each.similarity for each in predictions])
        if len(wrong) > 1 and max(values.std(), np.abs(values[: len(wrong)] - wrong).max()) < SAME_VECTORS:
            return "the model gives all texts about the same vector"
        return None

    # ---- reporting

    @classmethod
    def mistakes(cls, rows: list[dict[str, Any]]) -> Iterator[tuple[float, Mistake]]:
        """The pairs that other texts come before: the farther behind, the worse."""
        for row in rows:
            if number(row.get("rank", 1)) > 1 and not isinstance(row["gold"], float):
                right, wrong = number(row["similarity"]), number(row["wrong_similarity"])
                gold, predicted = f"{row.get('pair', '')} ({right:.3f})", f"{row['nearest_wrong']} ({wrong:.3f})"
                texts = {"key": row.get("key"), "text": row.get("text", "")}
                yield wrong - right, Mistake.of(texts, gold, predicted, f"rank {int(number(row['rank']))}")

    def write_files(self, folder: Path, width: int, max_length: int | None) -> None:
        """Writes what `sentence-transformers` reads, so that it opens the folder."""
        settings = EmbeddingSettings(self.head_config.pooling or "mean", normalize=True, max_length=max_length)
        write_embedding_settings(folder, settings, width)


def ranked(
    vectors_KD: np.ndarray, others_CD: np.ndarray, texts: list[str], pairs: list[str], others: list[str]
) -> list[SimilarityPrediction]:
    """For each text the similarity and the rank of its pair among all C other texts, of which the first K are the
    pairs. Texts equal to the text, to its pair, or to the pair of an equal text are not wrong answers."""
    ids = numbered([*texts, *others])
    text_ids_K, other_ids_C = ids[: len(texts)], ids[len(texts) :]
    pair_ids_K = other_ids_C[: len(texts)]
    predictions = []
    for first in range(0, len(texts), ROWS_AT_ONCE):
        block = slice(first, first + ROWS_AT_ONCE)
        cosines = vectors_KD[block] @ others_CD.T
        right = cosines[np.arange(len(cosines)), np.arange(first, first + len(cosines))]
        is_right = (other_ids_C == text_ids_K[block, None]) | (other_ids_C == pair_ids_K[block, None])
        is_right[:, : len(texts)] |= text_ids_K == text_ids_K[block, None]
        cosines[is_right] = -np.inf
        nearest = cosines.argmax(1).tolist()
        ranks = 1 + len(others) - (cosines < right[:, None]).sum(1)  # the last one where a vector is not a number
        for row, similarity, rank, index in zip(cosines, right, ranks, nearest, strict=True):
            wrong = (others[index], float(row[index])) if np.isfinite(row[index]) else (None, None)
            predictions.append(SimilarityPrediction(float(similarity), int(rank), *wrong))
    return predictions


def numbered(texts: Sequence[str]) -> np.ndarray:
    """A number for each text, equal for equal texts. In an array of texts each would be as long as the longest.

    >>> numbered(["b", "a", "b"]).tolist()
    [0, 1, 0]
    """
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)


def padded_texts(example: SimilarityExample, num: int) -> tuple[str, ...]:
    """The texts of an example, the last one repeated up to `num`."""
    return example.texts + example.texts[-1:] * (num - len(example.texts))


def _halves(example: SimilarityExample) -> SimilarityExample:
    """The first and the second half of the words of a text, as a pair; a single word is its own pair."""
    words = example.text.split()
    middle = (len(words) + 1) // 2
    return replace(example, text=" ".join(words[:middle]), pair=" ".join(words[middle:]) or example.text)
