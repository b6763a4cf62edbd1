import json

import numpy as np
import pytest
from safetensors.numpy import save_file
from synthetic_runs import train_lines, validation_lines

import hornbook
from hornbook.report.info import describe

CONFIG = {
    "model_type": "bert",
    "architectures": ["BertForPreTraining"],
    "num_hidden_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 4,
    "vocab_size": 1200,
}


def words(path):
    return dict(describe(path)["lines"])


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def test_a_run(make_run):
    folder = make_run(train_lines(1000) + validation_lines(1000), steps=3000)
    found = describe(folder)
    assert found["kind"] == "run" and not found["finished"]
    assert (found["step"], found["num_steps"], found["parameters"]) == (1000, 3000, 11_171_074)
    said = words(folder)
    assert said["state"] == "not finished: step 1,000 of 3,000"
    assert said["best validation"].startswith("3.791 at step 1,000 (mlm 3.501")
    assert said["unigram baseline"] == "mlm 6.610"
    assert said["to resume"].endswith("--resume")
    assert len([label for label, _ in found["lines"] if label == "data"]) == 2


def test_runs_that_differ_in_recipe_and_seed_are_told_apart(tiny_run):
    said, record = words(tiny_run), json.loads((tiny_run / "run.json").read_text())
    assert (said["recipe"], said["seed"]) == (record["recipe"], str(record["settings"]["runtime"]["seed"]))
    assert said["planned FLOPs"] == f"{record['planned_flops']:.3g}"
    assert describe(tiny_run)["title"] == f"bert-tiny, {said['recipe']} recipe, seed {said['seed']}"


def test_a_run_on_the_order_of_sentences(make_run):
    said = words(make_run(train_lines(1000, sentence="sop") + validation_lines(1000, sentence="sop")))
    assert said["best validation"].endswith("sop 0.290, mlm accuracy 41.7%, sop accuracy 88.0%)")


def test_a_run_before_its_first_step(make_run):
    said = words(make_run())
    assert said["state"] == "not finished: step 0 of 3,000" and said["last validation"] == "none yet"


def test_a_corpus(tmp_path):
    manifest = {
        "vocab_size": 8000,
        "totals": {"documents": 12, "sentences": 340, "tokens": 5_500_000, "mentions": 70, "bytes_read": 20_000_000},
        "shards": [{}, {}],
        "sources": {"files": 1, "bytes": 100},
        "problems": {"nul_character": {"count": 3, "what": "NUL characters, removed"}},
        "repeated_lines": {"repeated_share": 0.125},
    }
    write(tmp_path / "manifest.json", manifest)
    np.save(tmp_path / "shard-00000.tokens.npy", np.zeros(500, np.uint16))
    said = words(tmp_path)
    assert (said["documents"], said["tokens"], said["mentions"]) == ("12", "5.50 million", "70")
    assert said["repeated lines"] == "12.5%"
    assert said["size"] == "1.1 kB in 2 shards" and said["problem"] == "3 NUL characters, removed"
    write(tmp_path / "manifest.json", {"files": []})
    with pytest.raises(ValueError, match="is not a corpus"):
        describe(tmp_path)


def test_a_corpus_whose_building_was_interrupted(tmp_path):
    request = {"sources": {"files": 1, "bytes": 4_000_000}}
    write(
        tmp_path / "progress.json", {"shards": [{}], "totals": {"tokens": 77}, "bytes_read": 10**6, "request": request}
    )
    write(tmp_path / "tokenizer.json", {})
    said = words(tmp_path)
    assert said["so far"] == "77 tokens in 1 shard" and said["read"] == "1.0 MB of 4.0 MB"
    assert "again" in said["to resume"]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_model(tmp_path, sharded):
    write(tmp_path / "config.json", CONFIG)
    tensors = {"a": np.zeros((1200, 8), np.float32), "b": np.zeros(8, np.float16)}
    if sharded:
        for name, tensor in tensors.items():
            save_file({name: tensor}, tmp_path / f"{name}.safetensors")
        names = {name: f"{name}.safetensors" for name in tensors}
        write(tmp_path / "model.safetensors.index.json", {"weight_map": names})
    else:
        save_file(tensors, tmp_path / "model.safetensors")
    found = describe(tmp_path)
    assert (found["kind"], found["parameters"], found["num_tensors"]) == ("model", 9608, 2)
    assert (found["num_layers"], found["width"], found["num_heads"]) == (2, 8, 4)
    said = words(tmp_path)
    assert said["class"] == "BertForPreTraining" and said["vocabulary"] == "1,200"
    assert said["tokenizer"] == "not included"


