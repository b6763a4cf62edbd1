"""Vocabularies as GPT-1, GPT-2 and RoBERTa were published: tokens and merges in two files. Text is encoded as
`transformers` does with the same files."""

import json
from functools import cache

import numpy as np
import pytest
import transformers
from text_samples import DOCUMENTS
from tokenizers import Tokenizer as Backend
from tokenizers import models, normalizers, pre_tokenizers, trainers

from hornbook.text.tokenizer import Tokenizer

END = "<|endoftext|>"
POOLS = [
    [*range(32, 127)],
    [*range(32), 127, 133, 160, 0x200B, 0x200D, 0xFEFF],  # control characters, spaces of no width
    [*range(0xAC00, 0xD7A4)],  # Hangul
    [*range(0x1F300, 0x1FA00)],  # emoji
    [*range(0x400, 0x460)],
    [*range(0x4E00, 0x4F00)],
    [*range(0x600, 0x650)],
    [*range(0x300, 0x340)],  # accents that combine
    [ord(character) for character in " \n\t'sStdDre  1234567890"],
]


@cache
def random_strings(num: int) -> list[str]:
    """Mixed scripts, one or another of them prevailing."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(num):
        pools = random.choice(len(POOLS), random.integers(0, 40), p=random.dirichlet(np.full(len(POOLS), 0.4)))
        found.append("".join(chr(POOLS[pool][random.integers(len(POOLS[pool]))]) for pool in pools))
    return [*found, f"one{END}two {END} three", "I'm sure they're 12's", "\r\n \x00 x", *DOCUMENTS]


def merges_of(backend: Backend) -> tuple[dict[str, int], list[list[str]]]:
    state = json.loads(backend.to_str())["model"]
    return state["vocab"], state["merges"]


def byte_level(special: list[str]) -> tuple[dict[str, int], list[list[str]]]:
    backend = Backend(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(DOCUMENTS, trainer)
    vocabulary, merges = merges_of(backend)
    return vocabulary | {token: len(vocabulary) + i for i, token in enumerate(special)}, merges


def word_ends() -> tuple[dict[str, int], list[list[str]]]:
    backend = Backend(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=["<unk>"], end_of_word_suffix="</w>", show_progress=False
    )
    backend.train_from_iterator(DOCUMENTS, trainer)
    vocabulary, merges = merges_of(backend)
    return vocabulary | {"\n</w>": len(vocabulary)}, merges


def write(folder, names: tuple[str, str], vocabulary: dict[str, int], merges: list[list[str]]) -> None:
    (folder / names[0]).write_text(json.dumps(vocabulary), encoding="utf-8")
    lines = ["#version: 0.2", *map(" ".join, merges)]
    (folder / names[1]).write_text("\n".join(lines) + "\n", encoding="utf-8")


def check_equal(ours: Tokenizer, theirs, round_trips: bool) -> None:
    texts = random_strings(10_000)
    for text, expected in zip(texts, theirs(texts)["input_ids"], strict=True):
        ids = ours.encode(text).ids
        assert ids == expected, repr(text)
        if round_trips:
            assert ours.decode(ids, skip_special=False) == text


@pytest.mark.parametrize("names", [("encoder.json", "vocab.bpe"), ("vocab.json", "merges.txt")])
def test_gpt2(tmp_path, names):
    vocabulary, merges = byte_level([END])
    write(tmp_path, names, vocabulary, merges)
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.GPT2Tokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in merges])
    check_equal(ours, theirs, round_trips=True)
    assert ours.eos_id == vocabulary[END] == ours.vocab_size - 1 and ours.cls_id is None
    assert END not in [ours.token(i) for i in ours.encode_plain([f"a {END} in a corpus is text"]).ids]
    with pytest.raises(ValueError, match="lone surrogate"):
        ours.encode("a \ud800")
    ours.save(tmp_path / "saved")
    again, outside = Tokenizer.load(tmp_path / "saved"), transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    assert again.eos_id == ours.eos_id == outside.eos_token_id
    text = DOCUMENTS[1] + " 🙂"
    assert again.encode(text).ids == ours.encode(text).ids == outside(text)["input_ids"]


def test_gpt1(tmp_path):
    vocabulary, merges = word_ends()
    write(tmp_path, ("encoder_bpe_40000.json", "vocab_40000.bpe"), vocabulary, merges)
    ours = Tokenizer.load(tmp_path)
    theirs = transformers.OpenAIGPTTokenizer(vocab=vocabulary, merges=[tuple(pair) for pair in merges])
    check_equal(ours, theirs, round_trips=False)
    assert ours.unk_id == vocabulary["<unk>"] and ours.eos_id == vocabulary["\n</w>"]
    assert ours.decode(ours.encode("The QUICK brown fox").ids) == "the quick brown fox"


def test_roberta(tmp_path):
    vocabulary, merges = byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    write(tmp_path, ("vocab.json", "merges.txt"), vocabulary, merges)
    ours = Tokenizer.load(tmp_path)
    assert (ours.cls_id, ours.sep_id, ours.mask_id) == tuple(vocabulary[t] for t in ("<s>", "</s>", "<mask>"))
    assert ours.is_unsegmented and ours.eos_id == ours.sep_id
    assert ours.encode("a").ids[0] == ours.cls_id and ours.encode("a").ids[-1] == ours.sep_id


def test_merges_that_are_no_pairs_are_refused(tmp_path):
    vocabulary, merges = byte_level([END])
    write(tmp_path, ("vocab.json", "merges.txt"), vocabulary, [*merges, ["a", "b", "c"]])
    with pytest.raises(ValueError, match=r"merges\.txt .*'a b c'"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(("kind", "end"), [("bpe", "</s>"), ("wordpiece", "[SEP]"), ("unigram", "[SEP]")])
def test_a_tokenizer_of_our_own_ends_a_text_too(tmp_path, kind, end):
    """Beside a left-to-right model it puts nothing around a text, and names the end for `transformers`."""
    from hornbook.text.training import train_tokenizer

    tokenizer = train_tokenizer(DOCUMENTS, kind=kind, vocab_size=480)
    assert tokenizer.token(tokenizer.eos_id) == end
    bare = tokenizer.without_special_tokens()
    bare.save(tmp_path)
    text = "The quick brown fox"
    plain = [i for i in tokenizer.encode(text).ids if i not in tokenizer.special_ids]
    outside = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert bare.encode(text).ids == Tokenizer.load(tmp_path).encode(text).ids == outside(text)["input_ids"] == plain
    assert outside.eos_token == outside.bos_token == end
