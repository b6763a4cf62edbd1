"""Documents that hold text of an evaluation set are left out of a corpus."""

import json
import unicodedata

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet
from stories import story

from hornbook.data.build import build_corpus
from hornbook.data.contamination import SEQUENCE_WORDS, ExcludedTexts
from hornbook.data.duplicates import sequence_hashes

QUESTION = "the quick brown fox that jumps over lazy dogs near old river banks sleeps"  # 14 words


def slow_overlap(one: str, two: str) -> bool:
    """By definition: whether any 13 words in sequence occur in both."""
    a, b = (text.lower().replace(",", " ").replace(".", " ").split() for text in (one, two))
    sequences = {tuple(a[i : i + SEQUENCE_WORDS]) for i in range(len(a) - SEQUENCE_WORDS + 1)}
    return any(tuple(b[i : i + SEQUENCE_WORDS]) in sequences for i in range(len(b) - SEQUENCE_WORDS + 1))


def test_overlap_by_definition(random, tmp_path):
    """Of texts over three words, in which sequences of 13 now and then agree."""
    draw = lambda num: " ".join(random.choice(["a", "b,", "C."], num))  # noqa: E731
    (tmp_path / "a.txt").write_text(evaluated := draw(4000))
    excluded = ExcludedTexts.from_sets([tmp_path / "a.txt"])
    texts = [draw(int(random.integers(5, 600))) for _ in range(200)]
    expected = [slow_overlap(evaluated, text) for text in texts]
    assert [excluded.overlap(text) for text in texts] == expected and 20 < sum(expected) < 180


def test_order_and_length_matter():
    words = QUESTION.split()
    assert (
        len(sequence_hashes(QUESTION, SEQUENCE_WORDS)) == 2
        and len(sequence_hashes(" ".join(words[:12]), SEQUENCE_WORDS)) == 0
    )
    assert not set(sequence_hashes(QUESTION, SEQUENCE_WORDS)) & set(
        sequence_hashes(" ".join(reversed(words)), SEQUENCE_WORDS)
    )


@pytest.mark.parametrize("encoding", ["utf-8", "cp949", "utf-16"])
def test_an_evaluation_set_may_be_in_any_encoding(tmp_path, encoding):
    words = "나는 어제 도서관에서 오래된 책을 읽었고 오늘은 친구와 함께 영화를 보러 시내에 나갔다 그리고 밤에 돌아왔다"
    (tmp_path / "dev.csv").write_bytes(f"text,label\n{words},1\n".encode(encoding))
    excluded = ExcludedTexts.from_sets([tmp_path / "dev.csv"])
    assert excluded.overlap(words) and excluded.overlap(unicodedata.normalize("NFD", words))


def written(folder, kind: str):
    """A data set with the question in a file of this kind."""
    file = folder / f"dev{kind}"
    rows = [{"id": 1, "question": QUESTION}, {"id": 2, "question": "short"}]
    if kind == ".parquet":
        parquet.write_table(pyarrow.Table.from_pylist(rows), file)
    elif kind == ".json":
        file.write_text(json.dumps({"data": [{"paragraphs": rows}]}))
    elif kind == ".jsonl":
        file.write_text("\n".join(map(json.dumps, rows)) + "\n")
    else:
        mark = "," if kind == ".csv" else "\t"
        file.write_text("".join(f"{row['id']}{mark}{row['question']}\n" for row in rows))
    return file


@pytest.mark.parametrize("kind", [".txt", ".csv", ".tsv", ".json", ".jsonl", ".parquet"])
def test_every_kind_of_file(tmp_path, kind):
    excluded = ExcludedTexts.from_sets([written(tmp_path, kind)])
    assert excluded.overlap(f"Once upon a time, {QUESTION.upper()}. The end.")
    assert not excluded.overlap(" ".join(QUESTION.split()[:12]))


