import dataclasses

import numpy as np
import pytest
import torch
from made_up_text import KINDS

from hornbook.batch import Batch, pack
from hornbook.data.sequences import SequenceSampler
from hornbook.objectives.masking import Masking, MaskingSettings, _select_units
from hornbook.train.randomness import token_keys

VOCAB_SIZE, CLS, SEP, MASK = 1000, 2, 3, 4
SPECIAL = [0, 1, CLS, SEP, MASK]


def masking(**settings) -> Masking:
    return Masking(MaskingSettings(**settings), VOCAB_SIZE, MASK, SPECIAL)


def batch_of(random: np.random.Generator, lengths, word_start_share: float = 1.0) -> Batch:
    """`[CLS]`, ordinary tokens, a `[SEP]` in the middle, `[SEP]`."""
    sequences, starts = [], []
    for length in lengths:
        ids = random.integers(len(SPECIAL), VOCAB_SIZE, length)
        ids[0], ids[-1], ids[length // 2] = CLS, SEP, SEP
        sequences.append(ids)
        starts.append((random.random(length) < word_start_share) | (ids < len(SPECIAL)))
    return pack(sequences, word_starts=starts)


def chosen_of(targets) -> np.ndarray:
    return targets.indices_K[targets.weights_K > 0].numpy()


def counts_of(batch: Batch, targets) -> np.ndarray:
    """How many tokens were really chosen in each sequence."""
    return np.histogram(chosen_of(targets), bins=batch.offsets_host)[0]


def asked_of(batch: Batch, rate: float) -> list[int]:
    return [max(1, round(rate * int(length))) for length in np.diff(batch.offsets_host)]


# ---- tokens


@pytest.mark.parametrize("rate", [0.15, 0.4, 0.01])
def test_so_many_tokens_of_each_sequence(rate, random):
    batch = batch_of(random, random.integers(8, 200, 60))
    for seed in range(20):
        ids_T, targets = masking(probability=rate).prepare(batch, token_keys(batch, seed))
        asked = asked_of(batch, rate)
        assert counts_of(batch, targets).tolist() == asked == np.diff(targets.offsets_host).tolist()
        assert float(targets.weights_K.sum()) == sum(asked)
        chosen = chosen_of(targets)
        assert len(np.unique(chosen)) == len(chosen)
        for i in range(batch.num_sequences):
            mine = targets.indices_K[targets.offsets_host[i] : targets.offsets_host[i + 1]].numpy()
            assert ((batch.offsets_host[i] <= mine) & (mine < batch.offsets_host[i + 1])).all()
        is_chosen = torch.zeros(batch.num_tokens, dtype=torch.bool)
        is_chosen[targets.indices_K] = True
        assert ids_T[~is_chosen].equal(batch.ids_T[~is_chosen])
        assert targets.values_K.equal(batch.ids_T[targets.indices_K])
        assert not np.isin(targets.values_K.numpy(), SPECIAL).any()


def test_the_shares_of_mask_random_and_kept(random):
    batch = batch_of(random, [128] * 400)
    counts, random_ids = np.zeros(3), []
    for seed in range(10):
        ids_T, targets = masking().prepare(batch, token_keys(batch, seed))
        put = ids_T[targets.indices_K]
        kinds = [put == MASK, (put != MASK) & (put != targets.values_K), put == targets.values_K]
        counts += [int(kind.sum()) for kind in kinds]
        random_ids.append(put[kinds[1]].numpy())
    total = counts.sum()
    # one random token in 995 is the one that stood there
    expected = np.array([0.8, 0.1 * 994 / 995, 0.1 + 0.1 / 995])
    assert np.abs(counts / total - expected).max() < 4 * 0.4 / total**0.5
    random_ids = np.concatenate(random_ids)
    assert random_ids.min() >= len(SPECIAL) and random_ids.max() == VOCAB_SIZE - 1
    assert np.bincount(random_ids // 100, minlength=10)[1:].min() > 0.09 * len(random_ids)


def test_other_shares(random):
    batch = batch_of(random, [128] * 100)
    ids_T, targets = masking(mask_fraction=1.0, random_fraction=0.0).prepare(batch, token_keys(batch, 0))
    assert (ids_T[targets.indices_K] == MASK).all()
    ids_T, targets = masking(mask_fraction=0.0, random_fraction=0.0).prepare(batch, token_keys(batch, 0))
    assert ids_T.equal(batch.ids_T) and float(targets.weights_K.sum()) == 1900
    ids_T, targets = masking(mask_fraction=0.0, random_fraction=1.0).prepare(batch, token_keys(batch, 0))
    assert (ids_T[targets.indices_K] != targets.values_K).float().mean() > 0.99
    assert not np.isin(ids_T[targets.indices_K].numpy(), SPECIAL).any()


def test_special_ids_in_the_middle_of_the_vocabulary(random):
    special = [100, 101, 500, 999]
    made = Masking(MaskingSettings(mask_fraction=0.0, random_fraction=1.0), VOCAB_SIZE, 500, special)
    batch = pack([random.integers(0, VOCAB_SIZE, 500) for _ in range(200)])
    seen = np.zeros(VOCAB_SIZE, int)
    for seed in range(5):
        ids_T, targets = made.prepare(batch, token_keys(batch, seed))
        assert not np.isin(targets.values_K.numpy(), special).any()
        seen += np.bincount(ids_T[targets.indices_K].numpy(), minlength=VOCAB_SIZE)
    assert not seen[special].any() and np.delete(seen, special).min() > 20


def test_a_seed_is_a_draw(random):
    batch = batch_of(random, [64] * 20)
    for unit in ("token", "word", "ngram"):
        draws = [masking(unit=unit).prepare(batch, token_keys(batch, seed)) for seed in (5, 5, 6)]
        assert draws[0][0].equal(draws[1][0]) and draws[0][1].indices_K.equal(draws[1][1].indices_K)
        assert not draws[0][1].indices_K.equal(draws[2][1].indices_K)
    assert not np.array_equal(np.sort(chosen_of(draws[0][1])), np.sort(chosen_of(draws[2][1])))


@pytest.mark.parametrize("unit", ["token", "word", "ngram"])
def test_positions_are_uniform(unit, random):
    length, num_draws = 40, 48
    batch = batch_of(random, [length] * 1000)
    seen = np.zeros(length)
    for seed in range(num_draws):
        targets = masking(unit=unit).prepare(batch, token_keys(batch, seed))[1]
        seen += np.bincount(chosen_of(targets) % length, minlength=length)
    special = [0, length // 2, length - 1]
    assert not seen[special].any()
    share = np.delete(seen, special) / seen.sum()
    # n-grams are shorter beside a special token, and short ones fit more often where only six tokens are asked for
    tolerance = 0.15 if unit == "ngram" else 0.05
    assert np.abs(share * 37 - 1).max() < tolerance


def test_sequences_with_little_to_choose():
    only_special = pack([np.array([CLS, SEP, SEP]), np.array([CLS, 50, SEP]), np.array([CLS, 1, 1, 1, 1, 1, 60, SEP])])
    for unit in ("token", "word", "ngram"):
        ids_T, targets = masking(probability=0.5, unit=unit).prepare(only_special, token_keys(only_special, 0))
        assert counts_of(only_special, targets).tolist() == [0, 1, 1]
        assert np.diff(targets.offsets_host).tolist() == [2, 2, 4]
        untouched = np.setdiff1d(np.arange(14), [4, 12])
        assert ids_T[untouched].equal(only_special.ids_T[untouched])


@pytest.mark.parametrize("unit", ["token", "word", "ngram"])
def test_dead_sequences_are_left_alone(unit, random):
    batch = batch_of(random, [30, 50, 20], 0.5)
    ids_T, targets = masking(unit=unit).prepare(batch.bucketed(256, 9), token_keys(batch.bucketed(256, 9), 0))
    assert chosen_of(targets).max() < 100 and ids_T[100:].eq(0).all()
    assert len(targets.offsets_host) == 10 and targets.offsets_host[3] == targets.offsets_host[-1]


# ---- whole words


def units_of(batch: Batch) -> np.ndarray:
    """A number for the word of each token, worked out one by one; -1 for special tokens."""
    ids, starts = batch.ids_T.numpy(), batch.word_starts_T.numpy()
    firsts = set(batch.offsets_host.tolist())
    word, words = -1, []
    for i, token in enumerate(ids.tolist()):
        if token in SPECIAL:
            words.append(-1)
            continue
        if starts[i] or i in firsts or words[-1] == -1:
            word += 1
        words.append(word)
    return np.array(words)


def split_words(words: np.ndarray, chosen: np.ndarray) -> int:
    """How many words are chosen in part."""
    is_chosen = np.zeros(len(words), bool)
    is_chosen[chosen] = True
    kept = words >= 0
    hits = np.bincount(words[kept], is_chosen[kept])
    return int(((hits > 0) & (hits < np.bincount(words[kept]))).sum())


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3])
def test_words_are_chosen_whole(share, random):
    batch = batch_of(random, random.integers(20, 200, 100), share)
    words = units_of(batch)
    for seed in range(10):
        ids_T, targets = masking(unit="word").prepare(batch, token_keys(batch, seed))
        chosen = chosen_of(targets)
        assert not split_words(words, chosen) and (words[chosen] >= 0).all()
        assert (counts_of(batch, targets) <= asked_of(batch, 0.15)).all()
        changed = np.flatnonzero((ids_T != batch.ids_T).numpy())
        assert np.isin(changed, chosen).all()
    # what the test would see, were tokens chosen one by one
    assert split_words(words, chosen_of(masking().prepare(batch, token_keys(batch, 0))[1])) > 50


@pytest.mark.parametrize(
    ("unit", "share", "least"), [("word", 0.9, 0.999), ("word", 0.33, 0.99), ("ngram", 0.33, 0.98)]
)
def test_masked_words_add_up_to_the_requested_number_of_tokens(unit, share, least, random):
    batch = batch_of(random, [128] * 500, share)
    found = sum(
        counts_of(batch, masking(unit=unit).prepare(batch, token_keys(batch, seed))[1]).sum() for seed in range(4)
    )
    assert found >= least * 4 * 500 * 19


def test_the_units_are_those_of_going_through_them_one_by_one(random):
    """The published loop: units in random order, each taken unless it would go past the number."""
    batch = batch_of(random, random.integers(10, 150, 80), 0.4)
    words = units_of(batch)
    sequence_T = torch.repeat_interleave(torch.arange(80), torch.from_numpy(np.diff(batch.offsets_host)))
    first = {word: i for i, word in reversed(list(enumerate(words.tolist())))}
    unit_T = torch.tensor([i if words[i] < 0 else first[words[i]] for i in range(batch.num_tokens)])
    is_ordinary_T = torch.from_numpy(words >= 0)
    key_T = torch.rand(batch.num_tokens, generator=torch.Generator().manual_seed(1), dtype=torch.float64)[unit_T].where(
        is_ordinary_T, 2.0
    )
    order_T = torch.argsort(key_T + 4.0 * sequence_T, stable=True)
    most_N = torch.tensor(asked_of(batch, 0.2))
    found = _select_units(order_T, unit_T, sequence_T, is_ordinary_T, most_N).numpy()

    expected = np.zeros(batch.num_tokens, bool)
    for i in range(80):
        start, stop = batch.offsets_host[i : i + 2]
        inside = [t for t in order_T.tolist()[start:stop] if words[t] >= 0]
        room = int(most_N[i])
        for word in dict.fromkeys(words[inside].tolist()):
            members = np.flatnonzero(words == word)
            if len(members) <= room:
                expected[members] = True
                room -= len(members)
    assert (found == expected).all()


# ---- whole words of real tokenizers


def is_word_start(token: str, previous: str | None, kind: str) -> bool:
    """By how the token is written: apart from the tokenizer's own account of words."""
    if previous is None:
        return True
    if kind == "wordpiece":
        return not token.startswith("##")
    sign = "Ġ" if kind == "bpe" else "▁"
    if token.startswith(sign):
        return True
    bare, before = token.lstrip(sign), previous.lstrip(sign)
    return not bare.isalnum() or (before != "" and not before.isalnum())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["full-sentences", "pairs", "nsp", "sop"])
