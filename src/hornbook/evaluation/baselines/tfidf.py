"""Baselines on words.

tfidf      a linear model on word counts, the most frequent tag of each word, the choice nearest to its context, or a
           sliding window over the passage
vectors    a linear model on means of word vectors, which come from a file or are the token embeddings of a model, or
           the choice nearest to its context
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.evaluation.baselines.linear import fit_logistic, fit_texts, sampled_words
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.run_folder import Log
from hornbook.models.head_config import MASKED_LOGIT
from hornbook.runs.finetuning.inputs import LabelledTask
from hornbook.tasks.encoded import softmax
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.kinds.spans import Answer, SpanPrediction
from hornbook.tasks.kinds.tagging import TagPrediction
from hornbook.tasks.records import ChoiceExample, Example, SpanExample, TaggedExample, TextExample
from hornbook.tasks.task import Predict
from hornbook.text.word_vectors import forms_of, lookup, read_vectors

TOKEN = re.compile(r"\w+|[^\w\s]")
CONTEXTS = (2, 5, 10)  # words on either side of a candidate answer in which question words are counted
QUESTION_WORD_PENALTY = 100.0  # for each question word inside the answer
RARITY_WEIGHT = 0.1  # of the rarity of the answer's words, relative to question words around it


def fit_tfidf(labelled: LabelledTask) -> tuple[Predict, dict[str, Any]]:
    """The function that predicts, and what was fitted."""
    task, train = labelled.spec.task, labelled.train
    if task.label_scope == "text":
        return fit_texts(labelled, TfidfFeatures(train).features)
    if task.label_scope == "word":
        return most_frequent_tags(train), {}
    if task.label_scope == "choice":
        return nearest_choice(task, tfidf_cosines(train)), {}
    return window_answers(train), {}


def lower_tokens(text: str) -> list[str]:
    return TOKEN.findall(text.lower())


def vectorizer(num_grams: int = 2) -> Any:
    """A TF-IDF vectorizer of n-grams up to `num_grams` over words and punctuation marks."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(tokenizer=lower_tokens, token_pattern=None, ngram_range=(1, num_grams), sublinear_tf=True)


class TfidfFeatures:
    """TF-IDF features, fitted on the training texts. A pair has those of both texts, their absolute difference and
    their product, and three overlap features: the cosine, the fraction of common words, and the ratio of lengths."""

    def __init__(self, examples: Sequence[TextExample]):
        self.is_pair = examples[0].pair is not None
        self.counter = vectorizer()
        self.counter.fit([text for each in examples for text in (each.text, each.pair) if text is not None])

    def features(self, examples: Sequence[TextExample]) -> Any:
        from scipy import sparse

        first = self.counter.transform([each.text for each in examples])
        if not self.is_pair:
            return first
        second = self.counter.transform([each.pair or "" for each in examples])
        shared = first.multiply(second).tocsr()
        overlap = np.array([_overlap(each.text, each.pair or "") for each in examples])
        cosine = np.asarray(shared.sum(1)).reshape(-1, 1)
        numbers = sparse.csr_matrix(np.concatenate([cosine, overlap], 1))
        return sparse.hstack([first, second, abs(first - second), shared, numbers], format="csr")


def _overlap(text: str, pair: str) -> tuple[float, float]:
    first, second = set(lower_tokens(text)), set(lower_tokens(pair))
    lengths = sorted((len(text), len(pair)))
    return len(first & second) / max(len(first | second), 1), lengths[0] / max(lengths[1], 1)


def tfidf_cosines(train: Sequence[ChoiceExample]) -> Callable[[str, Sequence[str]], np.ndarray]:
    """The cosines of the TF-IDF features of choices with those of a context."""
    counter = vectorizer(num_grams=1)
    counter.fit([text for each in train for text in (_context(each), *each.choices)])

    def cosines(context: str, choices: Sequence[str]) -> np.ndarray:
        rows = counter.transform([context, *choices])
        return (rows[1:] @ rows[0].T).toarray()[:, 0]

    return cosines


def _context(example: ChoiceExample) -> str:
    return f"{example.context} {example.beginning}".strip()


