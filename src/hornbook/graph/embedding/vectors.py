"""Trained vectors, opened from the folder that `hornbook graph embed` wrote."""

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

from hornbook.files import read_json, sha256
from hornbook.graph.graph import Graph

VECTORS_FILE = "vectors.safetensors"
AT_ONCE = 100_000  # triples whose vectors are compared together
NEEDED = "make vectors with 'hornbook graph embed'"


class GraphVectors:
    """Vectors of the entities of a graph: `entities` (N x D), `relations`, and `has_vector` (N), which is False for
    entities without a training edge; their vector is 0. `graph` is the one that they were trained on.

    >>> import hornbook
    >>> vectors = hornbook.GraphVectors("trained-vectors", hornbook.Graph("graph"))
    >>> rows, has_vector = vectors.of(["garden", "moon"])
    >>> rows.shape, has_vector.tolist()
    ((2, 4), [True, False])
    """

    def __init__(self, folder: str | Path, graph: Graph):
        self.folder, self.graph = Path(folder), graph
        if not (self.folder / VECTORS_FILE).is_file():
            raise ValueError(f"{folder} holds no {VECTORS_FILE}: {NEEDED}")
        if not (self.folder / "run.json").is_file():
            raise ValueError(f"{folder} has no run.json: give the folder that 'hornbook graph embed' wrote")
        record = read_json(self.folder / "run.json")
        if (record.get("inputs") or {}).get("graph") != graph.fingerprint:
            raise ValueError(
                f"{folder} holds vectors of another graph than {graph.folder}: give that graph, or {NEEDED}"
            )
        self.model: str = (record.get("settings") or {}).get("model", "")
        try:
            arrays = load_file(self.folder / VECTORS_FILE)
            self.entities, self.relations = arrays["entities"], arrays["relations"]
            self.has_vector = arrays["has_vector"].astype(bool)
        except (SafetensorError, KeyError, OSError) as error:
            raise ValueError(f"{self.folder / VECTORS_FILE} is damaged ({error}): copy it again, or {NEEDED}") from None
        if len(self.entities) != graph.num_entities or len(self.has_vector) != graph.num_entities:
            raise ValueError(
                f"{self.folder / VECTORS_FILE} has {len(self.entities):,} vectors for {graph.num_entities:,} entities"
            )

    def of(self, concepts: list[str | int]) -> tuple[np.ndarray, np.ndarray]:
        """(vectors, whether each concept has one): an unknown concept, or one without a vector, is a row of zeros."""
        entities = np.array([next(iter(self.graph.candidates(each)), -1) for each in concepts], np.int64)
        has_vector = (entities >= 0) & self.has_vector[entities]
        return np.where(has_vector[:, None], self.entities[entities], 0).astype(np.float32), has_vector

    @property
    def fingerprint(self) -> str:
        return sha256(self.folder / VECTORS_FILE)

    def plausibility(self, heads: np.ndarray, relations: np.ndarray, tails: np.ndarray) -> np.ndarray:
        """How plausible triples of entity and relation numbers are to the model that the vectors were trained with,
        from 0 to 1; 0.5 if an entity has no vector."""
        import torch

        from hornbook.graph.embedding.models import MODELS

        with torch.device("meta"):
            model = MODELS[self.model](len(self.entities), len(self.relations) // 2, self.entities.shape[1])
        model.relations.requires_grad_(False)
        model.load_state_dict({"relations": torch.from_numpy(self.relations)}, strict=False, assign=True)
        scores = np.full(len(heads), 0.5)
        known = np.flatnonzero(self.has_vector[heads] & self.has_vector[tails])
        for rows in np.split(known, range(AT_ONCE, len(known), AT_ONCE)):
            head, tail = (torch.from_numpy(self.entities[ids[rows]]) for ids in (heads, tails))
            scores[rows] = model.plausibility(head, torch.from_numpy(relations[rows].astype(np.int64)), tail).numpy()
        return scores

    def nearest(self, concept: str | int, top_k: int = 10) -> list[tuple[str, float]]:
        """The entities with the most similar vectors, by cosine."""
        entity = self.graph.find(concept)[0]
        if not self.has_vector[entity]:
            raise ValueError(f"'{self.graph.label(entity)}' has no vector: it had no edge to train on")
        norms = np.linalg.norm(self.entities, axis=1) + 1e-12
        cosine = self.entities @ self.entities[entity] / (norms * norms[entity])
        cosine[~self.has_vector] = cosine[entity] = -np.inf
        best = np.argsort(-cosine, kind="stable")[:top_k]
        return [(self.graph.label(int(other)), float(cosine[other])) for other in best if np.isfinite(cosine[other])]
