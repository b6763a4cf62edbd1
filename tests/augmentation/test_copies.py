"""Copies of examples: which words are replaced by what, what stays, and what they follow from."""

import inspect
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import torch
from finetuning import rules

import hornbook
from hornbook.batch import pack
from hornbook.inference.encoder import EncoderModel
from hornbook.runs.augmentation.copies import Augmenter, NearestWords, open_masked_lm, replaceable
from hornbook.runs.finetuning.settings import AugmentationSettings
from hornbook.tasks.records import ChoiceExample, SpanExample, TaggedExample, TextExample
from hornbook.text.tokenizer import Tokenizer

TEXT = "the quiet lamp near the green river , 42 stone b2 Lampriver"
REPLACED = ["quiet", "lamp", "near", "green", "river", "stone", "Lampriver"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("filler") / "encoder", heads=("mlm",))


@pytest.fixture(scope="module")
def opened(folder) -> EncoderModel:
    return open_masked_lm(folder)


def augmenter(opened: EncoderModel, copies=8, seed=0, **overrides) -> Augmenter:
    return Augmenter(opened, AugmentationSettings(copies=copies, **overrides), seed)


def copies_of(opened: EncoderModel, example, **overrides) -> list[dict]:
    return augmenter(opened, **overrides).changes([example])[0]


def test_words_that_may_be_replaced(opened):
    """No stop words, numbers, punctuation, nor words with a digit."""
    words = replaceable(TEXT, opened.tokenizer.encode_batch([TEXT])[0])
    assert [word.text for word in words] == REPLACED
    assert all(TEXT[word.start : word.stop] == word.text for word in words)
    assert [word.text for word in words if word.token is None] == ["Lampriver"]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_words_end_with_their_accents_and_vowels(kind):
    """Of a decomposed text, whose last mark or vowel some tokenizers leave out of the word."""
    text = unicodedata.normalize("NFD", "café, 학교 और की")
    tokenizer = hornbook.train_tokenizer([text] * 30, kind=kind, vocab_size=400)
    words = [word.text for word in replaceable(text, tokenizer.encode_batch([text])[0])]
    assert words[:2] == unicodedata.normalize("NFD", "café 학교").split() and words[-1] == "की"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_words_of_other_tokenizers(kind, tmp_path):
    """A tokenizer whose tokens include the space before a word, and words with the comma after them."""
    hornbook.train_tokenizer([TEXT] * 30, kind=kind, vocab_size=300).save(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    text = "quiet, lamp near stone."
    words = replaceable(text, tokenizer.encode_batch([text])[0])
    assert [word.text for word in words] == ["quiet", "lamp", "near", "stone"]
    pieces = [
        tokenizer.token(tokenizer.encode_batch([text])[0].ids[word.token]) for word in words if word.token is not None
    ]
    assert pieces and all(piece.lstrip("Ġ▁") in text for piece in pieces)


@pytest.mark.parametrize("unmasked_segment", [True, False])
def test_candidates_are_the_likeliest_in_place_of_a_masked_word(opened, unmasked_segment):
    """Equal to masking each word alone; the unmasked text is the second segment, as published."""
    made = augmenter(opened, unmasked_segment=unmasked_segment, candidates=5)
    words, found = made._candidates({TEXT, "some letter"})[TEXT]
    for number, word in enumerate(words):
        if word.token is None:
            continue
        masked = TEXT[: word.start] + "[MASK]" + TEXT[word.stop :]
        encoded = opened.tokenizer.encode(masked, TEXT if unmasked_segment else None)
        batch = pack([np.array(encoded.ids)], [np.array(encoded.segments)])
        place = encoded.ids.index(opened.tokenizer.mask_id)
        with torch.no_grad():
            logits = opened.model.vocabulary_logits(opened.model(batch)[place : place + 1])[0]
        tokens = [opened.tokenizer.token(each) for each in logits[: opened.tokenizer.vocab_size].topk(5).indices]
        special = opened.tokenizer.names.values()
        whole = [token for token in tokens if not token.startswith("##") and token not in special]
        assert list(found[number]) == whole, word


def test_a_long_text_is_read_as_far_as_the_model_goes(opened):
    text = " ".join(["lamp"] * 60)
    _, found = augmenter(opened)._candidates({text})[text]
    assert sorted(found) == list(range(opened.model.config.max_positions - 2))


VECTORS = {"lampriver": (1, 0), "stream": (0.9, 0.1), "brook": (0.8, 0.3), "desk": (0, 1), "far": (-1, 0)}


@pytest.mark.parametrize("header", ["", "5 2\n"])
def test_words_of_several_tokens_by_a_file_of_vectors(opened, tmp_path, header):
    """GloVe's and word2vec's."""
    file = tmp_path / "vectors.txt"
    file.write_text(header + "".join(f"{word} {x} {y}\n" for word, (x, y) in VECTORS.items()))
    made = augmenter(opened, vectors=str(file), candidates=2, copies=40)
    words, found = made._candidates({TEXT})[TEXT]
    assert found[len(words) - 1] == ("stream", "brook")
    texts = [each["text"] for each in made.changes([TextExample("0", TEXT)])[0]]
    assert {text.split()[-1] for text in texts} == {"Lampriver", "Stream", "Brook"}


def test_words_of_several_tokens_by_the_models_embeddings(opened):
    near = NearestWords.from_model(opened)
    table = opened.model.embeddings.tokens.weight.detach()
    ids = opened.tokenizer.encode_batch(["lampriver"])[0].ids
    cosines = torch.cosine_similarity(table[ids].mean(0), table[: opened.tokenizer.vocab_size])
    ordered = [opened.tokenizer.token(each) for each in cosines.argsort(descending=True).tolist()]
    words = [token for token in ordered if token.isalpha() and token != "lampriver"]
    assert len(ids) > 1
    for num in (2, 4):  # more after fewer
        assert near.near(["lampriver"], num)["lampriver"] == tuple(words[:num])


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("v.txt", "lamp 1 2\nriver 1\n", "line 2: 1 values after the word, expected 2"),
        ("v.txt", "lamp 1 x\n", "not all numbers"),
        ("v.bin", "2 2\nlamp \0\1\2\n", "write the vectors as text"),
        ("v.zip", "PK", "is compressed: decompress it first"),
    ],
)
def test_files_that_are_no_vectors(opened, tmp_path, name, text, words):
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=words):
        augmenter(opened, vectors=str(tmp_path / name))


