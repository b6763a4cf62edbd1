"""Frozen features equal the hidden states of `transformers`, and every text has its row."""

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import small_gpts
import torch
import transformers

import hornbook
from hornbook import files
from hornbook.batch import pack
from hornbook.inference import features
from hornbook.inference.features import choose_layers, extract_features
from hornbook.interop.folder import load_model, save_model
from hornbook.models.bert import Bert, BertConfig
from hornbook.text.tokenizer import Tokenizer

TEXTS = ["the river and the bridge", "silver bread", "a", "the teacher of the harbour and the children of the garden"]
LONGEST = 24


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory, tiny_tokenizer):
    """Six blocks with norms and biases away from 1 and 0, so that no two layers are alike."""
    folder = tmp_path_factory.mktemp("features") / "model"
    tokenizer = Tokenizer.load(tiny_tokenizer)
    size = {"num_layers": 6, "width": 16, "num_heads": 2, "inner_width": 32, "max_positions": LONGEST}
    model = Bert(BertConfig(vocab_size=tokenizer.vocab_size, **size), heads=("pooler",))
    model.initialize(torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    tokenizer.save(folder, LONGEST)
    save_model(folder, model)
    return folder


@pytest.fixture(scope="module")
def theirs(model_folder):
    """For each text the hidden states of `transformers`, layers x tokens x width."""
    model = transformers.AutoModel.from_pretrained(model_folder, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(model_folder)

    def states(text: str) -> np.ndarray:
        with torch.no_grad():
            found = model(**tokenizer(text, return_tensors="pt"), output_hidden_states=True).hidden_states
        return torch.stack(found)[:, 0].numpy()

    return [states(text) for text in TEXTS]


def test_hidden_states_equal_those_of_transformers(model_folder, theirs):
    tokenizer = Tokenizer.load(model_folder)
    model = load_model(model_folder)
    batch = pack([np.array(tokenizer.encode(text).ids) for text in TEXTS])
    with torch.no_grad():
        ours = model.hidden_states(batch)
        last = model(batch)
    assert len(ours) == 7
    for number, layer in enumerate(ours):
        expected = np.concatenate([states[number] for states in theirs])
        np.testing.assert_allclose(layer.numpy(), expected, atol=1e-5)
    assert torch.equal(ours[-1], last)


@pytest.mark.parametrize(
    ("layers", "numbers"),
    [("last", [6]), ("last4", [3, 4, 5, 6]), ("all", [1, 2, 3, 4, 5, 6]), ("embeddings", [0]), ("1,0,-2", [1, 0, 5])],
)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_one_vector_a_text(tmp_path, model_folder, theirs, layers, numbers, pooling):
    done = extract_features(model_folder, TEXTS, tmp_path / "X.npy", layers=layers, pooling=pooling)
    found = np.load(tmp_path / "X.npy")
    tokens = [np.concatenate(states[numbers], -1) for states in theirs]
    expected = np.stack([each[0] if pooling == "cls" else each.mean(0) for each in tokens])
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32
    assert (done.num_texts, done.num_rows, done.width, done.num_truncated) == (4, 4, 16 * len(numbers), 0)
    assert [path.name for path in tmp_path.iterdir()] == ["X.npy"]


def test_the_mean_of_layers(tmp_path, model_folder, theirs):
    extract_features(model_folder, TEXTS, tmp_path / "X.npy", layers="mean-last4")
    expected = np.stack([states[3:7].mean(0)[0] for states in theirs])
    np.testing.assert_allclose(np.load(tmp_path / "X.npy"), expected, atol=1e-5)


def test_every_token(tmp_path, model_folder, theirs, monkeypatch):
    monkeypatch.setattr(features, "TEXTS_AT_ONCE", 3)
    monkeypatch.setattr(features, "BATCH_TOKENS", 8)
    extract_features(model_folder, TEXTS, tmp_path / "X", layers="last", pooling="none")
    rows, offsets = np.load(tmp_path / "X.npy"), np.load(tmp_path / "X.offsets.npy")
    assert offsets.tolist() == np.cumsum([0, *(states.shape[1] for states in theirs)]).tolist()
    for number, states in enumerate(theirs):
        np.testing.assert_allclose(rows[offsets[number] : offsets[number + 1]], states[-1], atol=1e-5)
    extract_features(model_folder, TEXTS, tmp_path / "X", layers="last")
    assert not (tmp_path / "X.offsets.npy").exists()  # of the file that was there before


def test_texts_keep_their_order_over_many_groups(tmp_path, model_folder, monkeypatch, random):
    monkeypatch.setattr(features, "TEXTS_AT_ONCE", 50)
    monkeypatch.setattr(features, "BATCH_TOKENS", 64)
    words = ["the", "a", "of", "and", "river", "teacher", "lantern", "bridge"]
    texts = [" ".join(random.choice(words, random.integers(0, 12))) for _ in range(200)]
    seen = []
    extract_features(model_folder, texts, tmp_path / "X.npy", layers="last", on_progress=lambda *at: seen.append(at))
    expected = hornbook.load(model_folder).embed(texts, "cls")
    np.testing.assert_allclose(np.load(tmp_path / "X.npy"), expected, atol=1e-5)
    assert seen[0][0] < 200
    assert seen[-1] == (200, 200)


def test_long_texts_are_cut_and_counted(tmp_path, model_folder):
    done = extract_features(model_folder, ["the river " * 50, "a"], tmp_path / "X.npy", pooling="none")
    assert done.num_truncated == 1
    assert np.diff(np.load(tmp_path / "X.offsets.npy")).tolist() == [LONGEST, 3]


def test_lines_of_a_file_each_have_a_row(tmp_path, model_folder):
    file = tmp_path / "texts.txt"
    file.write_text("the river\n\nthe bridge\n", encoding="utf-8")
    done = extract_features(model_folder, file, tmp_path / "X.npy")
    assert np.load(tmp_path / "X.npy").shape == (3, 64)
    assert done.problems.count("kept_empty_text") == 1


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
def test_tables(tmp_path, model_folder, kind):
    file = tmp_path / f"texts.{kind}"
    rows = {"id": ["7", "8"], "review": ["the river", "silver bread"], "stars": ["1", "5"]}
    if kind == "parquet":
        pyarrow.parquet.write_table(pyarrow.table(rows), file)
    elif kind == "jsonl":
        file.write_text('{"review": "the river", "stars": 1}\n{"review": "silver bread", "stars": 5}\n')
    else:
        mark = "," if kind == "csv" else "\t"
        lines = [list(rows), *zip(*rows.values(), strict=True)]
        file.write_text("".join(mark.join(line) + "\n" for line in lines))
    done = extract_features(model_folder, file, tmp_path / "X.npy", layers="last")
    expected = hornbook.load(model_folder).embed(["the river", "silver bread"], "cls")
    np.testing.assert_allclose(np.load(tmp_path / "X.npy"), expected, atol=1e-5)
    assert done.messages[0] == "columns: text = 'review'"  # labels play no part
    assert not done.problems.to_dict()


def test_a_broken_row_has_its_row_all_the_same(tmp_path, model_folder):
    file = tmp_path / "texts.csv"
    file.write_text("text,label\nthe river,1\nonly one field\nsilver bread,0\n")
    done = extract_features(model_folder, file, tmp_path / "X.npy", layers="last")
    expected = hornbook.load(model_folder).embed(["the river", "only one field", "silver bread"], "cls")
    np.testing.assert_allclose(np.load(tmp_path / "X.npy"), expected, atol=1e-5)
    assert done.problems.count("kept_bad_row") == 1


def test_pairs_are_read_together(tmp_path, model_folder):
    file = tmp_path / "pairs.csv"
    file.write_text("sentence1,sentence2\nthe river,a bridge\n")
    extract_features(model_folder, file, tmp_path / "X.npy", layers="last", pooling="none")
    encoded = Tokenizer.load(model_folder).encode("the river", "a bridge")
    with torch.no_grad():
        expected = load_model(model_folder)(pack([np.array(encoded.ids)], [np.array(encoded.segments)]))
    np.testing.assert_allclose(np.load(tmp_path / "X.npy"), expected.numpy(), atol=1e-5)


def test_nothing_is_left_where_it_fails(tmp_path, model_folder, monkeypatch):
    def fails(*_):
        raise OSError("the cable fell out")

    monkeypatch.setattr(features, "frozen_states", fails)
    with pytest.raises(OSError, match="cable"):
        extract_features(model_folder, TEXTS, tmp_path / "X.npy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"layers": "fist"}, "last4"),
        ({"layers": "7"}, "0 .embeddings. to 6"),
        ({"layers": "last0"}, "last4"),
        ({"pooling": "max"}, "cls, lasttoken, mean or none"),
        ({"texts": []}, "no texts"),
        ({"texts": "nowhere.csv"}, "no file"),
    ],
)
def test_bad_requests_say_what_to_do(tmp_path, model_folder, arguments, words):
    arguments = {"texts": TEXTS} | arguments
    with pytest.raises(ValueError, match=words):
        extract_features(model_folder, out=tmp_path / "X.npy", **arguments)


def test_output_too_large_for_the_disk_is_refused_first(tmp_path, model_folder, monkeypatch):
    monkeypatch.setattr(files.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 100}))
    with pytest.raises(ValueError, match="fewer layers"):
        extract_features(model_folder, TEXTS, tmp_path / "X.npy")