def most_frequent_tags(train: Sequence[TaggedExample]) -> Predict:
    """Predicts each word's most frequent tag in training, or the most frequent tag overall for unknown words."""
    of_all = Counter(tag for each in train for tag in each.tags)
    of_word: dict[str, Counter] = {}
    for each in train:
        for word, tag in zip(each.words, each.tags, strict=True):
            of_word.setdefault(word, Counter())[tag] += 1

    def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
        predictions = []
        for each in examples:
            counts = [of_word.get(word, of_all) for word in each.words]
            best = [count.most_common(1)[0] for count in counts]
            frequencies = [num / count.total() for (_, num), count in zip(best, counts, strict=True)]
            predictions.append(TagPrediction(tuple(tag for tag, _ in best), tuple(frequencies)))
        return predictions

    return predict


def nearest_choice(task: Choice, cosines: Callable[[str, Sequence[str]], np.ndarray]) -> Predict:
    """Predicts the choice with the highest cosine to the context, which `cosines` computes for all choices."""
    return lambda examples: task.decode([cosines(_context(each), each.choices) for each in examples], None, examples)


def window_answers(train: Sequence[SpanExample]) -> Predict:
    """Predicts spans with a sliding window of the median answer length: the best window has the most question words
    around it, rare and near ones weighing more, and none inside it."""
    passages = {each.passage for each in train}
    occurs_in = Counter(word for passage in passages for word in set(lower_tokens(passage)))
    lengths = [len(lower_tokens(each.answers[0])) for each in train if each.answers]
    size = max(1, int(np.median(lengths))) if lengths else 1

    def rarity(word: str) -> float:
        return float(np.log1p(len(passages) / (1 + occurs_in[word]))) if word[0].isalnum() else 0.0

    def predict(examples: Sequence[SpanExample]) -> list[SpanPrediction]:
        return [_window_answer(each, size, rarity) for each in examples]

    return predict


def _window_answer(example: SpanExample, size: int, rarity: Any) -> SpanPrediction:
    # Lower-casing may change the number of characters, so offsets refer to the original passage.
    words = [(match[0].lower(), match.start(), match.end()) for match in TOKEN.finditer(example.passage)]
    if not words:
        return SpanPrediction("", 0, 0, -MASKED_LOGIT, ())
    size = min(size, len(words))
    positions: dict[str, list[int]] = {}
    for position, (word, _, _) in enumerate(words):
        positions.setdefault(word, []).append(position)
    firsts = np.arange(len(words) - size + 1)
    total_rarity = np.concatenate([[0.0], np.cumsum([rarity(word) for word, _, _ in words])])
    scores = RARITY_WEIGHT * (total_rarity[firsts + size] - total_rarity[firsts]) / size
    for word in set(lower_tokens(example.question)) & positions.keys():
        for context in CONTEXTS:
            scores += rarity(word) * _holds(positions[word], firsts - context, firsts + size + context)
        scores -= QUESTION_WORD_PENALTY * _holds(positions[word], firsts, firsts + size)
    best = int(scores.argmax())
    start, end = words[best][1], words[best + size - 1][2]
    text = example.passage[start:end]
    return SpanPrediction(text, start, end, -float(scores[best]), (Answer(text, start, end, 1.0),))


