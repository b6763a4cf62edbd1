"""Embedding stores weights by column, for speed; nothing else changes."""

import numpy as np
import torch
from finetuned import encoder
from safetensors.torch import load_file

import hornbook

TEXTS = ["the river", "a lantern of the teacher and the garden", "bread"]


def test_vectors_and_saved_weights_are_the_same(tmp_path, tiny_tokenizer, monkeypatch):
    folder = encoder(tmp_path / "model", tiny_tokenizer)
    by_row, by_column = hornbook.load(folder), hornbook.load(folder)
    with monkeypatch.context() as smaller:
        smaller.setattr("hornbook.inference.loaded_model.BATCH_TOKENS", 100)
        expected = by_row._embed(TEXTS, by_row.embedding)
    assert np.allclose(by_column.embed(TEXTS), expected, atol=1e-6)
    layer = by_column.model.blocks[0].fc1
    assert not layer.weight.is_contiguous() and torch.equal(layer.weight, by_row.model.blocks[0].fc1.weight)
    for name, weight in by_column.model.named_parameters():
        assert weight.is_contiguous() or "embedding" not in name, name
    by_column.save(tmp_path / "saved")
    before, after = (load_file(each / "model.safetensors") for each in (folder, tmp_path / "saved"))
    assert before.keys() == after.keys() and all(torch.equal(weight, after[name]) for name, weight in before.items())
