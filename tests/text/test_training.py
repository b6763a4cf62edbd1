import json
import unicodedata

import pytest
import transformers
from text_samples import DOCUMENTS, ENGLISH, KINDS, KOREAN, NUM_TOKENS

from hornbook.text.training import SPECIAL_TOKENS, train_tokenizer


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cased", [False, True])
def test_the_same_text_gives_the_same_tokenizer(trained, kind, cased):
    again = train_tokenizer(iter(DOCUMENTS), kind=kind, cased=cased, vocab_size=NUM_TOKENS)
    assert again.fingerprint == trained[kind, cased].fingerprint


@pytest.mark.parametrize("kind", KINDS)
def test_special_tokens_come_first_in_their_published_order(trained, kind):
    tokenizer = trained[kind, False]
    assert [tokenizer.token(number) for number in range(5)] == SPECIAL_TOKENS[kind]
    assert tokenizer.special_ids == [0, 1, 2, 3, 4]
    assert tokenizer.kind == kind
    assert tokenizer.vocab_size <= NUM_TOKENS
    assert None not in (
        tokenizer.cls_id,
        tokenizer.sep_id,
        tokenizer.mask_id,
        tokenizer.pad_id,
        tokenizer.unk_id,
    )


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_pairs_have_two_segments(trained, kind):
    tokenizer = trained[kind, False]
    single, other = tokenizer.encode("the dog"), tokenizer.encode("한국어")
    pair = tokenizer.encode("the dog", "한국어")
    assert single.ids[0] == tokenizer.cls_id and single.ids[-1] == tokenizer.sep_id
    assert pair.ids == single.ids + other.ids[1:]
    assert pair.segments == [0] * len(single.ids) + [1] * (len(other.ids) - 1)


@pytest.mark.parametrize("cased", [False, True])
def test_pairs_of_bytes_are_written_as_roberta_does(trained, tmp_path, cased):
    """`<s> A </s></s> B </s>` in one segment, as its own class in `transformers` joins them."""
    tokenizer = trained["bpe", cased]
    single, other = tokenizer.encode("the dog"), tokenizer.encode("한국어")
    pair = tokenizer.encode("the dog", "한국어")
    assert pair.ids == [*single.ids, tokenizer.sep_id, *other.ids[1:]]
    assert not any(pair.segments) and not any(single.segments)
    assert (tokenizer.num_special(False), tokenizer.num_special(True)) == (2, 4)
    assert tokenizer.is_unsegmented and not trained["wordpiece", cased].is_unsegmented
    tokenizer.save(tmp_path)
    state = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    pieces = [tuple(merge) for merge in state["model"]["merges"]]
    published = transformers.RobertaTokenizerFast(vocab=state["model"]["vocab"], merges=pieces)
    assert published("the dog", "한국어")["input_ids"] == pair.ids


@pytest.mark.parametrize("kind", KINDS)
def test_uncased_strips_accents_but_leaves_hangul_composed(trained, kind):
    tokenizer = trained[kind, False]
    assert tokenizer.normalize("CAFÉ 한국어") == "cafe 한국어"
    assert tokenizer.normalize(unicodedata.normalize("NFD", "Zürich 한국어")) == "zurich 한국어"
    assert tokenizer.encode("Café 한국어").ids == tokenizer.encode("cafe 한국어").ids


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("cased", [False, True])
def test_korean_comes_back(trained, kind, cased):
    tokenizer = trained[kind, cased]
    ids = tokenizer.encode(KOREAN[0]).ids
    assert tokenizer.unk_id not in ids
    assert tokenizer.decode(ids) == KOREAN[0]


@pytest.mark.parametrize(
    "text",
    [
        *ENGLISH,
        "  two  spaces\n\n and\ttabs ",
        "unseen: 漢字 \x00\x07 🙂 \u200d e\u0301 \u1112\u1161\u11ab",
        "\r\n",
        " ",
    ],
)
def test_cased_bytes_give_every_text_back(trained, text):
    tokenizer = trained["bpe", True]
    assert tokenizer.decode(tokenizer.encode_plain([text]).ids) == text


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_the_space_before_a_mask_belongs_to_it(trained, kind):
    tokenizer = trained[kind, False]
    masked = tokenizer.encode(f"the lazy {tokenizer.mask_token}.").ids
    written = tokenizer.encode_plain(["the lazy dog."]).ids.tolist()
    assert masked[-3:] == [tokenizer.mask_id, written[-1], tokenizer.sep_id]
    assert tokenizer.encode("the lazy").ids[1:-1] == masked[1:-3]