def test_how_many_words_are_replaced(opened):
    """0.4 of them. A candidate may be the word itself, which then seems to have stayed."""
    words = ["lamp", "apple", "stone", "river", "bread", "chair", "letter", "window"] * 2
    example = TextExample("0", " ".join(words))
    found = copies_of(opened, example, copies=400)
    changed = np.mean([[a != b for a, b in zip(each["text"].split(), words, strict=True)] for each in found])
    _, candidates = augmenter(opened)._candidates({example.text})[example.text]
    stays = np.mean([word in candidates[i] and 1 / len(candidates[i]) for i, word in enumerate(words)])
    assert len(found) >= 395 and changed == pytest.approx(0.4 * (1 - stays), abs=0.02)


def test_one_text_of_a_pair_at_a_time(opened):
    pair = TextExample("0", "the quiet lamp stone", "some green river bread", 3.5)
    found = copies_of(opened, pair, copies=6, replace_probability=1.0)
    assert [set(each) for each in found] == [{"text"}] * 6 + [{"pair"}] * 6
    made = hornbook.augment([pair], opened.folder, copies=6)[0]
    assert {each.label for each in made} == {3.5} and {each.key for each in made} == {"0"}
    assert all((each.text == pair.text) != (each.pair == pair.pair) for each in made)
    assert len(set(made)) == len(made)


def test_a_question_keeps_its_choices(opened):
    found = copies_of(opened, ChoiceExample("0", "what has that lamp", ("the lamp", "two apple"), label=1))
    assert found and all(each.keys() == {"context"} for each in found)


def test_tagged_words_keep_their_tags(opened):
    words = ("the", "green-river", "Doctor", "Woods", ",", "U.S.", "said", "lampriver")
    example = TaggedExample("0", words, ("O", "O", "O", "B-PER", "O", "B-LOC", "O", "O"))
    made = hornbook.augment([example], opened.folder, copies=30)[0]
    assert len(made) > 20
    for each in made:
        assert len(each.words) == len(words) and each.tags == example.tags
        assert [each.words[i] for i in (0, 1, 4, 5)] == ["the", "green-river", ",", "U.S."]
    assert {i for each in made for i, word in enumerate(each.words) if word != words[i]} == {2, 3, 6, 7}


def test_answers_are_kept_and_their_offsets_move_along(opened):
    passage = "Mary went to the old office near Woods . Daniel said hello to Mary ."
    answers, starts = ("the old office", "Daniel"), (13, 41)
    made = hornbook.augment([SpanExample("0", "Where is Mary?", passage, answers, starts)], opened.folder, copies=30)[0]
    changed = [each for each in made if each.passage != passage]
    assert len(changed) > 20 and any(each.starts != starts for each in changed)
    for each in made:
        assert [each.passage[start:][: len(answer)] for answer, start in zip(answers, each.starts, strict=True)] == [
            *answers
        ]
    assert all(each.passage == passage for each in made if each.question != "Where is Mary?")
    unplaced = SpanExample("0", "Where?", passage, ("Mary",), (-1,))
    assert all(each.passage.count("Mary") == 2 for each in hornbook.augment([unplaced], opened.folder, copies=9)[0])
    elsewhere = SpanExample("0", "Where?", passage, ("the  office",), (-1,))
    assert all(each.passage == passage for each in hornbook.augment([elsewhere], opened.folder, copies=9)[0])


def test_copies_follow_from_seed_and_example_alone(opened):
    """And does not depend on the other examples of the batch."""
    examples = [TextExample(str(i), f"some {thing} near the quiet {thing}") for i, thing in enumerate(rules.THINGS)]
    all_of_them = augmenter(opened).changes(examples)
    assert augmenter(opened).changes(examples[::-1])[::-1] == all_of_them
    assert [augmenter(opened).changes([each])[0] for each in examples] == all_of_them
    assert augmenter(opened, seed=1).changes(examples) != all_of_them
    twice = [TextExample(key, "some lamp near the quiet river stone bread") for key in ("a", "b")]
    first, second = augmenter(opened).changes(twice)
    assert first != second


def test_plain_texts(opened):
    found = hornbook.augment(["the green lamp", "of the"], opened.folder, copies=3)
    assert len(found) == 2 and found[1] == [] and all(isinstance(each, str) for each in found[0])


def test_published_chances():
    """Algorithm 1 and appendix of the paper: a word is replaced with 0.4 by one of 15; the texts beside each other are
    of its code."""
    usual = AugmentationSettings()
    assert (usual.replace_probability, usual.candidates, usual.unmasked_segment, usual.copies) == (0.4, 15, True, 0)
    assert inspect.signature(hornbook.augment).parameters["copies"].default == 20


def test_what_cannot_fill_in_words(tmp_path):
    headless = rules.random_encoder(tmp_path / "headless")
    with pytest.raises(ValueError, match="has no mlm head"):
        hornbook.augment(["a lamp"], headless)
    with pytest.raises(ValueError, match=r"augment\.replace_probability must be above 0"):
        AugmentationSettings(replace_probability=0.0)