def test_a_small_model_has_fewer_than_four_layers():
    assert choose_layers("last4", 2).numbers == (1, 2)
    assert choose_layers("mean-1,2", 2) == ((1, 2), True)
    with pytest.raises(ValueError, match="the model has 2 layers, not 17: use last2, or all"):
        choose_layers("last17", 2)


def test_files_are_read_as_inputs_to_predict_are(tmp_path, model_folder):
    """A tab parts a pair; a label that is missing is nothing to be strict about, a text is."""
    (tmp_path / "pairs.txt").write_text("the river\ta bridge\nsilver\tbread\n")
    (tmp_path / "pairs.csv").write_text("text,pair,label\nthe river,a bridge,1\nsilver,bread,\n")
    for kind in ("txt", "csv"):
        extract_features(model_folder, tmp_path / f"pairs.{kind}", tmp_path / f"{kind}.npy", layers="last", strict=True)
    found = np.load(tmp_path / "txt.npy")
    np.testing.assert_array_equal(found, np.load(tmp_path / "csv.npy"))
    alone = extract_features(model_folder, ["the river\ta bridge"], tmp_path / "alone.npy", layers="last")
    assert not np.allclose(np.load(alone.out)[0], found[0], atol=1e-4)
    (tmp_path / "pairs.txt").write_text("the river\n\n")
    with pytest.raises(ValueError, match=r"pairs\.txt line 2: the line is empty"):
        extract_features(model_folder, tmp_path / "pairs.txt", tmp_path / "X.npy", strict=True)


def test_of_a_gpt_the_last_token_is_taken_which_alone_has_seen_the_text(tmp_path):
    theirs = small_gpts.saved_gpt(tmp_path / "gpt")
    texts = ["the river and the bridge", "the river and the bread", ""]
    extract_features(tmp_path / "gpt", texts, tmp_path / "X.npy", layers="last")
    found = np.load(tmp_path / "X.npy")
    with pytest.raises(ValueError, match="first token of a causal model attends to no other: give pooling='lasttoken'"):
        extract_features(tmp_path / "gpt", texts, tmp_path / "X.npy", layers="last", pooling="cls")
    tokenizer = small_gpts.byte_tokenizer()
    for vector, text in zip(found, texts, strict=True):
        ids = tokenizer.encode(text).ids or [tokenizer.eos_id]
        with torch.no_grad():
            states = theirs.transformer(torch.tensor([ids])).last_hidden_state[0]
        np.testing.assert_allclose(vector, states[-1].numpy(), atol=1e-4)
