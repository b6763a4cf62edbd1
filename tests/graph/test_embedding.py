"""Vectors: scores and filtered ranks equal slow direct computations, training learns, and resuming is exact."""

import math

import numpy as np
import pytest
import torch

from hornbook.graph.build import build_graph
from hornbook.graph.embedding import training
from hornbook.graph.embedding.models import MODELS
from hornbook.graph.embedding.ranking import KnownTails, filtered_ranks, ranking_metrics
from hornbook.graph.embedding.training import embed_graph
from hornbook.graph.embedding.vectors import GraphVectors
from hornbook.graph.graph import Graph


def direct_score(name: str, head, relation, tail) -> float:
    """The formulas of the papers, number by number."""
    if name == "transe":
        return -sum(abs(h + r - t) for h, r, t in zip(head, relation, tail, strict=True))
    if name == "distmult":
        return sum(h * r * t for h, r, t in zip(head, relation, tail, strict=True))
    half = len(head) // 2
    turned = [complex(head[i], head[i + half]) * complex(math.cos(a), math.sin(a)) for i, a in enumerate(relation)]
    return -sum(abs(z - complex(tail[i], tail[i + half])) for i, z in enumerate(turned))


@pytest.mark.parametrize("name", MODELS)
def test_filtered_ranks_equal_a_direct_computation(name, random):
    num_entities, num_relations = 9, 2
    torch.manual_seed(0)
    model = MODELS[name](num_entities, num_relations, 6).double()
    triples = np.unique(random.integers(0, (9, 2, 9), (25, 3)), axis=0)
    entities, relations = (each.detach().tolist() for each in (model.entities, model.relations))
    known = {tuple(each) for each in triples.tolist()}
    expected = []
    for is_head in (False, True):
        for head, relation, tail in triples.tolist():
            start, end = (tail, head) if is_head else (head, tail)
            vector = relations[relation + num_relations * is_head]
            scores = [direct_score(name, entities[start], vector, each) for each in entities]
            others = [
                each
                for each in range(num_entities)
                if each != end and ((each, relation, tail) if is_head else (head, relation, each)) not in known
            ]
            expected.append(1 + sum(scores[each] > scores[end] for each in others))
    found = filtered_ranks(model, triples, KnownTails(triples, num_relations), num_relations)
    assert found.tolist() == expected
    head, relation, tail = (torch.from_numpy(each.copy()) for each in triples.T)
    each, every = model(head, relation, tail), model.score_all(head, relation)
    assert torch.allclose(each, every.gather(1, tail[:, None])[:, 0], atol=1e-6)


@pytest.mark.parametrize("name", ["transe", "rotate"])
def test_distances_at_once_equal_those_in_portions(name):
    torch.manual_seed(0)
    model, found = MODELS[name](30, 2, 8), []
    vectors = [torch.randn(num, 8, dtype=torch.float64, requires_grad=True) for num in (5, 7)]
    for compare in (model.compare, model.compare_at_once):
        scores_BK = compare(*vectors)
        found.append([scores_BK, *torch.autograd.grad(scores_BK.sin().sum(), vectors)])
    torch.testing.assert_close(*found)


def test_equal_scores_share_their_ranks():
    model = MODELS["distmult"](5, 1, 4)
    torch.nn.init.zeros_(model.entities)
    triples = np.array([[0, 0, 1], [0, 0, 2]])
    ranks = filtered_ranks(model, triples, KnownTails(triples, 1), 1)
    assert ranks.tolist() == [2.5, 2.5, 3.0, 3.0]  # of 4 and of 5 entities
    assert ranking_metrics(ranks)["hits@1"] == 0


@pytest.fixture(scope="module")
def ring(tmp_path_factory):
    """Entities in a circle: next and after-next, of which some edges are validation and test triples."""
    folder = tmp_path_factory.mktemp("ring")
    size = 20
    rows = [f"e{i}\tnext\te{(i + 1) % size}" for i in range(size)] + [
        f"e{i}\tsecond\te{(i + 2) % size}" for i in range(size)
    ]
    (folder / "valid.txt").write_text("\n".join(rows[25:28]))
    (folder / "test.txt").write_text("\n".join([*rows[35:38], "e3\tnext\tunseen"]))
    (folder / "train.txt").write_text("\n".join(rows[:25] + rows[28:35] + rows[38:]))
    build_graph(folder, folder / "graph")
    return folder / "graph"


SMALL = {"width": 16, "batch_size": 8, "validate_every": 5, "num_negatives": 16, "margin": 4.0, "device": "cpu"}