def test_a_corpus_without_them(tmp_path, tiny_tokenizer):
    """The same with and without worker processes; training data in the folder is not excluded."""
    texts = [story(seed, 3) for seed in range(8)]
    texts[3] += f" He said: {QUESTION}."
    (tmp_path / "text.txt").write_text("\n\n".join(" ".join(text.split()) for text in texts))
    (tmp_path / "task").mkdir()
    written(tmp_path / "task", ".tsv")
    (tmp_path / "task" / "train.tsv").write_text(" ".join(texts[5].split()))
    for workers, out in ((0, "a"), (1, "b")):
        made = build_corpus(
            tmp_path / "text.txt", tiny_tokenizer, tmp_path / out, exclude=[tmp_path / "task"], workers=workers
        )
        assert made["totals"]["documents"] == 7 and made["dropped"] == {"evaluation_text": 1}
        assert not (tmp_path / out / "excluded.npy").exists()
    assert np.array_equal(*(np.load(tmp_path / out / "token_counts.npy") for out in "ab"))
    whole = build_corpus(tmp_path / "text.txt", tiny_tokenizer, tmp_path / "c", workers=0)
    assert whole["totals"]["documents"] == 8 and whole["settings"]["exclude"] is None
    with pytest.raises(ValueError, match="already holds another corpus"):
        build_corpus(tmp_path / "text.txt", tiny_tokenizer, tmp_path / "a", workers=0)


def test_a_corpus_of_nothing_else_is_refused_and_leaves_the_folder_free(tmp_path, tiny_tokenizer):
    for name in ("text.txt", "evaluation.txt"):
        (tmp_path / name).write_text(f"{QUESTION}.")
    with pytest.raises(ValueError, match=r"no document is left; 1 dropped for 13 consecutive words .* exclude="):
        build_corpus(
            tmp_path / "text.txt", tiny_tokenizer, tmp_path / "out", exclude=tmp_path / "evaluation.txt", workers=0
        )
    assert build_corpus(tmp_path / "text.txt", tiny_tokenizer, tmp_path / "out", workers=0)["totals"]["documents"] == 1


def test_what_cannot_be_excluded_is_one_sentence(tmp_path):
    (tmp_path / "short.txt").write_text("Too short.")
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ValueError, match="no text of 13 words or more"):
        ExcludedTexts.from_sets([tmp_path / "short.txt"])
    with pytest.raises(ValueError, match="is not valid JSON"):
        ExcludedTexts.from_sets([tmp_path / "bad.json"])
    with pytest.raises(ValueError, match="does not exist: check exclude="):
        ExcludedTexts.from_sets([tmp_path / "nowhere"])


def test_a_task_by_its_name(tmp_path, tokenizer_folder, hornbook):
    """In CoNLL's files each word has a line of its own, with tags: only its reader finds the sentences."""
    (tmp_path / "conll").mkdir()
    sentences = {"eng.train": story(8, 1).split()[:20], "eng.testa": QUESTION.split(), "eng.testb": ["short"]}
    for name, words in sentences.items():
        (tmp_path / "conll" / name).write_text("".join(f"{word} NN B-NP O\n" for word in words) + "\n")
    (tmp_path / "texts.txt").write_text(f"{story(9, 3)}\n\nBefore: {QUESTION}!\n\n{' '.join(sentences['eng.train'])}\n")
    out = tmp_path / "corpus"
    given = ["corpus", "build", tmp_path / "texts.txt", "--tokenizer", tokenizer_folder, "--out", out, "--workers", 0]
    assert hornbook(*given, "--exclude", f"conll2003:{tmp_path / 'conll'}").status == 0
    manifest = json.loads((out / "manifest.json").read_text())
    assert manifest["problems"]["evaluation_text"]["count"] == 1 and manifest["totals"]["documents"] == 4
    said = hornbook(*given, "--exclude", f"conll2004:{tmp_path / 'conll'}")
    assert said.status == 2 and "conll2003" in said.error
