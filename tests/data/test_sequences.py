import hashlib
import pickle
from typing import get_args

import numpy as np
import pytest
from numbered import FIRST, documents_of, is_word_start, numbered_corpus, random_lengths, sentence_starts_of
from taken_apart import chunk_numbers, same, sequences, two_segments

from hornbook.data.corpus import Corpus
from hornbook.data.sequences import SequenceLayout, SequenceSampler
from hornbook.runs.pretraining.settings import DataSettings

LENGTH = 64


@pytest.fixture(scope="module")
def corpus(tmp_path_factory, tokenizer_folder):
    """1,200 documents in three shards, and a fifth of them held out."""
    random = np.random.default_rng(1)
    lengths = random_lengths(random, 3, 400, 30, giants=True)
    return numbered_corpus(tmp_path_factory.mktemp("sequences") / "corpus", tokenizer_folder, lengths, 0.2)


@pytest.fixture(scope="module")
def pairs(corpus):
    return SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout="nsp")


@pytest.fixture(scope="module")
def packed(corpus):
    return SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout="full-sentences")


# ---- pairs


def test_pairs_are_next_or_random(pairs, corpus):
    starts = set(sentence_starts_of(corpus).tolist())
    num_full = 0
    for number in range(4):
        batch = pairs.batch(number, 500)
        assert batch.num_sequences == 500 and batch.max_length == LENGTH
        assert np.diff(batch.offsets_host).max() <= LENGTH
        for a, b, is_random in two_segments(batch, pairs):
            assert len(a) and len(b)
            assert (np.diff(a) == 1).all() and (np.diff(b) == 1).all()
            documents = documents_of(corpus, np.array([a[0], a[-1], b[0], b[-1]])).tolist()
            assert documents[0] == documents[1] and documents[2] == documents[3]
            assert (documents[0] != documents[2]) == bool(is_random)
            is_cut = len(a) + len(b) == LENGTH - 3
            num_full += is_cut
            if not is_random:
                assert b[0] > a[-1] if is_cut else b[0] == a[-1] + 1
            elif not is_cut:
                assert int(b[0]) in starts
    assert num_full > 1000


def test_half_of_the_pairs_are_random(corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=3, layout="nsp", short_sequence_probability=0.0)
    starts = sentence_starts_of(corpus)
    found = [pair for number in range(10) for pair in two_segments(sampler.batch(number, 400), sampler)]
    chunk = chunk_numbers(sampler, np.array([a[0] for a, _, _ in found]))
    labels = np.array([label for _, _, label in found])
    lows, highs = (np.concatenate(each) for each in (sampler.chunks[0].starts, sampler.chunks[0].stops))
    sizes = [len(shard.tokens) for shard in corpus.shards]
    base = FIRST + np.repeat([0, *np.cumsum(sizes)[:-1]], [len(s) for s in sampler.chunks[0].starts])
    inner = np.searchsorted(starts, base + highs, "left") - np.searchsorted(starts, base + lows, "right")
    num_sentences = np.concatenate([np.diff(shard.documents) for shard in corpus.shards])
    is_lone = num_sentences[documents_of(corpus, np.array([a[0] for a, _, _ in found]))] == 1
    is_lone &= labels == 1  # a sentence that was cut has a next piece
    is_one_sentence = (inner[chunk] == 0) & ~is_lone
    assert is_lone.sum() > 100 and is_one_sentence.sum() > 400 and (inner[chunk] > 0).sum() > 1500
    for several in (labels[is_one_sentence], labels[inner[chunk] > 0]):
        assert abs(several.mean() - 0.5) < 4 * 0.5 / len(several) ** 0.5
    assert labels.mean() == pytest.approx(sampler.not_next_fraction(), abs=0.03)


@pytest.mark.parametrize(
    ("sentences", "share"),
    [([9] * 8, 0.5), ([40, 9], 0.5), ([20, 100, 9], 0.5), ([9], 1.0)],
    ids=["one sentence left over", "two sentences", "a long sentence", "one sentence"],
)
def test_both_labels_are_equally_likely_wherever_a_sentence_has_a_neighbour(
    sentences, share, tmp_path, tokenizer_folder
):
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, [[sentences] * 60], held_out_fraction=0)
    sampler = SequenceSampler([(corpus, 1.0)], 64, seed=0, layout="nsp")
    found = [pair for number in range(5) for pair in two_segments(sampler.batch(number, 400), sampler)]
    assert np.mean([label for *_, label in found]) == pytest.approx(share, abs=0.045)
    assert sampler.not_next_fraction() == share
    for a, b, is_random in found:
        documents = documents_of(corpus, np.array([a[0], b[0]]))
        assert (documents[0] != documents[1]) == bool(is_random)
        assert is_random or a[-1] < b[0]