def _holds(positions: list[int], firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """Whether any of the sorted positions is between first (inclusive) and last (exclusive)."""
    return np.searchsorted(positions, lasts) > np.searchsorted(positions, firsts)


# ---- word vectors


NEIGHBOURS = 1  # words on either side whose vectors are concatenated with a word's own
Average = Callable[[Sequence[str]], np.ndarray]  # texts to rows


def fit_vectors(
    labelled: LabelledTask, source: str | None, model: str | None, log: Log
) -> tuple[Predict, dict[str, Any]]:
    """The function that predicts, and what was fitted. The vectors come from the file `source` or, if it is None, from
    `model`."""
    task = labelled.spec.task
    if task.label_scope == "passage":
        raise ValueError(f"the vectors baseline does not predict {task.kind}: use the tfidf baseline")
    all_examples = (each for split in labelled.data.splits.values() for each in split)
    average = averages(source, model, all_examples, log)
    if task.label_scope == "text":
        return fit_texts(labelled, lambda examples: paired(average, examples))
    if task.label_scope == "word":
        return _fit_words(labelled, average, log)
    return nearest_choice(task, lambda context, choices: cosines(average, choices, context)), {}


def _fit_words(labelled: LabelledTask, average: Average, log: Log) -> tuple[Predict, dict[str, Any]]:
    """Logistic regression on the concatenated vectors of a word and its neighbours."""
    labels, train = labelled.spec.task.head_config.labels, labelled.train
    label_ids = {label: i for i, label in enumerate(labels)}

    def features(example: TaggedExample) -> np.ndarray:
        rows = np.pad(average(example.words), ((NEIGHBOURS, NEIGHBOURS), (0, 0)))
        return np.concatenate([rows[i : i + len(example.words)] for i in range(2 * NEIGHBOURS + 1)], 1)

    train = [each for each in train if each.words]
    tags = np.array([label_ids[tag] for each in train for tag in each.tags])
    is_chosen = np.zeros(len(tags), bool)
    is_chosen[sampled_words(len(tags), labelled.settings.runtime.seed, log)] = True
    of_each = np.split(is_chosen, np.cumsum([len(each.words) for each in train])[:-1])
    with_chosen = ((each, chosen) for each, chosen in zip(train, of_each, strict=True) if chosen.any())
    rows = np.concatenate([features(each)[chosen] for each, chosen in with_chosen])
    model = fit_logistic(rows, tags[is_chosen], len(labels), labelled.settings.runtime.seed)

    def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
        predictions = []
        for each in examples:
            probabilities = (
                softmax(model.decision_function(features(each))) if each.words else np.zeros((0, len(labels)))
            )
            tags = tuple(labels[i] for i in probabilities.argmax(1))
            predictions.append(TagPrediction(tags, tuple(probabilities.max(1, initial=0).tolist())))
        return predictions

    return predict, model.params


def averages(source: str | None, model: str | None, examples: Iterable[Example], log: Log) -> Average:
    """A function from texts to the means of their word vectors, one row per text; a text without any known word is 0.
    The vectors come from the file `source` or, if it is None, from the token embeddings of `model`."""
    if source is not None:
        words = {word for each in examples for text in each.texts for word in text.split()}
        forms = {form for word in words for each in (word, *TOKEN.findall(word)) for form in forms_of(each)}
        vectors, width = read_vectors(Path(source), forms)
        if not vectors:
            raise ValueError(f"{source} has no vectors for the words in the data: check that its language is the same")
        log(f"{source}: vectors of size {width} for {len(vectors):,} of the words in the data")
        return lambda texts: np.stack([_mean(_known_vectors(text, vectors), width) for text in texts])
    network, tokenizer = load_folder(model_folder(model))
    table = network.embeddings.tokens.weight.detach().numpy()

    def average(texts: Sequence[str]) -> np.ndarray:
        encodings = tokenizer.encode_batch(list(texts))
        return np.stack([_mean(list(table[each.ids]), table.shape[1]) for each in encodings])

    return average


def _known_vectors(text: str, vectors: dict[str, np.ndarray]) -> list[np.ndarray | None]:
    """The vectors of a text's words; a word without a vector, such as "end.", is split at punctuation."""
    of_words = []
    for word in text.split():
        whole = lookup(word, vectors)
        of_words += [whole] if whole is not None else [lookup(each, vectors) for each in TOKEN.findall(word)]
    return of_words


def _mean(vectors: list, width: int) -> np.ndarray:
    vectors = [each for each in vectors if each is not None]
    return np.mean(vectors, 0, dtype=np.float32) if vectors else np.zeros(width, np.float32)


def paired(average: Average, examples: Sequence[TextExample]) -> np.ndarray:
    """One row per example; for pairs the concatenation [u, v, |u - v|, u * v]."""
    first = average([each.text for each in examples])
    if examples[0].pair is None:
        return first
    second = average([each.pair or "" for each in examples])
    return np.concatenate([first, second, np.abs(first - second), first * second], 1)


def cosines(average: Average, texts: Sequence[str], to: str) -> np.ndarray:
    """The cosine of the mean vector of each text with that of the text `to`."""
    vectors = average([to, *texts])
    norms = np.linalg.norm(vectors, axis=1)
    return vectors[1:] @ vectors[0] / np.maximum(norms[1:] * norms[0], 1e-12)
