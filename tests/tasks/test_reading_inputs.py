import json
import re

import pytest
from task_files import lines, question, squad, write

from hornbook.models.head_config import HeadConfig
from hornbook.tasks.kinds.choice import Choice
from hornbook.tasks.kinds.classification import Classification
from hornbook.tasks.kinds.spans import Spans
from hornbook.tasks.kinds.tagging import Tagging
from hornbook.tasks.reading.inputs import as_examples, read_input_rows
from hornbook.tasks.reading.tagging import words_of
from hornbook.tasks.spec import TaskSpec


def read_inputs(*arguments, **options):
    return [row.example for row in read_input_rows(*arguments, **options)]


def spec_of(name: str, **more) -> TaskSpec:
    tasks = {
        "spans": Spans(HeadConfig("spans", 2)),
        "tagging": Tagging(HeadConfig("tokens", 1, ("O",)), ("tag_accuracy",)),
        "choice": Choice(HeadConfig("choice"), 2),
    }
    kinds = {"squad": "spans", "conll2003": "tagging", "swag": "choice", "sts-b": "regression"}
    kind = kinds.get(name) or (name if name in tasks else "classification")
    task = tasks.get(kind) or Classification(HeadConfig("sequence", 2, ("0", "1")), ("accuracy",))
    return TaskSpec(name, task, **more)


def texts(examples) -> list[tuple]:
    return [(each.text, each.pair) for each in examples]


def test_every_line_is_an_input(tmp_path):
    write(tmp_path, a__txt="good\n\nbad, truly\n")
    assert texts(read_inputs(tmp_path / "a.txt", spec_of("classification"))) == [
        ("good", None),
        ("", None),
        ("bad, truly", None),
    ]
    write(tmp_path, a__txt="good\n\n")
    assert len(read_inputs(tmp_path / "a.txt", spec_of("classification"))) == 2
    write(tmp_path, b__txt=b"one\ttwo\r\nthree\r\n\tfour\r\n\r\nno\xffte\tx")
    said: list[str] = []
    found = texts(read_inputs(tmp_path / "b.txt", spec_of("sts-b"), log=said.append))
    assert found == [("one", "two"), ("three", ""), ("", "four"), ("", ""), ("no\ufffdte", "x")]
    assert any("not UTF-8" in words and "line 5" in words for words in said)
    write(tmp_path, c__txt="a\tb\nplain\nlines\nhere\n")
    assert texts(read_inputs(tmp_path / "c.txt", spec_of("classification")))[0] == ("a\tb", None)


def test_rows_of_tables_are_kept_whatever_is_wrong_with_them(tmp_path):
    write(tmp_path, a__csv="id,review,stars\n1,fine,5\n2,,4\n3,too,many,fields\n4,good,\n")
    said: list[str] = []
    found = read_inputs(tmp_path / "a.csv", spec_of("classification"), log=said.append)
    assert [each.text for each in found] == ["fine", "", "too,many", "good"]
    assert any(words.startswith("columns: text = 'review'") for words in said)
    assert any("line 4" in words and "4 fields" in words for words in said)
    write(tmp_path, b__jsonl=lines({"premise": "a", "hypothesis": "b"}, "{broken", {"premise": "c", "hypothesis": "d"}))
    assert texts(read_inputs(tmp_path / "b.jsonl", spec_of("mnli"))) == [("a", "b"), ("", ""), ("c", "d")]
    write(tmp_path, c__tsv="one\nfine\n\nwords here\n")
    assert [each.text for each in read_inputs(tmp_path / "c.tsv", spec_of("classification"))] == [
        "fine",
        "",
        "words here",
    ]
    write(tmp_path, d__csv="x,y\nfirst text,second text\n")
    assert texts(read_inputs(tmp_path / "d.csv", spec_of("classification"), text="y", pair="x")) == [
        ("second text", "first text")
    ]


def test_rows_with_too_few_or_too_many_fields_keep_their_text_where_it_is_clear(tmp_path):
    write(tmp_path, a__csv="id,review,stars\n1,fine,5\n2,slow, loud, but good,4\n3,short\n4\n\n6, ,1\n7,good,x\n")
    rows = read_input_rows(tmp_path / "a.csv", spec_of("classification"))
    assert [(row.example.text, row.problem, row.is_usable) for row in rows] == [
        ("fine", "", True),
        ("slow, loud, but good", "5 fields, expected 3", True),
        ("short", "2 fields, expected 3", True),
        ("", "1 fields, expected 3; the text is empty", False),
        ("", "the line is blank", False),
        ("", "the text is empty", False),
        ("good", "", True),
    ]
    assert rows[1].columns == {"id": "2", "review": "slow, loud, but good", "stars": "4"}
    assert rows[3].columns == {"id": "4", "review": "", "stars": ""} and list(rows[4].columns) == [
        "id",
        "review",
        "stars",
    ]