@pytest.mark.parametrize(
    ("model", "loss"), [("transe", "auto"), ("rotate", "auto"), ("distmult", "auto"), ("distmult", "sampled")]
)
def test_training_learns(ring, tmp_path, model, loss):
    found = embed_graph(ring, tmp_path / "v", model=model, loss=loss, epochs=30, **SMALL)
    assert found["ended"] == "finished" and found["entities_without_vector"] == 1
    assert found["test"]["triples"] == 4 and found["test"]["triples_without_vector"] == 1
    graph = Graph(ring)
    vectors = GraphVectors(tmp_path / "v", graph)
    assert (~vectors.has_vector).sum() == 1
    rows, has_vector = vectors.of(["e0", "unseen", "no such entity"])
    assert has_vector.tolist() == [True, False, False] and not rows[1:].any() and rows[0].any()
    with pytest.raises(ValueError, match="'unseen' has no vector"):
        vectors.nearest("unseen")
    assert len(vectors.nearest("e0", 3)) == 3
    splits = training.split_triples(graph, 0, 0)
    kept = MODELS[model](graph.num_entities, graph.num_relations, 16)
    kept.entities.data, kept.relations.data = map(torch.from_numpy, (vectors.entities, vectors.relations))
    known = KnownTails(splits["train"], graph.num_relations)
    assert (
        ranking_metrics(filtered_ranks(kept, splits["train"], known, graph.num_relations))["mrr"] > 0.5
    )  # by chance: 0.17


@pytest.mark.parametrize("model", ["rotate", "distmult"])
def test_resuming_is_exact(ring, tmp_path, model):
    whole = embed_graph(ring, tmp_path / "whole", model=model, epochs=6, **SMALL)
    stopped = embed_graph(
        ring, tmp_path / "parts", model=model, epochs=6, on_progress=lambda now: now.step == 7, **SMALL
    )
    assert stopped["ended"] == "stopped" and stopped["step"] == 7
    with pytest.raises(ValueError, match="add resume=True"):
        embed_graph(ring, tmp_path / "parts", model=model, epochs=6, **SMALL)
    with pytest.raises(ValueError, match=r"lr is 0.1, not 0.5"):
        embed_graph(ring, tmp_path / "parts", model=model, epochs=6, lr=0.5, resume=True, **SMALL)
    resumed = embed_graph(ring, tmp_path / "parts", model=model, epochs=6, resume=True, **SMALL)
    assert resumed["test"] == whole["test"]
    assert (tmp_path / "parts" / "vectors.safetensors").read_bytes() == (
        tmp_path / "whole" / "vectors.safetensors"
    ).read_bytes()


def test_the_last_vectors_are_validated_when_the_time_is_up(ring, tmp_path):
    found = embed_graph(ring, tmp_path / "v", minutes=1e-6, **SMALL)
    assert found["ended"] == "finished" and found["step"] == 1
    assert found["validation_mrr"] is not None and found["best_epoch"] == found["epochs"]


def test_without_splits_a_share_is_held_out(graph_folder, graph, tmp_path):
    splits = training.split_triples(graph, 0.2, 0)
    assert [len(splits[name]) for name in ("train", "valid", "test")] == [9, 2, 2]
    every = np.concatenate(list(splits.values()))
    assert len(np.unique(every, axis=0)) == graph.num_edges
    found = embed_graph(graph_folder, tmp_path / "v", held_out=0, epochs=1, minutes=0.001, width=4, device="cpu")
    assert found["test"] == {} and found["validation_mrr"] is None


def test_wrong_values_and_other_graphs_are_refused(ring, graph, tmp_path):
    for wrong, message in (
        ({"model": "best"}, "one of transe"),
        ({"width": 7}, "must be even"),
        ({"lr": 0}, "lr must be"),
    ):
        with pytest.raises(ValueError, match=message):
            embed_graph(ring, tmp_path / "v", **{**SMALL, **wrong})
    assert not (tmp_path / "v").exists()
    embed_graph(ring, tmp_path / "v", epochs=1, **SMALL)
    with pytest.raises(ValueError, match="vectors of another graph"):
        GraphVectors(tmp_path / "v", graph)
    (tmp_path / "v" / "vectors.safetensors").write_bytes(b"x" * 20)
    with pytest.raises(ValueError, match="is damaged"):
        GraphVectors(tmp_path / "v", Graph(ring))
    (tmp_path / "v" / "run.json").unlink()
    with pytest.raises(ValueError, match=r"has no run\.json: give the folder that 'hornbook graph embed' wrote"):
        GraphVectors(tmp_path / "v", Graph(ring))
