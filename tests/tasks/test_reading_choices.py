"""Several choices, of which one is right."""

import pytest
from task_files import counts, first, lines, write

from hornbook.tasks.reading.read import read


def shown(examples):
    return [(each.context, each.beginning, each.choices, each.label) for each in examples]


def test_swag(tmp_path):
    header = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
    row = '0,lsmdc-1,18,He looks. She,He looks.,She,gold,"pats, then goes.",turns.,walks.,wheels.'
    write(
        tmp_path,
        train__csv=lines(f"{header},label", f"{row},2"),
        val__csv=lines(f"{header},label", f"{row},0"),
        test__csv=lines(header, row),
    )
    data = read("swag", tmp_path, strict=True)
    choices = ("pats, then goes.", "turns.", "walks.", "wheels.")
    assert shown(data.splits["train"]) == [("He looks.", "She", choices, 2)]
    assert data.splits["dev"][0].label == 0 and data.splits["test"][0].label is None


def commonsense(key, answer=None, num=5):
    choices = [{"label": "ABCDEFG"[n], "text": f"place {n}"} for n in range(num)]
    row = {"id": key, "question": {"question_concept": "door", "choices": choices, "stem": "Where is a door?"}}
    return {**row, "answerKey": answer} if answer else row


def test_commonsenseqa(tmp_path):
    write(
        tmp_path,
        train_rand_split__jsonl=lines(commonsense("a", "C")),
        dev_rand_split__jsonl=lines(commonsense("b", "A")),
        test_rand_split_no_answers__jsonl=lines(commonsense("c")),
    )
    data = read("csqa", tmp_path, strict=True)
    assert shown(data.splits["train"]) == [("Where is a door?", "", tuple(f"place {n}" for n in range(5)), 2)]
    assert [examples[0].key for examples in data.splits.values()] == ["a", "b", "c"]
    assert data.splits["test"][0].label is None and data.kind == "choice"


def test_codah(tmp_path):
    rows = [f'o\tI am {n}. "I\tone {n}\ttwo\tthree\tfour\t{n % 4}' for n in range(10)]
    write(tmp_path, full_data__tsv=lines(*rows))
    data = read("codah", tmp_path)
    assert (len(data.splits["train"]), len(data.splits["dev"])) == (8, 2)
    found = sorted(data.splits["train"] + data.splits["dev"], key=lambda each: int(each.key))
    assert shown(found)[3] == ('I am 3. "I', "", ("one 3", "two", "three", "four"), 3)


def test_codah_in_folds(tmp_path):
    row = "o\tI am\tone\ttwo\tthree\tfour\t1"
    write(tmp_path, **{f"{split}.tsv": lines(row) for split in ("train", "dev", "test")})
    assert {split: each[0].label for split, each in read("codah", tmp_path).splits.items()} == dict.fromkeys(
        ("train", "dev", "test"), 1
    )


@pytest.mark.parametrize(("label", "index"), [(1, 1), ("1", 1), ("B", 1), ("c", 2), ("blue", 2), (1.0, 1)])
def test_own_choices_and_labels(label, index):
    rows = [
        {"context": "The sky is", "ending0": "red", "ending1": "green", "ending2": "blue", "label": label},
        {"context": "Grass is", "ending0": "red", "ending1": "green", "ending2": "blue", "label": 0},
    ]
    data = read("choice", rows, held_out=0)
    assert shown(data.splits["train"])[0] == ("The sky is", "", ("red", "green", "blue"), index)
    assert data.messages[0] == "columns: context = 'context', label = 'label', choices = 'ending0, ending1, ending2'"


def test_own_lists_of_choices():
    rows = [{"question": "The sky is", "choices": ["red", "blue"], "answer": "blue"}]
    assert shown(read("choice", rows).splits["train"]) == [("The sky is", "", ("red", "blue"), 1)]
    rows[0]["choices"] = "['red', 'blue']"  # as data frames write it to CSV
    assert shown(read("choice", rows).splits["train"]) == [("The sky is", "", ("red", "blue"), 1)]
    rows[0]["choices"] = {"label": ["1", "2"], "text": ["red", "blue"]}
    rows[0]["answer"] = "1"
    assert read("choice", rows).splits["train"][0].label == 0


def test_labels_that_count_from_one():
    rows = [{"context": "c", "option_a": "x", "option_b": "y", "label": n} for n in (1, 2, 2)]
    data = read("choice", rows, held_out=0)
    assert [each.label for each in data.splits["train"]] == [0, 1, 1] and "from 1 to" in data.messages[1]


def test_labels_that_count_from_one_after_a_space(tmp_path):
    write(tmp_path, train__csv=lines("context,choice0,choice1,label", "c, x, y, 1", "d, x, y, 2"))
    data = read("choice", tmp_path, held_out=0)
    assert [each.label for each in data.splits["train"]] == [0, 1] and not counts(data)


def test_more_than_ten_choices_keep_their_order():
    row = {"context": "c", **{f"choice{n}": f"e{n}" for n in range(12)}, "label": 0}
    assert read("choice", [row], held_out=0).splits["train"][0].choices == tuple(f"e{n}" for n in range(12))


def test_bad_rows(tmp_path):
    good = {"context": "c", "choices": ["x", "y"], "label": 0}
    rows = [
        good,
        good,
        {**good, "choices": ["x"]},
        {**good, "choices": ["x", "y", "z"], "label": 2},
        {**good, "label": "w"},
        {**good, "label": None},
        {**good, "context": ""},
    ]
    write(tmp_path, train__jsonl=lines(*rows), dev__jsonl=lines(*rows, "{"))
    data = read("choice", tmp_path)
    dropped = {"bad_choices": 2, "bad_choice_label": 1, "no_label": 1, "empty_text": 1}
    assert counts(data) == {**dropped, **{f"kept_{kind}": num for kind, num in dropped.items()}, "kept_bad_json": 1}
    assert len(data.splits["train"]) == 2 and len(data.splits["dev"]) == 8
    assert {len(each.choices) for each in data.splits["dev"]} == {2}
    assert [each.label for each in data.splits["dev"]] == [0, 0, 0, None, None, None, 0, None]
    assert first(data, "bad_choices")["detail"] == "1 choices, but most rows have 2"
    with pytest.raises(ValueError, match=r"train.jsonl line 3"):
        read("choice", tmp_path / "train.jsonl", strict=True)


def test_no_choices():
    with pytest.raises(
        ValueError, match=r"no columns for the choices; name them choice0, choice1, .*columns are: context, label"
    ):
        read("choice", [{"context": "c", "label": 0}])
