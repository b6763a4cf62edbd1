"""Corpora at URLs: the same batches as from a folder, from a cache that holds only complete files."""

import hashlib
import os
import pickle
import shutil
import subprocess
import sys
import threading
import time

import fsspec
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from stories import story
from tiny_runs import run, same

from hornbook.data import remote
from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.data.remote import RemoteCorpus
from hornbook.data.sequences import SequenceSampler
from hornbook.files import read_json
from hornbook.runs.pretraining.batches import folder_and_weight


@pytest.fixture(scope="module")
def corpus_folder(tokenizer_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpora")
    (folder / "text.txt").write_text(story(3, 300))
    build_corpus(folder / "text.txt", tokenizer_folder, folder / "corpus", workers=0, shard_tokens=2000)
    return folder / "corpus"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HORNBOOK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.001)
    return tmp_path / "cache" / "corpora"


@pytest.fixture
def url(corpus_folder):
    """The corpus in fsspec's memory."""
    memory = fsspec.filesystem("memory")
    memory.put(f"{corpus_folder}/", "/corpus/", recursive=True)
    yield "memory://corpus"
    memory.rm("/corpus", recursive=True)


def batches(corpus: Corpus) -> list[np.ndarray]:
    sampler = SequenceSampler([(corpus, 1.0)], 32, 0, "nsp")
    return [np.asarray(sampler.batch(number, 8).ids_T) for number in range(12)]


def assert_equal_batches(one: Corpus, other: Corpus) -> None:
    for ours, theirs in zip(batches(one), batches(other), strict=True):
        assert np.array_equal(ours, theirs)


