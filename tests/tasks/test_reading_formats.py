"""Delimiters, quotes and encodings are detected."""

import csv
import io

import pytest
from task_files import counts, write
from test_reading_inputs import read_inputs, spec_of

from hornbook.data.text_encoding import encoding_of
from hornbook.tasks.reading.read import read
from hornbook.tasks.reading.reader import Reader

ENGLISH = [("It was good, truly", "yes"), ('She said "no"; twice', "no"), ("a | b, c; d", "yes"), ("plain", "no")]
KOREAN = [("배송이 너무 느려요, 환불해 주세요", "0"), ("아주 좋아요; 추천합니다", "1"), ("그냥 그래요", "0")]
FRENCH = [("Le café était très bon, crème brûlée incluse", "oui"), ("déçu; à éviter", "non")]
GERMAN = [("5 € – „zu teuer“, schöne Grüße", "ja"), ("prima", "nein")]


def table(rows, names=("text", "label"), **options):
    written = io.StringIO()
    csv.writer(written, lineterminator="\n", **options).writerows([names, *rows])
    return written.getvalue()


def pairs(data):
    return [(each.text, each.label) for each in data.splits["train"]]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("rows", [ENGLISH, KOREAN])
def test_every_delimiter_is_detected(tmp_path, suffix, delimiter, rows):
    path = tmp_path / f"a.{suffix}"
    path.write_text(table(rows, delimiter=delimiter))
    data = read("classification", path, held_out=0)
    assert pairs(data) == rows and not counts(data)
    is_usual = delimiter == {"csv": ",", "tsv": "\t"}[suffix]
    assert any(": delimiter " in words for words in data.messages) != is_usual


def test_a_delimiter_may_be_given(tmp_path):
    write(tmp_path, a__csv="text^label\na, b^1\nc; d^2\n")
    assert pairs(read("classification", tmp_path / "a.csv", delimiter="^", held_out=0)) == [
        ("a, b", "1"),
        ("c; d", "2"),
    ]
    assert Reader(delimiter="tab").delimiter == Reader(delimiter="\\t").delimiter == "\t"
    for wrong in (";;", "", '"'):
        with pytest.raises(ValueError, match="delimiter= must be a single character"):
            Reader(delimiter=wrong)


@pytest.mark.parametrize("name", ["review", "리뷰"])
def test_a_single_column_has_no_delimiter(tmp_path, name):
    texts = ["good, truly, really good", "bad; very, very bad", "so | so", "a\tb", "배송이, 느려요", "x;y"]
    write(tmp_path, a__csv=table([(text,) for text in texts], (name,)), b__csv=name + "\n" + "fine words\n" * 3)
    assert [each.text for each in read_inputs(tmp_path / "a.csv", spec_of("classification"))] == texts
    assert [each.text for each in read_inputs(tmp_path / "b.csv", spec_of("classification"))] == ["fine words"] * 3


@pytest.mark.parametrize(
    "written",
    [
        table(ENGLISH, delimiter=";", doublequote=False, escapechar="\\"),
        table(ENGLISH, delimiter=",", doublequote=False, escapechar="\\", quoting=csv.QUOTE_ALL),
        table(ENGLISH, delimiter=";", quotechar="'", quoting=csv.QUOTE_ALL),
    ],
)
def test_other_quotes_are_detected(tmp_path, written):
    write(tmp_path, a__csv=written)
    data = read("classification", tmp_path / "a.csv", held_out=0)
    assert pairs(data) == ENGLISH and not counts(data)


@pytest.mark.parametrize(
    ("encoding", "rows"),
    [
        *((each, KOREAN) for each in ("utf-8-sig", "cp949", "euc-kr", "utf-16", "utf-16-le", "utf-16-be", "utf-32")),
        *((each, FRENCH) for each in ("cp1252", "latin-1", "utf-16", "utf-16-le")),
        ("cp1252", GERMAN),
        ("cp1251", [("очень хорошее кино, понравилось", "1"), ("плохо и скучно", "0")]),
        ("shift_jis", [("とても良い映画でした", "1"), ("つまらないと思います", "0")]),
    ],
)
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_every_encoding_is_detected(tmp_path, encoding, rows, delimiter):
    path = tmp_path / "a.csv"
    path.write_bytes(table(rows, delimiter=delimiter).encode(encoding))
    data = read("classification", path, held_out=0)
    assert pairs(data) == rows
    assert any(": encoding " in words for words in data.messages) == (encoding != "utf-8-sig")
    assert pairs(read("classification", path, held_out=0, encoding=encoding)) == rows


