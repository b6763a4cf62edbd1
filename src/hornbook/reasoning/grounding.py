"""Questions and answers grounded in a knowledge graph: their schema graphs as streams of a batch.

Shapes: as in `schema.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hornbook.batch import Stream, to_offsets
from hornbook.files import refusing_damage
from hornbook.graph.embedding.vectors import GraphVectors
from hornbook.graph.graph import Graph
from hornbook.graph.paths import expand
from hornbook.lifecycle.run_folder import ignore
from hornbook.models.head_config import KagNetConfig
from hornbook.models.kagnet import CONCEPTS, EDGES, PAIRS, PATHS, ConceptEdges, ConceptNodes, ConceptPairs, ConceptPaths
from hornbook.reasoning.schema import SchemaBuilder, SchemaGraphs
from hornbook.reasoning.settings import KagnetSettings
from hornbook.tasks.encoded import EncodedExamples
from hornbook.tasks.records import ChoiceExample

RANDOM_WIDTH = 100  # of random entity vectors, if there are no trained ones
Progress = Callable[[int, int], None]  # (questions done, all)
RECORDED = ("method", "graph", "vectors", "hops", "paths", "pairs", "min_score", "control")  # settings in `task.json`


class Grounder:
    """A graph, perhaps with vectors, that questions are grounded in. `on_progress` is called while they are."""

    def __init__(self, settings: KagnetSettings, graph: Graph, vectors: GraphVectors | None):
        self.settings, self.graph, self.vectors = settings, graph, vectors
        self.builder = SchemaBuilder(graph, vectors, settings)
        self.on_progress: Progress = ignore

    @property
    def kagnet_config(self) -> KagNetConfig:
        """The layers of the head."""
        relation_width = RANDOM_WIDTH if self.vectors is None else self.vectors.relations.shape[1]
        layers = {name: getattr(self.settings, name) for name in ("width", "convolution", "lstm", "attention")}
        return KagNetConfig(self.concept_vectors.shape[1], relation_width, 2 * self.graph.num_relations, **layers)

    @property
    def uses_vectors(self) -> bool:
        return self.vectors is not None and self.settings.control != "random-vectors"

    @cached_property
    def concept_vectors(self) -> np.ndarray:
        """The vector of every entity, scaled to a root mean square of 1; random ones where there are none."""
        if not self.uses_vectors:
            width = RANDOM_WIDTH if self.vectors is None else self.vectors.entities.shape[1]
            return np.random.default_rng(0).standard_normal((self.graph.num_entities, width), np.float32)
        return _scaled(self.vectors.entities, self.vectors.has_vector)

    @cached_property
    def relation_vectors(self) -> np.ndarray | None:
        """The initial vectors of the relations, with those for the inverse direction; None: random ones."""
        if not self.uses_vectors:
            return None
        return _scaled(self.vectors.relations, np.ones(len(self.vectors.relations), bool))

    @cached_property
    def fingerprints(self) -> dict[str, str | None]:
        return {
            "graph": self.graph.fingerprint,
            "graph_vectors": None if self.vectors is None else self.vectors.fingerprint,
        }

    def record(self) -> dict[str, Any]:
        """The entries of `task.json`: the settings that change how questions are grounded, and the fingerprints."""
        return {name: getattr(self.settings, name) for name in RECORDED} | {"fingerprints": self.fingerprints}

    def schema_graphs(self, examples: Sequence[ChoiceExample]) -> SchemaGraphs:
        """The schema graphs of every choice of every example, in order."""
        question_concepts = self.builder.ground([f"{example.context} {example.beginning}" for example in examples])
        choices = list(dict.fromkeys(choice for example in examples for choice in example.choices))
        of_choice = dict(zip(choices, self.builder.ground(choices), strict=True))
        questions = [
            (concepts, [of_choice[choice] for choice in example.choices])
            for concepts, example in zip(question_concepts, examples, strict=True)
        ]
        return self.builder.build(questions, lambda num_done: self.on_progress(num_done, len(examples)))

    def attach(self, encoded: EncodedExamples, examples: Sequence[ChoiceExample]) -> EncodedExamples:
        return self.with_schema_graphs(encoded, self.schema_graphs(examples))

    def with_schema_graphs(self, encoded: EncodedExamples, schema: SchemaGraphs) -> EncodedExamples:
        return replace(encoded, extra_streams=SchemaStreams(schema, self.concept_vectors))


@dataclass(frozen=True)
class SchemaStreams:
    """Makes the streams of sequences, whose schema graphs are in the same order as the encoded sequences."""

    schema: SchemaGraphs
    vectors: np.ndarray

    @property
    def coverage(self) -> str:
        """How much of the questions the graph covers, as a line of the log."""
        num_answers, num_paths = self.schema.num_statements, len(self.schema.paths_K)
        if not num_paths:
            return "note: the graph connects no answer with its question: check that its names are in their language"
        without_paths = float((np.diff(self.schema.path_offsets) == 0).mean())
        return f"{num_paths / num_answers:.1f} paths per answer; {without_paths:.1%} of the answers have none"

    def streams(self, sequences: Sequence[int]) -> dict[str, Stream]:
        schema, chosen = self.schema, np.asarray(sequences, np.int64)

        def select(offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            """(row, index) of the entries of the chosen schema graphs, and the offsets of these rows in the batch."""
            return *expand(offsets, chosen), to_offsets(np.diff(offsets)[chosen])

        _, nodes, node_offsets = select(schema.node_offsets)
        edge_rows, edges, edge_offsets = select(schema.edge_offsets)
        pair_rows, pairs, pair_offsets = select(schema.pair_offsets)
        path_rows, paths, path_offsets = select(schema.path_offsets)
        ends_E2 = schema.edges_E2[edges] + node_offsets[edge_rows][:, None]
        ends_P2 = schema.pairs_P2[pairs] + node_offsets[pair_rows][:, None]
        degrees = np.bincount(ends_E2[:, 1], minlength=len(nodes))
        entities = schema.entities_C[nodes]
        return {
            CONCEPTS: ConceptNodes(torch.from_numpy(self.vectors[entities]), offsets_host=node_offsets),
            EDGES: ConceptEdges(
                *map(_tensor, ends_E2.T),
                _tensor((1 / degrees[ends_E2[:, 1]]).astype(np.float32)),
                offsets_host=edge_offsets,
            ),
            PAIRS: ConceptPairs(
                _tensor(pair_rows), *map(_tensor, ends_P2.T), torch.ones(len(pairs)), offsets_host=pair_offsets
            ),
            PATHS: ConceptPaths(
                _tensor(schema.paths_K[paths] + pair_offsets[path_rows]),
                _tensor(schema.nodes_KH[paths] + node_offsets[path_rows][:, None]),
                _tensor(schema.relations_KH[paths]),
                _tensor(schema.lengths_K[paths]),
                torch.ones(len(paths)),
                offsets_host=path_offsets,
            ),
        }


def open_grounder(settings: KagnetSettings) -> Grounder:
    graph = Graph(settings.graph)
    return Grounder(settings, graph, None if settings.vectors is None else GraphVectors(settings.vectors, graph))


def open_saved_grounder(record: Mapping[str, Any], run: Path, graph: str | Path | None = None) -> Grounder:
    """The grounder of a saved run, from the `record` in its `task.json`. The graph, unless it is given, and the vectors
    are looked for where they were and, under the same names, in the run folder, next to it, and in the working
    directory. Raises a `ValueError` if they changed."""
    with refusing_damage(run / "task.json"):
        settings = KagnetSettings(**{name: record[name] for name in RECORDED})
        expected = {name: record["fingerprints"][name] for name in ("graph", "graph_vectors")}
    graph = _locate(settings.graph, run) if graph is None else str(graph)
    settings = replace(settings, graph=graph, vectors=_locate(settings.vectors, run))
    grounder = open_grounder(settings)
    for name, folder in (("graph", settings.graph), ("graph_vectors", settings.vectors)):
        if grounder.fingerprints[name] != expected[name]:
            raise ValueError(
                f"the {name.removeprefix('graph_')} in {folder} changed since {run} was trained: restore the folder, "
                "or train the run again"
            )
    return grounder


def _locate(path: str | None, run: Path) -> str | None:
    if path is None:
        return None
    name = Path(path).name
    candidates = (Path(path), run / name, run.parent / name, Path(name))
    return str(next((folder for folder in candidates if folder.is_dir()), path))


def _scaled(vectors: np.ndarray, is_used: np.ndarray) -> np.ndarray:
    size = float(np.sqrt(np.square(vectors[is_used]).mean())) if is_used.any() else 0.0
    return (vectors / (size or 1.0)).astype(np.float32)


def _tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values))
