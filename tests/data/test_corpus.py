import json
import pickle
import resource
import subprocess
import sys

import numpy as np
import pytest
from numbered import numbered_corpus, random_lengths

from hornbook.data import shards
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus, scrambled, shuffled
from hornbook.data.shards import PARTS, shard_file
from hornbook.files import sha256
from hornbook.text.training import train_tokenizer


@pytest.fixture
def corpus(tmp_path, tokenizer_folder, random):
    return numbered_corpus(tmp_path / "corpus", tokenizer_folder, random_lengths(random, 3, 40, 20))


@pytest.fixture(scope="module")
def large(tmp_path_factory, tokenizer_folder):
    return numbered_corpus(tmp_path_factory.mktemp("large") / "corpus", tokenizer_folder, [[[1]] * 101_000])


# ---- what is held out


def held_out_tokens(corpus: Corpus) -> tuple[np.ndarray, int]:
    held_out = corpus.is_held_out(np.arange(corpus.num_documents))
    lengths = np.concatenate([np.diff(s.sentences[s.documents].astype(np.int64)) for s in corpus.shards])
    return held_out, int(lengths[held_out].sum())


def test_a_large_corpus_holds_out_one_document_in_a_hundred(large):
    held_out, _ = held_out_tokens(large)
    assert abs(held_out.mean() - 0.01) < 0.001
    stretches = held_out.reshape(101, 1000).sum(1)  # spread all over, not in one place
    assert stretches.max() < 30 and (stretches > 0).all()


def test_a_small_corpus_holds_out_what_it_takes_to_measure(tmp_path, tokenizer_folder, random):
    # 1% of 2,000 documents of 600 tokens would be 12,000 tokens
    corpus = numbered_corpus(tmp_path / "middle", tokenizer_folder, [random.integers(100, 1100, (2000, 1)).tolist()])
    _, tokens = held_out_tokens(corpus)
    assert 50_000 <= tokens < 50_000 + 1100
    # 5% of 100 documents of 600 tokens are 3,000
    corpus = numbered_corpus(tmp_path / "small", tokenizer_folder, [random.integers(100, 1100, (100, 1)).tolist()])
    _, tokens = held_out_tokens(corpus)
    assert 0.05 * corpus.num_tokens <= tokens < 0.05 * corpus.num_tokens + 1100


def test_what_is_held_out_never_changes(corpus, large):
    held_out = corpus.is_held_out(np.arange(corpus.num_documents))
    assert held_out.any() and not held_out.all()
    assert np.array_equal(held_out, Corpus(corpus.folder).is_held_out(np.arange(corpus.num_documents)))
    assert held_out.tolist() == [bool(corpus.is_held_out(np.array([d]))[0]) for d in range(corpus.num_documents)]
    assert not Corpus(corpus.folder, 0.0).is_held_out(np.arange(corpus.num_documents)).any()
    pinned = [196, 295, 472, 558, 663, 689, 710, 963, 975, 976, 992]
    assert np.flatnonzero(large.is_held_out(np.arange(1000))).tolist() == pinned


@pytest.mark.parametrize("num_documents", [1, 2, 3])
def test_something_is_always_left_to_train_on(num_documents, tmp_path, tokenizer_folder):
    corpus = numbered_corpus(tmp_path / "tiny", tokenizer_folder, [[[5, 5]] * num_documents])
    assert corpus.is_held_out(np.arange(num_documents)).sum() == min(1, num_documents - 1)


# ---- random orders


def test_scrambled_is_pinned():
    # the first outputs of the published SplitMix64 for a state of 0, and what it makes of 1
    first = [0xE220A8397B1DCDAF, 0x910A2DEC89025CC1]
    assert scrambled(np.array([0, 1])).tolist() == first
    assert len(np.unique(scrambled(np.arange(100_000)))) == 100_000
    assert scrambled(np.uint64(2**64 - 1)) == scrambled(np.array([2**64 - 1], np.uint64))[0]


@pytest.mark.parametrize("key", [0, 1, 2**64 - 1])
def test_shuffled_is_a_permutation(key):
    for size in range(1, 301):
        assert sorted(shuffled(np.arange(size), size, key).tolist()) == list(range(size))