def test_words_of_each_tokenizer_are_masked_whole(kind, layout, corpora):
    corpus = corpora[kind]
    tokenizer = corpus.tokenizer
    sampler = SequenceSampler([(corpus, 1.0)], 96, seed=0, layout=layout)
    made = Masking(MaskingSettings(unit="word"), tokenizer.vocab_size, tokenizer.mask_id, tokenizer.special_ids)
    ends = {tokenizer.cls_id, tokenizer.sep_id}
    num_after_punctuation = num_at_boundary = num_several = 0
    for number in range(6):
        batch = sampler.batch(number, 64)
        ids = batch.ids_T.tolist()
        tokens = [tokenizer.token(token) for token in ids]
        targets = made.prepare(batch, token_keys(batch, number))[1]
        is_chosen = np.zeros(len(ids), bool)
        is_chosen[chosen_of(targets)] = True
        assert not any(is_chosen[i] for i, token in enumerate(ids) if token in tokenizer.special_ids)
        assert is_chosen.sum() >= 0.99 * sum(asked_of(batch, 0.15))
        for i, token in enumerate(ids):
            if token in ends or not i:
                continue
            after_end = ids[i - 1] in ends
            # packed text goes on with the next sentence, whose first token starts a word in any case
            starts = is_word_start(tokens[i], None if after_end else tokens[i - 1], kind)
            if after_end:
                num_at_boundary += is_chosen[i]
            elif not starts:
                assert is_chosen[i] == is_chosen[i - 1], (tokens[i - 4 : i + 4], kind)
                num_several += is_chosen[i]
            elif not tokens[i - 1].strip("Ġ▁").isalnum() and not tokens[i - 1].startswith("##"):
                num_after_punctuation += is_chosen[i] != is_chosen[i - 1]
    assert num_several > 100 and num_after_punctuation > 50 and num_at_boundary > 5


