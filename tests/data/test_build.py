import gzip
import json
import subprocess
import sys

import numpy as np
import pytest
from stories import story

from hornbook.data.build import build_corpus
from hornbook.data.shards import open_shard
from hornbook.files import sha256
from hornbook.text.sentences import split_sentences
from hornbook.text.tokenizer import Tokenizer


def files_of(folder):
    return {file.name: file.read_bytes() for file in folder.glob("*.npy")}


def decoded(folder, manifest):
    """The ids of all documents, sentence by sentence."""
    documents = []
    for index in range(len(manifest["shards"])):
        shard = open_shard(folder, index)
        sentences = [
            shard.tokens[start:stop].tolist()
            for start, stop in zip(shard.sentences[:-1], shard.sentences[1:], strict=True)
        ]
        documents += [
            sentences[start:stop] for start, stop in zip(shard.documents[:-1], shard.documents[1:], strict=True)
        ]
    return documents


@pytest.fixture(scope="module")
def text_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("text") / "story.txt"
    path.write_text(story(1, 200))
    return path


@pytest.fixture(scope="module")
def built(text_file, tokenizer_folder, tmp_path_factory):
    folder = tmp_path_factory.mktemp("built") / "corpus"
    return folder, build_corpus(text_file, tokenizer_folder, folder, workers=0, shard_tokens=5000)


def test_the_corpus_is_the_text(built, text_file, tokenizer_folder):
    folder, manifest = built
    tokenizer = Tokenizer.load(tokenizer_folder)
    expected, words = [], 0
    for text in dict.fromkeys(text_file.read_text().strip().split("\n\n")):
        encoded = tokenizer.encode_plain(split_sentences(text))
        words += int(encoded.word_starts.sum())
        ends = np.cumsum(encoded.lengths)[:-1]
        expected.append([ids.tolist() for ids in np.split(encoded.ids, ends)])
    assert decoded(folder, manifest) == expected
    flat = [token for document in expected for sentence in document for token in sentence]
    totals = manifest["totals"]
    assert totals["tokens"] == len(flat) and totals["words"] == words and totals["documents"] == 180
    assert totals["sentences"] == sum(map(len, expected))
    assert totals["bytes_read"] == text_file.stat().st_size
    assert manifest["dropped"] == {"duplicate_document": 20}
    counts = np.load(folder / "token_counts.npy")
    assert counts.dtype == np.int64 and np.array_equal(counts, np.bincount(flat, minlength=tokenizer.vocab_size))
    assert len(manifest["shards"]) > 3
    shard = open_shard(folder, 0)
    starts = shard.word_starts_in(0, len(shard.tokens))
    assert starts[shard.sentences[:-1]].all() and not starts.all()


def test_the_manifest_records_what_was_built(built, text_file, tokenizer_folder):
    folder, manifest = built
    assert json.loads((folder / "manifest.json").read_text()) == manifest
    tokenizer = Tokenizer.load(folder)
    assert manifest["tokenizer_fingerprint"] == tokenizer.fingerprint
    assert manifest["vocab_size"] == tokenizer.vocab_size and manifest["dtype"] == "uint16"
    for shard in manifest["shards"]:
        for part, digest in shard["sha256"].items():
            assert sha256(folder / f"{shard['name']}.{part}.npy") == digest
    (source,) = map(json.loads, (folder / "sources.ndjson").read_text().splitlines())
    assert source["path"] == str(text_file)
    assert manifest["settings"]["shard_tokens"] == 5000
    most = manifest["repeated_lines"]["most_repeated"][0]
    assert most == {"line": "Read the conditions before you copy.", "count": 180}
    example = manifest["problems"]["duplicate_document"]["examples"][0]
    assert example["file"] == str(text_file) and example["place"].startswith("line ")
    assert manifest["seconds"] > 0 and manifest["megabytes_per_second"] > 0
    names = {file.name for file in folder.iterdir()}
    assert not {name for name in names if name.startswith((".", "progress"))}


@pytest.mark.parametrize("workers", [1, 3])
def test_any_number_of_workers_gives_the_same_bytes(built, text_file, tokenizer_folder, tmp_path, workers):
    folder, manifest = built
    other = build_corpus(text_file, tokenizer_folder, tmp_path / "out", workers=workers, shard_tokens=5000)
    assert files_of(tmp_path / "out") == files_of(folder)
    times = ("seconds", "megabytes_per_second")
    assert {k: v for k, v in other.items() if k not in times} == {k: v for k, v in manifest.items() if k not in times}


