import json

import pytest
from text_samples import DOCUMENTS, ENGLISH, KINDS, KOREAN

from hornbook.text.published import published_wordpiece
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.vocabulary_fit import measure_fit

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "un", "##believ", "##able", "##s", "."]


@pytest.fixture
def small():
    backend = published_wordpiece({piece: number for number, piece in enumerate(PIECES)}, {})
    return Tokenizer(backend, {"unk_token": "[UNK]"})


def test_numbers_of_a_text_counted_by_hand(small):
    fit = measure_fit(small, iter(["The cats.", "the unbelievable cat", "dog Unbelievable"]))
    assert fit.num_words == 7
    assert fit.num_tokens == 13
    assert fit.tokens_per_word == pytest.approx((1 + 2 + 1 + 3 + 1 + 1 + 3) / 7)
    assert fit.unknown_rate == pytest.approx(1 / 13)
    assert fit.characters_per_token == pytest.approx((9 + 20 + 16) / 13)
    assert fit.vocab_size == 12
    assert fit.vocabulary_used == pytest.approx(8 / 12)
    first, second = fit.longest_splits[:2]
    assert (first.word, first.pieces, first.count) == ("unbelievable", ["un", "##believ", "##able"], 2)
    assert (second.word, second.pieces) == ("cats", ["cat", "##s"])


@pytest.mark.parametrize("kind", KINDS)
def test_own_text_fits_better_than_other_text(trained, kind):
    tokenizer = trained[kind, False]
    own, other = measure_fit(tokenizer, DOCUMENTS), measure_fit(tokenizer, ["zygomorphic quartz vexillology"])
    assert own.tokens_per_word < other.tokens_per_word
    assert own.unknown_rate == 0
    assert len(own.longest_splits) == 10
    assert json.loads(json.dumps(own.to_dict()))["num_words"] == own.num_words


def test_bytes_are_shown_as_text(trained):
    fit = measure_fit(trained["bpe", False], [*ENGLISH, *KOREAN])
    assert any("".join(split.pieces).strip() == split.word for split in fit.longest_splits)


def test_no_words_are_refused(small):
    with pytest.raises(ValueError, match="no words"):
        measure_fit(small, ["  ", "..."])