def test_shuffled_at_a_million():
    size = 10**6
    places = np.random.default_rng(0).choice(size, 50_000, replace=False)
    found = shuffled(places, size, 5)
    assert len(np.unique(found)) == len(places) and found.min() >= 0 and found.max() < size
    assert abs(np.corrcoef(places, found)[0, 1]) < 0.02
    assert np.bincount(found * 10 // size, minlength=10).min() > 4700
    assert (found == shuffled(places, size, 6)).mean() < 0.001
    assert np.array_equal(shuffled(places[::-1], size, 5), found[::-1])


def test_shuffled_orders_of_a_small_set_are_about_as_likely():
    firsts = np.bincount([shuffled(np.array([0]), 7, key)[0] for key in range(3500)], minlength=7)
    assert firsts.min() > 400 and firsts.max() < 600


# ---- damage


def message_of(folder) -> str:
    with pytest.raises(ValueError) as caught:
        Corpus(folder)
    text = str(caught.value)
    assert "\n" not in text and "build" in text
    return text


def test_no_corpus_there(tmp_path):
    assert "no manifest.json" in message_of(tmp_path)
    assert "there is no folder" in message_of(tmp_path / "nowhere")
    (tmp_path / "progress.json").write_text("{}")
    assert "unfinished corpus" in message_of(tmp_path)


@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_shard_is_named(corpus, part):
    path = shard_file(corpus.folder, 1, part)
    whole = path.read_bytes()
    path.write_bytes(whole[:-4])
    assert "shard-00001" in message_of(corpus.folder)
    path.write_bytes(b"")
    assert "shard-00001" in message_of(corpus.folder)
    values = np.frombuffer(whole[128:], np.load(shard_file(corpus.folder, 0, part)).dtype)
    np.save(path, values[:-2])
    assert "shard-00001" in message_of(corpus.folder)
    path.unlink()
    assert "missing" in message_of(corpus.folder)


def test_a_damaged_manifest(corpus):
    path = corpus.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["shards"]
    path.write_text(json.dumps(manifest))
    assert "it lacks 'shards'" in message_of(corpus.folder)
    path.write_text('{"shards": [')
    with pytest.raises(ValueError, match=r"manifest\.json is not valid JSON"):
        Corpus(corpus.folder)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("shards", {}),
        ("shards", []),
        ("shards", [3]),
        ("shards.0", None),
        ("shards.0.name", "../corpus/shard-00000"),
        ("shards.1.name", "shard-00000"),
        ("shards.0.tokens", "many"),
        ("shards.0.tokens", -1),
        ("shards.0.documents", 2.5),
        ("shards.0.sha256", "abc"),
        ("shards.0.sha256.tokens", "0" * 64),
        ("totals", []),
        ("totals.tokens", 3),
        ("fingerprint", 17),
        ("fingerprint", "0" * 64),
        ("tokenizer_fingerprint", "0" * 64),
        ("vocab_size", True),
        ("format_version", "1"),
    ],
)
def test_a_manifest_with_wrong_values(corpus, place, value):
    path = corpus.folder / "manifest.json"
    manifest = json.loads(path.read_text())
    (corpus.folder / "chunks" / "verified.json").unlink()
    inside, *names = manifest, *(int(name) if name.isdigit() else name for name in place.split("."))
    for name in names[:-1]:
        inside = inside[name]
    inside[names[-1]] = value
    path.write_text(json.dumps(manifest))
    assert str(corpus.folder) in message_of(corpus.folder)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000, '{"shards": ' + "9" * 10_000 + "}", "[]", "\xff"])