@pytest.mark.parametrize("kind", KINDS)
def test_too_small_a_vocabulary_is_refused_with_the_least_size(kind):
    with pytest.raises(ValueError, match="at least") as refused:
        train_tokenizer(DOCUMENTS, kind=kind, vocab_size=20)
    least = int(str(refused.value).split()[-1])
    assert train_tokenizer(DOCUMENTS, kind=kind, vocab_size=least).vocab_size <= least


def test_a_character_seen_once_in_a_long_text_takes_no_place():
    documents = ["common words again and again"] * 2000 + ["☃"]
    tokenizer = train_tokenizer(documents, vocab_size=200)
    assert tokenizer.id("☃") is None
    assert tokenizer.encode("☃").ids[1] == tokenizer.unk_id


def test_thousands_of_syllables_are_kept():
    syllables = [chr(0xAC00 + 4 * number) for number in range(2500)]
    documents = [" ".join(syllables[start : start + 100]) for start in range(0, 2500, 100)] * 2
    tokenizer = train_tokenizer(documents, vocab_size=8000)
    assert sum(tokenizer.id(syllable) is not None for syllable in syllables) >= 0.998 * len(syllables)


def test_progress_names_what_is_done():
    seen = []
    train_tokenizer(
        ["some words"] * 2500, vocab_size=100, on_progress=lambda stage, number: seen.append((stage, number))
    )
    assert ("reading", 2000) in seen and ("counting words", 2000) in seen and seen[-1] == ("learning", 2500)
    seen.clear()
    train_tokenizer(["some words"], kind="bpe", vocab_size=300, on_progress=lambda *stage: seen.append(stage))
    assert seen == [("learning", 1)]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
@pytest.mark.parametrize("documents", [[], ["", " \n"]])
def test_no_text_is_refused(kind, documents):
    with pytest.raises(ValueError, match="the documents contain no text"):
        train_tokenizer(documents, kind=kind, vocab_size=300)


def test_what_cannot_be_learned_from_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no text"):
        train_tokenizer(["", "  "])
    with pytest.raises(ValueError, match="surrogate"):
        train_tokenizer(["x\ud800"])
    file = tmp_path / "texts.txt"
    file.write_text("a river")
    for documents in ("a river", file):
        with pytest.raises(ValueError, match="give a list of texts"):
            train_tokenizer(documents)
    for kind in ("wordpiece", "bpe", "unigram"):
        with pytest.raises(ValueError, match=r"texts.txt': give texts, not the paths of files"):
            train_tokenizer([str(file)], kind=kind)
    with pytest.raises(ValueError, match="wordpiece, bpe, unigram"):
        train_tokenizer(["x"], kind="words")


def test_a_prefix_space_makes_the_first_word_a_word_inside_a_sentence():
    tokenizer = train_tokenizer(DOCUMENTS, kind="bpe", vocab_size=NUM_TOKENS, add_prefix_space=True)
    first, again = (tokenizer.encode_plain([text]).ids.tolist() for text in ("the dog", " the dog"))
    assert first == again
    plain = train_tokenizer(DOCUMENTS, kind="bpe", vocab_size=NUM_TOKENS)
    assert plain.encode_plain(["the dog"]).ids.tolist() != plain.encode_plain([" the dog"]).ids.tolist()
    masked = tokenizer.encode(f"the lazy {tokenizer.mask_token}.").ids
    assert masked[-3:] == [tokenizer.mask_id, tokenizer.backend.token_to_id("."), tokenizer.sep_id]
    with pytest.raises(ValueError, match="add_prefix_space= is for kind='bpe'"):
        train_tokenizer(DOCUMENTS, vocab_size=NUM_TOKENS, add_prefix_space=True)
