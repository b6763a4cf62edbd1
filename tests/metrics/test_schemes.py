import pytest

from hornbook.metrics.tagging import from_bio, repaired, scheme_of, to_bio

BIO = ["B-PER", "I-PER", "O", "B-LOC", "B-LOC", "I-LOC", "B-ORG"]
WRITTEN = {
    "BIO": BIO,
    "IOB1": ["I-PER", "I-PER", "O", "I-LOC", "B-LOC", "I-LOC", "I-ORG"],
    "BIOES": ["B-PER", "E-PER", "O", "S-LOC", "B-LOC", "E-LOC", "S-ORG"],
    "BILOU": ["B-PER", "L-PER", "O", "U-LOC", "B-LOC", "L-LOC", "U-ORG"],
}


@pytest.mark.parametrize("scheme", WRITTEN)
def test_schemes_are_recognised_and_convert_to_bio_and_back(scheme):
    assert scheme_of([WRITTEN[scheme]]) == scheme
    assert to_bio(WRITTEN[scheme], scheme) == BIO
    assert from_bio(BIO, scheme) == WRITTEN[scheme]


def test_plain_tags_are_unchanged():
    tags = ["NOUN", "VERB", "O"]
    assert scheme_of([tags]) == "plain"
    assert to_bio(tags, "plain") == from_bio(tags, "plain") == tags


def test_only_o_and_nothing_are_plain():
    assert scheme_of([["O", "O"]]) == scheme_of([]) == "plain"


def test_some_broken_tags_do_not_make_it_iob1():
    assert scheme_of([BIO, ["I-PER", "O"]]) == "BIO"


@pytest.mark.parametrize(
    ("tags", "right", "num"),
    [
        (["O", "I-PER", "I-PER"], ["O", "B-PER", "I-PER"], 1),
        (["I-PER", "I-LOC"], ["B-PER", "B-LOC"], 2),
        (["B-PER", "I-LOC"], ["B-PER", "B-LOC"], 1),
        (BIO, BIO, 0),
        ([], [], 0),
    ],
)
def test_repair(tags, right, num):
    assert repaired(tags) == (right, num)
