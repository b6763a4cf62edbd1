"""Names of transformers and scikit-learn give what they give there."""

import pickle
import warnings

import numpy as np
import pytest
import transformers
from finetuned import asked_questions, encoder, finetuned, labelled_texts, tagged_words
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from small_gpts import saved_gpt

import hornbook
from hornbook import TextClassifier, pipeline

ROWS = labelled_texts()
TEXTS, LABELS = [row["text"] for row in ROWS], [row["label"] for row in ROWS]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_tokenizer):
    return encoder(tmp_path_factory.mktemp("names") / "encoder", tiny_tokenizer)


@pytest.fixture(scope="module")
def runs(tmp_path_factory, model):
    root = tmp_path_factory.mktemp("named")
    finetuned(root / "texts", model, "classification", ROWS)
    finetuned(root / "tags", model, "tagging", tagged_words())
    finetuned(root / "answers", model, "spans", [row for row in asked_questions() if row["answer"]])
    saved_gpt(root / "gpt", end=None)
    return root


def test_arguments_may_be_given_first(runs, tiny_run):
    text = "the [MASK] of the river"
    fill = pipeline("fill-mask", tiny_run, device=-1, top_k=2, batch_size=8)
    assert fill(text) == pipeline("fill-mask", tiny_run)(text)[:2] and len(fill(text, top_k=3)) == 3
    assert fill(text, batch_size=8, padding=True) == fill(text)
    assert len(pipeline("text-classification", runs / "texts", top_k=None, truncation=True)(TEXTS[0])) == 2
    with pytest.raises(ValueError, match="the pipeline fill-mask has no argument 'targets': it has top_k, batch_size"):
        pipeline("fill-mask", tiny_run, targets=["river"])


def test_fill_mask_is_that_of_transformers(tiny_run):
    text = "the [MASK] of the river"
    ours, theirs = pipeline("fill-mask", tiny_run)(text), transformers.pipeline("fill-mask", str(tiny_run))(text)
    assert [each["token"] for each in ours] == [each["token"] for each in theirs]
    assert [each["score"] for each in ours] == pytest.approx([each["score"] for each in theirs], abs=1e-5)
    assert set(ours[0]) == set(theirs[0])
    fill = pipeline("fill-mask", tiny_run)
    assert len(fill("[MASK] and [MASK]", top_k=2)) == 2 and len(fill(["the [MASK]", "a [MASK] and [MASK]"])) == 2


def test_text_classification_is_that_of_transformers(runs):
    ours = pipeline("sentiment-analysis", runs / "texts")
    theirs = transformers.pipeline("text-classification", str(runs / "texts"))
    for found, expected in zip(ours(TEXTS[:5]), theirs(TEXTS[:5]), strict=True):
        assert found["label"] == expected["label"] and found["score"] == pytest.approx(expected["score"], abs=1e-5)
    assert ours("the river")[0].keys() == theirs("the river")[0].keys()
    assert [each["label"] for each in ours("the river", top_k=None)] == [
        each["label"] for each in theirs("the river", top_k=None)
    ]
    for top_k in (1, 2, None):
        several = [[each["label"] for each in best] for best in ours(TEXTS[:3], top_k=top_k)]
        assert several == [[each["label"] for each in best] for best in theirs(TEXTS[:3], top_k=top_k)]
    pair = ours({"text": "the river", "text_pair": "a lantern"})
    assert pair[0]["score"] == pytest.approx(theirs({"text": "the river", "text_pair": "a lantern"})["score"], abs=1e-5)


def test_features_are_those_of_transformers(tiny_run):
    ours = pipeline("feature-extraction", tiny_run)("the river")
    theirs = transformers.pipeline("feature-extraction", str(tiny_run))("the river")
    assert np.array(ours) == pytest.approx(np.array(theirs), abs=1e-5)


def test_features_of_long_texts(tiny_run):
    ours = pipeline("feature-extraction", tiny_run, truncation=True, batch_size=8)
    theirs = transformers.pipeline("feature-extraction", str(tiny_run), truncation=True)
    texts = ["the river", "the river " * 400, "a lantern, a garden and the river", "the river"]
    for found, expected in zip(ours(texts), theirs(texts), strict=True):
        assert np.array(found) == pytest.approx(np.array(expected), abs=1e-5)
    with pytest.raises(ValueError, match=r"more than the model's maximum of \d+: shorten it, or pass truncation=True"):
        ours(texts, truncation=False)


def test_tags_answers_and_texts(runs):
    text = "the silver bridge, a river"
    words = pipeline("ner", runs / "tags")(text)
    assert all(text[each["start"] : each["end"]] == each["word"] and each["entity"] != "O" for each in words)
    groups = pipeline("ner", runs / "tags")([text], aggregation_strategy="simple")[0]
    assert all(text[each["start"] : each["end"]] == each["word"] for each in groups)
    passage = "the river and a bridge"
    answer = pipeline("question-answering", runs / "answers")(question="the garden", context=passage)
    assert passage[answer["start"] : answer["end"]] == answer["answer"] != ""
    write = pipeline("text-generation", runs / "gpt")
    expected = hornbook.load(runs / "gpt").generate("the river", 6, temperature=0)[0].text
    assert write("the river", max_new_tokens=6, do_sample=False) == [{"generated_text": "the river" + expected}]
    several = write(["the", "a"], max_new_tokens=3, num_return_sequences=2, return_full_text=False)
    assert [len(each) for each in several] == [2, 2]


