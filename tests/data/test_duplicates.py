import random
import subprocess
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest

from hornbook.data import duplicates
from hornbook.data import hash_set as seen_hashes
from hornbook.data.duplicates import RepeatedLines, counted_lines, hash_lines, hash_text
from hornbook.data.hash_set import SeenHashes


def test_hashes_ignore_white_space_and_decomposition_and_are_the_same_everywhere():
    assert hash_text("a  b\n c") == hash_text(" a b c ")
    assert hash_text(unicodedata.normalize("NFD", "한국어 Zürich")) == hash_text("한국어 Zürich")
    assert hash_text("a b c") != hash_text("a b d")
    code = "from hornbook.data.duplicates import hash_text; print(hash_text('ä b'))"
    assert int(subprocess.check_output([sys.executable, "-c", code])) == hash_text("ä b")


@pytest.mark.parametrize("most_in_memory", [10**6, 300, 1])
def test_seen_hashes_are_a_set(most_in_memory, tmp_path, monkeypatch):
    """Also if most of them are in files."""
    for name, value in (("MAX_IN_MEMORY", most_in_memory), ("MERGED_AT_ONCE", 37)):
        monkeypatch.setattr(seen_hashes, name, value)
    generator = np.random.default_rng(0)
    seen, known = SeenHashes(tmp_path), set()
    for size in generator.integers(0, 400, 60):
        hashes = generator.integers(0, 5000, size).astype(np.uint64)
        expected = []
        for value in hashes.tolist():
            expected.append(value not in known)
            known.add(value)
        assert seen.add(hashes).tolist() == expected
    assert len(seen) == len(known)
    assert len(seen._runs) <= 14
    is_in_file = [isinstance(run.base, np.memmap) for run in seen._runs]
    assert any(is_in_file) == (most_in_memory < 1000)
    in_memory = [len(run) for run, stored in zip(seen._runs, is_in_file, strict=True) if not stored]
    assert all(size <= max(400, most_in_memory) for size in in_memory)
    assert not seen.add(np.array(sorted(known), np.uint64)).any()
    assert not list(tmp_path.iterdir())  # the files have no names, so that a killed build leaves none


@pytest.mark.parametrize("most_in_memory", [10**6, 1])
def test_the_largest_hash_is_found(most_in_memory, tmp_path, monkeypatch):
    monkeypatch.setattr(seen_hashes, "MAX_IN_MEMORY", most_in_memory)
    largest = np.array([2**64 - 1, 0], np.uint64)
    seen = SeenHashes(tmp_path)
    assert seen.add(largest).all() and not seen.add(largest).any()
    assert seen.add(np.array([5], np.uint64)).all() and not seen.add(np.array([0, 5, 2**64 - 1], np.uint64)).any()


def lines_of(seed, num_lines):
    """Many lines that come once, and line k of 30 about 600 / k times."""
    generator = random.Random(seed)
    lines = [f"this line comes only once {generator.random()}" for _ in range(num_lines)]
    for k in range(1, 31):
        lines += [f"this line comes again and again {k}"] * (600 // k)
    generator.shuffle(lines)
    return lines


def count(lines, batch=500):
    repeated = RepeatedLines()
    for start in range(0, len(lines), batch):
        part = lines[start : start + batch]
        repeated.add(hash_lines(part), part.__getitem__)
    return repeated


def test_repeated_lines_are_exact_while_they_fit():
    lines = lines_of(1, 3000)
    report = count(lines).report()
    counts = Counter(lines)
    assert report["exact"] and report["lines"] == len(lines)
    assert report["repeated_share"] == round((len(lines) - len(counts)) / len(lines), 6)
    assert [entry["count"] for entry in report["most_repeated"]] == [600 // k for k in range(1, 21)]
    assert all(counts[entry["line"]] == entry["count"] for entry in report["most_repeated"])


def test_repeated_lines_are_close_when_they_do_not_fit(monkeypatch):
    monkeypatch.setattr(duplicates, "SAMPLED_LINES", 2000)
    monkeypatch.setattr(duplicates, "FREQUENT_LINES", 1000)
    lines = lines_of(2, 20_000) + lines_of(3, 20_000)
    repeated = count(lines)
    report = repeated.report()
    counts = Counter(lines)
    assert not report["exact"]
    assert len(repeated._sample[0]) <= 2000 and len(repeated._frequent[0]) <= 1000
    assert 0 < report["counts_too_low_by_at_most"] <= len(lines) / 1000
    for entry in report["most_repeated"]:
        assert 0 <= counts[entry["line"]] - entry["count"] <= report["counts_too_low_by_at_most"]
    assert [entry["line"][-2:].strip() for entry in report["most_repeated"][:5]] == list("12345")


def test_repeated_share_is_estimated_without_bias(monkeypatch):
    monkeypatch.setattr(duplicates, "SAMPLED_LINES", 3000)
    generator = random.Random(4)
    lines = [f"a line that is long enough {generator.randrange(20_000)}" for _ in range(30_000)]
    true = 1 - len(set(lines)) / len(lines)
    assert abs(count(lines).report()["repeated_share"] - true) < 0.02


def test_a_saved_count_resumes_exactly(monkeypatch):
    monkeypatch.setattr(duplicates, "FREQUENT_LINES", 1000)
    lines = lines_of(5, 5000)
    half = 3000
    repeated = count(lines[:half])
    repeated = RepeatedLines(repeated.arrays(), repeated.texts())
    for start in range(half, len(lines), 500):
        part = lines[start : start + 500]
        repeated.add(hash_lines(part), part.__getitem__)
    assert repeated.report() == count(lines).report()


def test_short_lines_are_not_counted():
    assert counted_lines("short\n" + "x" * 20 + "\n" + "x" * 19) == ["x" * 20]
    assert RepeatedLines().report()["repeated_share"] == 0.0
