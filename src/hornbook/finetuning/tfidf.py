"""What words alone say, without any network: features of counted words, similarity of endings, overlap with a question,
the usual tag of a word."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from hornbook.models.outputs import MASKED_LOGIT
from hornbook.tasks.choice import Choice
from hornbook.tasks.records import ChoiceExample, SpanExample, TaggedExample, TextExample
from hornbook.tasks.spans import Answer, SpanPrediction
from hornbook.tasks.tagging import TagPrediction

TOKEN = re.compile(r"\w+|[^\w\s]")
REACHES = (2, 5, 10)  # words to either side of a possible answer in which the words of the question are looked for
NEVER_ASKED = 100.0  # off for a word of the question within the answer
RARITY_SHARE = 0.1  # how much the rarity of an answer's own words counts beside the question's words around it


def lower_tokens(text: str) -> list[str]:
    return TOKEN.findall(text.lower())


def vectorizer(num_grams: int = 2) -> Any:
    """TF-IDF of words, punctuation marks and their neighbours."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(tokenizer=lower_tokens, token_pattern=None, ngram_range=(1, num_grams), sublinear_tf=True)


class CountedTexts:
    """TF-IDF of the training texts. A pair is both texts, what differs, what they share, and three numbers of their
    overlap: the cosine, the share of common words, and the ratio of lengths."""

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


def usual_tags(train: Sequence[TaggedExample], by_word: bool) -> Any:
    """Each word's most frequent tag in training, the most frequent of all where it is new there; or always that one."""
    of_all = Counter(tag for each in train for tag in each.tags)
    of_word: dict[str, Counter] = {}
    for each in train if by_word else ():
        for word, tag in zip(each.words, each.tags, strict=True):
            of_word.setdefault(word, Counter())[tag] += 1

    def predict(examples: Sequence[TaggedExample]) -> list[TagPrediction]:
        predictions = []
        for each in examples:
            counts = [of_word.get(word, of_all) for word in each.words]
            best = [count.most_common(1)[0] for count in counts]
            shares = [number / count.total() for (_, number), count in zip(best, counts, strict=True)]
            predictions.append(TagPrediction(tuple(tag for tag, _ in best), tuple(shares)))
        return predictions

    return predict


def nearest_ending(task: Choice, train: Sequence[ChoiceExample]) -> Any:
    """The ending whose words are nearest to the context's by TF-IDF."""
    counter = vectorizer(num_grams=1)
    counter.fit([text for each in train for text in (_context(each), *each.endings)])

    def predict(examples: Sequence[ChoiceExample]) -> list:
        scores = []
        for each in examples:
            found = counter.transform([_context(each), *each.endings])
            scores.append((found[1:] @ found[0].T).toarray()[:, 0])
        return task.decode(scores, None, examples)

    return predict


def _context(example: ChoiceExample) -> str:
    return f"{example.context} {example.beginning}".strip()


def window_answers(train: Sequence[SpanExample]) -> Any:
    """A window slides over the passage: the answer is as many words as answers usually have, with most of the
    question's words around it, rare and near ones counting more, and none in it."""
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
    # Lower-casing may change how many characters there are, so places are those of the passage as it stands.
    found = [(match[0].lower(), match.start(), match.end()) for match in TOKEN.finditer(example.passage)]
    if not found:
        return SpanPrediction("", 0, 0, -MASKED_LOGIT, ())
    size, num_words = min(size, len(found)), len(found)
    places: dict[str, list[int]] = {}
    for place, (word, _, _) in enumerate(found):
        places.setdefault(word, []).append(place)
    firsts = np.arange(num_words - size + 1)
    own = np.concatenate([[0.0], np.cumsum([rarity(word) for word, _, _ in found])])
    scores = RARITY_SHARE * (own[firsts + size] - own[firsts]) / size
    for word in set(lower_tokens(example.question)) & places.keys():
        for reach in REACHES:
            scores += rarity(word) * _holds(places[word], firsts - reach, firsts + size + reach)
        scores -= NEVER_ASKED * _holds(places[word], firsts, firsts + size)
    best = int(scores.argmax())
    start, end = found[best][1], found[best + size - 1][2]
    text = example.passage[start:end]
    return SpanPrediction(text, start, end, -float(scores[best]), (Answer(text, start, end, 1.0),))


def _holds(places: list[int], firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """Whether any of the places lies between first (inclusive) and last (exclusive)."""
    return np.searchsorted(places, lasts) > np.searchsorted(places, firsts)