def test_of_a_pair_it_is_not_clear_which_text_a_delimiter_belongs_to(tmp_path):
    write(tmp_path, a__csv="text1,text2\na,b\na,b,c\na\n", b__tsv="text1\ttext2\na\tb\ta\n", c__txt="a\tb\n\n\tc\n")
    rows = read_input_rows(tmp_path / "a.csv", spec_of("mnli"))
    assert [row.is_usable for row in rows] == [True, False, False]
    assert [row.problem for row in rows][1:] == [
        "3 fields, expected 2",
        "1 fields, expected 2; the pair is empty",
    ]
    rows = read_input_rows(tmp_path / "c.txt", spec_of("mnli"))
    assert [(row.problem, row.columns) for row in rows] == [
        ("", {}),
        ("the text is empty", {}),
        ("the text is empty", {}),
    ]


def test_what_is_wrong_with_a_label_is_no_problem_of_an_input(tmp_path):
    write(tmp_path, a__csv="sentence1,sentence2,score\na,b,\nc,d,high\n")
    rows = read_input_rows(tmp_path / "a.csv", spec_of("sts-b"), strict=True)
    assert [row.problem for row in rows] == ["", ""]


@pytest.mark.parametrize(
    ("task", "name", "content", "problems"),
    [
        ("spans", "a.csv", "question,context\nwho,Ada\n,Ada\nwho,\n", ["the question is empty", "the passage is .*"]),
        ("tagging", "a.txt", "Ada said\n \n", ["there are no words"]),
        ("choice", "a.csv", "context,ending0,ending1\nA,b,c\n,a,b\nA\n", ["the context is empty", "1 fields, .*"]),
        ("classification", "a.jsonl", '{"text": "a"}\n[1]\n{"text": null}\n', ["a list, .*", "the text is empty"]),
    ],
)  # fmt: skip
def test_error_for_inputs_that_cannot_be_predicted_of_every_kind(tmp_path, task, name, content, problems):
    (tmp_path / name).write_text(content)
    rows = read_input_rows(tmp_path / name, spec_of(task))
    assert [row.is_usable for row in rows] == [True, *[False] * len(problems)] and not rows[0].problem
    for row, problem in zip(rows[1:], problems, strict=True):
        assert re.fullmatch(problem, row.problem)


def test_published_files_are_known(tmp_path):
    write(tmp_path, test__tsv='index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t1\t2\t"a\tb"\n1\t3\t4\tc\td\n')
    assert texts(read_inputs(tmp_path / "test.tsv", spec_of("mrpc"))) == [('"a', 'b"'), ("c", "d")]
    write(tmp_path, dev__tsv="gj04\t1\t\tThe sailors rode the breeze.\ngj04\t0\t*\tThe weights made.\n")
    found = read_inputs(tmp_path / "dev.tsv", spec_of("cola"))
    assert [each.text for each in found] == ["The sailors rode the breeze.", "The weights made."]
    write(tmp_path, mine__tsv="text\tnote\nmy own words\tx\n")
    assert [each.text for each in read_inputs(tmp_path / "mine.tsv", spec_of("cola"))] == ["my own words"]


def test_questions(tmp_path):
    articles = {"data": [squad(question("q1", ("Ada", 0)), {"id": "q2", "question": "What?"})]}
    write(tmp_path, a__json=json.dumps(articles), b__txt="who\tAda wrote\n", c__csv="question,context\nwho,Ada\n,\n")
    found = read_inputs(tmp_path / "a.json", spec_of("squad"))
    assert [(each.key, each.question) for each in found] == [("q1", "Who?"), ("q2", "What?")]
    assert [(each.question, each.passage) for each in read_inputs(tmp_path / "b.txt", spec_of("squad"))] == [
        ("who", "Ada wrote")
    ]
    assert [each.passage for each in read_inputs(tmp_path / "c.csv", spec_of("spans"))] == ["Ada", ""]
    write(tmp_path, d__txt="who\n")
    with pytest.raises(ValueError, match="separate the question and the passage by a tab on each line"):
        read_inputs(tmp_path / "d.txt", spec_of("squad"))


