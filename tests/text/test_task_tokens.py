"""GPT-1's start, delimiter and extract tokens: their positions and ids, and the same in `transformers`."""

import pytest
import transformers
from tiny import tiny_text

from hornbook.text.task_tokens import DELIMITER, EXTRACT, GPT1_TOKENS, START, with_gpt1_format, with_pad_token
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer

TEXTS = ["the river", "A teacher, of letters 한국어", ""]


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def plain(request) -> Tokenizer:
    return train_tokenizer(tiny_text(60).split("\n\n"), kind=request.param, vocab_size=320).without_special_tokens()


def test_they_stand_around_a_text_and_between_two(plain):
    found = with_gpt1_format(plain)
    assert [found.id(token) for token in GPT1_TOKENS] == [plain.vocab_size + i for i in range(3)]
    start, delimiter, extract = (found.id(token) for token in GPT1_TOKENS)
    for one, two in zip(TEXTS, TEXTS[::-1], strict=True):
        a, b = (plain.encode(text).ids for text in (one, two))
        assert found.encode(one).ids == [start, *a, extract]
        pair = found.encode(one, two)
        assert pair.ids == [start, *a, delimiter, *b, extract] and set(pair.segments) == {0}
    assert (found.num_special(False), found.num_special(True)) == (2, 3)
    assert found.encode_batch(["the river"])[0].offsets == plain.encode_batch(["the river"])[0].offsets
    assert plain.id(START) is None and plain.encode("the river").ids == plain.encode_batch(["the river"])[0].ids


def test_a_vocabulary_that_has_them_is_unchanged(plain, tmp_path):
    found = with_gpt1_format(plain)
    assert with_gpt1_format(found).vocab_size == found.vocab_size == plain.vocab_size + 3
    found.save(tmp_path)
    again = with_gpt1_format(Tokenizer.load(tmp_path))
    assert again.vocab_size == found.vocab_size and again.encode(*TEXTS[:2]) == found.encode(*TEXTS[:2])


def test_transformers_writes_the_same(plain, tmp_path):
    found = with_pad_token(with_gpt1_format(plain))
    found.save(tmp_path, num_segments=0)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs(TEXTS, TEXTS[::-1])["input_ids"] == [
        found.encode(*pair).ids for pair in zip(TEXTS, TEXTS[::-1], strict=True)
    ]
    assert set(theirs(TEXTS, padding=True)) == {"input_ids", "attention_mask"}
    assert (theirs.sep_token, theirs.cls_token, theirs.pad_token_id) == (DELIMITER, EXTRACT, found.pad_id)


def test_what_fills_up_a_batch(plain):
    """Its own pad token, else what ends a text, else what starts one."""
    assert with_pad_token(plain).pad_id == plain.pad_id is not None
    without = Tokenizer(plain.backend, {name: token for name, token in plain.names.items() if name != "pad_token"})
    assert without.pad_id is None and with_pad_token(without).pad_id == without.eos_id is not None
    marks = with_gpt1_format(without)
    marks.eos_id = None
    assert with_pad_token(marks).pad_id == marks.id(START)
    without.eos_id = None
    assert with_pad_token(without) is without
