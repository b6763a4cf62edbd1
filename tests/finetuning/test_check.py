"""What data holds, before it is trained on: `check`, `finetune --dry-run`, and the lines that open a fine-tuning."""

import json

import pytest
import rules

import hornbook as library
from hornbook.runs.finetuning.finetune import finetune

ROWS = [
    *({"id": i, "text": f"the lamp {i}", "label": "light", "price": 3} for i in range(6)),
    *({"id": i, "text": f"the apple {i} and more", "label": "fruit", "price": 3} for i in range(6, 10)),
    {"id": 10, "text": "the lamp 0", "label": "light", "price": 3},
    {"id": 11, "text": "nothing", "label": "", "price": 3},
    {"id": 12, "text": "", "label": "light", "price": 3},
]
DEV = [{"text": "The  lamp 3", "label": "light"}, {"text": "a pear", "label": "fruit"}]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    return rules.random_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture
def data(tmp_path):
    for name, rows in (("train", ROWS), ("dev", DEV)):
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_check_counts_what_the_data_holds(hornbook, data):
    found = hornbook("check", data, "--json").answer
    train, dev = found["splits"]["train"], found["splits"]["dev"]
    assert (train["examples"], train["duplicates"], found["left_out"]) == (11, 1, {"no_label": 1, "empty_text": 1})
    assert (dev["examples"], dev["also_in_train"]) == (2, 1)
    assert found["classes"] == {"fruit": {"train": 4, "dev": 1}, "light": {"train": 7, "dev": 1}}
    assert found["columns"] == {"id": "key", "text": "text", "label": "label", "price": None}
    assert train["characters"] == {"min": 10, "median": 10, "p95": 20, "max": 20}
    assert "training" not in found


def test_check_prints_tables(hornbook, data):
    said = hornbook("check", data)
    lines = [line.split() for line in (said.out + said.error).splitlines()]
    for line in (["price", "not", "used"], ["light", "7", "1"], ["label", "train", "dev"]):
        assert line in lines, line
    assert "1 of 2 examples of dev are also in train, such as 'The  lamp 3'" in said.out + said.error
    assert "examples without a label" in said.out + said.error


@pytest.mark.parametrize(
    ("task", "rows", "classes"),
    [
        ("regression", [{"text": f"a {i}", "score": i} for i in range(10)], None),
        ("tagging", [{"words": ["Ada", "ran"], "tags": ["B-PER", "O"]}] * 10, {"O": 10, "B-PER": 10, "I-PER": 0}),
        ("choice", [{"context": "a", "choices": ["b", "c"], "label": i % 2} for i in range(10)], {"choice 1": 5}),
        ("multi-label", [{"text": f"a {i}", "label": "x|y" if i % 2 else "x"} for i in range(10)], {"x": 10, "y": 5}),
        (
            "spans-or-none",
            [{"question": "q", "passage": f"b {i}", "answer": "b" if i % 2 else ""} for i in range(10)],
            {"answer": 5, "no answer": 5},
        ),
    ],
)
def test_every_kind_of_task_can_be_checked(task, rows, classes):
    found = library.check(rows, task)
    if classes is None:
        assert found["numbers"] == {"min": 0, "mean": 4.5, "max": 9}
    else:
        totals = {label: sum(each.values()) for label, each in found["classes"].items()}
        assert totals | classes == totals


def test_a_dry_run_measures_and_writes_nothing(hornbook, data, encoder, tmp_path):
    words = ("finetune", encoder, "--data", data, "--out", tmp_path / "run", "--epochs", "2", "--batch-size", "4")
    found = hornbook(*words, "--dry-run", "--set", "runtime.threads=1", "--seeds", "3", "--json").answer
    assert not (tmp_path / "run").exists()
    assert found["training"]["steps"] == 6 and found["training"]["runs"] == 3
    assert found["training"]["seconds"] >= 3 * 6 * found["training"]["seconds_per_step"] > 0
    assert "measured steps on CPU" in found["training"]["based_on"]
    assert found["tokens"]["train"]["max"] > 3 and found["tokens"]["train"]["total"] > 33
    said = hornbook(*words, "--dry-run", "--set", "runtime.threads=1")
    assert "expected training time: " in said.out + said.error and "measured steps" in said.out + said.error


