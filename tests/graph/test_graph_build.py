"""Graph folders: every format of triples, bad rows with their place, names, damage."""

import gzip
import json
import lzma
import shutil
import unicodedata

import numpy as np
import pytest

from hornbook.graph.build import build_graph
from hornbook.graph.graph import Graph

TRIPLES = [("dog", "IsA", "animal"), ("cat", "IsA", "animal"), ("dog", "Desires", "bone")]


def edges(graph) -> set[tuple[str, str, str]]:
    return {(edge.head, edge.relation, edge.tail) for edge in map(graph.edge, range(graph.num_edges))}


def lines(separator: str) -> str:
    return "".join(f"{separator.join(triple)}\n" for triple in TRIPLES)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", lines("\t").encode()),
        ("a.csv", b"subject,predicate,object\n" + lines(",").encode()),
        ("a.txt", lines("\t").replace("\n", "\r\n").encode()),
        (
            "a.jsonl",
            "".join(json.dumps(dict(zip(("h", "r", "t"), each, strict=True))) + "\n" for each in TRIPLES).encode(),
        ),
        ("a.tsv.gz", gzip.compress(lines("\t").encode(), mtime=0)),
        ("a.tsv.xz", lzma.compress(lines("\t").encode())),
    ],
)
def test_formats_give_the_same_graph(tmp_path, name, content):
    (tmp_path / name).write_bytes(content)
    manifest = build_graph(tmp_path / name, tmp_path / "graph")
    assert manifest["problems"] == {}
    assert edges(Graph(tmp_path / "graph")) == set(TRIPLES)


def test_an_empty_file_is_noted_after_one_with_a_bad_row(tmp_path):
    (tmp_path / "a.tsv").write_text(lines("\t") + "dog\n")
    (tmp_path / "b.tsv").write_text("\n")
    problems = build_graph([tmp_path / "a.tsv", tmp_path / "b.tsv"], tmp_path / "graph")["problems"]
    assert {kind: list(each["files"].values()) for kind, each in problems.items()} == {
        "bad_triple": [1],
        "empty_file": [1],
    }


