import json
import pickle
import random
import unicodedata

import numpy as np
import pytest
import tokenizers
from text_samples import DOCUMENTS, ENGLISH, KINDS, KOREAN, NUM_TOKENS
from tokenizers import models, pre_tokenizers

from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer

transformers = pytest.importorskip("transformers")

EVERY = [(kind, cased) for kind in KINDS for cased in (False, True)]
TEXTS = [
    *ENGLISH,
    *KOREAN,
    "Café [MASK] <mask>, 漢字 한국어는 [SEP]</s> don't\tstop\n now  ",
    unicodedata.normalize("NFD", "한국어 Zürich"),
    "",
    "unknown ☃ 🙂 \x00\u200b",
]
PUBLISHED = (
    "[PAD] [UNK] [CLS] [SEP] [MASK] a b c e the cafe café Café ##s ##e ##é ##a un ##able Z ##ur ##ü 漢 字 한 국 한국 "
    "##어 ##국 ᄒ ᅡ ##ᅡ ##ᆫ ##ᄀ ##ᅮ ##ᆨ . , ! - ( ) [ ] ' 1 ##2 mask sep MASK # ## ı ß ##ß ss"
)


def write_published(folder, settings):
    (folder / "vocab.txt").write_text("\n".join(PUBLISHED.split()) + "\n", encoding="utf-8")
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def random_texts(number):
    draw = random.Random(7)
    parts = [
        *PUBLISHED.split(),
        *" \t\n\x00\x07\u200d\u00a0\u3000\ufffd漢字漢한국어éÉüßİǅ☃🙂",
        "##",
        " ",
        " ",
        "Cafe\u0301",
    ]
    return ["".join(draw.choices(parts, k=draw.randint(0, 25))) for _ in range(number)]


@pytest.mark.parametrize(
    "settings",
    [
        {"do_lower_case": True},
        {"do_lower_case": False},
        {"do_lower_case": True, "strip_accents": False},
        {"do_lower_case": False, "strip_accents": True},
        {"do_lower_case": False, "tokenize_chinese_chars": False},
    ],
)
def test_a_published_vocabulary_gives_the_ids_of_transformers(tmp_path, settings):
    write_published(tmp_path, settings)
    theirs = transformers.BertTokenizerFast.from_pretrained(tmp_path)
    ours = Tokenizer.load(tmp_path)
    texts = random_texts(300)
    for text, pair in zip(texts, [None, *texts], strict=False):
        expected = theirs(text, pair or None)
        found = ours.encode(text, pair or None)
        assert found.ids == expected["input_ids"]
        assert found.segments == expected["token_type_ids"]


def test_case_is_read_off_a_published_vocabulary_without_settings(tmp_path):
    assert Tokenizer.load(write_published(tmp_path, None)).normalize("Café") == "Café"
    small = [piece for piece in PUBLISHED.split() if piece == piece.lower() or piece[0] == "["]
    (tmp_path / "vocab.txt").write_text("\n".join(small), encoding="utf-8")
    assert Tokenizer.load(tmp_path).normalize("Café") == "cafe"


@pytest.mark.parametrize("config", [None, "bert", "albert", "roberta"])
@pytest.mark.parametrize(("kind", "cased"), EVERY)
def test_a_saved_folder_opens_in_transformers(trained, tmp_path, kind, cased, config):
    ours = trained[kind, cased]
    ours.save(tmp_path, model_max_length=128)
    if config:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": config}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        for pair in (None, KOREAN[1]):
            expected = theirs(text, pair)
            found = ours.encode(text, pair)
            assert found.ids == expected["input_ids"]
            assert found.segments == expected["token_type_ids"]
            assert expected["attention_mask"] == [1] * len(found.ids)
    assert (theirs.cls_token_id, theirs.sep_token_id, theirs.pad_token_id) == (ours.cls_id, ours.sep_id, ours.pad_id)
    assert (theirs.mask_token_id, theirs.unk_token_id) == (ours.mask_id, ours.unk_id)
    assert theirs.mask_token == ours.mask_token
    assert (len(theirs), theirs.model_max_length) == (ours.vocab_size, 128)


