"""Sentence heads on both tasks, and the shared-word classifier: on text whose topics reveal the next sentence but not
the order."""

import random as chance

import numpy as np
import pytest
import torch

from hornbook.data.build import build_corpus
from hornbook.data.corpus import Corpus
from hornbook.evaluation.experiments import sentence_pairs as sentences
from hornbook.evaluation.experiments.jobs import PeakMemory
from hornbook.runs.pretraining.presets import preset_settings
from hornbook.text.training import train_tokenizer

SETTINGS = preset_settings(
    "bert-tiny", {"data.short_length": 48, "data.length": 48, "data.held_out_fraction": 0.5, "runtime.device": "cpu"}
)
SYLLABLES = ("ba", "ko", "mi", "tu", "re", "sa", "lo", "ni", "ve", "du")


def topical_text(num_documents: int) -> str:
    """Documents that each draw their words from those of one of ten topics, in no order."""
    draw = chance.Random(0)
    words = [a + b for a in SYLLABLES for b in SYLLABLES]

    def document() -> str:
        topic = draw.randrange(10)
        own = words[10 * topic : 10 * topic + 10]
        sentences = [" ".join(draw.choices(own, k=draw.randint(4, 9))) for _ in range(draw.randint(4, 12))]
        return "\n".join(f"{each.capitalize()}." for each in sentences)

    return "\n\n".join(document() for _ in range(num_documents)) + "\n"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("topics")
    text = topical_text(400)
    (folder / "text.txt").write_text(text, encoding="utf-8")
    train_tokenizer(text.split("\n\n"), vocab_size=300).save(folder / "tokenizer")
    build_corpus(folder / "text.txt", folder / "tokenizer", folder / "corpus", workers=0)
    return [(Corpus(folder / "corpus", 0.5), 1.0)]


def test_shared_words_tell_the_next_sentence_and_not_the_order(opened):
    found = sentences.shared_words_accuracies(SETTINGS, opened, 512, 512)
    assert found["nsp"]["low"] > 75
    assert found["sop"]["low"] < 50 < found["sop"]["high"] + 4 and found["sop"]["value"] < 58
    for each in found.values():
        assert each["low"] <= each["value"] <= each["high"] and each["pairs"] >= 256


def test_pairs_of_one_document_are_drawn_together():
    """Two documents, one all right and one all wrong, give a wide interval, however many pairs they have."""
    documents = [(0, 1)] * 300 + [(0, 2)] * 300
    found = sentences._accuracy(np.array([True] * 300 + [False] * 300), documents)
    assert (found["value"], found["low"], found["high"], found["documents"]) == (50.0, 0.0, 100.0, 2)
    apart = sentences._accuracy(np.array([True] * 300 + [False] * 300), [(0, place) for place in range(600)])
    assert apart["high"] - apart["low"] < 10


def test_the_documents_of_a_batch(opened):
    """Each pair starts with words of the document that is named."""
    ((batch, documents), *_) = sentences._batches(SETTINGS, opened, "nsp", 64, held_out=True)
    corpus = opened[0][0]
    assert len(documents) == batch.num_sequences and len(set(documents)) > 5
    for (which, document), start in zip(documents, batch.offsets_host[:-1].tolist(), strict=True):
        shard, first, last = corpus.document(document)
        tokens = np.asarray(shard.tokens[int(shard.sentences[first]) : int(shard.sentences[last])])
        assert which == 0 and set(batch.ids_T[start + 1 : start + 4].tolist()) <= set(tokens.tolist())


class Knowing:
    """A model that sees the labels, and names those of one task rightly and of the other wrongly."""

    def __init__(self, right_about: str):
        self.right_about, self.layouts = right_about, iter(("nsp", "sop"))
        self.now = None

    def to(self, device):
        return self

    def __call__(self, batch):
        x_TD = torch.zeros(batch.num_tokens, 1)
        x_TD[batch.offsets[:-1].long(), 0] = batch.labels_N.float()
        return x_TD

    def sentence_logits(self, cls_ND):
        says = cls_ND[:, 0] if self.right_about == self.now else 1 - cls_ND[:, 0]
        return torch.stack([0.5 - says, says - 0.5], 1)


def test_a_head_is_tried_on_held_out_pairs_of_both_tasks(opened, monkeypatch):
    model, asked = Knowing("sop"), []
    made = sentences._batches

    def batches(settings, opened, layout, num_pairs, held_out):
        asked.append((layout, num_pairs, held_out))
        model.now = layout
        return made(settings, opened, layout, num_pairs, held_out)

    monkeypatch.setattr(sentences, "_batches", batches)
    monkeypatch.setattr(sentences, "load_model", lambda folder: model)
    found = sentences.sentence_head_accuracies("nowhere", SETTINGS, opened, 300)
    assert {name: each["value"] for name, each in found.items()} == {"nsp": 0.0, "sop": 100.0}
    assert asked == [("nsp", 300, True), ("sop", 300, True)]


def test_the_peak_of_memory_is_that_of_the_stretch():
    with PeakMemory() as large:
        held = np.ones(40_000_000)  # 320 MB
        del held
    with PeakMemory() as small:
        pass
    assert "memory" in large.kind
    if "since its start" not in large.kind:
        assert large.bytes - small.bytes > 200e6
