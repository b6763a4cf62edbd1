"""Documents that hardly differ, by MinHash."""

import unicodedata

import numpy as np
import pytest

from hornbook.data.build import build_corpus
from hornbook.data.duplicates import SHINGLE_WORDS, band_hashes, min_hashes

WORDS = [f"word{number}" for number in range(500)]


def text_of(random, num: int = 300) -> list[str]:
    return random.choice(WORDS, num).tolist()


def with_changes(random, words: list[str], num: int) -> list[str]:
    changed = list(words)
    for place in random.choice(len(words), num, replace=False):
        changed[place] = f"other{place}"
    return changed


def jaccard(one: list[str], two: list[str]) -> float:
    sets = [{tuple(each[i : i + SHINGLE_WORDS]) for i in range(len(each) - SHINGLE_WORDS + 1)} for each in (one, two)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def test_equal_entries_estimate_the_jaccard_similarity(random):
    for num in (2, 10, 40):
        true, estimated = [], []
        for _ in range(30):
            one = text_of(random)
            two = with_changes(random, one, num)
            true.append(jaccard(one, two))
            estimated.append(np.mean(min_hashes(" ".join(one)) == min_hashes(" ".join(two))))
        assert np.mean(estimated) == pytest.approx(np.mean(true), abs=0.03)


def test_bands_are_found_as_often_as_computed(random):
    """1 - (1 - s^8)^14 for a similarity of s."""
    found, expected = [], []
    for num in (2, 5, 10, 20) * 40:
        one = text_of(random)
        two = with_changes(random, one, num)
        found.append(bool((band_hashes(" ".join(one)) == band_hashes(" ".join(two))).any()))
        expected.append(1 - (1 - jaccard(one, two) ** 8) ** 14)
    assert np.mean(found) == pytest.approx(np.mean(expected), abs=0.08) and 0.2 < np.mean(found) < 0.9


def test_short_texts_that_differ_only_in_case_and_punctuation_are_near_duplicates():
    for one, two in (("A fine film!", "a  FINE film"), ("!!!", " !!!"), ("한국", unicodedata.normalize("NFD", "한국"))):
        assert (band_hashes(one) == band_hashes(two)).all()
    assert not (band_hashes("A fine film") == band_hashes("A bad film")).any()
    assert not (band_hashes("!!!") == band_hashes("???")).any()


def test_near_duplicates_are_dropped(tmp_path, tiny_tokenizer, random):
    """The first of each is kept, in whichever shard the others are; also when the build is stopped and resumed."""
    texts = [text_of(random) for _ in range(12)]
    near = [with_changes(random, texts[number], 1) for number in (0, 5)]
    words = [*texts[:6], near[0], *texts[6:], near[1], ["two", "words"], ["other", "words"]]
    (tmp_path / "a.txt").write_text("\n\n".join(map(" ".join, words)))
    options = {"workers": 0, "near_duplicates": True, "shard_tokens": 1000}
    made = build_corpus(tmp_path / "a.txt", tiny_tokenizer, tmp_path / "whole", **options)
    assert made["totals"]["documents"] == 14 and made["dropped"] == {"near_duplicate": 2}
    assert len(made["shards"]) > 2
    assert [each["place"] for each in made["problems"]["near_duplicate"]["examples"]] == ["line 13", "line 27"]

    def stop(progress) -> None:
        if progress.documents >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_corpus(tmp_path / "a.txt", tiny_tokenizer, tmp_path / "stopped", **options, on_progress=stop)
    again = build_corpus(tmp_path / "a.txt", tiny_tokenizer, tmp_path / "stopped", **options)
    assert again["fingerprint"] == made["fingerprint"] and again["dropped"] == made["dropped"]
    kept = build_corpus(tmp_path / "a.txt", tiny_tokenizer, tmp_path / "kept", workers=0)
    assert kept["totals"]["documents"] == 16
