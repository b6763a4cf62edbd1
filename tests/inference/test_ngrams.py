"""The n-gram baseline: equal to a direct computation of its formula, probabilities that sum to 1, and the command."""

import math
from collections import Counter, defaultdict

import numpy as np
import pytest
from small_gpts import saved_gpt
from tiny import tiny_text

import hornbook as library
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.inference.ngrams import DEFAULT_DISCOUNTS, NGrams, discounts
from hornbook.text.training import train_tokenizer

VOCABULARY = 6


@pytest.fixture
def documents(random) -> list[np.ndarray]:
    """Tokens that depend on the two before them, so that grams repeat; one document is empty and one has one token."""
    found = [np.array([], np.int64), np.array([3])]
    for length in random.integers(2, 60, 12):
        ids = [0, 1]
        while len(ids) < length:
            likely = (ids[-1] + 2 * ids[-2]) % 5  # token 5 never occurs
            ids.append(likely if random.random() < 0.7 else int(random.integers(0, 5)))
        found.append(np.array(ids))
    return found


class Direct:
    """The formula with dictionaries, one probability at a time."""

    def __init__(self, documents: list[np.ndarray], order: int):
        self.order = order
        rows = [("start",) * (order - 1) + tuple(each.tolist()) for each in documents]
        top = Counter(row[i - order + 1 : i + 1] for row in rows for i in range(order - 1, len(row)))
        self.counts = {order: top}
        for k in range(order - 1, 0, -1):
            self.counts[k] = Counter(gram[1:] for gram in self.counts[k + 1])
        self.following = {k: defaultdict(dict) for k in self.counts}
        for k, counts in self.counts.items():
            for gram, count in counts.items():
                self.following[k][gram[:-1]][gram[-1]] = count
        self.discounts = {k: self._discounts(Counter(counts.values())) for k, counts in self.counts.items()}

    @staticmethod
    def _discounts(n: Counter) -> tuple[float, ...]:
        if not all(n[i] for i in (1, 2, 3, 4)):
            return DEFAULT_DISCOUNTS
        y = n[1] / (n[1] + 2 * n[2])
        found = tuple(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))
        return found if all(0 < each < i for i, each in enumerate(found, 1)) else DEFAULT_DISCOUNTS

    def probability(self, token: int, before: tuple) -> float:
        if len(before) == self.order:
            before = before[1:]
        k = len(before) + 1
        lower = 1 / VOCABULARY if k == 1 else self.probability(token, before[1:])
        following = self.following[k].get(before)
        if not following:
            return lower
        total = sum(following.values())
        taken = {each: self.discounts[k][min(count, 3) - 1] for each, count in following.items()}
        own = (following[token] - taken[token]) / total if token in following else 0
        return own + sum(taken.values()) / total * lower


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_equals_the_formula(documents, random, order):
    direct, model = Direct(documents, order), NGrams.train(documents, VOCABULARY, order)
    texts = [*documents[:4], *(random.integers(0, VOCABULARY, length) for length in (1, 7, 30))]
    for text, found in zip(texts, model.scores(texts), strict=True):
        padded = ("start",) * (order - 1) + tuple(text.tolist())
        expected = [
            math.log(direct.probability(int(token), padded[place : place + order - 1]))
            for place, token in enumerate(text)
        ]
        assert np.allclose(found, expected, rtol=0, atol=1e-6)


def test_probabilities_sum_to_one(documents, random):
    model = NGrams.train(documents, VOCABULARY)
    known = documents[5]
    for before in (known[:0], known[:1], known[:3], known[:9], np.array([5, 5]), random.integers(0, VOCABULARY, 9)):
        all_next = [np.concatenate([before, [token]]) for token in range(VOCABULARY)]
        assert sum(np.exp(each[-1]) for each in model.scores(all_next)) == pytest.approx(1, abs=1e-6)
        assert min(np.exp(each[-1]) for each in model.scores(all_next)) > 0  # token 5, too, which was never seen


def test_discounts_by_hand():
    counts = np.repeat([1, 2, 3, 4, 9], [40, 20, 10, 5, 3])
    y = 40 / 80
    assert discounts(counts) == pytest.approx([1 - 2 * y * 0.5, 2 - 3 * y * 0.5, 3 - 4 * y * 0.5])
    assert discounts(np.array([1, 1, 2])).tolist() == list(DEFAULT_DISCOUNTS)


