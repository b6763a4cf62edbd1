"""Builds that are stopped, by real signals, and then go on."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stories import story

from hornbook.data.build import build_corpus
from hornbook.data.sources import find_sources, summary_of

SHARD_TOKENS = 4000
SCRIPT = """
import sys
from hornbook.data.build import build_corpus

if __name__ == "__main__":
    text, tokenizer, out, workers = sys.argv[1:]
    try:
        build_corpus(text.split(","), tokenizer, out, workers=int(workers), shard_tokens=4000)
    except (ValueError, KeyboardInterrupt) as error:
        sys.exit(f"{type(error).__name__}: {error}")
"""


def files_of(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("*.npy")}


def without_times(manifest: dict) -> dict:
    return {key: value for key, value in manifest.items() if key not in ("seconds", "megabytes_per_second")}


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    folder = tmp_path_factory.mktemp("texts")
    (folder / "a.txt").write_bytes(story(1, 500).encode() + b"\n\nbad \xff byte\n")
    rows = [json.dumps({"text": text}) for text in story(2, 500).split("\n\n")]
    rows[5] = rows[300] = "rubbish"
    (folder / "b.jsonl").write_text("\n".join(rows))
    (folder / "c.txt").write_text(story(1, 100) + "\n\n" + story(4, 200))
    return [str(folder / name) for name in ("a.txt", "b.jsonl", "c.txt")]


@pytest.fixture(scope="module")
def unbroken(texts, tokenizer_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unbroken") / "corpus"
    manifest = build_corpus(texts, tokenizer_folder, folder, workers=0, shard_tokens=SHARD_TOKENS)
    assert len(manifest["shards"]) > 15
    return folder, manifest


def start(tmp_path, texts, tokenizer_folder, workers):
    script = tmp_path / "build.py"
    script.write_text(SCRIPT)
    command = [sys.executable, script, ",".join(texts), tokenizer_folder, tmp_path / "out", str(workers)]
    return subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_for_shards(folder: Path, number: int) -> None:
    deadline = time.monotonic() + 30
    while not (folder / f"progress-{number:05d}.hashes.npy").exists():
        assert time.monotonic() < deadline and not (folder / "manifest.json").exists()
        time.sleep(0.002)


def children_of(process) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def is_worker(pid: int) -> bool:
    return b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()


def wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(_runs(pid) for pid in pids):
        assert time.monotonic() < deadline, "processes were left behind"
        time.sleep(0.02)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("seed", range(3))
def test_killed_again_and_again_gives_the_same_bytes(unbroken, texts, tokenizer_folder, tmp_path, seed):
    folder, manifest = unbroken
    generator = random.Random(time.time_ns() + seed)
    shards = 0
    for _ in range(2):
        process = start(tmp_path, texts, tokenizer_folder, workers=0)
        shards = min(shards + generator.randint(1, 5), 12)
        wait_for_shards(tmp_path / "out", shards)
        time.sleep(generator.random() * 0.05)
        process.kill()
        process.communicate()
    assert not (tmp_path / "out" / "manifest.json").exists()
    resumed = build_corpus(texts, tokenizer_folder, tmp_path / "out", workers=0, shard_tokens=SHARD_TOKENS)
    assert files_of(tmp_path / "out") == files_of(folder)
    assert without_times(resumed) == without_times(manifest)
    assert not list((tmp_path / "out").glob(".*")) and not list((tmp_path / "out").glob("progress*"))


def test_a_killed_parent_leaves_no_workers(unbroken, texts, tokenizer_folder, tmp_path):
    folder, manifest = unbroken
    process = start(tmp_path, texts, tokenizer_folder, workers=2)
    wait_for_shards(tmp_path / "out", 2)
    children = children_of(process)
    assert len(children) >= 2
    process.kill()
    process.communicate()
    wait_until_gone(children)
    resumed = build_corpus(texts, tokenizer_folder, tmp_path / "out", workers=1, shard_tokens=SHARD_TOKENS)
    assert files_of(tmp_path / "out") == files_of(folder)
    assert without_times(resumed) == without_times(manifest)


@pytest.mark.parametrize("how", ["interrupt", "terminate"])
def test_a_stop_is_clean_and_prints_how_to_resume(texts, tokenizer_folder, tmp_path, how):
    process = start(tmp_path, texts, tokenizer_folder, workers=2)
    wait_for_shards(tmp_path / "out", 2)
    children = children_of(process)
    if how == "interrupt":
        os.killpg(process.pid, signal.SIGINT)
    else:
        process.terminate()
    error = process.communicate(timeout=20)[1]
    assert process.returncode == 1
    assert error.startswith("KeyboardInterrupt: stopped (") and "same command" in error and error.count("\n") == 1
    wait_until_gone(children)
    assert (tmp_path / "out" / "progress.json").exists()


def test_a_killed_worker_is_one_sentence(unbroken, texts, tokenizer_folder, tmp_path):
    process = start(tmp_path, texts, tokenizer_folder, workers=2)
    wait_for_shards(tmp_path / "out", 2)
    workers = [child for child in children_of(process) if is_worker(child)]
    assert len(workers) == 2
    os.kill(workers[0], signal.SIGKILL)
    error = process.communicate(timeout=20)[1]
    assert error.startswith("ValueError: a worker process was killed") and "same command" in error
    assert error.count("\n") == 1
    wait_until_gone(workers)
    build_corpus(texts, tokenizer_folder, tmp_path / "out", workers=0, shard_tokens=SHARD_TOKENS)
    assert files_of(tmp_path / "out") == files_of(unbroken[0])


@pytest.fixture
def stopped(texts, tokenizer_folder, tmp_path):
    def stop(progress):
        if progress.tokens > 3 * SHARD_TOKENS:
            raise KeyboardInterrupt

    settings = {"workers": 0, "shard_tokens": SHARD_TOKENS}
    with pytest.raises(KeyboardInterrupt, match="same command"):
        build_corpus(texts, tokenizer_folder, tmp_path / "out", **settings, on_progress=stop)
    return tmp_path / "out"


def test_an_unfinished_folder_refuses_another_request(stopped, texts, tokenizer_folder):
    with pytest.raises(ValueError, match=r"unfinished build .*shard_tokens was 4000 and is now 5000"):
        build_corpus(texts, tokenizer_folder, stopped, workers=0, shard_tokens=5000)
    with pytest.raises(ValueError, match="the files differ"):
        build_corpus(texts[::-1], tokenizer_folder, stopped, workers=0, shard_tokens=SHARD_TOKENS)
    progress = json.loads((stopped / "progress.json").read_text())
    progress["request"]["hornbook_version"] = "0.0.1"
    (stopped / "progress.json").write_text(json.dumps(progress))
    with pytest.raises(ValueError, match=r"started with hornbook 0\.0\.1"):
        build_corpus(texts, tokenizer_folder, stopped, workers=0, shard_tokens=SHARD_TOKENS)


def test_a_shard_that_went_missing_is_noticed(stopped, texts, tokenizer_folder):
    (stopped / "shard-00001.tokens.npy").unlink()
    with pytest.raises(ValueError, match=r"shard-00001\.tokens\.npy is missing"):
        build_corpus(texts, tokenizer_folder, stopped, workers=0, shard_tokens=SHARD_TOKENS)


def test_a_stop_between_manifest_and_tidying_up(stopped, unbroken, texts, tokenizer_folder):
    progress = (stopped / "progress.json").read_bytes()
    build_corpus(texts, tokenizer_folder, stopped, workers=0, shard_tokens=SHARD_TOKENS)
    (stopped / "progress.json").write_bytes(progress)
    again = build_corpus(texts, tokenizer_folder, stopped, workers=0, shard_tokens=SHARD_TOKENS)
    assert again["already_built"] and not (stopped / "progress.json").exists()


def test_a_build_stopped_before_its_first_shard_starts_over(texts, tokenizer_folder, tmp_path):
    def stop(_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_corpus(texts, tokenizer_folder, tmp_path / "out", workers=0, on_progress=stop)
    manifest = build_corpus(texts[2], tokenizer_folder, tmp_path / "out", workers=0, clean="wiki")
    assert manifest["sources"] == summary_of(find_sources(texts[2]))