def test_a_manifest_that_is_no_json_object(corpus, text):
    (corpus.folder / "manifest.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=r"manifest\.json (is not valid JSON|must hold a JSON object)"):
        Corpus(corpus.folder)


def change_array(file, place, value) -> None:
    array = np.load(file)
    array[place] = value
    np.save(file, array)


@pytest.mark.parametrize(("part", "value"), [("tokens", 2**31), ("tokens", 1003), ("sentences", 5), ("word_starts", 9)])
def test_a_shard_with_other_values_is_named(corpus, part, value):
    Corpus(corpus.folder)
    change_array(shard_file(corpus.folder, 1, part), 7, value)
    assert f"shard-00001.{part}.npy has changed since it was built" in message_of(corpus.folder)


@pytest.mark.parametrize(
    "array", [np.zeros((4, 4), np.uint32), np.float32(3), np.zeros(4, np.float64), np.array(["a"]), np.zeros(4, "V8")]
)
def test_a_shard_of_another_shape_or_type(corpus, array):
    np.save(shard_file(corpus.folder, 0, "tokens"), array)
    assert "shard-00000.tokens.npy" in message_of(corpus.folder)


def test_files_are_compared_once(corpus, monkeypatch):
    Corpus(corpus.folder)
    hashed = []
    monkeypatch.setattr(shards, "sha256", lambda file: hashed.append(file.name) or sha256(file))
    Corpus(corpus.folder)
    assert not hashed
    tokens = shard_file(corpus.folder, 1, "tokens")
    tokens.write_bytes(tokens.read_bytes())
    pickle.loads(pickle.dumps(corpus))
    assert not hashed
    Corpus(corpus.folder)
    assert sorted(hashed) == sorted(shard_file(corpus.folder, 1, part).name for part in PARTS)
    (corpus.folder / "chunks" / "verified.json").write_text('{"shards": 3}')
    Corpus(corpus.folder)


def test_the_tokenizer_of_another_vocabulary(corpus):
    train_tokenizer(["some other words here"] * 9, vocab_size=60).save(corpus.folder)
    with pytest.raises(ValueError, match=r"tokenizer\.json is not the tokenizer that the corpus was built with"):
        _ = Corpus(corpus.folder).tokenizer


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_the_tokenizer_of_a_build_is_known_again(tmp_path, kind):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Story {number} of the river and the mountain." for number in range(40)))
    train_tokenizer([text.read_text()] * 9, kind=kind, vocab_size=300).save(tmp_path / "tokenizer")
    build_corpus(text, tmp_path / "tokenizer", tmp_path / "corpus", workers=0)
    assert Corpus(tmp_path / "corpus").tokenizer.kind == kind


def test_damaged_token_counts(corpus):
    counts = corpus.token_counts
    assert counts.sum() == corpus.num_tokens
    path = corpus.folder / "token_counts.npy"
    for wrong in (counts[:-1], counts + 1, np.where(counts == 0, -1, counts)):
        np.save(path, wrong)
        with pytest.raises(ValueError, match=r"token_counts\.npy cannot be read \(it does not hold"):
            _ = corpus.token_counts
    path.write_bytes(b"rubbish")
    with pytest.raises(ValueError, match=r"token_counts\.npy cannot be read"):
        _ = corpus.token_counts
    path.unlink()
    with pytest.raises(ValueError, match=r"token_counts\.npy cannot be read"):
        _ = corpus.token_counts


# ---- in other processes


def test_a_pickled_corpus_opens_its_files_again(corpus):
    corpus = Corpus(corpus.folder, 0.25)
    sent = pickle.dumps(corpus)
    assert len(sent) < 500
    back = pickle.loads(sent)
    assert back.held_out_fraction == 0.25 and back.fingerprint == corpus.fingerprint
    assert all(np.array_equal(a.tokens, b.tokens) for a, b in zip(back.shards, corpus.shards, strict=True))


MANY_SHARDS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, int(sys.argv[2])))
from hornbook.data.corpus import Corpus
corpora = [Corpus(sys.argv[1]) for _ in range(2)]
print(sum(int(shard.tokens[-1] > 0) for corpus in corpora for shard in corpus.shards))
"""


def test_more_shards_than_files_may_be_open(tmp_path, tokenizer_folder):
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(f"Story {number} of the river and the mountain." for number in range(400)))
    folder = tmp_path / "corpus"
    num_shards = len(build_corpus(text, tokenizer_folder, folder, workers=0, shard_tokens=40)["shards"])
    assert num_shards > 60
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    run = [sys.executable, "-c", MANY_SHARDS, str(folder), str(hard)]
    ended = subprocess.run(run, capture_output=True, text=True)
    assert ended.stdout.split() == [str(2 * num_shards)], ended.stderr
