"""Sentence-order prediction: two segments of one document, whose label can be inferred only from their order."""

from bisect import bisect_right

import numpy as np
import pytest
from numbered import FIRST, corpus_of, documents_of, is_word_start, numbered_corpus, random_lengths, sentence_starts_of
from scipy.stats import ks_2samp
from sklearn.linear_model import LogisticRegression
from taken_apart import chunk_numbers, two_segments

from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceSampler

LENGTH = 64


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer_folder):
    """1,200 documents in three shards, a quarter of them of one sentence, and a fifth held out."""
    lengths = random_lengths(np.random.default_rng(1), 3, 400, 30, giants=True)
    return numbered_corpus(tmp_path_factory.mktemp("order") / "corpus", tokenizer_folder, lengths, 0.2)


def pairs_of(sampler: SequenceSampler, num_batches: int) -> list[tuple[np.ndarray, np.ndarray, int]]:
    return [pair for number in range(num_batches) for pair in two_segments(sampler.batch(number, 500), sampler)]


def has_boundary(starts: np.ndarray, a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two sentences or more, which start there, are in the pair."""
    return bisect_right(starts, max(a[-1], b[-1])) > bisect_right(starts, min(a[0], b[0]))


@pytest.mark.parametrize("held_out", [False, True])
def test_a_pair_is_two_neighbours_and_label_1_means_swapped(held_out, corpus):
    sampler = SequenceSampler(
        [(corpus, 1.0)], LENGTH, seed=0, layout="sop", short_sequence_probability=0.2, held_out=held_out
    )
    sentence_starts = set(sentence_starts_of(corpus).tolist())
    num_whole = num_in_one_sentence = num_single_tokens = 0
    for first, second, is_swapped in pairs_of(sampler, 6):
        assert len(first) and len(second)
        a, b = (second, first) if is_swapped else (first, second)
        assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
        assert len(set(documents_of(corpus, np.array([a[0], a[-1], b[0], b[-1]])).tolist())) == 1
        assert len(set(chunk_numbers(sampler, np.array([a[0], b[-1]])).tolist())) == 1
        if np.array_equal(a, b):
            assert len(a) == 1 and (documents_of(corpus, a + np.array([-1, 1])) != documents_of(corpus, a)).all()
            num_single_tokens += 1
            continue
        assert a[-1] < b[0]
        if len(a) + len(b) == LENGTH - 3:  # it may have been cut
            continue
        num_whole += 1
        assert b[0] == a[-1] + 1
        if int(b[0]) not in sentence_starts:
            assert not sentence_starts & set(range(int(a[0]) + 1, int(b[-1]) + 1))
            inside = np.arange(a[0] + 1, b[-1] + 1)
            words = inside[is_word_start(inside)]
            middle = a[0] + (len(a) + len(b)) / 2
            assert np.abs(words - middle).min() == abs(b[0] - middle) if len(words) else abs(b[0] - middle) <= 1
            num_in_one_sentence += 1
    assert num_whole > 1000 and num_in_one_sentence > 300 and num_single_tokens > 5


def test_half_are_swapped_whatever_the_chunk(corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=3, layout="sop")
    found = pairs_of(sampler, 10)
    labels = np.array([label for *_, label in found])
    starts = sentence_starts_of(corpus)
    is_one_sentence = np.array([not has_boundary(starts, a, b) for a, b, _ in found])
    for some in (labels, labels[is_one_sentence], labels[~is_one_sentence]):
        assert len(some) > 900 and abs(some.mean() - 0.5) < 3.5 * 0.5 / len(some) ** 0.5


@pytest.fixture(scope="module")
def alike(tmp_path_factory, tokenizer_folder):
    """Sentences of one distribution of lengths at every place of a document, and their pairs of 64 tokens."""
    random = np.random.default_rng(4)
    sizes = random.geometric(1 / 12, 3000)
    lengths = [[np.maximum(1, random.lognormal(2.5, 0.6, n).astype(int)).tolist() for n in sizes]]
    corpus = numbered_corpus(tmp_path_factory.mktemp("alike") / "corpus", tokenizer_folder, lengths, 0)
    return corpus, pairs_of(SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout="sop"), 40)


def test_lengths_do_not_tell_the_label(alike):
    _, found = alike
    labels = np.array([label for *_, label in found], bool)
    first, second = (np.array([len(pair[i]) for pair in found]) for i in (0, 1))
    assert first.std() > 10
    for measured in (first, second, first - second, first + second):
        assert ks_2samp(measured[labels], measured[~labels]).pvalue > 0.01
    # an odd token goes the same way under both labels: one of 61 tokens is left over when both are cut
    assert abs((first - second == 1)[labels].mean() - (first - second == 1)[~labels].mean()) < 0.01


def test_broken_sentences_do_not_tell_the_label(alike):
    """Where a segment starts or ends within a sentence, because it was cut; of pairs that are one sentence, all do."""
    corpus, found = alike
    sentence_starts = sentence_starts_of(corpus)
    found = [(a, b, label) for a, b, label in found if has_boundary(sentence_starts, a, b)]
    starts = set(sentence_starts.tolist()) | {FIRST + corpus.num_tokens}
    labels = np.array([label for *_, label in found], bool)
    ends = [(a[0], a[-1] + 1, b[0], b[-1] + 1) for a, b, _ in found]
    is_broken = np.array([[int(token) not in starts for token in each] for each in ends])
    assert is_broken.mean() > 0.1
    for column in is_broken.T:
        difference = column[labels].mean() - column[~labels].mean()
        assert abs(difference) < 3.5 * (2 * column.var() / (len(column) / 2)) ** 0.5


def test_shorter_pairs_keep_whole_sentences(alike):
    corpus, _ = alike
    never, sometimes, always = (
        pairs_of(SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout="sop", short_sequence_probability=chance), 4)
        for chance in (0.0, 0.1, 1.0)
    )
    mean = {
        name: np.mean([len(a) + len(b) for a, b, _ in found])
        for name, found in (("never", never), ("sometimes", sometimes), ("always", always))
    }
    assert mean["always"] < 0.85 * mean["never"]
    share = (mean["never"] - mean["sometimes"]) / (mean["never"] - mean["always"])
    assert 0.05 < share < 0.15
    chunks = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout="sop").chunks[0]  # which cut into giant sentences
    starts = {*sentence_starts_of(corpus).tolist(), *(FIRST + np.append(chunks.starts[0], chunks.stops[0])).tolist()}
    short = [(a, b) for a, b, _ in always if len(a) + len(b) < LENGTH - 3]
    whole = [int(min(a[0], b[0])) in starts and int(max(a[-1], b[-1])) + 1 in starts for a, b in short]
    assert len(short) > 1000 and all(whole)


# ---- what words alone can tell


WORDS, TOPICS = 20, 15


@pytest.fixture(scope="module")
def topics(tmp_path_factory, tokenizer_folder):
    """Documents that each draw their words from those of one topic, in no order; half of them held out."""
    random = np.random.default_rng(5)
    lengths = [[random.integers(3, 12, int(random.integers(1, 15))).tolist() for _ in range(1200)]]
    tokens = [FIRST + WORDS * random.integers(TOPICS) + random.integers(WORDS, size=sum(each)) for each in lengths[0]]
    folder = tmp_path_factory.mktemp("topics") / "corpus"
    return corpus_of(np.concatenate(tokens), lengths, folder, tokenizer_folder, 0.5)


def views_of(corpus: Corpus, layout: str, held_out: bool) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """(features of the words of 3,000 pairs, of several kinds; their labels)."""
    pairs = pairs_of(SequenceSampler([(corpus, 1.0)], 48, seed=0, layout=layout, held_out=held_out), 6)
    counts = np.array([[np.bincount(each - FIRST, minlength=WORDS * TOPICS) for each in pair[:2]] for pair in pairs])
    sizes = counts.sum(-1)
    shared = np.minimum(counts[:, 0], counts[:, 1]).sum(-1)
    views = {
        "words": counts.reshape(len(pairs), -1),
        "overlap": np.stack([shared, (counts > 0).all(1).sum(-1), shared / sizes.min(1)], 1),
        "lengths": np.stack([sizes[:, 0], sizes[:, 1], sizes.min(1), sizes.max(1)], 1),
    }
    return views, np.array([label for *_, label in pairs])


def right_by_words(corpus: Corpus, layout: str) -> dict[str, float]:
    """How often logistic regression names the label of a pair of documents that it has not seen."""
    (seen, labels), (unseen, wanted) = (views_of(corpus, layout, held_out) for held_out in (False, True))
    fitted = {name: LogisticRegression(C=0.01, max_iter=500).fit(view, labels) for name, view in seen.items()}
    return {name: model.score(unseen[name], wanted) for name, model in fitted.items()}


def test_topics_tell_next_sentences_and_not_their_order(topics):
    chance = 3.5 * 0.5 / 3000**0.5
    order = right_by_words(topics, "sop")
    assert all(abs(score - 0.5) < chance for score in order.values()), order
    assert right_by_words(topics, "nsp")["overlap"] > 0.85


# ---- small ones


def test_one_document_is_enough(tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "one", tokenizer_folder, [[[5] * 30]])
    sampler = SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="sop")
    assert {label for *_, label in pairs_of(sampler, 1)} == {0, 1}


@pytest.mark.parametrize("length", [8, 128])
def test_documents_of_a_token_or_a_few_have_an_order(length, tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "few", tokenizer_folder, [[[1], [2, 1]], [[1], [1, 1, 1], [3]]], 0)
    sampler = SequenceSampler([(corpus, 1.0)], length, seed=0, layout="sop", short_sequence_probability=0.5)
    found = two_segments(sampler.batch(0, 300), sampler)
    assert len(np.unique(documents_of(corpus, np.array([a[0] for a, _, _ in found])))) == 5
    alone = {(FIRST,), (FIRST + 4,)}
    assert {tuple(a) for a, b, _ in found if np.array_equal(a, b)} == alone