def wait_until(true, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_batches_are_those_of_the_local_corpus(url, corpus_folder, cache):
    local, fetched = Corpus(corpus_folder), Corpus(url)
    assert fetched.fingerprint == local.fingerprint and fetched.num_tokens == local.num_tokens
    assert len(local.shards) > 3
    assert_equal_batches(local, fetched)
    assert np.array_equal(local.token_counts, fetched.token_counts)
    assert fetched.tokenizer.fingerprint == local.tokenizer.fingerprint
    # What is read is mapped, not loaded.
    assert isinstance(fetched.shards[0].tokens.base, np.memmap)


def test_the_whole_corpus_follows_in_the_background(url, corpus_folder, cache):
    Corpus(url)
    (folder,) = cache.iterdir()
    wait_until(lambda: len(list(folder.glob("shard-*.npy"))) == len(list(corpus_folder.glob("shard-*.npy"))))
    for file in corpus_folder.glob("*.npy"):
        assert (folder / file.name).read_bytes() == file.read_bytes()
    # The copy is a corpus of its own.
    assert Corpus(folder).fingerprint == Corpus(corpus_folder).fingerprint


def test_a_shard_that_is_needed_is_fetched_first(url, corpus_folder, monkeypatch):
    monkeypatch.setattr(RemoteCorpus, "_fetch_rest", lambda self: None)  # nothing comes in the background
    corpus = Corpus(url)
    assert not list(corpus.folder.glob("*.tokens.npy"))
    expected = Corpus(corpus_folder).shards[2].tokens
    assert np.array_equal(corpus.shards[2].tokens, expected)
    assert [file.name for file in corpus.folder.glob("*.tokens.npy")] == ["shard-00002.tokens.npy"]


def test_nothing_is_fetched_twice(url, monkeypatch):
    Corpus(url)
    corpus = Corpus(url)
    wait_until(lambda: len(list(corpus.folder.glob("*.npy"))) == 4 * len(corpus.shards) + 1)
    fetched = []
    blocks = RemoteCorpus._blocks
    monkeypatch.setattr(RemoteCorpus, "_blocks", lambda self, name: fetched.append(name) or blocks(self, name))
    batches(Corpus(url))
    assert fetched == ["manifest.json"]


def test_threads_share_one_download(url, monkeypatch):
    monkeypatch.setattr(RemoteCorpus, "_fetch_rest", lambda self: None)
    corpus = RemoteCorpus(url)
    fetched, blocks = [], RemoteCorpus._blocks

    def slowly(self, name):
        fetched.append(name)
        time.sleep(0.1)
        yield from blocks(self, name)

    monkeypatch.setattr(RemoteCorpus, "_blocks", slowly)
    threads = [threading.Thread(target=corpus.part, args=(1, "tokens")) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert fetched == ["shard-00001.tokens.npy"]


def test_workers_open_the_copy(corpus_folder):
    """A pickled corpus is opened without the network."""
    fetched = Corpus(f"file://{corpus_folder}")
    data = pickle.dumps(fetched)
    assert len(data) < 100_000
    code = (
        "import sys, pickle, hashlib\n"
        "from hornbook.data.remote import RemoteCorpus\n"
        "RemoteCorpus.__init__ = None\n"
        "corpus = pickle.loads(sys.stdin.buffer.read())\n"
        "print(hashlib.sha256(b''.join(shard.tokens.tobytes() for shard in corpus.shards)).hexdigest())"
    )
    done = subprocess.run([sys.executable, "-c", code], input=data, capture_output=True, check=True)
    tokens = b"".join(shard.tokens.tobytes() for shard in Corpus(corpus_folder).shards)
    assert done.stdout.decode().strip() == hashlib.sha256(tokens).hexdigest()


class Unreliable(MemoryFileSystem):
    """Loses the connection after 500 bytes, a number of times."""

    protocol = "unreliable"
    failures = 0
    opened: list = []  # noqa: RUF012

    def open(self, path, mode="rb", **_):
        file = fsspec.filesystem("memory").open(path.removeprefix("unreliable://"), mode)
        if "tokens.npy" not in path:
            return file
        read = file.read

        def some(size):
            Unreliable.opened.append(file.tell())
            if Unreliable.failures:
                if block := read(500) if not file.tell() % 1000 else b"":
                    return block
                Unreliable.failures -= 1
                raise ConnectionResetError("connection reset")
            return read(size)

        file.read = some
        return file


fsspec.register_implementation("unreliable", Unreliable, clobber=True)


def test_a_download_continues_where_it_was(url, corpus_folder, monkeypatch):
    monkeypatch.setattr(RemoteCorpus, "_fetch_rest", lambda self: None)
    corpus = Corpus(url.replace("memory", "unreliable"))
    Unreliable.failures, Unreliable.opened = 2, []
    expected = Corpus(corpus_folder).shards[0].tokens
    assert np.array_equal(corpus.shards[0].tokens, expected)
    assert Unreliable.opened[:4] == [0, 500, 500, 500]  # never again from the start
    assert not list(corpus.folder.glob(".*.tmp"))


def test_a_download_that_fails_leaves_no_file(url, monkeypatch):
    monkeypatch.setattr(RemoteCorpus, "_fetch_rest", lambda self: None)
    corpus = Corpus(url.replace("memory", "unreliable"))
    Unreliable.failures = 10**6
    with pytest.raises(
        ValueError, match=r"shard-00000.tokens.npy could not be fetched \(connection reset\): try again"
    ):
        _ = corpus.shards[0].tokens
    Unreliable.failures = 0
    assert not [file for file in corpus.folder.iterdir() if "00000.tokens" in file.name and file.suffix != ".lock"]
    assert len(corpus.shards[0].tokens)


def test_damaged_files_are_refused(corpus_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(corpus_folder, copy)
    file = copy / "shard-00001.tokens.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    corpus = Corpus(f"file://{copy}")
    with pytest.raises(ValueError, match=r"shard-00001.tokens.npy differs from the manifest \(sha256\)"):
        _ = corpus.shards[1].tokens
    assert not (corpus.folder / "shard-00001.tokens.npy").exists()


def test_a_corpus_that_is_built_again_is_fetched_again(corpus_folder, tokenizer_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(corpus_folder, copy)
    before = Corpus(f"file://{copy}")
    shutil.rmtree(copy)
    (tmp_path / "other.txt").write_text(story(4, 50))
    build_corpus(tmp_path / "other.txt", tokenizer_folder, copy, workers=0)
    after = Corpus(f"file://{copy}")
    assert after.fingerprint == Corpus(copy).fingerprint != before.fingerprint and after.folder != before.folder


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="kills a process")
def test_a_killed_process_leaves_no_half_file(corpus_folder, cache, tmp_path):
    """kill -9 in the middle of a file: it is fetched again by the next process."""
    code = (
        "import sys, time\n"
        "from hornbook.data import remote\n"
        "remote.BLOCK_BYTES = 64\n"
        "def slow(self, name, blocks=remote.RemoteCorpus._blocks):\n"
        "    for block in blocks(self, name):\n"
        "        yield block\n"
        "        if name.endswith('tokens.npy'):\n"
        "            print(name, flush=True)\n"
        "            time.sleep(60)\n"
        "remote.RemoteCorpus._blocks = slow\n"
        f"remote.RemoteCorpus('file://{corpus_folder}').part(0, 'tokens')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    process.kill()
    process.wait()
    (folder,) = cache.iterdir()
    assert not list(folder.glob("*.tokens.npy")) and list(folder.glob(".*.tokens.npy.*.tmp"))
    corpus = Corpus(f"file://{corpus_folder}")
    assert_equal_batches(corpus, Corpus(corpus_folder))
    wait_until(lambda: len(list(folder.glob("*.npy"))) == 4 * len(corpus.shards) + 1)
    assert not list(folder.glob(".*.tmp"))


def test_missing_packages_and_corpora(tmp_path):
    with pytest.raises(ValueError, match=r"memory://nothing/manifest.json does not exist: give the URL of a corpus"):
        Corpus("memory://nothing")
    with pytest.raises(ValueError, match=r"what://bucket/corpus cannot be opened: Protocol not known: what"):
        Corpus("what://bucket/corpus")
    fsspec.register_implementation(
        "lacking", "no_such_package.FileSystem", clobber=True, errtxt="Install no_such_package"
    )
    with pytest.raises(
        ValueError, match=r"lacking://b cannot be opened without another package: Install no_such_package"
    ):
        Corpus("lacking://b")
    assert not os.path.exists(tmp_path / "cache" / "corpora")


def test_weight_and_port_of_a_url():
    assert folder_and_weight("http://127.0.0.1:8000") == ("http://127.0.0.1:8000", 1.0)
    for url in ("http://127.0.0.1:8000/", "http://127.0.0.1:8000/law", "s3://bucket/law"):
        assert folder_and_weight(url) == (url, 1.0) and folder_and_weight(f"{url}:3") == (url, 3.0)


def test_training_on_a_url_gives_the_same_weights(tiny_corpus, tmp_path):
    logged = []
    run(tmp_path / "local", tiny_corpus, steps=4)
    run(tmp_path / "url", f"file://{tiny_corpus}", steps=4, log=logged.append)
    assert same(tmp_path / "local", tmp_path / "url")
    assert any(f"file://{tiny_corpus}: copied to" in line for line in logged)
    assert read_json(tmp_path / "url" / "run.json")["inputs"]["corpora"][0]["folder"] == f"file://{tiny_corpus}"
    # To resume, the URL may be given again, or a copy elsewhere.
    for corpus in (f"file://{tiny_corpus}", tiny_corpus):
        run(tmp_path / "url", corpus, steps=4, resume=True)
