"""A teacher and a student with different vocabularies: logits of whole texts can be distilled, per-token outputs
cannot."""

import random as chance
from pathlib import Path

import numpy as np
import pytest
from distillation.lessons import ONCE, QUIET, SMALL, rows_of
from finetuning import rules

from hornbook.inference.predictor import load_predictor
from hornbook.runs.distillation.distill import distill
from hornbook.runs.distillation.teacher import open_teacher
from hornbook.runs.distillation.teacher_cache import open_teacher_cache
from hornbook.runs.finetuning.finetune import finetune
from hornbook.runs.finetuning.inputs import open_inputs
from hornbook.runs.finetuning.record import FinetuneRequest
from hornbook.tasks.encoded import softmax
from hornbook.text.tokenizer import Tokenizer
from hornbook.text.training import train_tokenizer
from hornbook.train.runtime import choose_runtime

SCORES = ONCE | {"objective.recipe": "minilm"}


@pytest.fixture(scope="module")
def encoder(tmp_path_factory) -> Path:
    return rules.random_encoder(tmp_path_factory.mktemp("random") / "encoder")


@pytest.fixture(scope="module")
def student(tmp_path_factory) -> Path:
    """With the same words at other places in its vocabulary."""
    folder = rules.random_encoder(tmp_path_factory.mktemp("random") / "student", "distilbert", **SMALL)
    words = chance.Random(5).sample(rules.WORDS, len(rules.WORDS))
    # Of fewer pieces than the model has rows, so that each has one.
    train_tokenizer([" ".join(words)] * 20 + words[:9] * 9, vocab_size=Tokenizer.load(folder).vocab_size - 20).save(
        folder
    )
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return rules.write_rows(tmp_path_factory.mktemp("data"), rows_of(rules.keyword_pair, 600), 100)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory, encoder, data) -> Path:
    out = tmp_path_factory.mktemp("teacher") / "run"
    return finetune(encoder, data, out=out, epochs=5, lr=3e-3, seed=0, overrides=ONCE, **QUIET).out


def test_scores_of_texts_are_learned(tmp_path, teacher, student, data):
    """From wrong labels, so that all it knows comes from the teacher."""
    assert not open_teacher(str(teacher)).reads_as(Tokenizer.load(student))
    rows = [row | {"label": "no" if i % 2 else "yes"} for i, row in enumerate(rows_of(rules.keyword_pair, 500))]
    dev = rows_of(rules.keyword_pair, 600)[-100:]
    wrong = rules.write_rows(tmp_path / "data", rows + dev, 100)
    keywords = {"task": "classification", "data": wrong, "overrides": SCORES, "lr": 3e-3, "epochs": 8, **QUIET}
    result = distill(teacher, student, tmp_path / "run", **keywords)
    assert result.score >= 0.95


def test_the_teacher_reads_with_its_own_tokenizer(tmp_path, teacher, student, data):
    """Kept scores are those that it predicts by itself."""
    request = FinetuneRequest(str(student), "classification", str(data), overrides=SCORES, teacher=str(teacher))
    inputs = open_inputs(request, data, lambda words: None, teacher=open_teacher(str(teacher)))
    runtime = choose_runtime(inputs.settings.runtime, 0.0)
    kept = open_teacher_cache(inputs, runtime, tmp_path, lambda status: None, lambda words: None)
    groups = np.arange(20)
    predicted = load_predictor(teacher).predict([each.text for each in inputs.train[:20]])
    found = softmax(kept.groups(groups, kept.columns))
    np.testing.assert_allclose(found, [list(each.probabilities.values()) for each in predicted], atol=1e-5)


def test_choices_too(tmp_path, encoder, student):
    data = rules.write_rows(tmp_path / "data", rows_of(rules.choice_with_the_thing, 40), 10)
    teacher_name = finetune(encoder, data, "choice", tmp_path / "teacher", epochs=0.2, overrides=ONCE, **QUIET).out
    result = distill(
        teacher_name, student, tmp_path / "run", task="choice", data=data, overrides=SCORES, epochs=0.5, **QUIET
    )
    assert result.scores["dev"]


def test_what_stands_at_tokens_is_refused(tmp_path, teacher, encoder, student, data):
    refused = pytest.raises(ValueError, match=r"different vocabularies.*Instead, give.*recipe='minilm' or recipe=")
    with refused:
        distill(teacher, student, tmp_path / "run", task="classification", data=data, overrides=ONCE, **QUIET)
    tagged = rules.write_rows(tmp_path / "tagged", rows_of(rules.titled_names, 40), 10)
    tagger = finetune(encoder, tagged, "tagging", tmp_path / "tagger", epochs=0.2, overrides=ONCE, **QUIET).out
    with refused:
        distill(tagger, student, tmp_path / "run", task="tagging", data=tagged, overrides=SCORES, **QUIET)
    assert not (tmp_path / "run").exists()
