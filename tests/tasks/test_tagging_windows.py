"""Tags: one for each word whatever the tokenizer makes of it, and long sentences read in windows."""

import random as chance

import numpy as np
import pytest

from hornbook.models.head_config import HeadConfig
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.kinds.tagging import Tagging
from hornbook.tasks.records import TaggedExample
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer

TAGS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
WORDS = ("river", "Zürich", "U.S.", "한국어를", "don't", "1990-91", "unbelievably", "a", "東京", ".")
NOTHING = ("\u200b", "\x00", "\ufeff")  # words of which no piece is left
TASK = Tagging(HeadConfig("tokens", len(TAGS), TAGS), ("entity_f1", "tag_accuracy"))


@pytest.fixture(scope="module", params=["wordpiece", "bpe", "unigram"])
def tokenizer(request) -> Tokenizer:
    return train_tokenizer([" ".join(WORDS)] * 30, kind=request.param, vocab_size=300)


def examples_of(seed: int, number: int, longest: int, words: tuple[str, ...] = WORDS) -> list[TaggedExample]:
    draw = chance.Random(seed)
    examples = []
    for key in range(number):
        chosen = tuple(draw.choice(words) for _ in range(draw.randint(1, longest)))
        examples.append(TaggedExample(str(key), chosen, tuple(draw.choice(TAGS) for _ in chosen)))
    return examples


def gold_scores(encoded: EncodedExamples) -> list[np.ndarray]:
    """What a model that is sure of its targets answers; where there is none, it is sure of another tag each time."""
    found = []
    for number, labels in enumerate(encoded.token_labels):
        scores = np.zeros((len(labels), len(TAGS)), np.float32)
        scores[np.arange(len(labels)), np.where(labels >= 0, labels, (np.arange(len(labels)) + number) % len(TAGS))] = 9
        found.append(scores)
    return found


@pytest.mark.parametrize("longest", [16, 33, 128])
def test_targets_give_the_tags_back(tokenizer, longest):
    examples = examples_of(0, 40, 30)
    encoded = TASK.encode(examples, tokenizer, longest)
    assert max(map(len, encoded.ids)) <= longest
    assert longest == 128 or len(encoded.ids) > len(examples)
    predictions = TASK.decode(gold_scores(encoded), encoded, examples)
    assert [each.tags for each in predictions] == [each.tags for each in examples]
    assert TASK.scorer(examples, predictions)()["tag_accuracy"] == 1


def test_one_target_a_word(tokenizer):
    """At its first token, in one window only."""
    examples = examples_of(1, 30, 40)
    encoded = TASK.encode(examples, tokenizer, 24)
    for owner, example in enumerate(examples):
        numbers = np.flatnonzero(encoded.example_ids == owner)
        assert sum(int((encoded.token_labels[i] >= 0).sum()) for i in numbers) == len(example.words)
        read = [word for i in numbers for word, _ in encoded.decode_info[i]]
        assert sorted(read) == list(range(len(example.words)))
        pieces = tokenizer.encode_words([list(example.words)])[0]
        first_pieces = {word: pieces.ids[pieces.word_ids.index(word)] for word in range(len(example.words))}
        for i in numbers:
            for word, token in encoded.decode_info[i]:
                assert encoded.ids[i][token] == first_pieces[word], "another piece than the word's first"


def test_special_tokens_and_later_word_pieces_have_no_target(tokenizer):
    example = TaggedExample("0", ("riverrivers", "a"), ("B-PER", "O"))
    encoded = TASK.encode([example], tokenizer, 64)
    (labels,), (ids,) = encoded.token_labels, encoded.ids
    pieces = tokenizer.encode_words([list(example.words)])[0]
    assert pieces.word_ids.count(0) > 1
    assert ids[0] == tokenizer.cls_id and ids[-1] == tokenizer.sep_id
    second = 1 + pieces.word_ids.index(1)
    assert {place: label for place, label in enumerate(labels.tolist()) if label >= 0} == {1: 1, second: 0}


