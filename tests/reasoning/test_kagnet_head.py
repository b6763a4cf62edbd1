"""The head on ragged streams equals KagNet computed one node, path and pair at a time."""

import dataclasses

import numpy as np
import pytest
import torch
from torch.nn import functional

from hornbook.batch import concatenate
from hornbook.models.bert import Bert, BertConfig
from hornbook.models.head_config import HeadConfig, KagNetConfig
from hornbook.models.kagnet import CONCEPTS, EDGES, PAIRS, PATHS, segment_softmax
from hornbook.reasoning.grounding import SchemaStreams
from hornbook.reasoning.schema import SchemaGraphs
from hornbook.tasks.encoded import EncodedExamples

SIZE = {"num_layers": 1, "width": 16, "num_heads": 2, "inner_width": 32, "max_positions": 32, "vocab_size": 64}
LAYERS = KagNetConfig(concept_width=6, relation_width=5, num_relations=4, width=8)


def statement(random, num_nodes, pairs):
    """A made-up schema graph: nodes in a ring, and for every pair (question, answer, numbers of nodes of its paths)."""
    nodes, relations, lengths, owners = [], [], [], []
    for number, (question, answer, sizes) in enumerate(pairs):
        for length in sizes:
            path = [question, *random.integers(num_nodes, size=length - 2), answer]
            nodes.append([*path, *[answer] * (3 - length)])
            relations.append([*random.integers(4, size=length - 1), *[0] * (4 - length)])
            lengths.append(length)
            owners.append(number)
    ring = [(i, (i + 1) % num_nodes) for i in range(num_nodes)] if num_nodes > 2 else []
    edges = [*ring, *((b, a) for a, b in ring)]
    offsets = [np.array([0, size]) for size in (num_nodes, len(edges), len(pairs), len(owners))]
    flags = np.zeros(num_nodes, bool)
    return SchemaGraphs(
        *offsets,
        random.integers(20, size=num_nodes),
        *(flags, flags),
        np.array(edges, np.int64).reshape(-1, 2),
        np.array([pair[:2] for pair in pairs], np.int64).reshape(-1, 2),
        np.array(owners, np.int64),
        np.array(nodes, np.int64).reshape(-1, 3),
        np.array(relations, np.int64).reshape(-1, 3),
        np.array(lengths, np.int64),
        np.ones(len(owners)),
    )


