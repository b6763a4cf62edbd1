"""An index: what is written, exact search, filters, adding, and what a kill leaves."""

import json
import signal
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from finetuned import encoder
from forked import begun

import hornbook
from hornbook.cli.retrieval import parse_filters
from hornbook.inference.retrieval import building, searching
from hornbook.inference.retrieval.index import Index, Manifest, dequantized, quantized
from hornbook.inference.retrieval.searching import (
    fastest_product,
    float_kernel,
    float_product,
    integer_kernel,
    search_index,
    top_rows,
)
from hornbook.tasks.reading import table_files, text_files

WORDS = ["river", "teacher", "lantern", "bridge", "morning", "letters"]
WORDS += ["windows", "children", "harbour", "garden", "silver", "bread"]
TEXTS = [f"the {WORDS[i % 12]} of {WORDS[i // 12]} {WORDS[(i * 7) % 12]}" for i in range(60)]
ROWS = [f"k{i},{'en' if i % 3 else 'de'},{text}" for i, text in enumerate(TEXTS)]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_tokenizer) -> Path:
    return encoder(tmp_path_factory.mktemp("model") / "model", tiny_tokenizer)


@pytest.fixture
def table(tmp_path) -> Path:
    file = tmp_path / "texts.csv"
    file.write_text("\n".join(["id,lang,body", *ROWS]), encoding="utf-8")
    return file


def exact(queries, vectors, top):
    order = np.argsort(-(queries @ vectors.T), axis=1, kind="stable")[:, :top]
    return np.take_along_axis(queries @ vectors.T, order, 1), order


@pytest.mark.parametrize("num_queries", [1, 5])
@pytest.mark.parametrize("block", [1, 7, 1000])
def test_blocks_change_nothing(monkeypatch, random, num_queries, block):
    monkeypatch.setattr(searching, "ROWS_AT_ONCE", block)
    vectors, queries = (random.standard_normal((n, 32)).astype(np.float32) for n in (100, num_queries))
    scores, rows = top_rows(queries, vectors, None, 10)
    expected_scores, expected_rows = exact(queries, vectors, 10)
    assert np.array_equal(rows, expected_rows) and np.allclose(scores, expected_scores, atol=1e-5)
    chosen = np.arange(0, 100, 7)
    _, rows = top_rows(queries, vectors, None, 100, chosen)
    assert np.array_equal(rows, chosen[exact(queries, vectors[chosen], 100)[1]])


def test_equal_scores_are_in_the_order_of_the_rows():
    _, rows = top_rows(np.ones((1, 4), np.float32), np.ones((9, 4), np.float32), None, 20)
    assert rows.tolist() == [list(range(9))]
    vectors = np.tile(np.array([[1], [0], [2], [1]], np.float32), (100, 1))
    _, rows = top_rows(np.ones((2, 1), np.float32), vectors, None, 150)
    assert rows.tolist() == 2 * [exact(np.ones((1, 1), np.float32), vectors, 150)[1][0].tolist()]


@pytest.mark.parametrize("product", [float_product, float_kernel, integer_kernel])
@pytest.mark.parametrize("num_queries", [1, 4])
@pytest.mark.parametrize("width", [32, 33])
def test_int8_products(random, width, num_queries, product, monkeypatch):
    monkeypatch.setattr(searching, "fastest_product", lambda *_: product)
    if product is not float_product and not searching.is_right(product, width):
        pytest.skip("this machine has no such kernel")
    vectors, queries = (random.standard_normal((n, width)).astype(np.float32) for n in (200, num_queries))
    numbers, scales, residuals = quantized(vectors)
    scores, rows = top_rows(queries, numbers, scales, 200)
    rounded = numbers * scales[:, None]
    assert np.allclose(scores, np.take_along_axis(queries @ rounded.T, rows, 1), atol=1e-3)
    assert np.abs(rounded - vectors).max() <= scales.max() / 2 * 1.001
    assert np.abs(dequantized(numbers, scales, residuals) - vectors).max() <= scales.max() / 500


def test_the_fastest_product_that_is_right_is_taken(monkeypatch):
    seconds = {float_product: 3.0, integer_kernel: 2.0, float_kernel: 1.0}
    monkeypatch.setattr(searching, "fastest_seconds", lambda run: seconds[run.func])
    monkeypatch.setattr(searching, "is_right", lambda product, width: product is not float_kernel)
    assert fastest_product.__wrapped__(32, True) is integer_kernel
    monkeypatch.undo()
    monkeypatch.setattr(torch.ops.aten, "_weight_int8pack_mm", lambda queries, block, scales: queries @ block.float().T)
    assert not searching.is_right(float_kernel, 32)
    monkeypatch.setattr(torch, "_int_mm", lambda *_: torch.ops.aten.no_such_kernel)
    assert not searching.is_right(integer_kernel, 32)


