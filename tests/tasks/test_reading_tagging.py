"""Words and tags."""

import csv

import pytest
from task_files import counts, first, lines, write

from hornbook.tasks.reading.inputs import as_examples
from hornbook.tasks.reading.read import read

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O
German JJ B-NP B-MISC

Peter NNP B-NP B-PER
Blackburn NNP I-NP I-PER
"""


def shown(examples):
    return [(each.words, each.tags) for each in examples]


def test_conll_2003(tmp_path):
    write(tmp_path, **{"eng.train": CONLL, "eng.testa": CONLL, "eng.testb": "EU NNP B-NP B-ORG\n"})
    data = read("conll2003", tmp_path, strict=True)
    assert shown(data.splits["train"]) == [
        (("EU", "rejects", "German"), ("B-ORG", "O", "B-MISC")),
        (("Peter", "Blackburn"), ("B-PER", "I-PER")),
    ]
    assert data.labels == ("O", "B-MISC", "I-MISC", "B-ORG", "I-ORG", "B-PER", "I-PER")
    assert data.scheme == "BIO" and data.messages == ("tags: BIO",) and len(data.splits["test"]) == 1


@pytest.mark.parametrize(("task", "label"), [("conll2003", "pos"), ("conll2003-pos", None), ("conll2003", "1")])
def test_another_column_of_conll(tmp_path, task, label):
    write(tmp_path, train__txt=CONLL, valid__txt=CONLL)
    data = read(task, tmp_path, label=label)
    assert data.splits["dev"][0].tags == ("NNP", "VBZ", "JJ") and data.scheme == "plain"
    assert data.labels == ("JJ", "NNP", "VBZ")


def test_an_unknown_column(tmp_path):
    write(tmp_path, train__txt=CONLL)
    with pytest.raises(ValueError, match=r"label='case' is not a column;.*word, pos, chunk, ner, last"):
        read("conll2003", tmp_path, label="case")


@pytest.mark.parametrize(
    ("scheme", "tags"),
    [("IOB1", ["I-PER", "I-PER", "B-PER", "O"]), ("BIOES", ["B-PER", "E-PER", "S-PER", "O"])],
)
def test_other_schemes_are_read_as_bio(tmp_path, scheme, tags):
    write(tmp_path, train__txt=lines(*(f"w{n}\t{tag}" for n, tag in enumerate(tags))))
    data = read("tagging", tmp_path)
    assert data.splits["train"][0].tags == ("B-PER", "I-PER", "B-PER", "O")
    assert data.scheme == scheme and data.messages == (f"tags: {scheme}, read as BIO",) and not counts(data)


def test_broken_tags_are_repaired_and_reported(tmp_path):
    good = "a B-PER\nb I-PER\n\n" * 3
    write(tmp_path, train__txt=good + "c O\nd I-PER\ne I-LOC\n", dev__txt=good)
    data = read("tagging", tmp_path)
    assert data.splits["train"][3].tags == ("O", "B-PER", "B-LOC")
    assert counts(data) == {"broken_tags": 2}
    assert first(data, "broken_tags") == {
        "file": str(tmp_path / "train.txt"),
        "place": "line 10",
        "detail": "I-PER on 'd' continues no entity",
    }
    with pytest.raises(ValueError, match=r"train.txt line 10"):
        read("tagging", tmp_path, strict=True)


def test_lines_without_a_tag(tmp_path):
    rows = "a O\nb O\n\nc O\nd\n\ne O\n"
    write(tmp_path, train__txt=rows, dev__txt=rows, test__txt="a\nb\n")
    data = read("tagging", tmp_path)
    assert shown(data.splits["train"]) == [(("a", "b"), ("O", "O")), (("e",), ("O",))]
    assert shown(data.splits["dev"])[1] == (("c", "d"), None)
    assert shown(data.splits["test"]) == [(("a", "b"), None)]
    assert counts(data) == {"bad_row": 1, "kept_bad_row": 1} and first(data, "bad_row")["place"] == "line 5"


def test_a_space_within_a_word_that_is_not_a_blank(tmp_path):
    write(tmp_path, train__txt="10\u00a0000 O\nb O\n")
    assert read("tagging", tmp_path).splits["train"][0].words == ("10\u00a0000", "b")


ADA, YORK = (("Ada", "saw"), ("B-PER", "O")), (("New York",), ("B-LOC",))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("# sent_id = 1\n# text = Ada saw\nAda\tB-PER\nsaw\tO\n", [ADA]),
        ("# sent_id = 1\nAda NNP x B-PER\nsaw VBD x O\n", [ADA]),  # a comment with as many fields as there are columns
        ("# id 7\nAda B-PER\nsaw O\n \t\n# id 8\nAda B-PER\nsaw O\n", [ADA, ADA]),
        ("#begin document (a); part 0\nAda B-PER\nsaw O\n\n#end document\n", [ADA]),
        ("# O\n1 O\n\n#fun B-TAG\n# I-TAG\n", [(("#", "1"), ("O", "O")), (("#fun", "#"), ("B-TAG", "I-TAG"))]),
        ("-DOCSTART-\tO\n\nAda\tB-PER\nsaw\tO\n", [ADA]),
        ("New York\tB-LOC\n\nAda\tB-PER\nsaw\tO\n", [YORK, ADA]),  # words may hold spaces
        ("Ada\t\tB-PER\nsaw\tVBD\tO\n", [ADA]),
        ("Ada\t\tB-PER\nlooking\tO\n", [(("Ada", "looking"), ("B-PER", "O"))]),  # aligned by several tabs
        ("#\thttp://a.de [2009]\n1\tAda\tB-PER\n2\tsaw\tO\n\n#\thttp\n1\tAda\tB-PER\n2\tsaw\tO\n", [ADA, ADA]),
        ("1 Ada NNP B-PER\n2 saw VBD O\n", [ADA]),
        ("# a\r\nAda  I-PER \r\nsaw  O\r\n   \r\nAda I-PER\r\nsaw O\r\n", [ADA, ADA]),
        ("Ada S-PER\nsaw O\n", [ADA]),
    ],
)
def test_column_files_of_other_tools(tmp_path, content, expected):
    write(tmp_path, **{"train.conll": content})
    data = read("tagging", tmp_path, held_out=0, strict=True)
    assert shown(data.splits["train"]) == expected


def test_the_column_of_the_words_may_be_named(tmp_path):
    write(tmp_path, **{"train.conll": "doc 0 Ada B-PER\ndoc 0 saw O\n"})
    data = read("tagging", tmp_path, text="2", held_out=0, strict=True)
    assert shown(data.splits["train"]) == [ADA]


def test_conll_u_under_another_name(tmp_path):
    write(tmp_path, train__conll=UD)
    assert read("tagging", tmp_path, held_out=0).splits["train"][0].tags == ("VERB", "PRON", "ADP", "DET", "NOUN")


UD = """# sent_id = 1
# text = vámonos al mar
1-2\tvámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tvamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnosotros\tPRON\tP\t_\t1\tobj\t_\t_
2.1\tnada\tnada\tNOUN\tN\t_\t_\t_\t_\t_
3-4\tal\t_\t_\t_\t_\t_\t_\t_\t_
3\ta\ta\tADP\tA\t_\t5\tcase\t_\t_
4\tel\tel\tDET\tD\t_\t5\tdet\t_\t_
5\tmar\tmar\tNOUN\tN\t_\t1\tobl\t_\t_