def test_inputs_without_text(runs):
    classify = pipeline("text-classification", runs / "texts")
    with pytest.raises(ValueError, match=r"^input 1 of 1 has no words: leave it out$"):
        classify("")
    with pytest.raises(ValueError, match=r"^input 2 of 2 has no words"):
        classify(["the river", " "])
    with pytest.raises(ValueError, match=r"^input 1 \(None\) is invalid: this model takes a text"):
        classify(None)
    with pytest.raises(ValueError, match=r"^input 1 of 1 has no words"):
        pipeline("question-answering", runs / "answers")(question="the garden", context="")
    assert pipeline("ner", runs / "tags")("") == []


def test_unfit_pipelines_are_refused(runs, tiny_run):
    for arguments, message in (
        (("summarization",), "there is no pipeline 'summarization': choose fill-mask"),
        (("ner",), "there is no built-in model for token-classification"),
        (("ner", runs / "texts"), "was fine-tuned for classification, not for tagging"),
        (("text-generation", tiny_run), "is an encoder, which cannot generate text"),
        (("fill-mask", runs / "gpt"), "is a GPT, which cannot fill in masks"),
    ):
        with pytest.raises(ValueError, match=message):
            pipeline(*arguments)


def classifier(model, **settings):
    fast = {"epochs": 2, "lr": 1e-2, "batch_size": 8, "overrides": {"runtime.threads": 1}}
    return TextClassifier(model, **fast | settings)


def test_a_classifier_learns_and_keeps_its_classes(model, tmp_path):
    found = classifier(model, epochs=8, out=tmp_path / "kept").fit(np.array(TEXTS), LABELS)
    chances = found.predict_proba(TEXTS)
    assert list(found.classes_) == ["dark", "light"] and chances.shape == (60, 2)
    assert chances.sum(1) == pytest.approx(np.ones(60), abs=1e-5)
    assert found.score(TEXTS, LABELS) > 0.85
    assert (found.predict(TEXTS) == found.classes_[chances.argmax(1)]).all()
    assert hornbook.load_predictor(tmp_path / "kept").predict(["the river"])
    again = pickle.loads(pickle.dumps(found))
    assert again.predict_proba(TEXTS) == pytest.approx(chances, abs=1e-6)


@pytest.mark.parametrize("classes", [(0, 1), (-1, 1), (True, False), (2.0, 10.0), ("a ", "a"), ("", "?")])
def test_classes_of_any_type(model, classes):
    labels = [classes["lantern" in text] for text in TEXTS]
    found = classifier(model).fit(TEXTS, labels)
    assert list(found.classes_) == sorted(classes) and set(found.predict(TEXTS).tolist()) <= set(classes)
    assert found.predict_proba(TEXTS).sum(1) == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)
    assert found.score_ > 0


def test_in_a_pipeline_and_a_grid_search(model):
    steps = [
        ("lower", FunctionTransformer(lambda texts: [text.lower() for text in texts])),
        ("model", classifier(model)),
    ]
    search = GridSearchCV(Pipeline(steps), {"model__lr": [1e-3, 1e-2]}, cv=2, error_score="raise")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        search.fit([text.upper() for text in TEXTS], LABELS)
    assert search.best_params_["model__lr"] in (1e-3, 1e-2) and len(search.predict(TEXTS)) == 60
    assert len(cross_val_score(classifier(model, epochs=1), TEXTS, LABELS, cv=2)) == 2


def test_parameters_are_those_of_scikit_learn(model):
    copy = clone(classifier(model, max_length=12))
    assert copy.get_params()["max_length"] == 12 and copy.set_params(lr=3e-4).lr == 3e-4
    assert not hasattr(copy, "classes_")


def test_pairs_and_empty_texts(model):
    pairs = [(text, "a lantern") for text in TEXTS]
    found = classifier(model).fit(pairs, LABELS)
    assert found.predictor_.spec.has_pairs and found.predict_proba(np.array(pairs[:3])).shape == (3, 2)
    single = classifier(model).fit(TEXTS, LABELS)
    assert single.predict_proba(["the river", ""])[1].tolist() == [0.5, 0.5]


def test_frames_of_pandas(model):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": TEXTS, "label": LABELS}, index=range(100, 160))
    found = classifier(model).fit(frame["text"], frame["label"])
    assert found.predict(frame[["text"]]).tolist() == found.predict(TEXTS).tolist()


def test_invalid_data_is_refused(model):
    for X, y, message in (
        ("a text", ["a"], "X is one text"),
        (["a", "b"], ["a"], "2 texts and 1 labels"),
        ([1, 2], ["a", "b"], "row 1 of X is not a text"),
        (["a", "b"], ["a", "a"], "at least two classes"),
        ([], [], "X has no texts"),
    ):
        with pytest.raises(ValueError, match=message):
            classifier(model).fit(X, y)


@pytest.mark.parametrize("items", [["a text", ("a text", "another")], [("a text", "another"), "a text"]])
def test_a_classifier_refuses_a_mixture_of_texts_and_pairs(items):
    with pytest.raises(ValueError, match=r"X mixes texts and pairs of texts \(rows 1 and 2\)"):
        TextClassifier().fit(items, ["a", "b"])