def test_the_order_of_columns(tmp_path):
    (tmp_path / "a.txt").write_text("IsA\tdog\tanimal\n")
    build_graph(tmp_path / "a.txt", tmp_path / "graph", columns=["relation", "head", "tail"])
    assert edges(Graph(tmp_path / "graph")) == {("dog", "IsA", "animal")}
    with pytest.raises(ValueError, match="columns= must name head"):
        build_graph(tmp_path / "a.txt", tmp_path / "other", columns=["head", "tail"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "subject,predicate,object,source\ndog,IsA,animal,wikipedia\n"),
        ("a.csv", "start,end,head,relation,tail\n1905,2024,dog,IsA,animal\n"),
        ("a.tsv", "head\trelation\ttail\tstart\tend\ndog\tIsA\tanimal\t1905\t2024\n"),
        ("a.jsonl", '{"subject": "dog", "predicate": "IsA", "object": "animal", "source": "wikipedia"}\n'),
    ],
)
def test_of_several_columns_that_may_be_the_head_the_surest_is(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    build_graph(tmp_path / name, tmp_path / "graph")
    assert edges(Graph(tmp_path / "graph")) == {("dog", "IsA", "animal")}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", "head,relation,tail,weight\ndog,IsA,animal,\ndog,IsA,pet,2\n"),
        ("a.jsonl", '["dog", "IsA", "animal", null]\n["dog", "IsA", "pet", 2]\n'),
    ],
)
def test_an_edge_without_a_weight_among_others_has_the_weight_1(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    build_graph(tmp_path / name, tmp_path / "graph")
    assert {edge.tail: edge.weight for edge in Graph(tmp_path / "graph").neighbours("dog")} == {"animal": 1, "pet": 2}


def test_composed_and_decomposed_names_are_one_entity(tmp_path):
    lines = "한국\tIsA\tcountry\n" + unicodedata.normalize("NFD", "한국\tHasA\tcafé\n")
    (tmp_path / "a.tsv").write_text(lines, encoding="utf-8")
    build_graph(tmp_path / "a.tsv", tmp_path / "graph")
    graph = Graph(tmp_path / "graph")
    assert edges(graph) == {("한국", "IsA", "country"), ("한국", "HasA", "café")}
    assert graph.find(unicodedata.normalize("NFD", "한국")) == graph.find("한국")


def test_conceptnet_4_and_5(tmp_path):
    (tmp_path / "four.tsv").write_text("dog\tIsA\tanimal\t5\t3\ndog\tCapableOf\tfly\t-5\t1\n")
    five = '/a/[/r/IsA/,/c/en/dog/n/]\t/r/IsA\t/c/en/ice_cream/n\t/c/en/food\t{"weight": 2.5}\n'
    (tmp_path / "five.tsv").write_text(five + five.replace("/c/en/food", "/c/ko/음식"))
    manifest = build_graph([tmp_path / "four.tsv", tmp_path / "five.tsv"], tmp_path / "graph")
    graph = Graph(tmp_path / "graph")
    assert edges(graph) == {("dog", "IsA", "animal"), ("dog", "NotCapableOf", "fly"), ("ice cream", "IsA", "food")}
    assert {edge.weight for edge in graph.neighbours("dog")} == {3.0, 1.0}
    assert graph.neighbours("food")[0].weight == 2.5
    assert manifest["problems"]["other_language"]["count"] == 1


def test_wikidata_ids_with_names_and_splits(tmp_path):
    (tmp_path / "train.txt").write_text("Q1\tP31\tQ2\nQ3\tP31\tQ2\n")
    (tmp_path / "valid.txt").write_text("Q1\tP31\tQ3\n")
    names = {"Q1": {"label": "universe", "aliases": ["cosmos"]}, "Q2": {"label": "thing"}, "Q9": {"label": "Luna"}}
    (tmp_path / "entities.json").write_text(json.dumps(names))
    (tmp_path / "relations.json").write_text(json.dumps({"P31": {"label": "instance of"}}))
    (tmp_path / "entity2types.json").write_text(json.dumps({"Q1": ["Q2"]}))
    manifest = build_graph(tmp_path, tmp_path / "graph")
    graph = Graph(tmp_path / "graph")
    found = [str(edge) for edge in graph.neighbours("Cosmos", relation="instance of")]
    assert found == ["universe --instance of--> thing", "universe --instance of--> Q3"]
    assert np.bincount(graph.splits).tolist()[:2] == [2, 1]
    totals = manifest["totals"]
    assert (totals["isolated_entities"], totals["entities_without_name"]) == (1, 1)
    assert manifest["problems"]["not_names"]["count"] == 1


def test_wordnet(tmp_path):
    folder = tmp_path / "dict"
    folder.mkdir()
    licence = "  1 This software and database is being provided to you\n"
    dog = "00000100 05 n 02 dog 0 domestic_dog 0 002 @ 00000200 n 0000 ~ 00000300 n 0000 | a pet\n"
    animal = "00000200 05 n 01 animal 0 001 ~ 00000100 n 0000 | alive\n"
    frank = "00000300 05 n 01 dog 1 001 @ 00000999 n 0000 | no such target\n"
    (folder / "data.noun").write_text(licence + dog + animal + frank)
    (folder / "index.noun").write_text(f"{licence}dog n 2 1 @ 2 1 00000100 00000300\nanimal n 1 1 ~ 1 1 00000200\n")
    (folder / "index.sense").write_text("dog%1:05:00:: 00000100 1 42\n")
    manifest = build_graph(tmp_path, tmp_path / "graph")
    graph = Graph(tmp_path / "graph")
    assert edges(graph) == {("dog.n.01", "hypernym", "animal.n.01")}
    assert [graph.entities[each] for each in graph.find("dog")] == ["dog.n.01", "dog.n.02"]
    assert [graph.entities[each] for each in graph.find("domestic dog")] == ["dog.n.01"]
    assert manifest["problems"]["bad_triple"]["examples"][0]["place"] == "synset 00000300"


def test_bad_rows_are_counted_with_their_place(tmp_path):
    (tmp_path / "a.tsv").write_bytes(
        b"dog\tIsA\tanimal\nonly one field\n\t IsA\tx\ndog\tIsA\tpet\tmuch\n\xff\tIsA\tpet\n"
    )
    manifest = build_graph(tmp_path / "a.tsv", tmp_path / "graph")
    problems = manifest["problems"]
    assert manifest["totals"]["edges"] == 2 and problems["bad_triple"]["count"] == 3
    assert [each["place"] for each in problems["bad_triple"]["examples"]] == ["line 2", "line 3", "line 4"]
    assert problems["invalid_utf8"]["examples"][0]["place"] == "line 5"


def test_a_heading_and_another_encoding(tmp_path):
    text = "predicate,subject,object\n치료,아스피린,두통\nonly one\n치료,해열제,발열\n"
    (tmp_path / "a.csv").write_bytes(text.encode("cp949"))
    manifest = build_graph(tmp_path / "a.csv", tmp_path / "graph")
    assert edges(Graph(tmp_path / "graph")) == {("아스피린", "치료", "두통"), ("해열제", "치료", "발열")}
    assert manifest["problems"]["other_encoding"]["examples"][0]["detail"] == "cp949"
    assert manifest["problems"]["bad_triple"]["examples"][0]["detail"] == "no head"


def test_quoted_fields_may_be_long_and_open_quotes_are_read_literally(tmp_path):
    long = "y" * 200_000  # more than the limit of the csv module
    (tmp_path / "a.csv").write_text(f'head,relation,tail\n"Paris, France",is,"{long}"\nq,"open,w\n')
    manifest = build_graph(tmp_path / "a.csv", tmp_path / "graph")
    assert Graph(tmp_path / "graph").entities == ["Paris, France", long]
    assert {kind: each["count"] for kind, each in manifest["problems"].items()} == {"bad_quotes": 1, "bad_triple": 1}


def test_duplicates_and_loops(graph):
    problems = graph.manifest["problems"]
    assert problems["duplicate_edge"]["count"] == 1
    assert graph.num_edges == 13
    weights = {edge.head: edge.weight for edge in graph.neighbours("garden", relation="UsedFor")}
    assert weights == {"trowel": 4.0}


def test_nothing_to_read_is_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("nothing\n")
    with pytest.raises(ValueError, match=r"no triple could be read \(.*a.tsv line 1"):
        build_graph(tmp_path / "a.tsv", tmp_path / "graph")
    assert not (tmp_path / "graph").exists()
    with pytest.raises(ValueError, match="does not exist"):
        build_graph(tmp_path / "none.tsv", tmp_path / "graph")
    (tmp_path / "a.doc").write_text("x")
    with pytest.raises(ValueError, match="unknown extension"):
        build_graph(tmp_path / "a.doc", tmp_path / "graph")


def test_the_same_sources_are_not_built_again_and_others_are_refused(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tr\tb\n")
    first = build_graph(tmp_path / "a.tsv", tmp_path / "graph")
    again = build_graph(tmp_path / "a.tsv", tmp_path / "graph")
    assert again["already_built"] and again["fingerprint"] == first["fingerprint"]
    (tmp_path / "b.tsv").write_text("a\tr\tc\n")
    with pytest.raises(ValueError, match="already holds a graph of other sources"):
        build_graph(tmp_path / "b.tsv", tmp_path / "graph")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"thesis.txt, which is not of a graph"):
        build_graph(tmp_path / "a.tsv", tmp_path / "full")


@pytest.mark.parametrize("name", ["tails.npy", "names.tsv", "pairs.npy"])
def test_damage_is_named(graph_folder, tmp_path, name):
    copy = tmp_path / "copy"
    shutil.copytree(graph_folder, copy)
    data = bytearray((copy / name).read_bytes())
    data[-2] ^= 1
    (copy / name).write_bytes(data)
    with pytest.raises(ValueError, match=f"{name} has changed since it was built"):
        Graph(copy)
    (copy / name).unlink()
    with pytest.raises(ValueError, match=f"{name} is missing"):
        Graph(copy)


def test_a_damaged_manifest_and_other_folders(graph_folder, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(graph_folder, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    manifest["sha256"]["heads.npy"] = "0" * 64
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ValueError, match="its fingerprint does not match"):
        Graph(copy)
    (copy / "manifest.json").write_text("{")
    with pytest.raises(ValueError, match="is not valid JSON"):
        Graph(copy)
    with pytest.raises(ValueError, match="there is no folder"):
        Graph(tmp_path / "none")
    with pytest.raises(ValueError, match="is not a graph"):
        Graph(tmp_path)


def test_edges_are_mapped_not_read(graph):
    base = graph.tails
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    assert not isinstance(base, np.ndarray)


def test_the_training_file_of_a_folder_is_read_first(tmp_path):
    folder = tmp_path / "triples"
    folder.mkdir()
    for name, head in (("dev", "b"), ("train", "a"), ("test", "c")):
        (folder / f"{name}.tsv").write_text(f"{head}\tr\tend\n", encoding="utf-8")
    build_graph(folder, tmp_path / "graph")
    assert Graph(tmp_path / "graph").entities == ["a", "end", "b", "c"]
