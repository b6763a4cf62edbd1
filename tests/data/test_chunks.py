"""Chunks against a slow reference that walks sentence by sentence."""

import shutil
from fractions import Fraction

import numpy as np
import pytest
from numbered import numbered_corpus, random_lengths

from hornbook.data import chunks
from hornbook.data.chunks import cut_into_chunks
from hornbook.data.corpus import Corpus
from hornbook.data.shards import find


def stretches(corpus: Corpus, number: int, held_out: bool, most: int) -> list[list[tuple[int, int, int]]]:
    """Runs of wanted documents, each a list of sentences: (start, stop, document)."""
    shard = corpus.shards[number]
    runs, run, num_documents = [], [], 0
    for document in range(len(shard.documents) - 1):
        wanted = bool(corpus.is_held_out(np.array([corpus.first_document[number] + document]))[0]) == held_out
        if run and (not wanted or num_documents == most):
            runs.append(run)
            run, num_documents = [], 0
        if wanted:
            num_documents += 1
            for sentence in range(int(shard.documents[document]), int(shard.documents[document + 1])):
                run.append((int(shard.sentences[sentence]), int(shard.sentences[sentence + 1]), document))
    return [*runs, run] if run else runs


def slow_at_least(run, length):
    """Sentences until the length is reached; over twice the length, exactly the length."""
    found, start, stop = [], run[0][0], None
    sentences = [stop for _, stop, _ in run]
    while sentences:
        stop = sentences.pop(0)
        while stop - start < length and sentences:
            stop = sentences.pop(0)
        if stop - start > 2 * length:
            stop = start + length
            sentences = [s for _, s, _ in run if s > stop]
        found.append((start, stop))
        start = stop
    return found


def slow_balanced(run, length):
    """Equal parts of one document, each starting at the nearest sentence unless that is half a part away."""
    begin, end = run[0][0], run[-1][1]
    num_parts = max(1, -((4 * (begin - end) + length) // (4 * length)))
    size = Fraction(end - begin, num_parts)
    starts = [begin]
    for part in range(1, num_parts):
        ideal = begin + part * size
        nearest = min((stop for _, stop, _ in reversed(run)), key=lambda stop: abs(stop - ideal))
        starts.append(nearest if abs(nearest - ideal) < size / 2 else int(ideal))
    return list(zip(starts, [*starts[1:], end], strict=True))


def slow_at_most(run, length):
    """Sentences as long as they fit, with a separator before each new document; a longer sentence is cut."""
    found, chunk, used = [], [], 0
    waiting = list(run)
    while waiting:
        start, stop, document = waiting.pop(0)
        separator = 1 if chunk and chunk[-1][2] != document else 0
        if used + separator + stop - start <= length:
            chunk.append((start, stop, document))
            used += separator + stop - start
        elif chunk:
            found.append((chunk[0][0], chunk[-1][1]))
            waiting.insert(0, (start, stop, document))
            chunk, used = [], 0
        else:
            found.append((start, start + length))
            waiting.insert(0, (start + length, stop, document))
    return found + ([(chunk[0][0], chunk[-1][1])] if chunk else [])


@pytest.mark.parametrize("rule", ["at_least", "balanced", "at_most"])
@pytest.mark.parametrize("length", [1, 5, 23, 60, 500])
def test_chunks_equal_the_slow_ones(rule, length, tmp_path, tokenizer_folder, monkeypatch):
    monkeypatch.setattr(chunks, "MAX_DOCUMENTS", 7)
    slow = {"at_least": slow_at_least, "balanced": slow_balanced, "at_most": slow_at_most}[rule]
    for seed in range(4):
        random = np.random.default_rng([seed, length])
        lengths = random_lengths(random, 2, 60, 15, giants=seed % 2 == 0)
        corpus = numbered_corpus(tmp_path / str(seed), tokenizer_folder, lengths, held_out_fraction=0.2)
        for held_out in (False, True):
            made = cut_into_chunks(corpus, length, rule, held_out)
            for number in range(2):
                runs = stretches(corpus, number, held_out, 7 if rule == "at_most" else 1)
                if rule != "at_most":
                    assert all(len({document for *_, document in run}) == 1 for run in runs)
                expected = [chunk for run in runs for chunk in slow(run, length)]
                assert list(zip(made.starts[number].tolist(), made.stops[number].tolist(), strict=True)) == expected


@pytest.mark.parametrize("rule", ["at_least", "balanced", "at_most"])
def test_every_token_is_in_one_chunk(rule, tmp_path, tokenizer_folder, random):
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, random_lengths(random, 3, 400, 30, giants=True), 0.1)
    seen = [np.zeros(len(shard.tokens), np.int64) for shard in corpus.shards]
    for held_out in (False, True):
        made = cut_into_chunks(corpus, 48, rule, held_out)
        for chunk in range(made.total):
            number, start, stop = made.locate(chunk)
            shard = corpus.shards[number]
            assert start < stop
            seen[number][start:stop] += 1
            documents = np.arange(shard.document_of(start), shard.document_of(stop - 1) + 1)
            assert (corpus.is_held_out(corpus.first_document[number] + documents) == held_out).all()
            if rule == "at_most":
                assert stop - start + len(documents) - 1 <= 48
            else:
                assert len(documents) == 1 and stop - start <= {"at_least": 2, "balanced": 2.25}[rule] * 48
    assert all((counts == 1).all() for counts in seen)


def test_fit_fills_chunks_over_the_ends_of_documents(tmp_path, tokenizer_folder):
    lengths = [[[3, 3], [4], [10], [2], [2, 2], [2], [9]]]
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, lengths, held_out_fraction=0)
    made = cut_into_chunks(corpus, 10, "at_most", held_out=False)
    # 6 and 4 make 11 with the separator; 10 fits alone; 2 + 4 + 2 make 10 with two
    assert made.stops[0].tolist() == [6, 10, 20, 28, 37]


