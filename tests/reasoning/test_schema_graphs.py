"""Schema graphs equal those of a slow search, on random graphs and on awkward ones."""

import itertools
import math

import numpy as np
import pytest

from hornbook.graph.build import build_graph
from hornbook.graph.embedding.training import embed_graph
from hornbook.graph.embedding.vectors import GraphVectors
from hornbook.graph.graph import Graph
from hornbook.reasoning.schema import SchemaBuilder, shuffled_entities
from hornbook.reasoning.settings import KagnetSettings


@pytest.fixture(scope="module")
def graph(tmp_path_factory):
    """25 entities, 4 relations, several edges between the same entities, and loops."""
    draw = np.random.default_rng(3)
    rows = {(int(h), int(r), int(t)) for h, r, t in zip(*draw.integers([[25], [4], [25]], size=(3, 90)), strict=True)}
    rows |= {(7, 0, 7)}
    lines = [f"e{h}\tr{r}\te{t}\t{draw.integers(1, 9)}" for h, r, t in sorted(rows)]
    folder = tmp_path_factory.mktemp("random")
    (folder / "facts.tsv").write_text("\n".join(lines), encoding="utf-8")
    build_graph(folder / "facts.tsv", folder / "graph")
    return Graph(folder / "graph")


class Plausible:
    """Vectors by which the plausibility of a triple is any number."""

    def plausibility(self, heads, relations, tails):
        return ((np.asarray(heads) * 7 + np.asarray(relations) * 13 + np.asarray(tails) * 29) % 97 + 1) / 98


class Slow:
    """Paths by a search that looks at one after the other."""

    def __init__(self, graph, limits, vectors):
        self.limits, self.vectors = limits, vectors
        self.hops, self.near = {}, {entity: set() for entity in range(graph.num_entities)}
        rows = zip(
            *(each.tolist() for each in (graph.heads, graph.relation_ids, graph.tails, graph.weights)), strict=True
        )
        for head, kind, tail, weight in rows:
            score = None if vectors is None else float(vectors.plausibility(head, kind, tail))
            rank = -(weight if score is None else score)
            self.hops.setdefault((head, tail), []).append((rank, kind, score))
            self.hops.setdefault((tail, head), []).append((rank, kind + graph.num_relations, score))
            self.near[head].add(tail)
            self.near[tail].add(head)

    def hop(self, a, b):
        """(Relation, score) of the best edge between two entities."""
        _, relation, score = min(self.hops[a, b])
        return relation, 1.0 if score is None else score

    def paths(self, head, tail):
        """[(nodes, relations, score)] of a pair, the best first."""
        found, beginnings = [], [(head,)]
        for _ in range(self.limits.hops):
            beginnings = [(*path, node) for path in beginnings for node in self.near[path[-1]] if node not in path]
            found += [path for path in beginnings if path[-1] == tail]
            beginnings = [path for path in beginnings if path[-1] != tail]
        degree = {node: len(near) for node, near in self.near.items()}
        found.sort(key=lambda path: (len(path), sum(math.log1p(degree[n]) for n in path[1:-1]), path[1:-1]))
        rows = []
        for path in found:
            hops = [self.hop(a, b) for a, b in itertools.pairwise(path)]
            rows.append((path, tuple(relation for relation, _ in hops), math.prod(score for _, score in hops)))
        if self.vectors is not None:
            rows = sorted((row for row in rows if row[2] >= self.limits.min_score), key=lambda row: -row[2])
        return rows[: self.limits.paths]


