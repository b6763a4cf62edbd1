"""Documents end to end: every token once an epoch, the one after it as its label, and no document in another's
sequence."""

import hashlib

import numpy as np
import pytest
from numbered import FIRST, documents_of, numbered_corpus, random_lengths
from taken_apart import sequences

from hornbook.data.sequences import SequenceSampler

LENGTH = 64


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer_folder):
    """Documents far shorter and far longer than a chunk, in three shards, a fifth held out."""
    lengths = random_lengths(np.random.default_rng(1), 3, 60, 30, giants=True)
    return numbered_corpus(tmp_path_factory.mktemp("documents") / "corpus", tokenizer_folder, lengths, 0.2)


def sampler_of(corpus, held_out: bool = False, crosses: bool = False, length: int = LENGTH) -> SequenceSampler:
    return SequenceSampler([(corpus, 1.0)], length, 0, "documents", held_out=held_out, crosses_documents=crosses)


def taken_apart(batch) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(sequences(batch), np.split(batch.labels_T.numpy(), batch.offsets_host[1:-1]), strict=True))


@pytest.mark.parametrize("held_out", [False, True])
@pytest.mark.parametrize("length", [9, LENGTH, 1000])
def test_every_token_is_predicted_once_an_epoch(corpus, held_out, length):
    sampler = sampler_of(corpus, held_out, length=length)
    eos_id, seen, num_ends = corpus.tokenizer.eos_id, [], 0
    for number in range(sampler.chunks[0].total):
        batch = sampler.batch(number, 1)
        assert batch.max_length == length and batch.num_tokens <= length
        for ids, next_ids in taken_apart(batch):
            assert np.array_equal(ids[1:], next_ids[:-1])
            text = next_ids[next_ids >= FIRST]
            assert (np.diff(text) == 1).all() and len(np.unique(documents_of(corpus, text))) <= 1
            assert set(ids[ids < FIRST]) | set(next_ids[next_ids < FIRST]) <= {eos_id}
            assert (ids[1:] >= FIRST).all() and (next_ids[:-1] >= FIRST).all()  # the end of text stands at the ends
            if next_ids[-1] == eos_id and len(text):
                after = documents_of(corpus, np.array([text[-1], text[-1] + 1]))
                assert after[0] != after[1]
            num_ends += next_ids[-1] == eos_id
            seen.append(text)
    seen = np.concatenate(seen)
    everything = FIRST + np.arange(corpus.num_tokens)
    wanted = corpus.is_held_out(documents_of(corpus, everything)) == held_out
    assert np.array_equal(np.sort(seen), everything[wanted])
    assert num_ends == len(np.unique(documents_of(corpus, everything[wanted])))


def test_a_document_begins_with_the_end_of_text_and_positions_with_zero(corpus):
    sampler = sampler_of(corpus)
    batch = sampler.batch(0, 200)
    first_tokens = np.cumsum([0, *(len(shard.tokens) for shard in corpus.shards)])[:-1] + FIRST
    begun = 0
    for number, (ids, _) in enumerate(taken_apart(batch)):
        assert batch.slice(number, number + 1).positions_T.tolist() == list(range(len(ids)))
        if ids[0] == corpus.tokenizer.eos_id and len(ids) > 1:
            before = documents_of(corpus, np.array([ids[1] - 1, ids[1]]))
            assert before[0] != before[1] or ids[1] in first_tokens
            begun += 1
    assert begun > 30


def test_chunks_are_full_and_cross_documents_if_allowed(corpus):
    within, across = sampler_of(corpus), sampler_of(corpus, crosses=True)
    assert within.chunks[0].total == across.chunks[0].total
    num_short = num_crossing = 0
    for number in range(across.chunks[0].total):
        (found,) = taken_apart(across.batch(number, 1))
        parts = taken_apart(within.batch(number, 1))
        for one, whole in zip(zip(*parts, strict=True), found, strict=True):
            assert np.array_equal(np.sort(np.concatenate(one)), np.sort(whole))
        assert np.array_equal(found[0][1:], found[1][:-1])
        num_short += len(found[0]) < LENGTH
        num_crossing += len(parts) > 1
    assert num_short <= 3 and num_crossing > 30  # the last of each shard


def test_the_order_is_another_in_every_epoch(corpus):
    sampler = sampler_of(corpus, crosses=True)
    total = sampler.chunks[0].total
    firsts = [[sampler.batch(epoch * total + i, 1).labels_T[0].item() for i in range(total)] for epoch in range(2)]
    assert sorted(firsts[0]) == sorted(firsts[1]) and np.mean(np.array(firsts[0]) == firsts[1]) < 0.05


@pytest.mark.parametrize(("crosses", "digest"), [(False, "7ca328cec10737cb"), (True, "cf834ee9a61190e6")])
def test_batches_are_those_that_runs_began_with(corpus, crosses, digest):
    found = hashlib.sha256()
    for number in range(3):
        batch = sampler_of(corpus, crosses=crosses).batch(number, 50)
        for tensor in (batch.ids_T, batch.labels_T, batch.offsets):
            found.update(tensor.numpy().tobytes())
    assert found.hexdigest()[:16] == digest


def test_shifted_chunks_begin_elsewhere_in_each_epoch_and_hold_the_same_text(corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, 0, "documents", crosses_documents=True, shift_chunks=True)
    total = sampler.chunks[0].total
    epochs = [[taken_apart(sampler.batch(epoch * total + i, 1))[0] for i in range(total)] for epoch in range(3)]
    plain = [taken_apart(sampler_of(corpus, crosses=True).batch(i, 1))[0] for i in range(total)]
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(epochs[0], plain, strict=True))
    firsts = [{int(ids[0]) for ids, _ in found} for found in epochs]
    texts = [np.concatenate([next_ids for _, next_ids in found]) for found in epochs]
    for number in (1, 2):
        assert len(firsts[number] & firsts[number - 1]) < 0.1 * total
        assert all(np.array_equal(ids[1:], next_ids[:-1]) for ids, next_ids in epochs[number])
        lost = np.setdiff1d(texts[0], texts[number])
        assert len(lost) <= 3 * LENGTH and len(texts[number]) <= len(texts[0])  # at the ends of the three shards
        text = texts[number][texts[number] >= FIRST]
        assert len(np.unique(text)) == len(text)
