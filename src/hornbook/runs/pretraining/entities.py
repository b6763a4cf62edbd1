"""The graph of an ERNIE run: its size and vectors go into the model, and the corpora must be linked to it."""

from pathlib import Path

from hornbook import config as configuration
from hornbook.files import sha256
from hornbook.graph.embedding.vectors import VECTORS_FILE, open_vectors
from hornbook.graph.graph import open_graph
from hornbook.models.ernie import Ernie, ErnieConfig
from hornbook.runs.pretraining.batches import Corpora
from hornbook.runs.pretraining.record import PretrainRequest
from hornbook.runs.pretraining.settings import PretrainSettings


def fitted_to_graph(settings: PretrainSettings, request: PretrainRequest, base_graph: str | None) -> PretrainSettings:
    """The settings with the number of entities and the width of their vectors, as far as the request names them.
    `base_graph`: the fingerprint of the graph of an ERNIE to start from, which must be the same."""
    model = settings.model
    if not isinstance(model, ErnieConfig):
        if request.graph or request.vectors:
            option = "graph" if request.graph else "vectors"
            raise ValueError(f"{option} is for ERNIE: use a preset such as ernie-base, or leave it out")
        return settings
    if request.graph is None:
        if request.vectors is not None:
            raise ValueError("vectors need a graph, the graph that they were trained on")
        return settings
    graph = open_graph(request.graph)
    if base_graph is not None:
        if base_graph != graph.fingerprint:
            raise ValueError(f"{request.init_from} was trained with another graph than {request.graph}: give that one")
        if request.vectors is not None:
            raise ValueError(f"{request.init_from} has entity vectors already: leave out vectors")
        return settings
    overrides = {"model.graph": graph.fingerprint, "model.num_entities": graph.num_entities}
    if request.vectors is not None:
        width = open_vectors(request.vectors, graph).entities.shape[1]
        if "model.entity_width" in request.overrides and model.entity_width != width:
            raise ValueError(
                f"model.entity_width={model.entity_width}, but the vectors in {request.vectors} have {width} numbers: "
                "leave it out"
            )
        overrides["model.entity_width"] = width
        if width % model.entity_heads and "model.entity_heads" not in request.overrides:
            overrides["model.entity_heads"] = next(heads for heads in (2, 1) if width % heads == 0)
    elif model.entity_vectors == "graph":
        raise ValueError(
            "ERNIE reads entity vectors: make them with 'hornbook graph embed' and give vectors, or set "
            "model.entity_vectors=random"
        )
    return configuration.with_overrides(settings, overrides)


def check_corpora_linked(settings: PretrainSettings, corpora: Corpora) -> None:
    """Raises a `ValueError` if there is no graph, or if a corpus is not linked to it."""
    if not isinstance(settings.model, ErnieConfig):
        return
    if settings.model.graph is None:
        raise ValueError("ERNIE needs a graph with vectors: give graph and vectors")
    for corpus, _ in corpora:
        if corpus.graph != settings.model.graph:
            problem = "is not linked to a graph" if corpus.graph is None else "is linked to another graph"
            raise ValueError(
                f"the corpus {corpus.folder} {problem}: build it with 'hornbook corpus build ... --graph GRAPH', with "
                "the graph of the model"
            )


def give_vectors(model: Ernie, request: PretrainRequest) -> None:
    """Sets the entity vectors of a new model; without --vectors they stay random."""
    if request.vectors is not None:
        model.set_entity_vectors(open_vectors(request.vectors, open_graph(request.graph)).entities)


def vectors_fingerprint(request: PretrainRequest) -> str | None:
    """Identifies the vectors of a request."""
    return None if request.vectors is None else sha256(Path(request.vectors) / VECTORS_FILE)