def statement_of(schema, number):
    """The paths by pair, the edges and the nodes of a statement, by entity numbers."""
    nodes, edges, pairs, paths = (
        slice(*getattr(schema, name)[number : number + 2])
        for name in ("node_offsets", "edge_offsets", "pair_offsets", "path_offsets")
    )
    entities = schema.entities_C[nodes]
    by_pair = {tuple(entities[pair].tolist()): [] for pair in schema.pairs_P2[pairs]}
    for pair, path, relations, length, score in zip(
        schema.paths_K[paths], schema.nodes_KH[paths], schema.relations_KH[paths], schema.lengths_K[paths],
        schema.scores_K[paths], strict=True,
    ):  # fmt: skip
        assert (path[length:] == path[length - 1]).all() and (relations[length - 1 :] == 0).all()
        key = tuple(entities[schema.pairs_P2[pairs][pair]].tolist())
        by_pair[key].append((tuple(entities[path[:length]].tolist()), tuple(relations[: length - 1].tolist()), score))
    edges = {tuple(each) for each in entities[schema.edges_E2[edges]].tolist()}
    return by_pair, edges, set(entities.tolist())


@pytest.mark.parametrize("vectors", [None, Plausible()], ids=["no vectors", "vectors"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_schema_graphs_are_those_of_a_slow_search(graph, hops, vectors):
    limits = KagnetSettings(hops=hops, paths=4, pairs=3, min_score=0.2)
    draw = np.random.default_rng(hops)
    asked = [
        (draw.choice(25, 4, replace=False).tolist(), [draw.choice(25, n, replace=False).tolist() for n in (1, 2, 3)])
        for _ in range(8)
    ]
    asked.append(([], [[1], [2, 3], []]))
    schema = SchemaBuilder(graph, vectors, limits).build(asked)
    statements = [(question, answer) for question, answers in asked for answer in answers]
    assert schema.num_statements == len(statements)
    num_paths, slow = 0, Slow(graph, limits, vectors)
    for number, (question, answer) in enumerate(statements):
        expected = {}
        for place, (q, a) in enumerate(itertools.product(question, answer)):
            if q != a and (rows := slow.paths(q, a)):
                rank = -len(rows[0][0]) if vectors is None else rows[0][2]
                expected[(q, a)] = (-rank, place, rows)
        kept = sorted(expected.items(), key=lambda item: item[1][:2])[: limits.pairs]
        expected = {key: rows for key, (_, _, rows) in kept}
        by_pair, edges, nodes = statement_of(schema, number)
        assert by_pair.keys() == expected.keys()
        for key, rows in expected.items():
            assert [row[:2] for row in by_pair[key]] == [row[:2] for row in rows]
            assert [row[2] for row in by_pair[key]] == pytest.approx([row[2] for row in rows])
            num_paths += len(rows)
        on_paths = {pair for rows in expected.values() for path, _, _ in rows for pair in itertools.pairwise(path)}
        found = graph.adjacency.find
        for some in (question, answer):
            on_paths |= {
                (a, b) for a, b in itertools.permutations(some, 2) if found(np.array([a]), np.array([b]))[0] >= 0
            }
        assert edges == on_paths | {(b, a) for a, b in on_paths}
        assert nodes == {*question, *answer, *(n for rows in expected.values() for path, _, _ in rows for n in path)}
    assert num_paths > 10


def test_the_order_of_the_questions_and_their_number_do_not_matter(graph, monkeypatch):
    asked = [([i, i + 1], [[i + 2], [i + 5, i + 6]]) for i in range(18)]
    whole = SchemaBuilder(graph).build(asked)
    monkeypatch.setattr("hornbook.reasoning.schema.QUESTIONS_AT_ONCE", 5)
    counts = []
    parts = SchemaBuilder(graph).build(asked, counts.append)
    assert counts == [5, 10, 15, 18]
    for name, value in vars(whole).items():
        assert np.array_equal(value, getattr(parts, name)), name
    assert SchemaBuilder(graph).build([]).num_statements == 0


FACTS = """head\trelation\ttail
new york\tIsA\tcity
york\tIsA\ttown
new york city\tIsA\tcity
town\tIsA\tplace
city\tIsA\tplace
place\tPartOf\tplace
Café Müller\tAtLocation\tcity
삽\tUsedFor\t땅
"""


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    folder = tmp_path_factory.mktemp("places")
    (folder / "facts.tsv").write_text(FACTS, encoding="utf-8")
    (folder / "moon.json").write_text('{"moon": {"label": "moon"}}')
    build_graph([folder / "facts.tsv", folder / "moon.json"], folder / "graph")
    return Graph(folder / "graph")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("Is New York City a place?", ["new york city", "york", "city", "place"]),  # the longest name, and its words
        ("CAFÉ MÜLLER", ["Café Müller"]),
        ("Cafe\u0301 Mu\u0308ller", ["Café Müller"]),  # another normal form
        ("땅을 삽으로 팠다", ["땅", "삽"]),
        ("the moon and the moon", ["moon"]),
        ("nothing here", []),
        ("", []),
    ],
)
def test_texts_are_grounded(places, text, names):
    found = SchemaBuilder(places).ground([text])
    assert [places.entities[number] for number in found[0]] == names


