"""Baselines without pre-training, to compare fine-tuned models with.

| name         | texts and pairs           | words                     | choices                | spans            |
|--------------|---------------------------|---------------------------|------------------------|------------------|
| majority     | most frequent class       | most frequent tag         | most frequent position | no answer        |
| tfidf        | word unigrams and bigrams | most frequent tag of word | nearest to context     | a sliding window |
| vectors      | averaged word vectors     | vectors of word context   | nearest to context     | -                |
| from-scratch | the same network, fine-tuned from random weights, for every kind                                  |

Text features go through logistic regression, or ridge regression for numbers. Word vectors come from a file or are the
token embeddings of a model.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hornbook.evaluation.baselines.shallow import finish, fit_classes, fit_labels, sampled_words, start_run
from hornbook.files import absolute
from hornbook.interop.folder import load_folder
from hornbook.interop.hub import model_folder
from hornbook.lifecycle.locking import lock_output_folder
from hornbook.lifecycle.requests import with_device
from hornbook.lifecycle.run_folder import ignore
from hornbook.models.head_config import MASKED_LOGIT
from hornbook.runs.finetuning.inputs import Labelled, Log, open_labelled
from hornbook.runs.finetuning.record import FinetuneRequest, TaskResult
from hornbook.runs.finetuning.single_run import open_and_run
from hornbook.tasks.encoded import softmax
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.kinds.spans import Answer, SpanPrediction
from hornbook.tasks.kinds.tagging import TagPrediction
from hornbook.tasks.records import ChoiceExample, Example, SpanExample, TaggedExample, TextExample
from hornbook.tasks.task import Predict
from hornbook.text.word_vectors import forms_of, lookup, read_vectors
from hornbook.train.job import Status
from hornbook.train.runtime import torch_settings_restored

NAMES = ("majority", "tfidf", "vectors", "from-scratch")
NEIGHBOURS = 1  # words on either side whose vectors are concatenated with a word's own
TOKEN = re.compile(r"\w+|[^\w\s]")
Average = Callable[[Sequence[str]], np.ndarray]  # texts to rows
CONTEXTS = (2, 5, 10)  # words on either side of a candidate answer in which question words are counted
QUESTION_WORD_PENALTY = 100.0  # for each question word inside the answer
RARITY_WEIGHT = 0.1  # of the rarity of the answer's words, relative to question words around it


@lock_output_folder
@torch_settings_restored()
def baseline(
    name: str,
    data: Any,
    task: str,
    out: str | Path,
    *,
    model: str | None = None,
    word_vectors: str | Path | None = None,
    seed: int = 0,
    text: str | None = None,
    pair: str | None = None,
    label: str | None = None,
    delimiter: str | None = None,
    encoding: str | None = None,
    strict: bool = False,
    overrides: dict | None = None,
    device: str = "auto",
    on_progress: Callable[[Status], None] = ignore,
    log: Log = ignore,
) -> TaskResult:
    """Scores a baseline and writes the scores to the folder `out`, in the format of fine-tuning.

    >>> import hornbook
    >>> hornbook.baseline("majority", "reviews.csv", "classification", "runs/majority").score
    0.5

    The baseline `vectors` averages the word vectors in the text file `word_vectors`, or the token embeddings of
    `model`. `from-scratch` takes the size of its network from `model` and writes all files of a fine-tuning run.
    `overrides` are fine-tuning settings by dotted name, such as `examples`. `device` defaults to a GPU if there is one.
    Raises `Stopped` if its training was stopped.
    """
    if name not in NAMES:
        raise ValueError(f"there is no baseline '{name}': use {', '.join(NAMES)}")
    if name == "from-scratch" and model is None:
        raise ValueError("the baseline from-scratch takes the size of its network from a model: give model=")
    if name == "vectors" and model is None and word_vectors is None:
        raise ValueError("the baseline vectors needs word vectors: give a file of them by word_vectors=, or model=")
    reading = {"text": text, "pair": pair, "label": label, "delimiter": delimiter, "encoding": encoding}
    options = {
        "seed": seed,
        "strict": strict,
        "overrides": with_device(overrides, device),
        "from_scratch": name == "from-scratch",
    }
    request, out = FinetuneRequest.of(model, data, task, **reading, **options), Path(out)
    if name == "from-scratch":
        return open_and_run(out, request, data, on_progress, log)
    return baseline_labelled(name, out, request, open_labelled(request, data, log), word_vectors=word_vectors, log=log)


def baseline_labelled(
    name: str,
    out: Path,
    request: FinetuneRequest,
    labelled: Labelled,
    *,
    word_vectors: str | Path | None = None,
    log: Log = ignore,
) -> TaskResult:
    """Like `baseline`, for data that is already read; any baseline except `from-scratch`."""
    source, model = None if word_vectors is None else absolute(word_vectors), request.model
    if done := start_run(out, "baseline", request, {"baseline": name, "word_vectors": source}, labelled.data):
        return done
    fitted: dict[str, Any] = {}
    if name == "majority":
        predict = labelled.spec.task.majority(labelled.train)
    elif name == "tfidf":
        predict = _tfidf(labelled, fitted)
    else:
        predict = _word_vectors(labelled, source, model, fitted, log)
    return finish(out, labelled, predict, fitted)


def _tfidf(labelled: Labelled, fitted: dict[str, Any]) -> Predict:
    task, train = labelled.spec.task, labelled.train
    by_scope = {
        "text": lambda: _linear(labelled, TfidfFeatures(train).features, fitted),
        "word": lambda: most_frequent_tags(train),
        "choice": lambda: nearest_choice(task, tfidf_cosines(train)),
        "passage": lambda: window_answers(train),
    }
    return by_scope[task.label_scope]()


def _word_vectors(
    labelled: Labelled, source: str | None, model: str | None, fitted: dict[str, Any], log: Log
) -> Predict:
    task = labelled.spec.task
    by_scope = {
        "text": lambda: _linear(labelled, lambda examples: paired(average, examples), fitted),
        "word": lambda: _tagged(labelled, average, fitted, log),
        "choice": lambda: nearest_choice(task, lambda context, choices: cosines(average, choices, context)),
    }
    if task.label_scope not in by_scope:
        raise ValueError(f"the vectors baseline does not predict {task.name}: use the tfidf baseline")
    all_examples = (each for split in labelled.data.splits.values() for each in split)
    average = averages(source, model, all_examples, log)
    return by_scope[task.label_scope]()


def _linear(labelled: Labelled, features: Callable[[list], Any], fitted: dict[str, Any]) -> Predict:
    """Logistic or ridge regression on the `features` of the examples."""
    task, train, seed = labelled.spec.task, labelled.train, labelled.settings.runtime.seed
    model = fit_labels(task, features(train), task.targets(train), seed)
    fitted["strength"] = model.strength
    return lambda examples: task.decode(list(model.score(features(examples))), None, examples)


def _tagged(labelled: Labelled, average: Average, fitted: dict[str, Any], log: Log) -> Predict:
    """Logistic regression on the concatenated vectors of a word and its neighbours."""
    labels, train = labelled.spec.task.head_config.labels, labelled.train
    label_ids = {label: i for i, label in enumerate(labels)}

    def features(example: TaggedExample) -> np.ndarray:
        rows = np.pad(average(example.words), ((NEIGHBOURS, NEIGHBOURS), (0, 0)))
        return np.concatenate([rows[i : i + len(example.words)] for i in range(2 * NEIGHBOURS + 1)], 1)

    train = [each for each in train if each.words]
    rows = np.concatenate([features(each) for each in train])
    tags = np.array([label_ids[tag] for each in train for tag in each.tags])
    sample = sampled_words(len(tags), labelled.settings.runtime.seed, log)
    model = fit_classes(rows[sample], tags[sample], len(labels), labelled.settings.runtime.seed)
    fitted["strength"] = model.strength

    def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
        predictions = []
        for each in examples:
            probabilities = softmax(model.score(features(each))) if each.words else np.zeros((0, len(labels)))
            tags = tuple(labels[i] for i in probabilities.argmax(1))
            predictions.append(TagPrediction(tags, tuple(probabilities.max(1, initial=0).tolist())))
        return predictions

    return predict


# ---- word counts


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


def averages(source: str | None, model: str | None, examples: Iterable[Example], log: Callable[[str], None]) -> Average:
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