def test_longer_contexts_predict_a_text_that_has_them_better(documents):
    by_order = [sum(map(np.sum, NGrams.train(documents[::2], VOCABULARY, k).scores(documents[1::2]))) for k in (1, 3)]
    assert by_order[1] > by_order[0] + 50


# ---- compared with a model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A GPT, a file, a corpus of the GPT's tokens, and one of others."""
    folder = tmp_path_factory.mktemp("ngrams")
    saved_gpt(folder / "gpt")
    (folder / "known.txt").write_text(tiny_text(40), encoding="utf-8")
    (folder / "text.txt").write_text(tiny_text(48)[-1500:], encoding="utf-8")
    build_corpus([folder / "known.txt"], folder / "gpt", folder / "corpus", workers=1)
    train_tokenizer(tiny_text(40).split("\n\n"), vocab_size=150).save(folder / "words")
    build_corpus([folder / "known.txt"], folder / "words", folder / "other", workers=1)
    return folder


def test_the_same_tokens_are_scored(folder, tmp_path):
    model = library.load(folder / "gpt")
    plain, found = (measure(folder / "text.txt") for measure in (model.perplexity, _baseline(model, folder)))
    for name in ("num_tokens", "num_words", "num_bytes", "num_documents"):
        assert getattr(found, name) == getattr(plain, name)
    assert found.per_token < 60  # 300 tokens alike would be 300
    known, texts = (
        [np.array(pieces.ids) for pieces in model.tokenizer.encode_batch([each.strip() for each in text.split("\n\n")])]
        for text in ((folder / name).read_text(encoding="utf-8") for name in ("known.txt", "text.txt"))
    )
    expected = sum(each.sum() for each in NGrams.train(known, model.model.config.vocab_size).scores(texts))
    assert found.log_probability == pytest.approx(expected, rel=1e-6)
    saved_gpt(tmp_path, end=None)  # has no token before the first
    model = library.load(tmp_path)
    assert _baseline(model, folder)(folder / "text.txt").num_tokens == model.perplexity(folder / "text.txt").num_tokens


def test_a_text_that_the_ngrams_were_trained_on_is_noted(folder, tmp_path):
    model = library.load(folder / "gpt")
    copied = model.ngram_perplexity(folder / "known.txt", folder / "known.txt")
    assert "100% of the 5-grams of the text occur there: it is probably a part of it" in copied.definition
    (tmp_path / "other.txt").write_text(tiny_text(90)[-3000:][::-1], encoding="utf-8")
    assert "occur there" not in model.ngram_perplexity(tmp_path / "other.txt", folder / "known.txt").definition


def _baseline(model, folder):
    return lambda file: model.ngram_perplexity(file, folder / "known.txt")


def test_a_corpus_without_what_it_holds_out(folder):
    model = library.load(folder / "gpt")
    corpus = Corpus(folder / "corpus")
    held_out = corpus.is_held_out(np.arange(corpus.num_documents))
    assert 0 < held_out.sum() < corpus.num_documents
    found = model._corpus_documents(folder / "corpus")
    assert len(found) == (~held_out).sum()
    shard, first, last = corpus.document(int(np.flatnonzero(~held_out)[3]))
    assert np.array_equal(found[3], shard.tokens[shard.sentences[first] : shard.sentences[last]])
    definition = model.ngram_perplexity(folder / "text.txt", folder / "corpus").definition
    assert f"trained on {sum(map(len, found)):,} tokens of {folder / 'corpus'}" in definition
    corpus.tokenizer.without_special_tokens().save(model.folder)  # as a run has it
    assert library.load(model.folder).ngram_perplexity(folder / "text.txt", folder / "corpus").definition == definition
    with pytest.raises(ValueError, match="built with a different tokenizer"):
        model.ngram_perplexity(folder / "text.txt", folder / "other")
    with pytest.raises(ValueError, match="order of n-grams"):
        model.ngram_perplexity(folder / "text.txt", folder / "known.txt", order=0)


def test_command_shows_both(folder, hornbook):
    words = ["perplexity", folder / "gpt", folder / "text.txt", "--baseline", folder / "known.txt"]
    out = hornbook(*words).stdout
    assert "5-grams" in out and "interpolated modified Kneser-Ney" in out
    found = hornbook(*words, "--json").answer
    model = library.load(folder / "gpt")
    expected = _baseline(model, folder)(folder / "text.txt")
    assert found["baseline"]["per_token"] == pytest.approx(expected.per_token)
    assert f"{expected.per_token:.4g}" in out and found["per_token"] != found["baseline"]["per_token"]