def test_saved_next_to_a_model_with_one_segment(trained, tmp_path):
    """`AutoTokenizer` gives it no segments, of which the second would have no row; here nothing changes."""
    ours = trained["wordpiece", False]
    ours.save(tmp_path, num_segments=1)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)(ENGLISH[0], KOREAN[1])
    assert set(theirs) == {"input_ids", "attention_mask"}
    assert theirs["input_ids"] == ours.encode(ENGLISH[0], KOREAN[1]).ids
    again = Tokenizer.load(tmp_path)
    assert again.encode(ENGLISH[0], KOREAN[1]) == ours.encode(ENGLISH[0], KOREAN[1])


@pytest.mark.parametrize(("kind", "cased"), EVERY)
def test_a_saved_folder_opens_here_unchanged(trained, tmp_path, kind, cased):
    tokenizer = trained[kind, cased]
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.fingerprint == tokenizer.fingerprint
    assert again.names == tokenizer.names
    assert pickle.loads(pickle.dumps(tokenizer)).fingerprint == tokenizer.fingerprint


def test_stored_truncation_and_padding_are_switched_off(trained, tmp_path):
    backend = tokenizers.Tokenizer.from_str(trained["wordpiece", False].backend.to_str())
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(tmp_path / "tokenizer.json"))
    again = Tokenizer.load(tmp_path)
    assert again.encode(ENGLISH[0]) == trained["wordpiece", False].encode(ENGLISH[0])
    assert again.mask_token == "[MASK]"


def test_stated_special_tokens_win_over_guesses(tmp_path):
    vocabulary = {token: number for number, token in enumerate(["[MASK]", "<blank>", "<unk>", "a"])}
    backend = tokenizers.Tokenizer(models.WordPiece(vocabulary, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"mask_token": {"content": "<blank>"}}))
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.mask_token, tokenizer.mask_id, tokenizer.unk_id, tokenizer.cls_id) == ("<blank>", 1, 2, None)
    assert tokenizer.encode("a<blank>a").ids == [3, 1, 3]