def test_build_and_search(hornbook, model, table, tmp_path, tiny_tokenizer):
    index = tmp_path / "index"
    said = hornbook("embed", table, "--text", "body", "--model", model, "--out", index, "--json")
    assert (said.answer["rows"], said.answer["added"], said.answer["dtype"]) == (60, 60, "float32")
    assert "columns: text = 'body', id = 'id'" in said.stderr and "pooling: mean" in said.stderr
    said = hornbook("search", index, TEXTS[2], "bread", "--top-k", 3, "--json")
    first, second = said.answer["results"]
    assert (first["hits"][0]["id"], first["hits"][0]["text"]) == ("k2", TEXTS[2]) and len(second["hits"]) == 3
    assert first["hits"][0]["columns"] == {"lang": "en"}
    assert first["hits"][0]["score"] >= first["hits"][1]["score"]
    found = hornbook("search", index, "bread", "--where", "lang=de", "--top-k", 100, "--json").answer["results"][0]
    assert len(found["hits"]) == 20 and {hit["columns"]["lang"] for hit in found["hits"]} == {"de"}
    assert "similarity" in hornbook("search", index, "bread").stdout
    assert hornbook("info", index, "--json").answer["kind"] == "index"
    said = hornbook("embed", table, "--text", "body", "--model", model, "--out", index)
    assert said.status == 0 and "already has these texts" in said.stderr
    other = ["embed", table, "--text", "body", "--out", index]
    assert "has float32 vectors, not int8" in hornbook(*other, "--dtype", "int8").error
    another = encoder(tmp_path / "another", tiny_tokenizer, seed=1)
    assert "was built with another model" in hornbook(*other, "--model", another).error


def test_vectors_are_those_of_the_model(model, table, tmp_path):
    hornbook.build_index(table, tmp_path / "index", model, text="body")
    index = Index(tmp_path / "index")
    texts = index.rows["text"].to_pylist()
    expected = hornbook.load(model).embed(texts, normalize=True)
    assert np.abs(index.vectors_ND - expected).max() < 1e-6
    assert texts == TEXTS


@pytest.mark.parametrize(("field", "value"), [("count", -1), ("bytes", -1), ("width", 0)])
def test_a_damaged_manifest_names_the_field(model, table, tmp_path, field, value):
    hornbook.build_index(table, tmp_path / "index", model, text="body")
    file = tmp_path / "index" / "index.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    with pytest.raises(ValueError, match=rf"is damaged \(its {field} is {value}\)"):
        Index(tmp_path / "index")


def test_int8_finds_the_same(model, table, tmp_path):
    for vectors in ("float32", "int8"):
        hornbook.build_index(table, tmp_path / vectors, model, text="body", dtype=vectors)
    whole, small = Index(tmp_path / "float32"), Index(tmp_path / "int8")
    assert 4 * small.vectors_ND.nbytes == whole.vectors_ND.nbytes
    queries = np.array(whole.vectors_ND[:20])
    found = (zip(*search_index(each, queries, 10), strict=True) for each in (whole, small))
    (scores, rows), (other_scores, others) = (map(np.stack, each) for each in found)
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(rows.tolist(), others.tolist(), strict=True)])
    assert recall >= 0.99 and np.allclose(scores, other_scores, atol=1e-4)


@pytest.mark.parametrize("vectors", ["float32", "int8"])
def test_approximate_search(hornbook, model, table, tmp_path, vectors):
    pytest.importorskip("faiss")
    index, text = tmp_path / "index", "lantern lantern lantern"
    hornbook("embed", table, "--text", "body", "--model", model, "--out", index, "--dtype", vectors)

    def hits(*options) -> list[list[tuple]]:
        results = hornbook("search", index, *options, "--json").answer["results"]
        return [[(hit["id"], hit["text"], round(hit["score"], 4)) for hit in each["hits"]] for each in results]

    assert "building" in hornbook("search", index, "bread", "--approximate").stderr
    assert "building" not in hornbook("search", index, "bread", "--approximate").stderr
    assert hits(TEXTS[3], "bread", "--approximate") == hits(TEXTS[3], "bread")
    assert len(hits("bread", "--approximate", "--where", "lang=de", "--top-k", 100)[0]) == 20
    assert len(hits("bread", "--approximate", "--top-k", 100)[0]) == 60
    more = tmp_path / "more.csv"
    more.write_text(f"id,body\nnew,{text}\n")
    hornbook("embed", more, "--text", "body", "--out", index, "--append")
    (found,) = hits(text, "--approximate")
    assert found[0][0] == "new"
    (index / "graph.faiss").write_bytes(b"damaged")
    assert hits(text, "--approximate") == [found]


