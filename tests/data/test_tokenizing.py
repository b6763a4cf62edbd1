"""Worker processes of a build that is called from a plain script."""

import subprocess
import sys
import threading

import pytest
from stories import story

from hornbook.data.tokenizing import EncodingPool
from hornbook.data.worker_pool import main_hidden
from hornbook.text.tokenizer import Tokenizer

UNGUARDED = """
import sys
import hornbook

print("once")
name, spec = __file__, __spec__
text, tokenizer, out = sys.argv[1:]
manifest = hornbook.build_corpus(text, tokenizer, out, workers=2, shard_tokens=2000)
assert __file__ == name and __spec__ == spec
print(manifest["totals"]["documents"])
"""


@pytest.mark.parametrize("as_module", [False, True])
def test_a_script_without_a_guard(as_module, tmp_path, tokenizer_folder):
    (tmp_path / "script.py").write_text(UNGUARDED)
    (tmp_path / "text.txt").write_text(story(3, 100))
    run = ["-m", "script"] if as_module else ["script.py"]
    command = [sys.executable, *run, "text.txt", str(tokenizer_folder), "out"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["once", "90"] and not ended.stderr


def test_the_script_is_itself_again_afterwards():
    main = sys.modules["__main__"]
    before = dict(vars(main))
    with pytest.raises(KeyError), main_hidden():
        assert main.__spec__ is None and not hasattr(main, "__file__")
        raise KeyError
    assert dict(vars(main)) == before


def test_pools_in_two_threads(tokenizer_folder):
    tokenizer = Tokenizer.load(tokenizer_folder)
    before = dict(vars(sys.modules["__main__"]))
    lengths = []

    def encode() -> None:
        with EncodingPool(tokenizer_folder, tokenizer, 1) as pool:
            lengths.append([len(pool.submit([text]).result().tokens) for text in story(5, 4).split("\n\n")])

    threads = [threading.Thread(target=encode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lengths) == 2 and lengths[0] == lengths[1]
    assert dict(vars(sys.modules["__main__"])) == before