@pytest.mark.parametrize(
    ("question", "answer", "paths"),
    [
        ("a town", "a city", ["town --IsA--> place <--IsA-- city"]),  # through an entity with a loop
        ("the moon", "a city", []),  # an isolated entity
        ("a city", "the moon", []),
        ("a city", "city", []),  # the same concept
        ("nothing", "a city", []),
        ("a city", "nothing", []),
        ("무엇으로 땅을 팠나?", "삽", ["땅 <--UsedFor-- 삽"]),
    ],
)
def test_awkward_questions(places, question, answer, paths):
    builder = SchemaBuilder(places)
    schema = builder.build([(builder.ground([question])[0], builder.ground([answer]))])
    assert [str(each) for each in builder.paths_of(schema, 0)] == paths


@pytest.mark.parametrize("model", ["transe", "distmult", "rotate"])
def test_plausibility(graph, tmp_path, model):
    embed_graph(graph.folder, tmp_path / "vectors", model=model, width=8, epochs=2, device="cpu")
    vectors = GraphVectors(tmp_path / "vectors", graph)
    heads, relations, tails = graph.heads[:20], graph.relation_ids[:20], graph.tails[:20]
    found = vectors.plausibility(heads, relations, tails)
    for h, r, t, score in zip(heads, relations, tails, found, strict=True):
        head, relation, tail = vectors.entities[h], vectors.relations[r], vectors.entities[t]
        if model == "transe":
            one, other = relation, tail - head
        elif model == "distmult":
            one, other = head * relation, tail
        else:
            turned = (head[:4] + 1j * head[4:]) * np.exp(1j * relation)
            one, other = np.concatenate([turned.real, turned.imag]), tail
        norms = np.linalg.norm(one) * np.linalg.norm(other)
        assert score == pytest.approx((1 + (one @ other / norms if norms else 0)) / 2, abs=1e-5)
    assert ((found >= 0) & (found <= 1)).all()


def test_a_shuffled_graph_replaces_entities_by_others_of_similar_degree(graph, monkeypatch):
    monkeypatch.setattr("hornbook.reasoning.schema.SIMILAR_DEGREES", 5)
    found = shuffled_entities(graph.adjacency)
    assert sorted(found) == list(range(graph.num_entities)) and (found != np.arange(graph.num_entities)).sum() > 10
    degrees = graph.adjacency.degree(np.arange(graph.num_entities))
    ordered = np.sort(degrees)[::-1]
    widest = max(ordered[i] - ordered[min(i + 4, len(ordered) - 1)] for i in range(0, len(ordered), 5))
    assert (np.abs(degrees - degrees[found]) <= widest).all()
    builder = SchemaBuilder(graph, settings=KagnetSettings(control="shuffled-graph"))
    assert builder.ground(["e3 e4"]) == [[found[graph.find("e3")[0]], found[graph.find("e4")[0]]]]