def test_where_a_ends_and_where_random_text_comes_from_are_uniform(tmp_path, tokenizer_folder):
    # chunks of five sentences of 4 tokens; 8 documents
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, [[[4] * 50] * 8], held_out_fraction=0)
    sampler = SequenceSampler([(corpus, 1.0)], 23, seed=0, layout="nsp", short_sequence_probability=0.0)
    found = [pair for number in range(8) for pair in two_segments(sampler.batch(number, 500), sampler)]
    assert abs(np.mean([label for *_, label in found]) - 0.5) < 0.025
    ends = np.bincount([len(a) // 4 for a, _, _ in found], minlength=5)[1:]
    assert ends.sum() == 4000 and ends.min() > 900
    others = np.zeros((8, 8), int)
    for a, b, label in found:
        others[documents_of(corpus, a[:1])[0], documents_of(corpus, b[:1])[0]] += label
    away = others[~np.eye(8, dtype=bool)]
    assert others.trace() == 0 and away.min() > 15 and away.max() < 70  # 36 on average
    starts = np.bincount([(b[0] - FIRST) // 4 % 50 for _, b, label in found if label], minlength=50)
    assert starts.min() > 15 and starts.max() < 75  # 40 on average


def test_one_in_ten_pairs_is_shorter(tmp_path, tokenizer_folder):
    random = np.random.default_rng(2)
    lengths = [[random.integers(2, 8, 400).tolist() for _ in range(40)]]
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, lengths)

    def lengths_at(chance: float) -> np.ndarray:
        sampler = SequenceSampler([(corpus, 1.0)], 128, seed=0, layout="nsp", short_sequence_probability=chance)
        return np.concatenate([np.diff(sampler.batch(number, 500).offsets_host) for number in range(8)])

    never, sometimes, always = lengths_at(0.0), lengths_at(0.1), lengths_at(1.0)
    # a random B that meets the end of its document is short too, 5% of the time here
    assert (never == 128).mean() > 0.9
    excess = (sometimes < 110).mean() - (never < 110).mean()
    assert abs(excess - 0.1 * (105 - 3) / 125) < 0.02
    aimed = np.histogram(always, bins=[8, 32, 56, 80, 104, 128])[0] / len(always)
    assert aimed.min() > 0.15 and aimed.max() < 0.25


def test_training_never_meets_what_is_held_out(corpus):
    num_held_out = 0
    for layout in get_args(SequenceLayout):
        for held_out in (False, True):
            sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout=layout, held_out=held_out)
            total = sampler.chunks[0].total
            # an epoch, and the beginning of the next
            batches = [sampler.batch(number, 500) for number in range(-(-total // 500) + 1)]
            ids = np.unique(np.concatenate([batch.ids_T.numpy() for batch in batches]))
            documents = np.unique(documents_of(corpus, ids[ids >= FIRST]))
            assert (corpus.is_held_out(documents) == held_out).all()
            num_held_out += held_out * len(documents)
            everything = corpus.is_held_out(np.arange(corpus.num_documents)) == held_out
            assert len(documents) == everything.sum()
    assert num_held_out > 600


@pytest.mark.parametrize(
    ("layout", "held_out", "digest"),
    [
        ("nsp", False, "6cc252a11e528d42"),
        ("nsp", True, "27bff7182295fc05"),
        ("full-sentences", False, "12f8abc9f6f1fecf"),
        ("full-sentences", True, "92350543411e9604"),
    ],
)
def test_batches_are_those_that_runs_began_with(layout, held_out, digest, corpus):
    """A run resumes in the middle of its batches: every batch is the same as without the interruption."""
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout=layout, held_out=held_out)
    found = hashlib.sha256()
    for number in range(3):
        batch = sampler.batch(number, 200)
        for tensor in (batch.ids_T, batch.segments_T, batch.word_starts_T, batch.offsets, batch.labels_N):
            found.update(b"" if tensor is None else tensor.numpy().tobytes())
    assert found.hexdigest()[:16] == digest


@pytest.mark.parametrize("layout", get_args(SequenceLayout))
def test_a_share_of_a_batch_is_made_as_in_the_whole(layout, corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout=layout)
    shares, whole = [sampler.batch(3, 60, span=share) for share in ((0, 23), (23, 60))], sampler.batch(3, 60)
    if layout == "documents":  # an example is several sequences, and a batch is sorted by length
        assert sorted(bytes(each) for share in shares for each in sequences(share)) == sorted(
            map(bytes, sequences(whole))
        )
        return
    of_whole = {index: whole.slice(i, i + 1) for i, index in enumerate(whole.step_index_host.tolist())}
    assert sorted(of_whole) == sorted(np.concatenate([each.step_index_host for each in shares])) == list(range(60))
    for share in shares:
        for i, index in enumerate(share.step_index_host.tolist()):
            assert same(share.slice(i, i + 1), of_whole[index])


# ---- the order


@pytest.mark.parametrize("layout", [layout for layout in get_args(SequenceLayout) if layout != "documents"])
def test_an_epoch_meets_each_chunk_once(layout, corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout=layout)
    total = sampler.chunks[0].total
    order = np.array([chunk for _, chunk, _ in sampler._chunks_of(np.arange(3 * total))])
    if layout != "nsp":  # there A may be the sentence before a chunk of one
        batch = sampler.batch(0, 3 * total)
        firsts = batch.ids_T.numpy()[batch.offsets_host[:-1] + 1]
        assert chunk_numbers(sampler, firsts).tolist() == order[batch.step_index_host].tolist()
    epochs = [order[i * total : (i + 1) * total] for i in range(3)]
    for epoch in epochs:
        assert sorted(epoch.tolist()) == list(range(total))
        assert abs(np.corrcoef(epoch, np.arange(total))[0, 1]) < 0.15
    assert (epochs[0] == epochs[1]).mean() < 0.01 and (epochs[1] == epochs[2]).mean() < 0.01


def test_other_seeds_and_lengths_have_other_orders(corpus, pairs):
    other = SequenceSampler([(corpus, 1.0)], LENGTH, seed=1, layout="nsp")
    a, b = (chunk_numbers(e, np.array([ids[1] for ids in sequences(e.batch(0, 500))])) for e in (pairs, other))
    assert (a == b).mean() < 0.02


@pytest.mark.parametrize("layout", get_args(SequenceLayout))
def test_a_batch_depends_on_its_number_alone(layout, corpus):
    sampler = SequenceSampler([(corpus, 1.0)], LENGTH, seed=0, layout=layout)
    numbers = [0, 1, 2, 17, 40, 1000]
    batches = {number: sampler.batch(number, 33) for number in numbers}
    again = {number: sampler.batch(number, 33) for number in reversed(numbers)}
    sent = pickle.loads(pickle.dumps(sampler))
    fresh = SequenceSampler([(Corpus(corpus.folder, 0.2), 1.0)], LENGTH, seed=0, layout=layout)
    for number in numbers:
        for other in (again[number], sent.batch(number, 33), fresh.batch(number, 33)):
            assert same(batches[number], other)
    assert not same(batches[0], batches[1])


# ---- more corpora than one


def test_corpora_are_mixed_by_weight(tmp_path, tokenizer_folder, random):
    starts = [1000, 100_000, 200_000]
    weights = [1.0, 0.37, 2.0]
    corpora = [
        numbered_corpus(tmp_path / str(first), tokenizer_folder, random_lengths(random, 1, 300, 20), first=first)
        for first in starts
    ]
    sampler = SequenceSampler(list(zip(corpora, weights, strict=True)), 32, seed=5, layout="full-sentences")
    firsts = np.array([sequences(sampler.batch(number, 1))[0][1] for number in range(3000)])
    which = np.searchsorted(starts, firsts, side="right") - 1
    share = np.bincount(which) / len(which)
    assert np.abs(share - np.array(weights) / sum(weights)).max() < 0.002
    for number, first in enumerate(starts):
        mine = chunk_numbers(sampler, firsts[which == number], number, first)
        total = sampler.chunks[number].total
        assert len(mine) > 300
        epochs = [mine[i : i + total] for i in range(0, len(mine), total)]
        assert all(len(np.unique(epoch)) == len(epoch) for epoch in epochs)
        assert abs((which[:300] == number).mean() - share[number]) < 0.1  # mixed from the beginning


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf"), 1e-5])
def test_a_weight_that_cannot_be_kept_is_refused(weight, corpus):
    with pytest.raises(ValueError, match="weigh"):
        SequenceSampler([(corpus, 1.0), (corpus, weight)], LENGTH, seed=0, layout="full-sentences")


# ---- packed


def test_packed_sequences_hold_full_sentences(packed, corpus):
    nearest, longest = sentence_starts_of(corpus), LENGTH - 2
    starts = set(nearest.tolist())
    seen, num_separated = [], 0
    batch = packed.batch(0, packed.chunks[0].total)  # an epoch
    assert batch.labels_N is None and not batch.segments_T.any()
    assert np.diff(batch.offsets_host).max() <= LENGTH
    all_ids = batch.ids_T.numpy()
    assert np.array_equal(batch.word_starts_T.numpy(), np.where(all_ids < FIRST, True, is_word_start(all_ids)))
    for ids in sequences(batch):
        assert ids[0] == packed.cls_id and ids[-1] == packed.sep_id
        inside = ids[1:-1]
        text = inside[inside >= FIRST]
        assert (np.diff(text) == 1).all()
        # a separator wherever a document begins, and nowhere else
        documents = documents_of(corpus, text)
        with_separators = np.insert(text, np.flatnonzero(np.diff(documents)) + 1, packed.sep_id)
        assert np.array_equal(inside, with_separators)
        num_separated += len(inside) - len(text)
        begins, continues = int(text[0]) in starts, int(text[-1]) + 1 not in starts
        if not begins or (continues and int(text[-1]) + 1 < FIRST + corpus.num_tokens):
            at = np.searchsorted(nearest, text[0 if not begins else -1], side="right")
            assert at == len(nearest) or nearest[at] - nearest[at - 1] > longest  # a piece of a giant
        seen.append(text)
    seen = np.sort(np.concatenate(seen))
    assert len(np.unique(seen)) == len(seen)
    kept = ~corpus.is_held_out(documents_of(corpus, np.arange(FIRST, FIRST + corpus.num_tokens)))
    assert np.array_equal(seen, FIRST + np.flatnonzero(kept))
    assert num_separated > 300


# ---- small ones


def test_one_document_has_no_wrong_sentences(tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "one", tokenizer_folder, [[[5] * 30]])
    with pytest.raises(ValueError, match=r"objective\.sentence=sop or none"):
        SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="nsp")
    with pytest.raises(ValueError, match=r"data\.held_out_fraction=0"):
        SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="full-sentences", held_out=True)
    ids = sequences(SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="full-sentences").batch(0, 5))
    assert [len(each) for each in ids] == [32] * 5


def test_two_documents(tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "two", tokenizer_folder, [[[5] * 30, [4, 3]]])
    with pytest.raises(ValueError, match="fewer than two documents"):
        SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="nsp")
    # the only held-out document takes its wrong sentences from itself
    sampler = SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="nsp", held_out=True)
    for a, b, _ in two_segments(sampler.batch(0, 20), sampler):
        assert documents_of(corpus, a[:1]) == documents_of(corpus, b[:1])
    corpus = numbered_corpus(tmp_path / "both", tokenizer_folder, [[[5] * 30, [4, 3]]], held_out_fraction=0)
    sampler = SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="nsp")
    two_segments(sampler.batch(0, 200), sampler)
    with pytest.raises(ValueError, match="held out"):
        SequenceSampler([(corpus, 1.0)], 32, seed=0, layout="nsp", held_out=True)


