"""Encoding by words equals the library on any text, and knows which tokenizers it does not fit."""

import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from text_samples import DOCUMENTS, ENGLISH, KOREAN, NUM_TOKENS
from tokenizers import AddedToken, models, normalizers, pre_tokenizers

import hornbook.text.word_cache as word_cache
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer
from hornbook.text.word_cache import find_words

PARTS = [
    *"aZé漢가 Ⅳ٣²ªß\u0301\u200b\ufeff\x00\x1c\x85\t\n\r\xa0\u3000’·…!_'#[",
    *[
        "  ",
        "'s",
        "'LL",
        "don't",
        "(1998),",
        "fox",
        "개를",
        "##x",
        "[MASK]",
        "</s>",
        "ＡＢ",
        "İst",
        "ȺȾ",
        "ſŸÀ",
        "Σ",
        "👩‍👩‍👧",
        "x" * 120,
    ],
]
SUPPORTED = [("wordpiece", False), ("wordpiece", True), ("bpe", True)]


def random_texts(number: int) -> list[str]:
    draw = random.Random(number)
    texts = [
        "".join(draw.choice(PARTS) + " " * draw.randint(0, 1) for _ in range(draw.randint(0, 9))) for _ in range(400)
    ]
    return [*texts, *ENGLISH, *KOREAN, "", " ", "  two  spaces  "]


def assert_equal(found, expected) -> None:
    assert all(np.array_equal(one, other) for one, other in zip(found[:3], expected[:3], strict=True))


@pytest.fixture
def with_prefix():
    return train_tokenizer(DOCUMENTS, kind="bpe", cased=True, vocab_size=NUM_TOKENS, add_prefix_space=True)


@pytest.mark.parametrize(("kind", "cased"), SUPPORTED)
def test_any_text_has_the_tokens_of_the_library(monkeypatch, trained, kind, cased):
    tokenizer = trained[kind, cased]
    monkeypatch.setattr(word_cache, "MAX_CHARACTERS", 3000)  # so that the cache is emptied between texts
    for number in range(4):
        texts = random_texts(number)
        assert_equal(tokenizer._word_cache.encode(texts), tokenizer._encode_whole(texts))


def test_a_tokenizer_that_adds_the_first_space(with_prefix):
    assert_equal(with_prefix._word_cache.encode(random_texts(5)), with_prefix._encode_whole(random_texts(5)))


def test_most_words_are_encoded_once_and_without_the_library(monkeypatch, trained):
    tokenizer, given = trained["wordpiece", False], []
    cache = word_cache.WordCache(
        lambda texts: given.extend(texts) or tokenizer._encode_whole(texts)[:3], find_words(tokenizer._plain)
    )
    for _ in range(2):
        assert_equal(cache.encode(ENGLISH), tokenizer._encode_whole(ENGLISH))
    assert sorted(given) == ["Zürich", "café", "naïve", "p.m.)!”", "“a"]


def test_threads_share_a_cache(monkeypatch, trained):
    tokenizer = trained["bpe", True]
    monkeypatch.setattr(word_cache, "MAX_CHARACTERS", 500)
    batches = [random_texts(number) for number in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for found, texts in zip(pool.map(tokenizer._word_cache.encode, batches), batches, strict=True):
            assert_equal(found, tokenizer._encode_whole(texts))


def test_other_tokenizers_encode_whole_texts(trained):
    def changed(kind: str, **parts) -> Tokenizer:
        tokenizer = Tokenizer(*trained[kind, True].__reduce__()[1])
        backend = type(tokenizer.backend).from_str(tokenizer.backend.to_str())
        for name, value in parts.items():
            setattr(backend, name, value)
        return Tokenizer(backend, tokenizer.names)

    # Lower-casing BPE drops control characters, so that the spaces around one become a run of spaces.
    assert trained["unigram", False]._word_cache is None and trained["bpe", False]._word_cache is None
    assert changed("wordpiece")._word_cache is not None and changed("bpe")._word_cache is not None
    assert changed("wordpiece", pre_tokenizer=pre_tokenizers.Whitespace())._word_cache is None
    assert changed("wordpiece", normalizer=normalizers.Replace(" ", ""))._word_cache is None
    assert changed("bpe", normalizer=normalizers.NFKC())._word_cache is None
    assert changed("bpe", pre_tokenizer=pre_tokenizers.ByteLevel(use_regex=False))._word_cache is None
    assert changed("bpe", model=models.BPE(dropout=0.1))._word_cache is None
    added = changed("wordpiece")
    added.backend.add_tokens([AddedToken("quick brown")])
    assert added._word_cache is None