"""


def test_conll_u(tmp_path):
    write(tmp_path, **{f"xx-ud-{split}.conllu": UD for split in ("train", "dev", "test")})
    data = read("ud-pos", tmp_path, strict=True)
    assert shown(data.splits["train"]) == [(("vamos", "nos", "a", "el", "mar"), ("VERB", "PRON", "ADP", "DET", "NOUN"))]
    assert data.labels == ("ADP", "DET", "NOUN", "PRON", "VERB") and data.scheme == "plain"
    assert read("ud-pos", tmp_path, label="xpos").splits["dev"][0].tags == ("V", "P", "A", "D", "N")
    assert read("tagging", tmp_path / "xx-ud-dev.conllu").splits["dev"][0].tags[0] == "VERB"


def test_conll_u_without_tags_or_columns(tmp_path):
    hidden = "1\ta\t_\t_\t_\t_\t_\t_\t_\t_\n\n"
    short = "1\ta\t_\n\n"
    write(tmp_path, **{"x-ud-train.conllu": UD + hidden + short, "x-ud-test.conllu": hidden, "x-ud-dev.conllu": hidden})
    data = read("ud-pos", tmp_path)
    assert len(data.splits["train"]) == 1 and data.splits["test"][0].tags is data.splits["dev"][0].tags is None
    assert counts(data) == {"no_label": 1, "bad_row": 1, "kept_no_label": 1}


def test_two_treebanks_in_one_folder(tmp_path):
    write(tmp_path, **{"a-ud-train.conllu": UD, "b-ud-train.conllu": UD})
    with pytest.raises(ValueError, match=r"a-ud-train.conllu, b-ud-train.conllu"):
        read("ud-pos", tmp_path)


def test_own_lists(tmp_path):
    rows = [
        {"tokens": ["Ada", "wrote"], "ner_tags": ["B-PER", "O"]},
        {"tokens": ["Ada", "wrote"], "ner_tags": ["B-PER"]},
        {"tokens": [], "ner_tags": []},
        {"tokens": ["Ada"], "ner_tags": None},
    ]
    write(tmp_path, train__jsonl=lines(*rows), dev__jsonl=lines(*rows))
    data = read("tagging", tmp_path)
    assert shown(data.splits["train"]) == [(("Ada", "wrote"), ("B-PER", "O"))]
    assert shown(data.splits["dev"])[1:] == [(("Ada", "wrote"), None), ((), None), (("Ada",), None)]
    assert counts(data) == {kept + kind: 1 for kept in ("", "kept_") for kind in ("bad_tags", "empty_text", "no_label")}
    assert data.messages[0] == "columns: words = 'tokens', tags = 'ner_tags'"
    assert first(data, "bad_tags")["detail"] == "2 words but 1 tags"


def test_own_lists_in_csv(tmp_path):
    write(tmp_path, train__csv='words,tags\nAda wrote,B-PER O\n"[""a b"", ""c""]",O O\n')
    found = read("tagging", tmp_path, held_out=0).splits["train"]
    assert shown(found) == [(("Ada", "wrote"), ("B-PER", "O")), (("a b", "c"), ("O", "O"))]


@pytest.mark.parametrize(
    ("words", "tags"),
    [("['EU', \"it's\"]", "['B-ORG', 'O']"), ("['EU' \"it's\"]", "['B-ORG'\n 'O']"), ("['EU', \"it's\"]", "[3 0]")],
)
def test_lists_in_csv_as_data_frames_write_them(tmp_path, words, tags):
    with open(tmp_path / "train.csv", "w", newline="") as file:
        csv.writer(file).writerows([("tokens", "ner_tags"), (words, tags)])
    (example,) = read("tagging", tmp_path, held_out=0).splits["train"]
    assert (example.words, example.tags) == (("EU", "it's"), ("3", "0") if "3" in tags else ("B-ORG", "O"))


def test_a_number_in_place_of_words(tmp_path):
    write(tmp_path, train__jsonl=lines({"words": 1999, "tags": ["O"]}, {"words": ["a"], "tags": 7}))
    assert shown(read("tagging", tmp_path, held_out=0).splits["train"]) == [(("1999",), ("O",)), (("a",), ("7",))]
    assert as_examples([{"words": 1999}], "tagging")[0].words == ("1999",)


def test_a_tag_that_training_does_not_have(tmp_path):
    write(tmp_path, train__txt="a B-PER\nb O\n", dev__txt="a B-PER\nb I-PER\n\nc B-LOC\n")
    data = read("tagging", tmp_path)
    assert data.labels == ("O", "B-PER", "I-PER") and data.splits["dev"][1].tags == ("B-LOC",)
    assert counts(data) == {"unseen_label": 1} and first(data, "unseen_label")["place"] == "line 4"


def test_a_column_that_the_lines_do_not_have(tmp_path):
    write(tmp_path, a__conllu="1\tAda\tAda\tPROPN\tNNP\t_\t0\troot\t_\t_\n", b__conll="Ada B-PER\nsaid O\n")
    with pytest.raises(ValueError, match="label= is column 12, but the lines have only 10: use an index from 0 to 9"):
        read("tagging", tmp_path / "a.conllu", label="12")
    with pytest.raises(ValueError, match="text= is column 7, but the lines have only 2: use an index from 0 to 1"):
        read("tagging", tmp_path / "b.conll", text="7")
    write(tmp_path, test__conll="Ada\nsaid\n")
    assert len(read("tagging", tmp_path / "test.conll", label="1").splits["test"]) == 1