@pytest.fixture
def encoded(random) -> EncodedExamples:
    """Three questions with two answers; the statements have several pairs, one, none, and only isolated nodes."""
    parts = [
        statement(random, 5, [(0, 3, [2, 3, 3]), (1, 3, [3]), (2, 4, [2, 3])]),
        statement(random, 4, [(0, 1, [2])]),
        statement(random, 0, []),
        statement(random, 2, []),
        statement(random, 3, [(0, 2, [3, 3]), (1, 2, [2])]),
        statement(random, 6, [(5, 0, [3, 2, 3, 3])]),
    ]
    ids = [random.integers(64, size=length) for length in (4, 7, 3, 5, 9, 6)]
    vectors = random.standard_normal((20, 6)).astype(np.float32)
    streams = SchemaStreams(SchemaGraphs.concatenated(parts), vectors)
    labels = np.array([0, 0, 1, 1, 0, 0])
    zeros = [np.zeros_like(each) for each in ids]
    return EncodedExamples(ids, zeros, np.arange(6) // 2, 3, labels, group_size=2, extra_streams=streams)


def make(**layers) -> Bert:
    shape = dataclasses.replace(LAYERS, **layers)
    config = BertConfig(**SIZE, dropout=0.0, attention_dropout=0.0)
    model = Bert(config, ("pooler",), HeadConfig("choice", graph=shape))
    model.initialize(torch.Generator().manual_seed(0))
    model.task.initialize(torch.Generator().manual_seed(1))
    return model.eval()


def slow_graph_vector(head, streams: SchemaStreams, number: int, s: torch.Tensor):
    """(Graph vector, weight of every path) of one statement."""
    schema, shape = streams.schema, head.kagnet_config
    nodes, edges, pairs, paths = (
        slice(*getattr(schema, name)[number : number + 2])
        for name in ("node_offsets", "edge_offsets", "pair_offsets", "path_offsets")
    )
    first = [head.concepts(torch.from_numpy(streams.vectors[entity])) for entity in schema.entities_C[nodes]]
    x = first
    if shape.convolution:
        for convolve in head.convolutions:
            new = []
            for node in range(len(x)):
                near = [x[a] for a, b in schema.edges_E2[edges].tolist() if b == node]
                mean = sum(convolve.neighbours(each) for each in near) / len(near) if near else 0
                new.append((convolve.own(x[node]) + mean).relu())
            x = new
        x = [torch.cat(both) for both in zip(first, x, strict=True)]
    latent, pair_scores, path_weights = [], [], []
    for pair, (question, answer) in enumerate(schema.pairs_P2[pairs].tolist()):
        inner = functional.leaky_relu(head.pair(torch.cat([x[question], x[answer], s])))
        vector = functional.leaky_relu(head.pair_out(inner))
        encoded = []
        for row in range(paths.start, paths.stop):
            if schema.paths_K[row] != pair:
                continue
            length, none = schema.lengths_K[row], torch.zeros(shape.relation_width)
            steps = []
            for place in range(length):
                relation = head.relations.weight[schema.relations_KH[row, place]] if place < length - 1 else none
                steps.append(torch.cat([x[schema.nodes_KH[row, place]], relation]))
            encoded.append(slow_lstm(head.lstm, steps) if shape.lstm else head.path(sum(steps) / length).tanh())
        if shape.attention:
            query = head.path_query(vector)
            weights = torch.stack([query @ each for each in encoded]).softmax(0)
            pair_scores.append(head.pair_query(s) @ vector)
        else:
            weights = torch.full((len(encoded),), 1 / len(encoded))
            pair_scores.append(torch.zeros(()))
        latent.append(torch.cat([vector, sum(w * each for w, each in zip(weights, encoded, strict=True))]))
        path_weights.append(weights)
    if not latent:
        return torch.zeros(2 * shape.width), []
    pair_weights = torch.stack(pair_scores).softmax(0)
    weights = torch.cat([w * each for w, each in zip(pair_weights, path_weights, strict=True)])
    return sum(w * each for w, each in zip(pair_weights, latent, strict=True)), weights.tolist()


def slow_lstm(lstm, steps):
    h = c = torch.zeros(lstm.hidden_size)
    for x in steps:
        gates = lstm.weight_ih_l0 @ x + lstm.bias_ih_l0 + lstm.weight_hh_l0 @ h + lstm.bias_hh_l0
        i, f, g, o = gates.chunk(4)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
    return h


@torch.no_grad()
@pytest.mark.parametrize("layers", [{}, {"convolution": False}, {"lstm": False}, {"attention": False}], ids=str)
def test_the_head_is_a_slow_one(encoded, layers, monkeypatch):
    monkeypatch.setattr("hornbook.models.kagnet.MAX_PATHS", 5)
    model = make(**layers)
    head = model.task
    head.keeps_weights = True
    batch = encoded.packed(range(6))
    statements = model.pooled(model(batch)[batch.offsets[:-1].long()])
    logits = model.outputs(batch)
    weights = head.weights.paths_K * head.weights.pairs_P.index_select(0, batch.streams[PATHS].pairs_K)
    expected, expected_weights = [], []
    for number, s in enumerate(statements):
        graph, of_paths = slow_graph_vector(head, encoded.extra_streams, number, s)
        inner = torch.tanh(head.inner(torch.cat([graph, s])))
        expected.append(head.out(torch.cat([inner, s])))
        expected_weights += of_paths
    assert torch.allclose(logits, torch.cat(expected).view(3, 2), atol=1e-5)
    assert torch.allclose(weights, torch.tensor(expected_weights), atol=1e-5)
    assert sum(expected_weights) == pytest.approx(4, abs=1e-4)  # of the six statements four have paths


def test_layers_that_are_turned_off_have_no_weights():
    names = {name: {part for part, _ in make(**layers).task.named_children()} for name, layers in {
        "all": {}, "convolution": {"convolution": False}, "lstm": {"lstm": False}, "attention": {"attention": False},
    }.items()}  # fmt: skip
    assert names["all"] - names["lstm"] == {"lstm"} and names["all"] - names["attention"] == {
        "path_query",
        "pair_query",
    }
    assert not len(make(convolution=False).task.convolutions)


@torch.no_grad()
def test_a_batch_may_be_sliced_concatenated_permuted_and_padded(encoded):
    model = make()
    whole = encoded.packed(range(6))
    logits = model.outputs(whole)
    parts = [whole.slice(0, 2), whole.slice(2, 4), whole.slice(4, 6)]
    assert torch.allclose(torch.cat([model.outputs(part) for part in parts]), logits, atol=1e-5)
    again = concatenate(parts)
    for name in (CONCEPTS, EDGES, PAIRS, PATHS):
        for field, value in whole.streams[name].values.items():
            assert (value == again.streams[name].values[field]).all(), (name, field)
    assert torch.allclose(model.outputs(encoded.packed([4, 5, 0, 1, 2, 3])), logits[[2, 0, 1]], atol=1e-5)
    sizes = {CONCEPTS: 32, EDGES: 64, PAIRS: 16, PATHS: 32}
    padded = whole.bucketed(num_tokens=40, num_sequences=8, sizes=sizes)
    assert torch.allclose(model.outputs(padded)[:3], logits, atol=1e-5)


def test_gradients_of_a_padded_batch_are_those_of_the_batch(encoded):
    model, found = make(), []
    whole = encoded.packed(range(6))
    for batch in (whole, whole.bucketed(40, 8, {CONCEPTS: 32, EDGES: 64, PAIRS: 16, PATHS: 32})):
        model.zero_grad()
        model.outputs(batch)[:3].square().sum().backward()
        found.append({name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None})
    assert found[0].keys() == found[1].keys() and any(name.startswith("task.lstm") for name in found[0])
    assert all(torch.allclose(value, found[1][name], atol=1e-5) for name, value in found[0].items())


@torch.no_grad()
def test_without_paths_only_the_statement_counts(encoded, random):
    model = make()
    alone = encoded.packed([2, 3])  # a statement without concepts, and one whose concepts are not connected
    head, s = model.task, model.pooled(model(alone)[alone.offsets[:-1].long()])
    inner = torch.tanh(head.inner(torch.cat([torch.zeros(2, 16), s], -1)))
    expected = head.out(torch.cat([inner, s], -1)).view(1, 2)
    assert torch.allclose(model.outputs(alone), expected, atol=1e-6)
    assert torch.allclose(model.outputs(encoded.packed(range(6)))[1:2], expected, atol=1e-5)


def test_softmax_of_segments(random):
    scores = torch.from_numpy(random.standard_normal(9) * 50)
    segments = torch.tensor([0, 0, 2, 2, 2, 4, 0, 1, 1])  # the first has padding, the second nothing else
    weights = torch.tensor([1.0, 1, 1, 1, 1, 1, 0, 0, 0]).double()
    found = segment_softmax(scores, segments, weights, 5)
    for segment in (0, 2, 4):
        own = (segments == segment) & (weights > 0)
        assert torch.allclose(found[own], scores[own].softmax(0))
    assert (found[weights == 0] == 0).all()


def test_the_folder_keeps_the_layers(encoded, tmp_path):
    from hornbook.interop.folder import load_model, save_model

    model = make(convolution=False, width=12)
    save_model(tmp_path, model)
    again = load_model(tmp_path)
    assert again.head_config == model.head_config
    batch = encoded.packed(range(6))
    assert torch.equal(again.outputs(batch), model.outputs(batch))
