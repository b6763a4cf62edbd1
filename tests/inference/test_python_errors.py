"""What the functions and methods in Python refuse, and how they present themselves in `help`."""

import inspect

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from small_gpts import saved_gpt

import hornbook
from hornbook.inference.decoder import DecoderModel
from hornbook.inference.encoder import EncoderModel


@pytest.mark.parametrize("wrong", [5, None, ["a text", 3], b"bytes"])
def test_texts_of_another_type_are_refused_by_name(wrong, tmp_path):
    saved_gpt(tmp_path)
    gpt, model = hornbook.load(tmp_path), hornbook.load()
    for call, name in ((gpt.generate, "prompts"), (gpt.score, "texts"), (model.embed, "texts"), (model.score, "texts")):
        with pytest.raises(ValueError, match=f"{name} must be a text or a list of texts"):
            call(wrong)
    with pytest.raises(ValueError, match="text must be a text or a list of texts"):
        model.fill_mask(wrong)


def test_a_built_in_model_is_named_in_messages():
    with pytest.raises(ValueError, match=r"^en is an electra"):
        hornbook.load().generate("a text")
    assert repr(hornbook.load(None)).startswith("EncoderModel('en'")


def test_an_option_that_is_an_override_in_python_is_named():
    with pytest.raises(TypeError, match=r'pretrain has no argument lr: set it by overrides={"optimizer.lr": 3}'):
        hornbook.pretrain("bert-tiny", "corpus", "runs/x", lr=3)


def test_a_classifier_that_was_not_fitted_says_so():
    with pytest.raises(NotFittedError):
        hornbook.TextClassifier().predict(["a text"])


def test_a_classifier_refuses_labels_that_are_not_one_class_per_text():
    texts = ["the river", "a garden", "the bread", "a bridge"]
    with pytest.raises(ValueError, match="y has 2 columns: give one class per text; for several"):
        hornbook.TextClassifier().fit(texts, [[0, 1], [1, 0], [1, 1], [0, 0]])
    for missing in (None, float("nan")):
        with pytest.raises(ValueError, match="row 2 of y has no label: leave the row out"):
            hornbook.TextClassifier().fit(texts, np.array(["a", missing, "b", "a"], object))


@pytest.mark.parametrize("kind", [EncoderModel, DecoderModel])
def test_every_public_method_is_documented(kind):
    assert [name for name in dir(kind) if name[0] != "_" and not inspect.getdoc(getattr(kind, name))] == []


@pytest.mark.parametrize("name", ["finetune", "pretrain", "probe", "baseline", "label_curve", "distill"])
def test_functions_that_train_take_a_device(name):
    parameters = inspect.signature(getattr(hornbook, name)).parameters
    assert parameters["device"].default == "auto"
    assert "lambda" not in str(parameters)