def test_the_scales_of_int8_weights_are_no_parameters():
    assert describe("en")["parameters"] == sum(each.numel() for each in hornbook.load("en").model.parameters())


@pytest.mark.parametrize(("overrides", "longest"), [({}, 512), ({"pad_token_id": 0}, 513)])
def test_the_positions_of_a_roberta(tmp_path, overrides, longest):
    """Of its 514 rows those before the first token's are no positions."""
    write(tmp_path / "config.json", CONFIG | {"model_type": "roberta", "max_position_embeddings": 514} | overrides)
    save_file({"weight": np.zeros((2, 2), np.float32)}, tmp_path / "model.safetensors")
    assert describe(tmp_path)["max_positions"] == longest


def test_a_model_that_is_not_whole(tmp_path):
    write(tmp_path / "config.json", CONFIG)
    with pytest.raises(ValueError, match=r"no model\.safetensors"):
        describe(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\x10\x00")
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        describe(tmp_path)


@pytest.mark.parametrize("vocabulary", [{"[PAD]": 0, "a": 1, "b": 2}, [["[PAD]", 0.0], ["a", -1.0], ["b", -2.0]]])
def test_a_tokenizer(tmp_path, vocabulary):
    added = [{"id": 0, "content": "[PAD]", "special": True}, {"id": 3, "content": "new", "special": False}]
    write(tmp_path / "tokenizer.json", {"model": {"type": "WordPiece", "vocab": vocabulary}, "added_tokens": added})
    found = describe(tmp_path)
    assert (found["kind"], found["vocab_size"], found["special_tokens"]) == ("tokenizer", 4, ["[PAD]"])
    assert words(tmp_path)["method"] == "WordPiece"


def test_what_is_nothing_of_these_is_refused_in_one_sentence(tmp_path):
    with pytest.raises(ValueError, match="does not exist"):
        describe(tmp_path / "nowhere")
    with pytest.raises(ValueError, match=r"has none of run\.json"):
        describe(tmp_path)
    for name in ("book.txt", "book.jsonl.gz"):
        (tmp_path / name).write_text("Once upon a time.")
        with pytest.raises(ValueError, match=r"is a text file: .* 'hornbook corpus build'"):
            describe(tmp_path / name)
    (tmp_path / "reviews.csv").touch()
    with pytest.raises(ValueError, match=r"is a table, .*'hornbook check .*reviews\.csv'"):
        describe(tmp_path / "reviews.csv")
    (tmp_path / "model.bin").touch()
    with pytest.raises(ValueError, match="pass its folder"):
        describe(tmp_path / "model.bin")


@pytest.mark.parametrize(
    "name",
    [
        *("run.json", "manifest.json", "progress.json", "config.json", "tokenizer.json"),
        "comparison.json",
    ],
)
@pytest.mark.parametrize("content", [b'{"cut', b"[1, 2]", b"\xff\xfe"])
def test_damaged_files_are_named(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=name.replace(".", r"\.")) as caught:
        describe(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", '{"command": "probe", "request": []}'),
        ("comparison.json", '{"rows": []}'),
        ("run.json", '{"command": "reproduce", "flops": 1}'),
        ("run.json", '{"command": "prompt"}'),
    ],
)
def test_files_that_something_else_wrote_are_named(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=f"{name} is damaged .*: restore it, or create the folder again"):
        describe(tmp_path)
