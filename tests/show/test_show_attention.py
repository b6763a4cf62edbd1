"""Attention of one model, and of several side by side."""

import base64

import numpy as np
import pytest
from small_gpts import saved_gpt

import hornbook as library
from hornbook.batch import pack
from hornbook.cli.showing import split_models
from hornbook.inference.attention import attentions_of
from hornbook.show.attention import show_all_attention, show_attention
from hornbook.show.visualization import write_visualization

TEXT = "the river and the garden of the teacher"


def test_attention(tiny_run, tmp_path):
    model = library.load(tiny_run)
    encoded = model.tokenizer.encode(TEXT, "a bridge")
    batch = pack([np.array(encoded.ids)], [np.array(encoded.segments)])
    models = [(None, model)]
    weights_HSS = attentions_of(model.model, batch, [-1])[0]
    found = show_attention(models, TEXT, "a bridge").attention
    assert found["weights"] == pytest.approx(weights_HSS.mean(0).numpy(), abs=1e-5)
    second = show_attention(models, TEXT, "a bridge", 1, 2).attention
    assert second["weights"] == pytest.approx(weights_HSS[1], abs=1e-5)
    for layer, head, message in ((2, None, "the layer"), (1, 3, "the head")):
        with pytest.raises(ValueError, match=message):
            show_attention(models, TEXT, None, layer, head)
    every = show_all_attention(models, TEXT, "a bridge").attention
    values = np.frombuffer(base64.b64decode(every["weights"]), np.uint8).reshape(1, 2, *weights_HSS.shape[1:])
    assert values[0] / 255 == pytest.approx(weights_HSS.numpy(), abs=0.5 / 255 + 1e-6)
    with pytest.raises(ValueError, match=r"give one of 1 to \d+"):
        show_all_attention(models, "the river " * 100)
    page = write_visualization(tmp_path / "page.html", show_all_attention(models, "<b>the river")).read_text(
        encoding="utf-8"
    )
    assert 'id="layer"' in page and "<b>the" not in page and "http" not in page


def test_attention_of_several_models(one_way, tmp_path):
    saved_gpt(tmp_path / "gpt")
    folders = {name: one_way / name for name in ("bidirectional", "causal")} | {"gpt": tmp_path / "gpt"}
    models = [(name, library.load(folder)) for name, folder in folders.items()]
    found = show_attention(models, TEXT, "a bridge").attention["models"]
    assert [(each["name"], each["direction"]) for each in found] == [
        *((name, name) for name in ("bidirectional", "causal")),
        ("gpt", "causal"),
    ]
    for (_, model), each in zip(models, found, strict=True):
        alone = show_attention([(None, model)], TEXT, "a bridge").attention
        assert {name: each[name] for name in alone} == alone
        weights_SS = np.array(each["weights"])
        assert np.triu(weights_SS, 1).any() == (each["direction"] != "causal")
        assert np.tril(weights_SS, -1).any()
    every = show_all_attention(models, TEXT, "a bridge").attention["models"]
    for (_, model), each in zip(models, every, strict=True):
        alone = show_all_attention([(None, model)], TEXT, "a bridge").attention
        assert {name: each[name] for name in alone} == alone


def test_models_are_side_by_side_in_the_terminal_if_they_fit(one_way):
    models = [(name, library.load(one_way / name)) for name in ("bidirectional", "causal")]
    (table,) = show_attention(models, "the river").tables
    assert table.headings == ("", "bidirectional", "", "causal", "")
    assert [row[1] for row in table.rows] == [row[3] for row in table.rows] == ["[CLS]", "the", "river", "[SEP]"]
    assert [len(row[4].rstrip()) <= place + 1 for place, row in enumerate(table.rows)] == [True] * 4
    models.append(("again", models[0][1]))
    below = show_attention(models, f"{TEXT} {TEXT} {TEXT}").tables
    assert [table.title for table in below] == ["bidirectional", "causal", "again"]


def test_models_of_other_vocabularies_are_compared_by_position(one_way, tmp_path):
    saved_gpt(tmp_path / "gpt")
    models = [("bidirectional", library.load(one_way / "bidirectional")), ("gpt", library.load(tmp_path / "gpt"))]
    (table,) = show_attention(models, "the river").tables
    assert table.rows[-1][1:3] == ("", "") and table.rows[-1][3]


def test_a_layer_that_one_of_the_models_lacks(one_way, tiny_run):
    models = [("one", library.load(one_way / "bidirectional")), ("other", library.load(tiny_run))]
    with pytest.raises(ValueError, match="other: the layer"):
        show_attention(models, TEXT, layer=2)


def test_the_page_of_several_models(hornbook, one_way, tmp_path):
    file = tmp_path / "page.html"
    said = hornbook("show", "attention", one_way / "bidirectional", one_way / "causal", TEXT, "--html", file, "--json")
    assert [each["direction"] for each in said.answer["attention"]["models"]] == ["bidirectional", "causal"]
    page = file.read_text(encoding="utf-8")
    for words in ('id="layer-1"', 'id="head-2"', f"{one_way / 'causal'}</h3>", "left to right"):
        assert words in page, words
    assert 'id="layer"' not in page and "http" not in page


def test_several_models_before_the_texts(tmp_path):
    folder = str(tmp_path)
    assert split_models(["one two"]) == ([], "one two", None)
    assert split_models(["m", "two"]) == (["m"], "two", None)
    assert split_models(["en", "one", "two"]) == (["en"], "one", "two")
    assert split_models(["en", "en"]) == (["en"], "en", None)
    assert split_models(["en", folder, "one"]) == (["en", folder], "one", None)
    assert split_models(["m", "en", "runs/x", "one", "two"]) == (["m", "en", "runs/x"], "one", "two")
    with pytest.raises(ValueError, match="'The' is neither a folder nor a built-in model"):
        split_models(["en", folder, "The", "cat", "sat"])
    with pytest.raises(ValueError, match="the text is empty"):
        split_models(["en", folder, " "])