def test_shard_size_changes_shards_and_not_their_content(built, text_file, tokenizer_folder, tmp_path):
    folder, manifest = built
    other = build_corpus(text_file, tokenizer_folder, tmp_path / "out", workers=0)
    assert len(other["shards"]) == 1
    assert decoded(tmp_path / "out", other) == decoded(folder, manifest)
    assert other["fingerprint"] != manifest["fingerprint"]


def test_a_finished_corpus_comes_back_at_once(built, text_file, tokenizer_folder):
    folder, manifest = built
    calls = []
    again = build_corpus(text_file, tokenizer_folder, folder, workers=0, shard_tokens=5000, on_progress=calls.append)
    assert again == {**manifest, "already_built": True} and not calls


def test_another_request_into_the_same_folder_is_refused(built, text_file, tokenizer_folder, tmp_path):
    folder, _ = built
    with pytest.raises(ValueError, match="clean was None and is now 'wiki'"):
        build_corpus(text_file, tokenizer_folder, folder, workers=0, shard_tokens=5000, clean="wiki")
    other = tmp_path / "other.txt"
    other.write_text("Other.")
    with pytest.raises(ValueError, match=r"the files differ, first .*other\.txt"):
        build_corpus([text_file, other], tokenizer_folder, folder, workers=0, shard_tokens=5000)
    from hornbook.text.training import train_tokenizer

    train_tokenizer(["Some other text."], kind="wordpiece", vocab_size=60).save(tmp_path / "tokenizer")
    with pytest.raises(ValueError, match="the tokenizer differs"):
        build_corpus(text_file, tmp_path / "tokenizer", folder, workers=0, shard_tokens=5000)


