"""Paths: the same as an exhaustive search on random graphs, and readable."""

import itertools

import numpy as np
import pytest

from hornbook.graph import paths
from hornbook.graph.build import build_graph
from hornbook.graph.graph import Graph


@pytest.fixture(scope="module")
def crowded(tmp_path_factory):
    """A random graph with loops, parallel edges and an isolated entity."""
    folder = tmp_path_factory.mktemp("random")
    random = np.random.default_rng(1)
    rows = [f"e{h}\tr{r}\te{t}" for h, r, t in zip(*random.integers(0, (12, 3, 12), (40, 3)).T, strict=True)]
    (folder / "a.tsv").write_text("\n".join(rows))
    (folder / "b.json").write_text('{"alone": {"label": "alone"}}')
    build_graph(folder, folder / "graph")
    return Graph(folder / "graph")


def exhaustive(graph, head: int, tail: int, hops: int) -> set[tuple[int, ...]]:
    near = {(int(h), int(t)) for h, t in zip(graph.heads, graph.tails, strict=True)}
    near |= {(t, h) for h, t in near}
    found = set()
    for length in range(1, hops + 1):
        for inner in itertools.permutations(set(range(graph.num_entities)) - {head, tail}, length - 1):
            nodes = (head, *inner, tail)
            if head != tail and all(pair in near for pair in itertools.pairwise(nodes)):
                found.add(nodes)
    return found


@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_all_paths_are_found_once(crowded, hops, monkeypatch):
    monkeypatch.setattr(paths, "MAX_AT_ONCE", 7)  # several portions
    pairs = list(itertools.product(range(0, crowded.num_entities, 3), range(crowded.num_entities)))
    heads, tails = np.array(pairs).T
    found = crowded.paths_batch(heads, tails, hops, limit=None)
    for query, (head, tail) in enumerate(pairs):
        rows = range(found.offsets_Q[query], found.offsets_Q[query + 1])
        nodes = [tuple(found.nodes_KH[row][: found.num_hops_K[row] + 1].tolist()) for row in rows]
        assert len(nodes) == len(set(nodes))
        assert set(nodes) == exhaustive(crowded, head, tail, hops)
        lengths = [len(each) for each in nodes]
        assert lengths == sorted(lengths)


def test_the_limit_keeps_the_first_of_each_query(crowded):
    heads, tails = np.repeat(np.arange(13), 13), np.tile(np.arange(13), 13)
    every, few = (crowded.paths_batch(heads, tails, 3, limit) for limit in (None, 2))
    for query in range(len(heads)):
        first, count = every.offsets_Q[query], min(2, every.offsets_Q[query + 1] - every.offsets_Q[query])
        assert few.offsets_Q[query + 1] - few.offsets_Q[query] == count
        expected = every.nodes_KH[first : first + count]
        assert np.array_equal(few.nodes_KH[few.offsets_Q[query] :][:count], expected)


def test_too_many_partial_paths_are_reported(crowded, monkeypatch):
    monkeypatch.setattr(paths, "MAX_PARTIAL", 1)
    heads = np.arange(crowded.num_entities)
    assert crowded.paths_batch(heads, np.roll(heads, 1), 3).is_cut_Q.any()


def test_readable_paths(graph):
    assert [str(each) for each in graph.paths("plant", "trowel")] == [
        "plant --AtLocation--> garden <--UsedFor-- trowel"
    ]
    longer = [str(each) for each in graph.paths("plant", "trowel", hops=3)]
    assert longer[1:] == ["plant --Needs--> water --AtLocation--> garden <--UsedFor-- trowel"]
    assert str(graph.paths("Luna", "moon")) == "[]" and graph.paths("plant", "moon", hops=4) == []


def test_parallel_edges_are_one_hop(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tr1\tb\na\tr2\tb\nb\tr3\ta\n")
    build_graph(tmp_path / "a.tsv", tmp_path / "graph")
    assert [str(each) for each in Graph(tmp_path / "graph").paths("a", "b")] == ["a <--r3--/--r1|r2--> b"]


def test_neighbours(graph):
    assert [str(edge) for edge in graph.neighbours("trowel", "out")] == [
        "trowel --UsedFor--> garden",
        "trowel --IsA--> tool",
    ]
    assert [edge.head for edge in graph.neighbours("garden", "in")] == ["trowel", "plant", "garden", "water"]
    assert graph.neighbours("moon") == []
    with pytest.raises(ValueError, match=r"no relation 'UsedFr' .* did you mean UsedFor"):
        graph.neighbours("garden", relation="UsedFr")


@pytest.mark.parametrize(
    ("asked", "near"),
    [("trowl", "'trowel'"), ("plants", "'plant'"), ("cafe müller", "'Café Müller'"), ("땅을", "'땅'")],
)
def test_an_unknown_concept_is_answered_with_suggestions(graph, asked, near):
    with pytest.raises(ValueError, match=rf"'{asked}' is not in the graph .*did you mean.*{near}"):
        graph.paths(asked, "garden")


def test_concepts_are_found_by_any_spelling(graph):
    for spelling in ("New_York  City", "NEW YORK CITY", "new york city"):
        assert graph.find(spelling) == graph.find("new york city")
    assert graph.find("CAFE\u0301 MÜLLER") == graph.find("Café Müller")
    with pytest.raises(ValueError, match="is not in the graph"):
        graph.find("")
    for wrong in ({"hops": 0}, {"hops": 5}, {"limit": 0}):
        with pytest.raises(ValueError, match="must be"):
            graph.paths("plant", "garden", **wrong)