def test_approximate_search_without_faiss(hornbook, model, table, tmp_path, monkeypatch):
    hornbook("embed", table, "--text", "body", "--model", model, "--out", tmp_path / "index")
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert "pip install 'hornbook[search]'" in hornbook("search", tmp_path / "index", "x", "--approximate").error


def test_append(hornbook, model, table, tmp_path):
    index, more = tmp_path / "index", tmp_path / "more.csv"
    hornbook("embed", table, "--text", "body", "--model", model, "--out", index)
    more.write_text("id,lang,body\nnew,fr,silver silver silver\n")
    words = ["embed", more, "--text", "body", "--out", index]
    assert "add --append" in hornbook(*words).error
    assert hornbook(*words, "--append", "--json").answer["rows"] == 61  # with the model of the index
    assert "already has" in hornbook(*words, "--append").stderr
    hit = hornbook("search", index, "silver silver silver", "--json").answer["results"][0]["hits"][0]
    assert (hit["id"], hit["columns"]) == ("new", {"lang": "fr"})
    more.write_text("id,lang,body\nnewer,fr,silver\nk3,fr,bread\n")
    assert "the id 'k3' is already in" in hornbook(*words, "--append").error
    assert len(Index(index)) == 61
    assert hornbook(*words, "--overwrite", "--model", model, "--json").answer["rows"] == 2


KILLED_WITHIN_A_BLOCK = """
import os, signal, sys
from hornbook.inference.retrieval import building, index
building.FIRST_ROWS = building.MAX_ROWS = 8
add = index.IndexWriter.add
def add_or_die(self, *rows):
    if self.manifest.count == 24:
        self._append("vectors.f32", b"half a block")
        self._append("rows.arrow", b"xy")
        os.kill(os.getpid(), signal.SIGKILL)
    add(self, *rows)
index.IndexWriter.add = add_or_die
building.build_index(*sys.argv[1:4], text="body")
"""


def test_a_killed_build_resumes(model, table, tmp_path):
    """A kill between blocks, with part of a block written."""
    out, whole = tmp_path / "index", tmp_path / "whole"
    process = begun(KILLED_WITHIN_A_BLOCK, table, out, model)
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert Manifest.read(out).count == 24 and not Manifest.read(out).is_finished
    assert hornbook.describe(out)["kind"] == "unfinished index"
    assert len(hornbook.search(out, "bread", top_k=100)[0]) == 24  # what is committed can be searched
    other = tmp_path / "other.csv"
    other.write_text("id,body\nx,bread\n")
    with pytest.raises(ValueError, match=r"unfinished index of .*texts.csv: run that command again"):
        hornbook.build_index(other, out, model, text="body")
    (out / "rows.arrow").rename(tmp_path / "rows.arrow")
    with pytest.raises(ValueError, match=r"rows.arrow is missing or truncated: restore it"):
        hornbook.build_index(table, out, model, text="body")
    (tmp_path / "rows.arrow").rename(out / "rows.arrow")
    assert hornbook.build_index(table, out, model, text="body").num_added == 36
    hornbook.build_index(table, whole, model, text="body")
    one, two = Index(out), Index(whole)
    assert one.rows.to_pylist() == two.rows.to_pylist()
    assert np.allclose(one.vectors_ND, two.vectors_ND, atol=1e-6)


def test_ctrl_c_keeps_what_is_done(monkeypatch, model, table, tmp_path):
    for name in ("FIRST_ROWS", "MAX_ROWS"):
        monkeypatch.setattr(building, name, 8)

    def stop(done: int, total: int) -> None:
        if done > 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt, match=r"16 of 60 texts are saved in .* run the same command again"):
        hornbook.build_index(table, tmp_path / "index", model, text="body", on_progress=stop)
    assert hornbook.build_index(table, tmp_path / "index", model, text="body").num_added == 44