@pytest.mark.parametrize("kind", KINDS)
def test_the_stored_bits_are_the_words(kind, corpora):
    """In the corpus a word starts exactly where the spelling shows it."""
    corpus = corpora[kind]
    tokenizer = corpus.tokenizer
    batch = SequenceSampler([(corpus, 1.0)], 96, seed=0, layout="full-sentences").batch(0, 200)
    ids, starts = batch.ids_T.tolist(), batch.word_starts_T.tolist()
    tokens = [tokenizer.token(token) for token in ids]
    inner = [i for i in range(1, len(ids)) if not {ids[i - 1], ids[i]} & {tokenizer.cls_id, tokenizer.sep_id}]
    differing = [i for i in inner if starts[i] != is_word_start(tokens[i], tokens[i - 1], kind)]
    assert not differing, [tokens[i - 3 : i + 3] for i in differing[:3]]
    assert 0.2 < np.mean([starts[i] for i in inner]) < 0.8


# ---- n-grams


def run_lengths(positions: np.ndarray) -> np.ndarray:
    breaks = np.flatnonzero(np.diff(np.sort(positions)) != 1)
    return np.diff(np.concatenate([[-1], breaks, [len(positions) - 1]]))


@pytest.mark.parametrize("max_ngram", [1, 3, 5])
def test_ngram_lengths_are_drawn_as_one_over_n(max_ngram, random):
    batch = batch_of(random, [2000] * 20)  # each token a word
    runs = np.zeros(0, int)
    for seed in range(10):
        targets = masking(unit="ngram", probability=0.015, max_ngram=max_ngram).prepare(batch, token_keys(batch, seed))[
            1
        ]
        runs = np.append(runs, run_lengths(chosen_of(targets)))
    expected = 1 / np.arange(1, max_ngram + 1)
    expected /= expected.sum()
    found = np.bincount(runs, minlength=max_ngram + 1)[1:] / len(runs)
    # 1.5% of the neighbours of a chosen n-gram are chosen too, which makes one run of two
    assert found[max_ngram:].sum() < 0.04
    assert np.abs(found[:max_ngram] - expected).max() < 0.04


