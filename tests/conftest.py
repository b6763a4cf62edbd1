"""One thread a test process: xdist runs several side by side on few cores."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import random as chance
from pathlib import Path

import numpy as np
import pytest
import torch

torch.set_num_threads(1)

TINY_MODEL = {
    "model.num_layers": 1,
    "model.width": 32,
    "model.num_heads": 2,
    "model.inner_width": 64,
    "data.short_length": 32,
    "data.length": 64,
}
WORDS = "the a of and river teacher lantern bridge morning letters windows children harbour garden silver bread".split()
KOREAN = "한국어 위키백과는 한국어로 운영되는 여우가 게으른 개를 뛰어넘었다 사람은 한국어를 압니다".split()


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def tiny_text(num_documents: int, seed: int = 0) -> str:
    """Made-up documents with a blank line between, every fourth in Korean."""
    draw = chance.Random(seed)

    def sentence(words: list[str]) -> str:
        return " ".join(draw.choice(words) for _ in range(draw.randint(5, 12))).capitalize() + "."

    documents = []
    for number in range(num_documents):
        words = KOREAN if number % 4 == 3 else WORDS
        documents.append("\n".join(" ".join(sentence(words) for _ in range(3)) for _ in range(draw.randint(1, 4))))
    return "\n\n".join(documents) + "\n"


@pytest.fixture(scope="session")
def tiny_text_file(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("texts") / "tiny.txt"
    file.write_text(tiny_text(200), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def tiny_tokenizer(tmp_path_factory) -> Path:
    """The folder of a wordpiece tokenizer of about 200 tokens; do not write into it."""
    from hornbook.text.training import train_tokenizer

    folder = tmp_path_factory.mktemp("tiny") / "tokenizer"
    train_tokenizer(tiny_text(200).split("\n\n"), vocab_size=200).save(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_corpus(tmp_path_factory, tiny_tokenizer, tiny_text_file) -> Path:
    """The folder of a corpus of 200 documents; do not write into it."""
    from hornbook.data.build import build_corpus

    folder = tmp_path_factory.mktemp("tiny") / "corpus"
    build_corpus(tiny_text_file, tiny_tokenizer, folder, workers=0)
    return folder


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory, tiny_corpus) -> Path:
    """The folder of a finished run of three steps; do not write into it."""
    from hornbook.pretrain import pretrain

    folder = tmp_path_factory.mktemp("tiny") / "run"
    pretrain(
        "bert-tiny", [tiny_corpus], folder, steps=3, batch_tokens=512, changes=TINY_MODEL, say=lambda words: None
    )
    return folder