def test_a_fine_tuning_opens_with_the_summary(data, encoder, tmp_path):
    said = []
    finetune(encoder, data, out=tmp_path / "run", epochs=1, overrides={"runtime.threads": 1}, log=said.append)
    (line,) = [words for words in said if words.startswith("data: ")]
    assert "train 11 examples, dev 2 examples; light 8, fruit 5" in line
    assert any("1 of 2 examples of dev are also in train" in words for words in said)


def test_texts_that_the_vocabulary_cannot_write_get_a_note(encoder, tmp_path):
    said, rows = [], [{"text": "법원은 항소를", "label": "a"}, {"text": "영화가 좋다", "label": "b"}] * 4
    overrides = {"runtime.threads": 1}
    finetune(encoder, rows, "classification", tmp_path / "run", epochs=1, overrides=overrides, log=said.append)
    assert any("unknown to the model: choose one for this language" in words for words in said)


def test_columns_of_a_known_data_set_have_no_roles_to_check(hornbook, tmp_path):
    for split in ("train", "dev"):
        (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n" + "good\t1\nbad\t0\n" * 4)
    ran = hornbook("check", tmp_path, "--task", "sst-2", "--json")
    assert ran.answer["columns"] == {} and ran.answer["splits"]["train"]["examples"] == 8


def test_data_that_cannot_be_read_as_asked_is_named(hornbook, tmp_path):
    (tmp_path / "random.csv").write_bytes(bytes(7 * i * i % 256 for i in range(1, 3000)))
    assert "random.csv is not a text file" in hornbook("check", tmp_path / "random.csv").error
    rows = "document,label\n" + "이 영화는 정말 좋다,긍정\n이 영화는 별로다,부정\n" * 5
    (tmp_path / "korean.csv").write_bytes(rows.encode("cp949"))
    error = hornbook("check", tmp_path / "korean.csv", "--encoding", "utf-8").error
    assert "korean.csv are not UTF-8: leave out --encoding, or give --encoding cp949" in error
    error = hornbook("check", tmp_path / "korean.csv", "--delimiter", ";").error
    assert "korean.csv has no delimiter semicolon: leave out --delimiter, or give the one that it has (comma)" in error


def test_one_class_is_noted_as_finetune_refuses_it(hornbook, tmp_path):
    (tmp_path / "one.csv").write_text("text,label\n" + "".join(f"film {i},good\n" for i in range(9)))
    out = hornbook("check", tmp_path / "one.csv").out
    assert "(1 class)" in out and "has the label 'good', so finetune refuses the data: add examples" in out


def test_check_and_finetune_note_the_same_of_the_labels(hornbook, encoder, tmp_path):
    lines = "".join(f"film {n},{'n/a' if n % 16 == 0 else 'good'}\n" for n in range(64))
    (tmp_path / "films.csv").write_text("text,label\n" + lines)
    noted = []
    finetune(
        encoder,
        tmp_path / "films.csv",
        out=tmp_path / "run",
        epochs=1,
        overrides={"runtime.threads": 1},
        log=noted.append,
    )
    out = hornbook("check", tmp_path / "films.csv").out.splitlines()
    for start in ("note: 'n/a' (4 rows)", "note: dev has only 6", "note: 94% of the training examples"):
        assert any(line.startswith(start) for line in noted) and any(line.startswith(start) for line in out), start


def test_check_without_a_model_logs_what_was_inferred(data):
    logged = []
    library.check(data, log=logged.append)
    assert any(line.startswith("columns: text = 'text'") for line in logged)
    assert any("the label is empty" in line for line in logged)


def test_a_single_file_that_is_named_as_a_test_split(encoder, data, tmp_path):
    path = (data / "train.jsonl").rename(data / "my_test.jsonl")
    with pytest.raises(ValueError, match=r"my_test.jsonl is read as the test split because of its name: rename it"):
        finetune(encoder, path, out=tmp_path / "run", log=[].append)