def test_broken_folders_are_refused_with_the_fix(tmp_path):
    with pytest.raises(ValueError, match="not a folder"):
        Tokenizer.load(tmp_path / "missing")
    with pytest.raises(ValueError, match=r"no tokenizer.json and no vocab.txt: train"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ValueError, match=r"tokenizer.json is not valid JSON"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(ValueError, match=r"tokenizer.json is not a tokenizer"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(ValueError, match=r"lacks \[UNK\]"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(("kind", "cased"), EVERY)
def test_sentences_equal_the_library_text_by_text(trained, kind, cased):
    tokenizer = trained[kind, cased]
    texts = [*ENGLISH, "", *KOREAN, 'a "quoted" word', "", "##ing ##", "Ünder-score_d 漢字"]
    encoded = tokenizer.encode_plain(texts)
    assert (encoded.ids.dtype, encoded.word_starts.dtype, encoded.lengths.dtype) == (np.uint32, np.bool_, np.int64)
    ids, word_starts = [], []
    for text in texts:
        expected = tokenizer.backend.encode(text, add_special_tokens=False)
        ids += expected.ids
        words = expected.word_ids
        word_starts += [at == 0 or words[at] != words[at - 1] for at in range(len(words))]
    assert encoded.ids.tolist() == ids
    assert encoded.word_starts.tolist() == word_starts
    assert encoded.lengths.sum() == len(ids)
    assert encoded.lengths[texts.index("")] == 0


def test_no_sentences_are_no_tokens(trained):
    for kind in KINDS:
        assert [part.size for part in trained[kind, False].encode_plain([], with_offsets=True)] == [0, 0, 0, 0]
        assert trained[kind, False].encode_plain([]).offsets is None


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_those_of_the_text(trained, kind):
    tokenizer, texts = trained[kind, False], ["sleeping foxes", " reading, the fox"]
    found, plain = tokenizer.encode_plain(texts, with_offsets=True), tokenizer.encode_plain(texts)
    assert np.array_equal(found.ids, plain.ids) and np.array_equal(found.word_starts, plain.word_starts)
    for text, offsets in zip(texts, np.split(found.offsets, np.cumsum(found.lengths)[:-1]), strict=True):
        pieces = [text[start:end].strip() for start, end in offsets.tolist()]
        assert "".join(pieces) == text.replace(" ", "")


@pytest.mark.parametrize("kind", KINDS)
def test_words_start_where_a_reader_sees_them_start(trained, kind):
    tokenizer = trained[kind, False]
    encoded = tokenizer.encode_plain(["sleeping foxes, reading"])
    words = np.split(encoded.ids, np.flatnonzero(encoded.word_starts)[1:])
    assert [tokenizer.decode(word).strip().removeprefix("##") for word in words] == [
        "sleeping",
        "foxes",
        ",",
        "reading",
    ]


@pytest.mark.parametrize(("kind", "cased"), EVERY)
def test_special_tokens_in_raw_text_are_text(trained, kind, cased):
    tokenizer = trained[kind, cased]
    text = "a [MASK] <mask> [SEP] </s> <s> [CLS] [PAD]<pad>"
    assert not set(tokenizer.encode_plain([text]).ids.tolist()) & set(tokenizer.special_ids) - {tokenizer.unk_id}
    assert tokenizer.mask_id in tokenizer.encode(text).ids


def test_special_tokens_that_are_also_word_pieces_are_text():
    pieces = [("<unk>", 0.0), ("[MASK]", 0.0), ("▁", -2.0), *((letter, -3.0) for letter in "[]MASKx")]
    backend = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = Tokenizer(backend, {"mask_token": "[MASK]", "unk_token": "<unk>"})
    encoded = tokenizer.encode_plain(["x", "x[MASK]x"])
    assert tokenizer.mask_id not in encoded.ids
    assert encoded.lengths.tolist() == [2, 14]
    assert tokenizer.mask_id in tokenizer.encode("x[MASK]x").ids


@pytest.mark.parametrize(("kind", "cased"), EVERY)
def test_added_words_are_one_token_as_whole_words_only(tmp_path, kind, cased):
    tokenizer = train_tokenizer(DOCUMENTS, kind=kind, cased=cased, vocab_size=NUM_TOKENS)
    before, old_size = tokenizer.fingerprint, tokenizer.vocab_size
    pieces = tokenizer.encode_plain(["foxdog"]).ids.tolist()
    added = tokenizer.add_words(["foxdog", "어판로", "foxdog"])
    assert [number for number, _ in added] == [old_size, old_size + 1]
    assert added[0][1] == pieces
    assert tokenizer.vocab_size == old_size + 2 and tokenizer.fingerprint != before
    assert tokenizer.add_words(["foxdog"]) == []
    tokenizer.save(tmp_path)
    foxdog, korean = (number for number, _ in added)
    text = "the foxdog, foxdogs refoxdog (foxdog) 어판로 어판로는"
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for opened in (tokenizer, Tokenizer.load(tmp_path)):
        encoded = opened.encode_plain([text])
        ids = encoded.ids.tolist()
        assert (ids.count(foxdog), ids.count(korean)) == (2, 1)
        assert encoded.word_starts[encoded.ids >= old_size].all()
        assert encoded.word_starts[1:][encoded.ids[:-1] >= old_size].all()
        assert opened.encode(text).ids == theirs(text)["input_ids"]
        if kind != "wordpiece":
            assert opened.decode(ids) == text
    assert (tokenizer.encode("FoxDog").ids.count(foxdog) == 1) is not cased


@pytest.mark.parametrize("kind", ["wordpiece", "bpe"])
def test_words_that_are_one_token_are_not_added(kind):
    tokenizer = train_tokenizer(DOCUMENTS, kind=kind, vocab_size=NUM_TOKENS)
    assert tokenizer.add_words(["dog", "The", "한국어로"]) == []


def test_only_words_can_be_added(trained):
    for word in ("", "two words", " x"):
        with pytest.raises(ValueError, match="not one word"):
            trained["wordpiece", False].add_words([word])


def test_a_lone_surrogate_is_refused(trained):
    for kind in KINDS:
        with pytest.raises(ValueError, match="character 2 of the text is a lone surrogate"):
            trained[kind, False].encode("ok\ud800")
        with pytest.raises(ValueError, match="lone surrogate"):
            trained[kind, False].encode("fine", "\udfff")
        with pytest.raises(ValueError, match="lone surrogate"):
            trained[kind, False].encode_plain(["fine", "\udfff"])


def test_tokens_and_ids(trained):
    tokenizer = trained["wordpiece", False]
    assert tokenizer.token(tokenizer.id("[MASK]")) == "[MASK]"
    assert tokenizer.id("no such token") is None
    with pytest.raises(ValueError, match=f"from 0 to {tokenizer.vocab_size - 1}"):
        tokenizer.token(10**6)
    assert tokenizer.decode([tokenizer.cls_id, tokenizer.sep_id]) == ""
    encoded = tokenizer.encode("the dog")
    assert encoded.word_ids[0] is None and encoded.word_ids[1] == 0
    assert encoded.offsets[1][0] == 0 and encoded.offsets[-2][1] == 7


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_words_of_the_text_it_was_trained_on_can_be_added(kind):
    """Some of them are already tokens of a unigram vocabulary, though it splits them: those are skipped."""
    from hornbook.text.training import train_tokenizer
    from hornbook.text.vocabulary_fit import words_worth_adding

    text = "The internationalisation of localisation standards. A nationalised nation localises its stations. " * 20
    tokenizer = train_tokenizer([text], kind=kind, vocab_size=300 if kind == "bpe" else 60)
    before = tokenizer.vocab_size
    added = tokenizer.add_words([*words_worth_adding(tokenizer, [text], 50), "zebra"])
    assert added and all(number >= before for number, _ in added)
    assert tokenizer.vocab_size == before + len(added)


def test_a_word_that_is_an_unreachable_token_is_skipped():
    from hornbook.text.training import train_tokenizer

    text = "international nation nations national locations " * 30
    tokenizer = train_tokenizer([text], kind="unigram", vocab_size=60)
    pieces = [tokenizer.token(number) for number in range(tokenizer.vocab_size)]
    words = [piece for piece in pieces if piece.isalpha() and len(piece) > 1]
    assert words
    before = tokenizer.vocab_size
    assert all(number >= before for number, _ in tokenizer.add_words(words))


def test_words_worth_adding_forgets_the_rarest(monkeypatch, tiny_tokenizer):
    from hornbook.text import vocabulary_fit

    monkeypatch.setattr(vocabulary_fit, "COUNTED_AT_MOST", 4)
    tokenizer = Tokenizer.load(tiny_tokenizer)
    documents = ["lanternish lanternish lanternish bridgely bridgely"] * 5 + ["one two six ten"] * 2
    found = vocabulary_fit.words_worth_adding(tokenizer, documents, 10)
    assert found[0] == "lanternish"
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("kind", EVERY)
def test_a_text_that_comes_again_has_an_encoding_of_its_own(trained, kind):
    tokenizer = trained[kind]
    names = ("ids", "type_ids", "offsets", "word_ids", "sequence_ids", "special_tokens_mask")
    texts = [*TEXTS[:2], *TEXTS]
    found = tokenizer.encode_batch(texts)
    for text, pieces in zip(texts, found, strict=True):
        (alone,) = tokenizer.encode_batch([text])
        for one, other in (
            (pieces, alone),
            (tokenizer.with_special_tokens(alone, pieces), tokenizer.with_special_tokens(alone, alone)),
        ):
            assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]
    whole = found[2].ids
    found[0].truncate(1)
    assert found[2].ids == whole and len(whole) > 1