def test_even_cuts_a_document_at_the_same_places_backwards(tmp_path, tokenizer_folder, random):
    documents = [random.integers(1, 30, int(random.integers(2, 60))).tolist() for _ in range(60)]
    same = 0
    for name, rule in (("balanced", "balanced"), ("at_least", "at_least")):
        ways = [documents, [document[::-1] for document in documents]]
        corpora = [numbered_corpus(tmp_path / f"{name}-{i}", tokenizer_folder, [way], 0) for i, way in enumerate(ways)]
        forwards, backwards = (cut_into_chunks(corpus, 100, rule, False) for corpus in corpora)
        ends = np.cumsum([sum(document) for document in documents])
        begins = ends - [sum(document) for document in documents]
        of = np.searchsorted(ends, backwards.starts[0], side="right")
        mirrored = set((begins[of] + ends[of] - backwards.stops[0].astype(np.int64)).tolist())
        same = len(mirrored & set(forwards.starts[0].tolist())) / forwards.total
        assert same > 0.95 if rule == "balanced" else same < 0.7  # ties go to the later sentence both ways


def test_documents_of_one_token(tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "c", tokenizer_folder, [[[1]] * 9], held_out_fraction=0)
    assert (
        cut_into_chunks(corpus, 5, "at_least", False).total == cut_into_chunks(corpus, 5, "balanced", False).total == 9
    )
    assert cut_into_chunks(corpus, 5, "at_most", False).stops[0].tolist() == [3, 6, 9]
    assert cut_into_chunks(corpus, 5, "at_most", True).total == 0


def test_find_and_document_of(random):
    ordered = np.sort(random.integers(0, 50, 40)).astype(np.uint32)
    for value in range(52):
        for side in ("left", "right"):
            assert find(ordered, value, side) == np.searchsorted(ordered, value, side)


# ---- the kept file


@pytest.fixture
def corpus(tmp_path, tokenizer_folder, random):
    return numbered_corpus(tmp_path / "corpus", tokenizer_folder, random_lengths(random, 2, 50, 15))


def same(a, b) -> bool:
    pairs = [*zip(a.starts, b.starts, strict=True), *zip(a.stops, b.stops, strict=True), (a.first, b.first)]
    return all(np.array_equal(x, y) for x, y in pairs)


def test_chunks_are_kept_and_used_again(corpus, monkeypatch):
    made = cut_into_chunks(corpus, 30, "at_least", False)
    assert len(list((corpus.folder / "chunks").glob("*.npz"))) == 1
    with monkeypatch.context() as patch:
        patch.setattr(chunks, "_cut_shard", None)
        assert same(cut_into_chunks(corpus, 30, "at_least", False), made)
    others = [
        cut_into_chunks(corpus, 31, "at_least", False),
        cut_into_chunks(corpus, 30, "at_most", False),
        cut_into_chunks(corpus, 30, "at_least", True),
        cut_into_chunks(Corpus(corpus.folder, 0.3), 30, "at_least", False),
    ]
    assert len(list((corpus.folder / "chunks").glob("*.npz"))) == 5
    assert not any(same(made, other) for other in others)


def test_a_damaged_chunk_cache_is_rebuilt(corpus):
    made = cut_into_chunks(corpus, 30, "at_least", False)
    (kept,) = (corpus.folder / "chunks").glob("*.npz")
    whole = kept.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:200] + bytes([whole[200] ^ 255]) + whole[201:]
    for content in (b"", b"rubbish", whole[:4], whole[:middle], whole[middle:], whole[:-30], flipped):
        kept.write_bytes(content)
        assert same(cut_into_chunks(corpus, 30, "at_least", False), made)
        assert kept.read_bytes() == whole


def test_a_folder_that_cannot_be_written(corpus, monkeypatch):
    made = cut_into_chunks(corpus, 30, "at_least", False)
    (kept,) = (corpus.folder / "chunks").glob("*.npz")
    shutil.rmtree(kept.parent)
    kept.parent.write_text("")  # root may write into read-only folders, but not make a folder where a file stands
    assert same(cut_into_chunks(corpus, 30, "at_least", False), made)
    kept.parent.unlink()

    def read_only(path, *_):
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr(chunks, "write_arrays", read_only)
    assert same(cut_into_chunks(corpus, 30, "at_least", False), made)
    assert not kept.parent.exists()
