"""Vectors of a graph on a GPU: the compiled distances give the vectors of a CPU."""

import numpy as np
import pytest
import torch

from hornbook.graph.build import build_graph
from hornbook.graph.embedding.training import embed_graph
from hornbook.graph.embedding.vectors import GraphVectors
from hornbook.graph.graph import Graph

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
]


@pytest.mark.parametrize("model", ["transe", "rotate", "distmult"])
def test_vectors_are_those_of_a_cpu(model, tmp_path):
    rows = [f"e{i}\t{name}\te{(i + step) % 20}\n" for i in range(20) for name, step in (("next", 1), ("second", 2))]
    (tmp_path / "edges.tsv").write_text("".join(rows))
    build_graph(tmp_path / "edges.tsv", tmp_path / "graph")
    settings = {"model": model, "width": 16, "batch_size": 12, "num_negatives": 16, "epochs": 3, "held_out": 0}
    found = []
    for device in ("cpu", "cuda"):
        embed_graph(tmp_path / "graph", tmp_path / device, device=device, **settings)
        found.append(GraphVectors(tmp_path / device, Graph(tmp_path / "graph")).entities)
    # DistMult scores by a matrix product, which a GPU computes in TF32: 10 bits.
    np.testing.assert_allclose(*found, rtol=1e-3, atol=2e-3 if model == "distmult" else 1e-4)
