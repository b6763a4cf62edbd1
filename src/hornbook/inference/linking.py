"""The graph of a model that reads entities."""

from pathlib import Path

from torch import nn

from hornbook.graph.graph import open_graph
from hornbook.graph.linking import EntityLinker
from hornbook.models.ernie import Ernie


def open_linker(graph: str | Path, model: nn.Module) -> EntityLinker:
    """The entity linker for a graph. Raises a `ValueError` if the model does not read the entities of this graph."""
    if not isinstance(model, Ernie):
        raise ValueError(f"graph= is for ERNIE, and the model is {model.described()}, which reads no entities: omit it")
    opened = open_graph(graph)
    if opened.fingerprint != model.config.graph:
        raise ValueError(f"{graph} is not the graph that the model was trained with: give that one")
    return EntityLinker(opened)
