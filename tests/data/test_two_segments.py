"""Two segments without a sentence task, as ELECTRA reads them."""

import numpy as np
import pytest
from numbered import FIRST, documents_of, is_word_start, numbered_corpus, random_lengths, sentence_starts_of

from hornbook.batch import Batch
from hornbook.data.sequences import SequenceSampler

LENGTH = 64


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer_folder):
    """1,200 documents in three shards, a quarter of them of one sentence, and a fifth held out."""
    lengths = random_lengths(np.random.default_rng(1), 3, 400, 30, giants=True)
    return numbered_corpus(tmp_path_factory.mktemp("segments") / "corpus", tokenizer_folder, lengths, 0.2)


def one_or_two(batch: Batch, sampler: SequenceSampler) -> list[list[np.ndarray]]:
    """The segments of each sequence, after checking the special tokens around them."""
    found = []
    assert batch.labels_N is None and np.diff(batch.offsets_host).max() <= sampler.length
    streams = (batch.ids_T, batch.segments_T, batch.word_starts_T)
    parts = zip(*(np.split(each.numpy(), batch.offsets_host[1:-1]) for each in streams), strict=True)
    for ids, segments, word_starts in parts:
        ends = np.flatnonzero(ids == sampler.sep_id)
        assert ids[0] == sampler.cls_id and ends[-1] == len(ids) - 1 and (ids < FIRST).sum() == 1 + len(ends) <= 3
        assert np.array_equal(segments, np.repeat([0, 1], [ends[0] + 1, ends[-1] - ends[0]]))
        assert np.array_equal(word_starts, np.where(ids < FIRST, True, is_word_start(ids)))
        found.append([part[part >= FIRST] for part in np.split(ids, ends[:-1])])
    return found


def all_of(sampler: SequenceSampler, num_batches: int) -> list[list[np.ndarray]]:
    return [each for number in range(num_batches) for each in one_or_two(sampler.batch(number, 500), sampler)]


@pytest.mark.parametrize("held_out", [False, True])
def test_segments_follow_each_other_in_one_document(held_out, corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout="pairs", held_out=held_out)
    starts = set(sentence_starts_of(corpus).tolist())
    num_pairs = num_full = 0
    for parts in all_of(sampler, 6):
        text = np.concatenate(parts)
        assert all(len(part) for part in parts) and (np.diff(text) == 1).all()
        assert len(set(documents_of(corpus, text[[0, -1]]).tolist())) == 1
        num_full += len(text) >= LENGTH - 3
        if len(parts) == 2:
            num_pairs += 1
            assert int(parts[1][0]) in starts
    assert num_pairs > 1000 and num_full > 800


@pytest.mark.parametrize("chance", [0.0, 0.1, 0.5])
def test_a_share_is_one_segment(chance, corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout="pairs", single_segment_probability=chance)
    starts = sentence_starts_of(corpus)
    is_single = []
    for parts in all_of(sampler, 8):
        text = np.concatenate(parts)
        if np.searchsorted(starts, text[-1], "right") > np.searchsorted(starts, text[0], "right"):
            is_single.append(len(parts) == 1)
        else:
            assert len(parts) == 1
    assert len(is_single) > 1500
    assert abs(np.mean(is_single) - chance) <= 3.5 * (chance * (1 - chance) / len(is_single)) ** 0.5


def test_the_first_is_about_half(tmp_path, tokenizer_folder):
    # room for 60: seven sentences of 4 stay below half, and an eighth belongs to the first half of the time
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, [[[4] * 300] * 8], held_out_fraction=0)
    sampler = SequenceSampler(
        [(corpus, 1.0)], 63, seed=0, layout="pairs", short_sequence_probability=0.0, single_segment_probability=0.0
    )
    sizes = [tuple(map(len, parts)) for parts in all_of(sampler, 4)]
    assert set(sizes) == {(28, 32), (32, 28)} and abs(sizes.count((28, 32)) / len(sizes) - 0.5) < 0.04


def test_some_are_shorter(tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, [[[4] * 300] * 8], held_out_fraction=0)
    for chance in (0.0, 0.05, 1.0):
        sampler = SequenceSampler([(corpus, 1.0)], 63, seed=0, layout="pairs", short_sequence_probability=chance)
        num_tokens = np.array([sum(map(len, parts)) for parts in all_of(sampler, 6)])
        # one target in fifteen is within the last sentence
        assert abs((num_tokens < 60).mean() - chance * 55 / 59) < 0.015


@pytest.mark.parametrize("length", [8, 128])
def test_documents_of_a_token_or_a_few_are_segments(length, tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "few", tokenizer_folder, [[[1], [2, 1]], [[1], [1, 1, 1], [3]]], 0)
    sampler = SequenceSampler([(corpus, 1.0)], length, seed=0, layout="pairs", short_sequence_probability=0.5)
    found = one_or_two(sampler.batch(0, 300), sampler)
    assert {len(parts) for parts in found} == {1, 2}
    assert len(np.unique(documents_of(corpus, np.array([parts[0][0] for parts in found])))) == 5