@pytest.mark.parametrize("encoding", ["utf-8", "cp949", "utf-16", "utf-16-le"])
@pytest.mark.parametrize("suffix", ["txt", "csv", "jsonl"])
def test_single_column_files_in_korean(tmp_path, encoding, suffix):
    texts = [row[0] for row in KOREAN]
    written = {
        "txt": "\n".join(texts),
        "csv": table([(text,) for text in texts], ("리뷰",)),
        "jsonl": "\n".join(f'{{"text": "{text}"}}' for text in texts),
    }
    path = tmp_path / f"a.{suffix}"
    path.write_bytes(written[suffix].encode(encoding))
    assert [each.text for each in read_inputs(path, spec_of("classification"))] == texts


def test_utf_8_with_a_few_damaged_bytes_is_still_utf_8():
    assert encoding_of("리뷰\n좋아요\n".encode() + b"\xff\xfe\n") == "utf-8"
    assert encoding_of(b"plain\nt\xffwo\n") == "utf-8"
    assert encoding_of(b"a,b\n" * 50 + b"n\0ul\n") == "utf-8"


def test_an_encoding_that_does_not_fit_is_refused(tmp_path):
    write(tmp_path, a__csv="text,label\n좋아요,1\n".encode("cp949"))
    with pytest.raises(ValueError, match=r"a.csv cannot be decoded as encoding='ascii'"):
        read("classification", tmp_path / "a.csv", encoding="ascii")
    with pytest.raises(ValueError, match="encoding='klingon' is unknown"):
        read("classification", tmp_path / "a.csv", encoding="klingon")


TRAINED = {"text": "Ticket text", "label": "Team", "key": "ID"}


def test_a_file_to_predict_must_have_the_columns_of_the_run(tmp_path):
    run = spec_of("classification", roles=TRAINED)
    write(
        tmp_path,
        a__csv="Subject;Ticket text;Team\nprinter;it is out of paper;IT\n",
        b__csv="Subject;Body\nprinter;it is out of paper\n",
        c__csv="Body\nit is out of paper\n",
    )
    (found,) = read_inputs(tmp_path / "a.csv", run)
    assert (found.text, found.label) == ("it is out of paper", "IT")
    for name in ("b.csv", "c.csv"):
        with pytest.raises(
            ValueError, match=r"has no column 'Ticket text', which the run was trained on as the text; .*Body"
        ):
            read_inputs(tmp_path / name, run)
        assert read_inputs(tmp_path / name, run, text="Body")[0].text == "it is out of paper"
    pair = spec_of("mnli", roles={"text": "premise", "pair": "hypothesis", "label": "label"})
    write(tmp_path, d__csv="premise,label\na b,1\n")
    with pytest.raises(ValueError, match="no column 'hypothesis'"):
        read_inputs(tmp_path / "d.csv", pair)


def test_data_to_evaluate_on_must_have_the_columns_of_the_run(tmp_path):
    write(tmp_path, a__csv="Ticket text,Topic\nit is out of paper,IT\n")
    with pytest.raises(ValueError, match="no column 'Team', which the run was trained on as the label"):
        read("classification", tmp_path / "a.csv", trained_columns=TRAINED, default_split="dev", held_out=0)
    found = read(
        "classification", tmp_path / "a.csv", trained_columns=TRAINED, label="Topic", default_split="dev", held_out=0
    )
    assert found.splits["dev"][0].label == "IT"


def test_a_huge_name_of_a_column_is_cut_in_the_message(tmp_path):
    (tmp_path / "a.csv").write_text("x" * 1000 + ",y\n" + "1,2\n" * 20)
    with pytest.raises(ValueError, match=r"columns: x{59}…, y") as refused:
        read("classification", tmp_path / "a.csv", text="text")
    assert "x" * 61 not in str(refused.value)


@pytest.mark.parametrize(
    ("files", "what"),
    [
        (["a.txt", "b.txt"], r"a folder of plain text \(a.txt, b.txt\)"),
        (["manifest.json", "tokenizer.json"], "a corpus"),
        (["tokenizer.json"], "a tokenizer"),
        (["run.json", "config.json", "tokenizer.json"], "a run"),
    ],
)
def test_a_folder_without_labels_is_named(files, what, tmp_path):
    for name in files:
        (tmp_path / name).write_text("words")
    with pytest.raises(ValueError, match=f"is {what}, which has no labels: give a table with a column for the text"):
        read("classification", tmp_path)
    with pytest.raises(ValueError, match=f"is {what}, which has no labels: give a folder with train-v1.1.json"):
        read("squad", tmp_path)