def test_ngrams_are_runs_of_whole_words(random):
    batch = batch_of(random, random.integers(20, 300, 200), 0.6)
    words = units_of(batch)
    for seed in range(5):
        targets = masking(unit="ngram").prepare(batch, token_keys(batch, seed))[1]
        chosen = chosen_of(targets)
        assert not split_words(words, chosen) and (words[chosen] >= 0).all()
        assert (counts_of(batch, targets) <= asked_of(batch, 0.15)).all()


def test_ngrams_do_not_cross_a_sequence_or_segment(random):
    """Between special tokens and at the ends of sequences, units are apart even where no word starts."""
    sequences = np.split(random.integers(len(SPECIAL), VOCAB_SIZE, 4000), 2000)
    one_word = pack(sequences, word_starts=[np.zeros(2, bool)] * 2000)
    two_words = pack(sequences, word_starts=[np.array([False, True])] * 2000)
    # one token of two is asked for: none can be taken of a word of two, always one of two words
    assert (
        float(masking(unit="word", probability=0.4).prepare(one_word, token_keys(one_word, 0))[1].weights_K.sum()) == 0
    )
    assert (
        float(masking(unit="ngram", probability=0.4).prepare(one_word, token_keys(one_word, 0))[1].weights_K.sum()) == 0
    )
    targets = masking(unit="word", probability=0.4).prepare(two_words, token_keys(two_words, 0))[1]
    assert counts_of(two_words, targets).tolist() == [1] * 2000
    # n-grams of one or two words are as likely as 2 to 1, and an n-gram of two does not fit here
    targets = masking(unit="ngram", probability=0.4, max_ngram=2).prepare(two_words, token_keys(two_words, 0))[1]
    assert 0.6 < float(targets.weights_K.sum()) / 2000 < 0.9
    ids = np.tile([CLS, 50, SEP, 60, SEP], 5000)
    pairs = pack(np.split(ids, 5000), word_starts=[np.zeros(5, bool)] * 5000)
    for unit in ("word", "ngram"):
        targets = masking(unit=unit, probability=0.2).prepare(pairs, token_keys(pairs, 0))[1]
        assert counts_of(pairs, targets).tolist() == [1] * 5000
        assert abs((targets.values_K == 50).float().mean() - 0.5) < 0.03


# ---- settings


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"probability": 0.0}, "masking.probability must be above 0"),
        ({"probability": 1.0}, "masking.probability must be above 0 and below 1"),
        ({"mask_fraction": 0.95}, "together must be at most 1"),
        ({"random_fraction": -0.1}, "at least 0"),
        ({"max_ngram": 0}, "masking.max_ngram must be at least 1"),
    ],
)
def test_settings_that_make_no_sense(overrides, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(MaskingSettings(), **overrides)