@pytest.mark.parametrize("longest", [24, 128])
def test_words_with_no_tokens(tokenizer, longest):
    """They have a tag all the same, no entity where there is such a tag, and the other words keep theirs."""
    examples = examples_of(2, 30, 30, WORDS + NOTHING)
    examples.append(TaggedExample("none", NOTHING[:2], ("B-PER", "I-PER")))
    encoded = TASK.encode(examples, tokenizer, longest)
    pieces = [set(each.word_ids) for each in tokenizer.encode_words([list(each.words) for each in examples])]
    assert any(len(found) < len(each.words) for found, each in zip(pieces, examples, strict=True)) or (
        tokenizer.kind == "bpe"
    )
    predictions = TASK.decode(gold_scores(encoded), encoded, examples)
    for found, example, prediction in zip(pieces, examples, predictions, strict=True):
        assert len(prediction.tags) == len(prediction.probabilities) == len(example.words)
        for word, (tag, said) in enumerate(zip(example.tags, prediction.tags, strict=True)):
            assert said == (tag if word in found else "O")


def test_every_sentence_has_its_prediction(tokenizer):
    """In the order of the sentences, without tags too, and an empty sentence."""
    examples = [TaggedExample(each.key, each.words) for each in examples_of(3, 20, 40)]
    examples.insert(5, TaggedExample("empty", ()))
    encoded = TASK.encode(examples, tokenizer, 24)
    assert encoded.token_labels is None
    found = [np.zeros((len(ids), len(TAGS)), np.float32) for ids in encoded.ids]
    predictions = TASK.decode(found, encoded, examples)
    assert [len(each.tags) for each in predictions] == [len(each.words) for each in examples]
    assert TASK.decode([], TASK.encode([], tokenizer, 24), []) == []


def test_a_tag_that_is_not_known_wants_nothing(tokenizer):
    example = TaggedExample("0", ("river", "a"), ("B-MISC", "O"))
    (labels,) = TASK.encode([example], tokenizer, 64).token_labels
    assert sorted(labels[labels >= 0].tolist()) == [0]


def test_windows_equal_short_sentences(tokenizer):
    """Outputs that depend on the token alone: a long sentence gets the tags of its words read one by one."""
    draw = np.random.default_rng(0)
    table = draw.normal(size=(tokenizer.vocab_size, len(TAGS))).astype(np.float32)
    examples = examples_of(4, 15, 60)
    encoded = TASK.encode(examples, tokenizer, 20)
    long = TASK.decode([table[ids] for ids in encoded.ids], encoded, examples)
    assert len(encoded.ids) > 2 * len(examples)
    words = sorted({word for each in examples for word in each.words})
    alone = [TaggedExample(word, (word,)) for word in words]
    short = TASK.encode(alone, tokenizer, 128)
    tag_of = dict(
        zip(words, (each.tags[0] for each in TASK.decode([table[i] for i in short.ids], short, alone)), strict=True)
    )
    if tokenizer.kind == "wordpiece":  # the others write a word's first piece by what stands before it
        for example, prediction in zip(examples, long, strict=True):
            assert prediction.tags == tuple(tag_of[word] for word in example.words)
    wide = TASK.encode(examples, tokenizer, 2000)
    assert len(wide.ids) == len(examples)
    assert [each.tags for each in TASK.decode([table[ids] for ids in wide.ids], wide, examples)] == [
        each.tags for each in long
    ]


def test_each_word_is_read_where_it_has_most_context(tokenizer):
    """In windows that overlap by half: no word near an edge, where another window holds it further inside."""
    example = TaggedExample("0", ("river",) * 60)
    encoded = TASK.encode([example], tokenizer, 20)
    pieces = tokenizer.encode_words([list(example.words)])[0]
    room, step = 18, 18 - 9
    for window, places in enumerate(encoded.decode_info):
        for word, token in places:
            place = pieces.word_ids.index(word)
            contexts = []
            for other, ids in enumerate(encoded.ids):
                within = place - other * step
                if 0 <= within < min(room, len(ids) - 2):
                    contexts.append(min(within + 1, len(ids) - 2 - within))
            assert min(token, len(encoded.ids[window]) - 1 - token) == max(contexts)