def test_a_block_takes_a_few_seconds_whatever_the_speed(monkeypatch, model, table, tmp_path):
    clock, blocks = [0.0], []
    loaded = hornbook.load(model)
    embed = loaded.embed

    def slow(texts, **options):
        blocks.append(len(texts))
        clock[0] += len(texts) * 0.6  # seconds per text
        return embed(texts, **options)

    monkeypatch.setattr(loaded, "embed", slow)
    monkeypatch.setattr(building.time, "monotonic", lambda: clock[0])
    hornbook.build_index(table, tmp_path / "index", loaded, text="body")
    assert blocks[0] == building.FIRST_ROWS and sum(blocks) == 60
    assert all(size * 0.6 <= building.SECONDS_PER_BLOCK for size in blocks[1:])


def test_a_large_file_takes_little_memory(monkeypatch, model, tmp_path):
    """Reading, all but embedding: the peak is a fraction of the file, and the index is that of the whole file."""
    file, filler = tmp_path / "large.csv", " and bread" * 40
    with file.open("w") as out:
        out.write("id,note,body\n")
        for number in range(6_000):
            out.write(
                f'k{number},"note {number}","the river, {number}\nand a ""bridge"" of the harbour {number}{filler}"\n'
            )
    size = file.stat().st_size
    monkeypatch.setattr(table_files, "PIECE_BYTES", 1 << 14)
    monkeypatch.setattr(table_files, "PIECE_ROWS", 50)
    monkeypatch.setattr(text_files, "BLOCK_BYTES", 1 << 14)
    (tmp_path / "small.csv").write_text("body\nthe river\n")
    building.read_texts(tmp_path / "small.csv", tmp_path / "spool", text="body")  # imports what reading needs
    tracemalloc.start()
    found = building.read_texts(file, tmp_path / "spool", text="body")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 6_000 and found.other_columns == ("note",) and peak < size / 4, (peak, size)
    assert found.rows.slice(5_999).to_pylist()[0] == {
        "id": "k5999",
        "text": 'the river, 5999\nand a "bridge" of the harbour 5999' + filler,
        "note": "note 5999",
    }
    monkeypatch.undo()
    assert building.read_texts(file, tmp_path / "spool", text="body").fingerprint == found.fingerprint
    with file.open("a") as out:
        out.write("k7,a,b\n")
    monkeypatch.setattr(table_files, "PIECE_BYTES", 1 << 14)
    with pytest.raises(ValueError, match="the id 'k7' occurs twice in column 'id'"):
        building.read_texts(file, tmp_path / "spool", text="body")


def test_several_values_and_empty_cells(model, tmp_path):
    (tmp_path / "texts.csv").write_text("body,lang\nbread,de\nriver,en\nharbour,\nbridge,fr\n")
    hornbook.build_index(tmp_path / "texts.csv", tmp_path / "index", model, text="body")
    index = hornbook.SearchIndex(tmp_path / "index")
    several, empty = ({"lang": ["de", "en"]}, {"0", "1"}), (({"lang": ""}, {"2"}), ({"lang": None}, {"2"}))
    for where, expected in (several, *empty, ({"lang": "fr"}, {"3"})):
        assert {hit.id for hit in index.search("bread", where=where)[0]} == expected
    assert parse_filters(["lang=de", "lang=en", "a=b=c"]) == {"lang": ["de", "en"], "a": ["b=c"]}


def test_rows_without_ids_are_appended_after_empty_ones(model, tmp_path):
    for name, rows in (("one", "bread\n\nriver\n"), ("two", "harbour\nbridge\n")):
        (tmp_path / f"{name}.csv").write_text(f"body,tag\n{rows}".replace("\n\n", "\n,x\n"))
        hornbook.build_index(tmp_path / f"{name}.csv", tmp_path / "index", model, text="body", append=name == "two")
    assert Index(tmp_path / "index").rows["id"].to_pylist() == ["0", "2", "3", "4"]


def test_a_column_named_as_one_of_the_index_is_left_out_and_said(model, tmp_path):
    (tmp_path / "texts.csv").write_text("id,text,body\n1,a title,bread\n2,another,river\n")
    said = []
    hornbook.build_index(tmp_path / "texts.csv", tmp_path / "index", model, text="body", log=said.append)
    assert any("left out: the column 'text'" in line for line in said)


def test_what_is_not_a_text_is_refused(model, tmp_path):
    with pytest.raises(ValueError, match="texts must be a text or a list of texts, but item 1 is None"):
        hornbook.build_index(["a", None], tmp_path / "index", model)