def test_a_table_that_is_called_a_text_is_no_pair_of_texts(tmp_path):
    (tmp_path / "a.txt").write_text("id\tdocument\tlabel\n1\tgood\t1\n2\tbad\t0\n")
    with pytest.raises(ValueError, match=r"a.txt has more than two texts .* on each line: .* rename it to .tsv"):
        read_inputs(tmp_path / "a.txt", spec_of("classification"))


def test_sentences(tmp_path):
    write(
        tmp_path,
        columns__txt="-DOCSTART- -X- O O\n\nAda NNP I-NP O\nsaid VBD I-VP O\n\nBath NNP I-NP O\n",
        text__txt="Ada said: no.\n\nBath\n",
        words__conll="Ada\nsaid\n\nBath\n",
        commented__txt="# sent_id = 1\n# text = Ada\nAda O\n# O\n\n# sent_id = 2\n#Bath O\n",
        rows__csv='text,id\n"Ada said: no.",1\n,2\n',
        lists__jsonl=lines({"tokens": ["New York", "is"]}, {"tokens": "as given ."}),
    )
    expected = {
        "columns.txt": [("Ada", "said"), ("Bath",)],
        "text.txt": [("Ada", "said", ":", "no", "."), (), ("Bath",)],
        "words.conll": [("Ada", "said"), ("Bath",)],
        "commented.txt": [("Ada", "#"), ("#Bath",)],
        "rows.csv": [("Ada", "said", ":", "no", "."), ()],
        "lists.jsonl": [("New York", "is"), ("as", "given", ".")],
    }
    for name, words in expected.items():
        assert [each.words for each in read_inputs(tmp_path / name, spec_of("conll2003"))] == words, name


def test_tags_in_a_file_are_read_as_bio(tmp_path):
    write(tmp_path, a__conll="Ada S-PER\nsaw O\nNew B-LOC\nYork E-LOC\n")
    (found,) = read_inputs(tmp_path / "a.conll", spec_of("conll2003"))
    assert found.tags == ("B-PER", "O", "B-LOC", "I-LOC")


def test_choices(tmp_path):
    write(tmp_path, a__csv="sent1,ending0,ending1\nShe,sat,ran\nHe,,x\n", b__txt="She\tsat\tran\tfell\n\n")
    found = read_inputs(tmp_path / "a.csv", spec_of("swag"))
    assert [each.choices for each in found] == [("sat", "ran"), ("", "x")]
    assert [each.choices for each in read_inputs(tmp_path / "b.txt", spec_of("choice"))] == [
        ("sat", "ran", "fell"),
        ("",),
    ]


def test_a_file_that_is_not_there_or_empty(tmp_path):
    with pytest.raises(ValueError, match="there is no file"):
        read_inputs(tmp_path / "none.txt", spec_of("classification"))
    with pytest.raises(ValueError, match="is a folder: give a file in it"):
        read_inputs(tmp_path, spec_of("classification"))
    for name in ("empty__txt", "empty__csv", "empty__jsonl"):
        write(tmp_path, **{name: ""})
        with pytest.raises(ValueError, match="contains no inputs"):
            read_inputs(tmp_path / name.replace("__", "."), spec_of("classification"))


def test_words_are_parted_from_the_marks_around_them():
    assert words_of("«Größe» (U.S.-made), naïve…") == ("«", "Größe", "»", "(", "U.S.-made", ")", ",", "naïve", "…")
    assert words_of("हिन्दी भाषा।") == ("हिन्दी", "भाषा", "।")
    assert words_of(" ?! ") == ("?", "!")


def test_a_table_in_memory_is_its_rows():
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"premise": ["a", None], "hypothesis": ["b", "c"]})
    assert texts(as_examples(table, "classification")) == [("a", "b"), ("", "c")]


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("a.csv", "text,pair\none,two\nthree\n", "line 3: 1 fields"),
        ("a.csv", "text,pair\none,two\n\nthree,four\n", "line 3: the line is blank"),
        ("a.csv", "text,label\n,1\n", "line 2: the text is empty"),
        ("a.jsonl", '{"text": "one"}\n{broken\n', "line 2: "),
        ("a.txt", "one\n\n", "line 2: the line is empty"),
        ("a.txt", "one\nt\udcffwo\n", "line 2: bytes that are not UTF-8"),
    ],
)
def test_strict_stops_at_the_first_bad_row(tmp_path, name, content, place):
    (tmp_path / name).write_bytes(content.encode(errors="surrogateescape"))
    assert read_inputs(tmp_path / name, spec_of("classification"), strict=False)
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path / name))} {place}"):
        read_inputs(tmp_path / name, spec_of("classification"), strict=True)


