"""A graph opened from its folder: look up entities by name, their neighbours, and the paths between them. The files of
the folder:

entities.txt   identifiers, one per line                names.tsv   entity, name, prior of the name
relations.tsv  identifier and name of each relation
heads, kinds (relation ids), tails, weights, splits .npy   edges (E), sorted by head, relation, tail; splits if given
pairs.npy         int64, head * N + neighbour for every two entities (P) with an edge in either direction, sorted
pair_offsets.npy  where the pairs of each entity start (N + 1)
pair_edges.npy    the edges of each pair; ~edge where it is followed from tail to head
edge_offsets.npy  where the edges of each pair start (P + 1)
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from hornbook.config import checked, did_you_mean
from hornbook.data.shards import MANIFEST, map_array, refuse_changed, refuse_other_format
from hornbook.files import hash_of, read_json, refusing_damage
from hornbook.graph.paths import MAX_HOPS, Adjacency, PathArrays, find_paths
from hornbook.graph.triples import OPAQUE
from hornbook.text.lemmas import base_form, normalized

if TYPE_CHECKING:
    from hornbook.graph.linking import LinkedText, MentionLinker

FORMAT_VERSION = 1
ARRAYS = {
    "heads": np.int32,
    "kinds": np.int32,
    "tails": np.int32,
    "weights": np.float32,
    "splits": np.uint8,
    "pairs": np.int64,
    "pair_offsets": np.int64,
    "pair_edges": np.int32,
    "edge_offsets": np.int64,
}
TEXTS = ("entities.txt", "relations.tsv", "names.tsv")
FILES = (*TEXTS, *(f"{name}.npy" for name in ARRAYS))
REPAIR = "copy the graph again, or build it again into another folder"
NEEDED = "make a graph with 'hornbook graph build'"
EdgeDirection = Literal["both", "out", "in"]
MAX_SENSES = 20  # entities of an ambiguous name between which paths are looked for
MAX_SUGGESTIONS = 3


@dataclass(frozen=True)
class Edge:
    """An edge by the names of its entities; `weight` is that of the source, 1 where it gives none."""

    head: str
    relation: str
    tail: str
    weight: float

    def __str__(self) -> str:
        return f"{self.head} --{self.relation}--> {self.tail}"


@dataclass(frozen=True)
class Hop:
    """One step of a path: `relations` lead from the entity before to the next, `inverse` ones from the next to it."""

    relations: tuple[str, ...]
    inverse: tuple[str, ...]

    def __str__(self) -> str:
        out, back = "|".join(self.relations), "|".join(self.inverse)
        if out and back:
            return f"<--{back}--/--{out}-->"
        return f"--{out}-->" if out else f"<--{back}--"


@dataclass(frozen=True)
class GraphPath:
    """A path: its entities in order, and the hop between each two of them."""

    entities: tuple[str, ...]
    hops: tuple[Hop, ...]

    def __str__(self) -> str:
        steps = (f" {hop} {entity}" for hop, entity in zip(self.hops, self.entities[1:], strict=True))
        return self.entities[0] + "".join(steps)

    def to_dict(self) -> dict:
        return {"entities": list(self.entities), "hops": [vars(hop) for hop in self.hops], "text": str(self)}


class Graph:
    """The graph in a folder that `hornbook graph build` wrote; its edges are memory-mapped.

    >>> graph = Graph("graph")
    >>> graph.num_entities, graph.num_edges
    (6, 5)
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.manifest = read_manifest(self.folder)
        for name, expected in self.manifest["sha256"].items():
            refuse_changed(self.folder / name, expected, REPAIR)
        self.fingerprint: str = self.manifest["fingerprint"]
        with refusing_damage(self.folder / MANIFEST, REPAIR):
            present = [name for name in ARRAYS if f"{name}.npy" in self.manifest["sha256"]]
            arrays = {name: map_array(self.folder / f"{name}.npy") for name in present}
            self.heads, self.relation_ids, self.tails = arrays["heads"], arrays["kinds"], arrays["tails"]
            self.weights, self.splits = arrays["weights"], arrays.get("splits")
            self.pair_edges, self.edge_offsets = arrays["pair_edges"], arrays["edge_offsets"]
            self.adjacency = Adjacency(arrays["pairs"], arrays["pair_offsets"])
            self.entities = read_lines(self.folder / "entities.txt")
            self.relations = [line.split("\t") for line in read_lines(self.folder / "relations.tsv")]
            sizes = tuple(map(len, (self.entities, self.relations, self.heads)))
            self.num_entities, self.num_relations, self.num_edges = sizes
            if sizes != tuple(self.manifest["totals"][name] for name in ("entities", "relations", "edges")):
                raise ValueError("its totals do not match its files")

    def __repr__(self) -> str:
        return f"Graph({str(self.folder)!r}): {self.num_entities:,} entities, {self.num_edges:,} edges"

    @cached_property
    def names(self) -> list[tuple[int, str, float]]:
        """(entity, name, prior) for every name, sorted by entity, the likeliest name of an entity first. Underscores
        are read as spaces: many sources write ice_cream."""
        rows = (line.replace("_", " ").split("\t") for line in read_lines(self.folder / "names.tsv"))
        return [(int(entity), name, float(prior)) for entity, name, prior in rows]

    @cached_property
    def _index(self) -> dict[str, int]:
        return {identifier: index for index, identifier in enumerate(self.entities)}

    @cached_property
    def _by_name(self) -> dict[str, list[tuple[float, int]]]:
        """Normalised name -> (prior, entity), the likeliest first."""
        by_name: dict[str, list[tuple[float, int]]] = {}
        for entity, name, prior in self.names:
            by_name.setdefault(normalized(name), []).append((prior, entity))
        for entities in by_name.values():
            if len(entities) > 1:
                entities.sort(key=lambda each: (-each[0], each[1]))
        return by_name

    @cached_property
    def _label_of(self) -> dict[int, str]:
        return {entity: name for entity, name, _ in reversed(self.names)}  # the first name, the likeliest, remains

    def label(self, entity: int) -> str:
        """How an entity is shown: its identifier or, where that is a code such as Q42, its name."""
        identifier = self.entities[entity]
        return self._label_of.get(entity, identifier) if OPAQUE.fullmatch(identifier) else identifier

    def relation_name(self, relation: int) -> str:
        return self.relations[relation][1]

    def find(self, concept: str | int) -> list[int]:
        """The entities with this identifier or name, the likeliest first. Raises a `ValueError` with suggestions if
        there is none.

        >>> graph = Graph("graph")
        >>> [graph.entities[entity] for entity in graph.find("Garden")]
        ['garden']
        """
        entities = self.candidates(concept)
        if not entities:
            raise ValueError(self._describe_unknown(concept))
        return entities

    def candidates(self, concept: str | int) -> list[int]:
        """Like `find`, but empty if there is no such entity: suggestions take a tenth of a second."""
        if not isinstance(concept, str):
            return [checked(concept, int, "the id of an entity", low=0, high=self.num_entities - 1)]
        if concept in self._index:
            return [self._index[concept]]
        return [entity for _, entity in self._by_name.get(_as_name(concept), ())]

    def _describe_unknown(self, concept: str) -> str:
        """The error for a concept that is not in the graph, with the names most like it."""
        name = _as_name(concept)
        similar = {base_form(name, self._by_name)} - {None} if name else set()
        # difflib compares every candidate letter by letter: only names of similar length and start or end remain.
        candidates = [
            other
            for other in self._by_name
            if abs(len(other) - len(name)) <= 2 and (other[:2] == name[:2] or other[-3:] == name[-3:])
        ]
        similar |= set(difflib.get_close_matches(name, candidates, MAX_SUGGESTIONS, cutoff=0.7))
        as_written = {
            normalized(other): other for _, other, _ in self.names if len(other) < 100 and normalized(other) in similar
        }
        ordered = sorted(similar, key=lambda other: -difflib.SequenceMatcher(None, other, name).ratio())
        shown = ", ".join(f"'{as_written.get(other, other)}'" for other in ordered[:MAX_SUGGESTIONS])
        hint = f"did you mean {shown}?" if shown else "give the name or identifier of an entity as it is in the graph"
        return f"'{concept}' is not in the graph {self.folder}: {hint}"

    def neighbours(
        self, concept: str | int, direction: EdgeDirection = "both", relation: str | None = None
    ) -> list[Edge]:
        """The edges of an entity (of the likeliest one, if the name has several), the heaviest first.

        >>> for edge in Graph("graph").neighbours("garden"):
        ...     print(edge)
        plant --AtLocation--> garden
        trowel --UsedFor--> garden
        """
        checked(direction, EdgeDirection, "direction")
        entity = self.find(concept)[0]
        first, last = self.adjacency.pair_offsets[entity : entity + 2]
        signed = self.pair_edges[self.edge_offsets[first] : self.edge_offsets[last]]
        edges = np.where(signed < 0, ~signed, signed)
        if direction != "both":
            ends = self.heads if direction == "out" else self.tails
            edges = edges[ends[edges] == entity]
        if relation is not None:
            edges = edges[self.relation_ids[edges] == self._relation_id(relation)]
        order = np.lexsort((edges, -self.weights[edges]))
        return [self.edge(int(edge)) for edge in edges[order]]

    def _relation_id(self, name: str) -> int:
        for index, names in enumerate(self.relations):
            if name in names:
                return index
        known = sorted({label for _, label in self.relations})
        hint = did_you_mean(name, known, f"there are {', '.join(known[:20])}", MAX_SUGGESTIONS)
        raise ValueError(f"there is no relation '{name}' in the graph {self.folder}: {hint}")

    def edge(self, index: int) -> Edge:
        head, tail = (self.label(int(ends[index])) for ends in (self.heads, self.tails))
        return Edge(head, self.relation_name(self.relation_ids[index]), tail, float(self.weights[index]))

    def paths(self, head: str | int, tail: str | int, hops: int = 2, limit: int | None = 20) -> list[GraphPath]:
        """The paths of at most `hops` edges between two entities: shorter ones first, then those through entities with
        few neighbours. Of an ambiguous name every entity is tried.

        >>> for path in Graph("graph").paths("plant", "trowel"):
        ...     print(path)
        plant --AtLocation--> garden <--UsedFor-- trowel
        """
        return self.search(head, tail, hops, limit)[0]

    def search(
        self, head: str | int, tail: str | int, hops: int = 2, limit: int | None = 20
    ) -> tuple[list[GraphPath], bool]:
        """(`paths`, whether hubs were skipped because there were too many partial paths)."""
        heads, tails = (np.array(self.find(concept)[:MAX_SENSES]) for concept in (head, tail))
        paths = self.paths_batch(np.repeat(heads, len(tails)), np.tile(tails, len(heads)), hops, limit)
        order = np.argsort(paths.num_hops_K, kind="stable")[:limit]
        nodes = (paths.nodes_KH[row, : paths.num_hops_K[row] + 1] for row in order)
        return [self.path(entities.tolist()) for entities in nodes], bool(paths.is_cut_Q.any())

    def paths_batch(
        self,
        heads: Sequence[str | int] | np.ndarray,
        tails: Sequence[str | int] | np.ndarray,
        hops: int = 2,
        limit: int | None = 20,
    ) -> PathArrays:
        """The paths of many pairs at once, as arrays of entity ids; a name stands for its likeliest entity.

        >>> paths = Graph("graph").paths_batch(["plant", "plant"], ["trowel", "moon"])
        >>> paths.num_hops_K.tolist(), paths.offsets_Q.tolist()
        ([2], [0, 1, 1])
        """
        hops = checked(hops, int, "hops", low=1, high=MAX_HOPS)
        limit = None if limit is None else checked(limit, int, "limit", low=1)
        heads, tails = self._entity_ids(heads), self._entity_ids(tails)
        if len(heads) != len(tails):
            raise ValueError(f"{len(heads)} heads and {len(tails)} tails: give as many of each")
        return find_paths(self.adjacency, heads, tails, hops, limit)

    def _entity_ids(self, concepts: Sequence[str | int] | np.ndarray) -> np.ndarray:
        if isinstance(concepts, np.ndarray) and concepts.dtype.kind in "iu":
            if len(concepts) and not 0 <= concepts.min() <= concepts.max() < self.num_entities:
                raise ValueError(f"the ids of entities must be from 0 to {self.num_entities - 1:,}")
            return concepts.astype(np.int64)
        return np.array([self.find(concept)[0] for concept in concepts], np.int64)

    def path(self, nodes: Sequence[int]) -> GraphPath:
        """The readable path through these entities, which must be connected."""
        before, after = np.array(nodes[:-1]), np.array(nodes[1:])
        hops = tuple(self._hop(int(pair)) for pair in self.adjacency.find(before, after))
        return GraphPath(tuple(map(self.label, nodes)), hops)

    def _hop(self, pair: int) -> Hop:
        assert pair >= 0, "the entities are not connected"
        edges = self.pair_edges[self.edge_offsets[pair] : self.edge_offsets[pair + 1]].tolist()
        names = [(edge >= 0, self.relation_name(self.relation_ids[max(edge, ~edge)])) for edge in edges]
        return Hop(*(tuple(name for is_out, name in names if is_out == wanted) for wanted in (True, False)))

    @cached_property
    def linker(self) -> "MentionLinker":
        from hornbook.graph.linking import MentionLinker

        return MentionLinker(self)

    def link(self, texts: str | Sequence[str]) -> "LinkedText | list[LinkedText]":
        """The entities that a text (or each of several texts) mentions, with character offsets and scores.

        >>> for mention in Graph("graph").link("Two trowels lay in the garden.").mentions:
        ...     print(mention.text, mention.start, mention.end, mention.entity)
        trowels 4 11 trowel
        garden 23 29 garden
        """
        if isinstance(texts, str):
            return self.linker.link([texts])[0]
        return self.linker.link(texts)


def _as_name(concept: str) -> str:
    return normalized(" ".join(concept.replace("_", " ").split()))


def read_manifest(folder: Path) -> dict:
    """The manifest of a graph; raises a `ValueError` if the folder holds none or if it is damaged."""
    file = folder / MANIFEST
    if not folder.exists():
        raise ValueError(f"there is no folder {folder}: {NEEDED}")
    if not folder.is_dir():
        raise ValueError(f"{folder} is a file, not the folder of a graph: {NEEDED}")
    if not file.exists():
        raise ValueError(f"{folder} is not a graph: it has no {MANIFEST}; {NEEDED}")
    manifest = read_json(file)
    if manifest.get("kind") != "graph":
        raise ValueError(f"{folder} is not a graph: its {MANIFEST} describes something else; {NEEDED}")
    with refusing_damage(file, REPAIR):
        refuse_other_format(file, manifest, FORMAT_VERSION, "graph")
        for name in ("entities", "edges", "relations"):
            checked(manifest["totals"][name], int, name, low=1)
        if manifest["fingerprint"] != hash_of(manifest["sha256"]):
            raise ValueError("its fingerprint does not match the hashes of its files")
    return manifest


def read_lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").split("\n")[:-1]