def test_texts_in_memory_and_lines(model, tmp_path):
    built = hornbook.build_index(["the river", " ", "bread"], tmp_path / "list", model)
    assert (built.num_rows, built.num_empty) == (2, 1)
    assert [hit.id for hit in hornbook.search(tmp_path / "list", "bread")[0]] == ["2", "0"]
    (tmp_path / "texts.txt").write_text("the river\nbread\n")
    opened = hornbook.SearchIndex(tmp_path / "list", hornbook.load(model))
    assert hornbook.search(opened, ["bread", "river"], top_k=1)[0][0].text == "bread"
    with pytest.raises(ValueError, match="queries must be a text or a list of texts, but item 1 is 5"):
        hornbook.search(opened, ["bread", 5])
    assert hornbook.build_index(tmp_path / "texts.txt", tmp_path / "lines", model).num_rows == 2


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ("id,body\n1,a\n1,b\n", {"text": "body"}, "the id '1' occurs twice in column 'id'"),
        ("id,body\n1,a\n", {"text": "boddy"}, "has no column 'boddy' for the text; name the right one with text="),
        ("id,body\n1,a\n", {"text": "body", "id_column": "nr"}, "has no column 'nr' for the ids"),
        ("id,body\n1,a\n,b\n", {"text": "body"}, "a row has no id"),
        ("text,pair\na,b\n", {}, "name the column to embed with text="),
        ("id,body\n1,a\n", {"text": "body", "dtype": "int4"}, "dtype must be float32 or int8"),
    ],
)
def test_bad_texts(model, tmp_path, content, options, message):
    (tmp_path / "texts.csv").write_text(content)
    options = {"id_column": None} | options
    if "id_column" in options and "a row has no id" in message:
        options["id_column"] = "id"
    with pytest.raises(ValueError, match=message):
        hornbook.build_index(tmp_path / "texts.csv", tmp_path / "index", model, **options)
    assert not (tmp_path / "index").exists()


def test_bad_searches(hornbook, model, table, tmp_path, tiny_tokenizer, tiny_run):
    index = tmp_path / "index"
    hornbook("embed", table, "--text", "body", "--model", model, "--out", index)
    for words, message in (
        (["  "], "the query is empty"),
        (["a", "--where", "lang=xx"], "no row of the index has lang = xx"),
        (["a", "--where", "lang=xx", "--where", "lang=yy"], "no row of the index has lang = xx or yy"),
        (["a", "--where", "tongue=de"], "no column 'tongue' to filter by (columns: id, text, lang)"),
        (["a", "--where", "lang"], "--where takes column=value"),
        (["a", "--top-k", "0"], "--top-k must be at least 1"),
        (["a", "--model", encoder(tmp_path / "other", tiny_tokenizer, seed=1)], "was built with another model"),
        (["a", "--model", wider(tmp_path / "wider", tiny_tokenizer)], "in 64 numbers, but the index in"),
    ):
        said = hornbook("search", index, *words)
        assert said.status == 2 and message in said.error, said
    assert "is not an index: it has no index.json" in hornbook("search", model, "a").error
    record = (index / "index.json").read_text()
    (index / "index.json").write_text(json.dumps(json.loads(record) | {"model": str(tmp_path / "gone")}))
    assert "is gone: give its new folder with --model" in hornbook("search", index, "a").error
    assert hornbook("search", index, "a", "--model", model).status == 0
    (index / "vectors.f32").write_bytes(b"short")
    assert "is missing or truncated" in hornbook("search", index, "a").error


def wider(folder: Path, tokenizer_folder: Path) -> Path:
    import torch

    from hornbook.interop.folder import save_model
    from hornbook.models.bert import Bert, BertConfig
    from hornbook.text.tokenizer import Tokenizer

    tokenizer = Tokenizer.load(tokenizer_folder)
    model = Bert(BertConfig(tokenizer.vocab_size, num_layers=1, width=64, num_heads=2, inner_width=64), ("pooler",))
    model.initialize(torch.Generator().manual_seed(0))
    tokenizer.save(folder)
    save_model(folder, model)
    return folder


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_device_that_is_missing_is_no_reason_for_another_model(tmp_path, monkeypatch, model):
    monkeypatch.setattr(building, "model_folder", lambda name: model, raising=False)
    with pytest.raises(ValueError, match="torch finds no GPU") as raised:
        hornbook.build_index(["a text"], tmp_path / "index", device="cuda")
    assert "need no download" not in str(raised.value)
