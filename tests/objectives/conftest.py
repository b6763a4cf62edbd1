"""One small text as a corpus, with a tokenizer of each kind."""

import pytest
from made_up_text import KINDS, made_up_text

from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.text.training import train_tokenizer


@pytest.fixture(scope="session")
def corpora(tmp_path_factory) -> dict[str, Corpus]:
    folder = tmp_path_factory.mktemp("objectives")
    text = made_up_text(0, 200)
    (folder / "text.txt").write_text(text)
    found = {}
    for kind, vocab_size in KINDS.items():
        train_tokenizer(text.split("\n\n")[:40], kind=kind, vocab_size=vocab_size).save(folder / f"{kind}-tokenizer")
        build_corpus(folder / "text.txt", folder / f"{kind}-tokenizer", folder / kind, workers=0, shard_tokens=10_000)
        found[kind] = Corpus(folder / kind)
    return found