def test_a_missing_label_is_nothing_wrong_with_an_input(tmp_path):
    write(tmp_path, a__csv="text,label\none,1\ntwo,\n")
    said: list[str] = []
    found = read_inputs(tmp_path / "a.csv", spec_of("classification"), strict=True, log=said.append)
    assert [each.label for each in found] == ["1", None] and len(said) == 1


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv", "\t")])
def test_blank_lines_are_inputs_but_not_at_the_end(tmp_path, name, mark):
    rows = [f"text{mark}label", f"one{mark}1", "", f"two{mark}2", "", ""]
    (tmp_path / name).write_text("\n".join(rows) + "\n")
    said: list[str] = []
    found = read_inputs(tmp_path / name, spec_of("classification"), log=said.append)
    assert [each.text for each in found] == ["one", "", "two"]
    assert any("line 3 the line is blank" in words for words in said)


def test_a_choice_may_be_texts_in_a_row():
    (found,) = as_examples([("the river", "is wet", "sings", "reads")], "choice")
    assert (found.context, found.choices) == ("the river", ("is wet", "sings", "reads"))
    assert as_examples([["the river", "is wet", "sings"]], "choice")[0].choices == ("is wet", "sings")
    for item in (("the river", "is wet"), ("the river", "is wet", 3), ("the river",)):
        with pytest.raises(ValueError, match="input 1"):
            as_examples([item], "choice")


@pytest.mark.parametrize("items", [5, None])
def test_what_is_no_list_is_one_invalid_input(items):
    with pytest.raises(ValueError, match=r"input 1 \((5|None)\) is invalid: this model takes a text"):
        as_examples(items, "classification")


@pytest.mark.parametrize(
    ("kind", "item", "roles", "expected"),
    [
        ("spans", {"question": "Q", "paragraph": "P"}, ("question", "paragraph"), ("Q", "P")),
        ("spans", {"frage": "Q", "paragraph": "P"}, ("frage", "paragraph"), ("Q", "P")),
        ("choice", {"stem": "A", "start": "b", "choices": ["c", "d"]}, ("stem", "start"), ("A", "b", "c", "d")),
        ("classification", {"review": "R", "question": "Q", "context": "C"}, ("review", None), ("R",)),
        ("similarity", {"query": "Q", "answer": "A", "a": "one", "b": "two"}, ("a", "b"), ("one", "two")),
        ("classification", {"Sentence1": "A", "sentence2": "B"}, ("review", None), ("A", "B")),
    ],
)
def test_dictionaries_and_frames_are_read_like_files(kind, item, roles, expected):
    roles = {role: name for role, name in zip(("text", "pair"), roles, strict=True) if name}
    assert as_examples([item], kind, roles)[0].texts == expected
    frame = pytest.importorskip("pyarrow").Table.from_pylist([item])
    assert as_examples(frame, kind, roles)[0].texts == expected


def test_dictionaries_are_read_one_by_one():
    items = [{"text": "a", "pair": "b"}, {"text": "a", "pair": None}, {"text": None}, "c"]
    found = as_examples(items, "classification")
    assert texts(found) == [("a", "b"), ("a", None), ("", None), ("c", None)]
    assert [each.key for each in found] == ["0", "1", "2", "3"]
    rows = [{"context": "A", "choices": ["b", "c", "d"]}, {"context": "A", "choices": ["b", "c"]}]
    assert [len(each.choices) for each in as_examples(rows, "choice")] == [3, 2]
    frame = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    assert [len(each.choices) for each in as_examples(frame, "choice")] == [3, 2]
    for kind, item in (("similarity", {"text": "a"}), ("spans", {"question": "a"}), ("choice", {"context": "a"})):
        with pytest.raises(ValueError, match=r"input 2 \(.*\) is invalid: this model takes a "):
            as_examples([("a", "b", "c")[: 2 + (kind == "choice")], item], kind)