def test_a_changed_file_is_noticed(tokenizer_folder, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Some text.")
    build_corpus(path, tokenizer_folder, tmp_path / "out", workers=0)
    path.write_text("Some other text.")
    with pytest.raises(ValueError, match=r"the files differ, first .*a\.txt"):
        build_corpus(path, tokenizer_folder, tmp_path / "out", workers=0)


def test_a_file_that_changes_during_the_build_is_noticed(tokenizer_folder, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(story(ord(name), 100))

    def change(_):
        (tmp_path / "b.txt").write_text("Quite another text.")

    with pytest.raises(ValueError, match=r"b\.txt changed while .*another folder"):
        build_corpus(
            [tmp_path / "a.txt", tmp_path / "b.txt"],
            tokenizer_folder,
            tmp_path / "out",
            workers=0,
            shard_tokens=1000,
            on_progress=change,
        )


def test_a_folder_with_other_things_is_left_alone(text_file, tokenizer_folder, tmp_path):
    (tmp_path / "thesis.doc").write_text("precious")
    with pytest.raises(ValueError, match=r"not empty \(it holds thesis.doc\)"):
        build_corpus(text_file, tokenizer_folder, tmp_path, workers=0)


def test_the_tokenizer_may_already_lie_in_the_corpus_folder(tokenizer_folder, tmp_path):
    (tmp_path / "a.txt").write_text("Some text.")
    Tokenizer.load(tokenizer_folder).save(tmp_path / "out")
    assert build_corpus(tmp_path / "a.txt", tmp_path / "out", tmp_path / "out", workers=0)["totals"]["documents"] == 1


def test_nothing_to_read_is_one_sentence_and_can_be_put_right(tokenizer_folder, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"title": "Silver winter."}\n')
    with pytest.raises(ValueError, match=r"no document could be read .*there are: title") as error:
        build_corpus(path, tokenizer_folder, tmp_path / "out", workers=0)
    assert str(error.value).count("text_column=") == 1
    manifest = build_corpus(path, tokenizer_folder, tmp_path / "out", workers=0, text_column="title")
    assert manifest["totals"]["documents"] == 1


def test_duplicates_cannot_be_kept_without_near_duplicates(text_file, tokenizer_folder, tmp_path):
    with pytest.raises(ValueError, match="near_duplicates= drops equal documents, too"):
        build_corpus(text_file, tokenizer_folder, tmp_path / "out", deduplicate=False, near_duplicates=True)


def test_mixed_files_and_their_problems(tokenizer_folder, tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"Silver winter \xff river.\n\nSilver summer.")
    (folder / "b.jsonl").write_text('{"text": "Garden."}\nrubbish\n{"text": "Silver   summer."}\n{"text": "\u200b"}\n')
    with gzip.open(folder / "c.txt.gz", "wt") as file:
        file.write("Letters and windows.\n\n* a list of things\n")
    (folder / "d.pdf").write_text("no")
    manifest = build_corpus(folder, tokenizer_folder, tmp_path / "out", workers=0, clean="wiki")
    counts = {kind: entry["count"] for kind, entry in manifest["problems"].items()}
    expected = ("unknown_extension", "invalid_utf8", "not_json", "duplicate_document")
    assert counts == {**dict.fromkeys(expected, 1), "no_tokens": 2}
    assert manifest["dropped"] == {"not_json": 1, "duplicate_document": 1, "no_tokens": 2}
    assert manifest["cleaned"] == {"list_item": 1}
    assert manifest["totals"]["documents"] == 4
    assert manifest["problems"]["not_json"]["files"] == {str(folder / "b.jsonl"): 1}
    assert manifest["problems"]["not_json"]["examples"][0]["place"] == "line 2"


def test_a_text_that_the_vocabulary_cannot_write_is_noted(tokenizer_folder, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Silver winter river. 법원은 항소를 기각하였다.")
    problem = build_corpus(path, tokenizer_folder, tmp_path / "out", workers=0)["problems"]["unknown_token"]
    assert problem["count"] == 3 and "use a tokenizer trained on such text" in problem["examples"][0]["detail"]


def test_duplicates_can_be_kept(tokenizer_folder, tmp_path):
    (tmp_path / "a.txt").write_text("Silver.\n\nSilver.")
    manifest = build_corpus(tmp_path / "a.txt", tokenizer_folder, tmp_path / "out", workers=0, deduplicate=False)
    assert manifest["totals"]["documents"] == 2 and manifest["dropped"] == {}


def test_parts_of_a_long_document_are_kept_together(tokenizer_folder, tmp_path, monkeypatch):
    text = story(3, 300).replace("\n\n", "\n")
    (tmp_path / "a.txt").write_text(f"Silver.\n\n{text}\n\nWinter.")
    from hornbook.data import build

    reader = build.FileReader
    monkeypatch.setattr(build, "FileReader", lambda *args, **named: reader(*args, **named, part_characters=5000))
    whole = build_corpus(tmp_path / "a.txt", tokenizer_folder, tmp_path / "whole", workers=0)
    assert whole["totals"]["documents"] == 3 and whole["problems"]["long_document"]["count"] == 1
    divided = build_corpus(tmp_path / "a.txt", tokenizer_folder, tmp_path / "divided", workers=0, shard_tokens=4000)
    cuts = divided["problems"]["divided_document"]["count"]
    assert cuts > 1 and divided["totals"]["documents"] == 3 + cuts
    assert divided["totals"]["sentences"] == whole["totals"]["sentences"]
    assert divided["totals"]["tokens"] == whole["totals"]["tokens"]


def test_progress_is_reported(text_file, tokenizer_folder, tmp_path):
    told = []
    build_corpus(text_file, tokenizer_folder, tmp_path / "out", workers=0, shard_tokens=2000, on_progress=told.append)
    assert told[-1].bytes_read == told[-1].bytes_total == text_file.stat().st_size
    assert told[-1].documents == 180 and told[-1].tokens > 0 and told[-1].seconds > 0
    assert len(told) <= 2 + told[-1].seconds * 5
    assert [step.bytes_read for step in told] == sorted(step.bytes_read for step in told)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"clean": "html"}, "wiki"),
        ({"documents": "line"}, "blank-line"),
        ({"shard_tokens": 0}, "shard_tokens must be at least 1"),
        ({"workers": -1}, "workers must be at least 0"),
    ],
)
def test_wrong_settings_are_refused(text_file, tokenizer_folder, tmp_path, settings, message):
    with pytest.raises(ValueError, match=message):
        build_corpus(text_file, tokenizer_folder, tmp_path / "out", **settings)
    assert not (tmp_path / "out").exists()


def test_building_imports_neither_torch_nor_pyarrow():
    code = "import sys, hornbook.data.build, hornbook.text.tokenizer, hornbook.text.sentences as s; print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    assert "numpy" in loaded and not {"torch", "pyarrow", "transformers"} & set(loaded)