@pytest.mark.parametrize("length", [8, 128])
def test_documents_of_a_token_or_a_few(length, tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "few", tokenizer_folder, [[[1], [2, 1]], [[1], [1, 1, 1], [3]]], 0)
    sampler = SequenceSampler([(corpus, 1.0)], length, seed=0, layout="nsp", short_sequence_probability=0.5)
    found = two_segments(sampler.batch(0, 300), sampler)
    assert {tuple(a) for a, _, _ in found} > {(FIRST,), (FIRST + 4,)}
    assert all(documents_of(corpus, a[:1]) != documents_of(corpus, b[:1]) for a, b, label in found if label)
    for ids in sequences(SequenceSampler([(corpus, 1.0)], length, seed=0, layout="full-sentences").batch(0, 20)):
        assert 3 <= len(ids) <= length


# ---- settings


def test_short_sequences_come_first():
    data = DataSettings(short_fraction=0.75)
    assert [data.length_at(step, 8) for step in (0, 5, 6, 7)] == [(128, 0), (128, 5), (512, 0), (512, 1)]
    assert DataSettings(short_fraction=1.0).length_at(9, 8) == (128, 9)  # a step beyond the last, after skipped batches
    with pytest.raises(ValueError, match="at least 8"):
        DataSettings(length=7)
    for name in ("short_fraction", "short_sequence_probability", "single_segment_probability", "held_out_fraction"):
        with pytest.raises(ValueError, match=f"data.{name} must be at (least 0|most 1)"):
            DataSettings(**{name: 1.5})
