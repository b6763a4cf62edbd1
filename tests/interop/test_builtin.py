"""The models inside the package: their size, when they are used, and what is made from them."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoTokenizer

import hornbook as library
from hornbook.files import read_json
from hornbook.interop.folder import load_folder, load_model, save_model
from hornbook.interop.hub import BUILTIN_MODELS, builtin_for, builtin_names, model_folder

LIMIT = 16_000_000  # bytes
TEXTS = [("A charming journey.", "good"), ("Dull and far too long.", "bad"), ("It made me smile.", "good")]


@pytest.fixture
def reviews(tmp_path):
    file = tmp_path / "reviews.csv"
    rows = [f"{text} {number},{label}" for number in range(8) for text, label in TEXTS]
    file.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return file


@pytest.mark.parametrize("name", builtin_names())
def test_size_and_card(name):
    folder = model_folder(name)
    assert sum(file.stat().st_size for file in folder.iterdir()) <= LIMIT
    card = (folder / "README.md").read_text(encoding="utf-8")
    assert all(f"## {title}" in card for title in ("Data", "Training", "Scores", "Limits"))


def test_int8_weights_are_within_half_a_step_of_the_floats(tmp_path, tiny_run):
    model, tokenizer = load_folder(tiny_run)
    tokenizer.save(tmp_path)
    save_model(tmp_path, model, weights="int8")
    stored, again = load_file(tmp_path / "model.safetensors"), load_model(tmp_path)
    assert {value.dtype for value in stored.values()} == {torch.int8, torch.float32}
    for name, weight in model.state_dict().items():
        difference = (again.state_dict()[name] - weight).abs()
        if weight.dim() == 2:
            step = weight.abs().amax(-1, keepdim=True) / 127
            assert (difference <= step * 0.501).all() and difference.any(), name
        else:
            assert not difference.any(), name


def test_damaged_scales_are_refused(tmp_path, tiny_run):
    save_model(tmp_path, load_folder(tiny_run)[0], weights="int8")
    stored = load_file(tmp_path / "model.safetensors")
    name = next(each for each in stored if each.endswith(".scale"))
    save_file(stored | {name: stored[name][:-1]}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"is damaged .* copy it again"):
        load_model(tmp_path)
    del stored[name]
    save_file(stored, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match=r"is torch\.int8, not floating point"):
        load_model(tmp_path)


def test_a_saved_copy_is_an_ordinary_folder(tmp_path):
    """`transformers` computes the same hidden states from it."""
    ours = library.load()
    ours.save(tmp_path)
    theirs, tokenizer = AutoModel.from_pretrained(tmp_path).eval(), AutoTokenizer.from_pretrained(tmp_path)
    text = "The museum is open to the public."
    with torch.no_grad():
        expected = theirs(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
    assert np.abs(ours.embed([text], pooling="mean")[0] - expected.numpy()).max() < 1e-4


@pytest.mark.parametrize(
    ("text", "name"),
    [("Das ist gut.", "en"), ("A déjà vu.", "en"), ("123 !", "en"), ("", "en"), ("땅을 파다", "ko"), ("삽 a", "ko")],
)
def test_chosen_by_the_script_of_the_text(text, name):
    assert builtin_for([text]) == name


@pytest.mark.parametrize("text", ["земля", "大地"])
def test_a_script_that_no_model_knows_is_refused(text):
    with pytest.raises(ValueError, match="the built-in models are for English and Korean: name a model"):
        builtin_for([text])


def test_a_model_folder_of_the_same_name_is_preferred(tmp_path, monkeypatch):
    (tmp_path / "en").mkdir()
    monkeypatch.chdir(tmp_path)
    assert model_folder("en") == BUILTIN_MODELS / "en"  # a folder of texts
    (tmp_path / "en" / "config.json").write_text("{}")
    assert model_folder("en").resolve() == tmp_path / "en"


def test_masks_are_filled_in_without_a_model_name(hornbook):
    said = hornbook("fill-mask", "The book was [MASK] in 1998.", "--json")
    assert said.answer["masks"][0][0]["word"] == "published"
    assert hornbook("fill-mask", "en", "The book was [MASK] in 1998.", "--json").answer == said.answer
    assert "quote texts" in hornbook("fill-mask", "The", "book", "was").error


def test_replaced_words_are_found_without_a_model_name(hornbook):
    assert "[two]" in hornbook("detect", "The museum is open two the public.", "--json").answer["marked"]


def test_features_without_a_model_name(hornbook, tmp_path):
    (tmp_path / "texts.txt").write_text("One text.\nAnother.\n", encoding="utf-8")
    said = hornbook("features", tmp_path / "texts.txt", "--out", tmp_path / "x.npy", "--layers", "last", "--json")
    assert said.answer["texts"] == 2 and np.load(tmp_path / "x.npy").shape == (2, 320)


def test_finetune_without_a_model_name(hornbook, tmp_path, reviews):
    words = ("finetune", "--data", reviews, "--out", tmp_path / "run", "--set", "epochs=1", "--batch-size", 8)
    said = hornbook(*words)
    assert said.status == 0 and "no model is named: fine-tuning the built-in model 'en'" in said.out
    record = read_json(tmp_path / "run" / "run.json")
    assert record["model"] == record["request"]["model"] == "en"
    assert load_file(tmp_path / "run" / "model.safetensors")[
        "electra.embeddings.word_embeddings.weight"
    ].dtype.is_floating_point
    assert hornbook(*words, "--resume").status == 0
    assert "en" in hornbook("finetune", "bert-base", *words[1:], "--resume").error
    assert hornbook("predict", tmp_path / "run", "A charming journey.", "--json").answer["predictions"][0]["label"]


def test_what_finetune_would_do_without_a_model_name(hornbook, reviews):
    assert hornbook("finetune", "--data", reviews, "--dry-run", "--json").answer["training"]["seconds"] > 0
    assert hornbook("finetune", "--data", reviews, "--show").status == 0
    assert "name a GPT" in hornbook("finetune", "--task", "text", "--data", reviews, "--out", "x").error


def test_korean_is_read_by_the_korean_model(hornbook):
    text = "나는 도서관에서 [MASK]을 읽었다."
    said = hornbook("fill-mask", text, "--json")
    assert "글" in [each["word"] for each in said.answer["masks"][0]]
    assert hornbook("fill-mask", "ko", text, "--json").answer == said.answer
    words = library.load("ko").detect("이 소설은 1998년에 먹었다.")
    assert max(words, key=lambda each: each.probability).word == "먹었다"


def test_a_detected_word_has_its_last_accent_though_the_tokenizer_drops_it():
    text = "We went to the cafe\u0301."
    words = library.load("en").detect(text)
    found = [text[each.start : each.end] for each in words]
    assert found == [each.word for each in words] and found[-2:] == ["cafe\u0301", "."]
