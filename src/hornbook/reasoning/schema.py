"""Schema graphs (KagNet, Lin et al. 2019, arXiv 1909.02151): the part of a graph that connects the concepts of a
question with those of a candidate answer.

A statement is a question with one of its answers. Its nodes are the concepts of both and the entities on the paths
between them; its edges are those of the paths, and those between concepts of the question, or of the answer. Paths
are pruned by their scores, the product of the plausibility of their triples, and by their number. Everything is done
with arrays over many statements at once.

Shapes: S statements, C nodes, E edges, P pairs of concepts, K paths, H nodes of the longest path, R relations.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import permutations, product
from typing import TYPE_CHECKING

import numpy as np

from hornbook.graph.graph import Graph, GraphPath, Hop
from hornbook.graph.paths import Adjacency, expand, position_in_group
from hornbook.lifecycle.run_folder import ignore
from hornbook.reasoning.settings import KagnetSettings

if TYPE_CHECKING:
    from hornbook.graph.embedding.vectors import GraphVectors

MAX_CANDIDATES = 100  # paths of a pair, by rarity of their entities, among which those with the best scores are kept
QUESTIONS_AT_ONCE = 500
SIMILAR_DEGREES = 64  # entities that are permuted among themselves in a shuffled graph

Concepts = Sequence[int]


@dataclass(frozen=True)
class SchemaGraphs:
    """The schema graphs of S statements. Those of statement s are the entries `node_offsets[s]` to
    `node_offsets[s + 1]` of the nodes, and so on; indices count from the first node, or pair, of their statement.

    entities_C    id of the entity                        edges_E2      node and neighbour, in both directions
    in_question_C, in_answer_C   where it is mentioned    pairs_P2      node of the question, node of the answer
    paths_K       pair of each path                       nodes_KH      its nodes; the last one is repeated
    relations_KH  relation after each node, r + R if it is followed backwards; 0 after the last one
    lengths_K     number of nodes                         scores_K      product of the scores of its triples
    """

    node_offsets: np.ndarray
    edge_offsets: np.ndarray
    pair_offsets: np.ndarray
    path_offsets: np.ndarray
    entities_C: np.ndarray
    in_question_C: np.ndarray
    in_answer_C: np.ndarray
    edges_E2: np.ndarray
    pairs_P2: np.ndarray
    paths_K: np.ndarray
    nodes_KH: np.ndarray
    relations_KH: np.ndarray
    lengths_K: np.ndarray
    scores_K: np.ndarray

    @property
    def num_statements(self) -> int:
        return len(self.node_offsets) - 1

    @classmethod
    def concatenated(cls, parts: Sequence["SchemaGraphs"]) -> "SchemaGraphs":
        values = {}
        for name in (field.name for field in fields(cls)):
            arrays = [getattr(part, name) for part in parts]
            if name.endswith("_offsets"):
                values[name] = np.cumsum(np.concatenate([arrays[0][:1], *map(np.diff, arrays)]))
            else:
                values[name] = np.concatenate(arrays)
        return cls(**values)


class SchemaBuilder:
    """Grounds texts in a graph, and builds schema graphs, whose paths are limited by `settings`. With the control
    `shuffled-graph`, every entity is replaced by another of similar degree: the graphs have the same form but no
    knowledge.

    >>> from hornbook.graph.graph import Graph
    >>> builder = SchemaBuilder(Graph("graph"))
    >>> question, *answers = builder.ground(["What do I take to plant in the garden?", "a trowel", "the moon"])
    >>> schema = builder.build([(question, answers)])
    >>> [str(path) for path in builder.paths_of(schema, 0)]
    ['plant --AtLocation--> garden <--UsedFor-- trowel', 'garden <--UsedFor-- trowel']
    >>> builder.paths_of(schema, 1)
    []
    """

    def __init__(self, graph: Graph, vectors: "GraphVectors | None" = None, settings: KagnetSettings | None = None):
        self.graph, self.vectors, self.settings = graph, vectors, settings or KagnetSettings()
        is_shuffled = self.settings.control == "shuffled-graph"
        self.replaced_by = shuffled_entities(graph.adjacency) if is_shuffled else None

    def ground(self, texts: Sequence[str]) -> list[list[int]]:
        """The entities that each text mentions, each once. The words of a name of several words are looked up too:
        such names often have few edges."""
        linked = self.graph.link(list(texts))
        words = sorted({word for text in linked for mention in text.mentions for word in _words(mention.text)})
        of_word = {
            word: [mention.entity for mention in text.mentions]
            for word, text in zip(words, self.graph.link(words), strict=True)
        }
        grounded = []
        for text in linked:
            names = []
            for mention in text.mentions:
                names += [mention.entity, *(name for word in _words(mention.text) for name in of_word[word])]
            entities = [self.graph.candidates(name)[0] for name in dict.fromkeys(names)]
            if self.replaced_by is not None:
                entities = [int(self.replaced_by[entity]) for entity in entities]
            grounded.append(entities)
        return grounded

    def build(
        self,
        questions: Sequence[tuple[Concepts, Sequence[Concepts]]],
        on_progress: Callable[[int], None] = ignore,
    ) -> SchemaGraphs:
        """The schema graphs of (concepts of a question, concepts of each answer): one per answer, in order.
        `on_progress` receives the number of questions done."""
        parts = []
        for first in range(0, max(1, len(questions)), QUESTIONS_AT_ONCE):
            parts.append(self._build(questions[first : first + QUESTIONS_AT_ONCE]))
            on_progress(min(len(questions), first + QUESTIONS_AT_ONCE))
        return SchemaGraphs.concatenated(parts)

    def _build(self, questions: Sequence[tuple[Concepts, Sequence[Concepts]]]) -> SchemaGraphs:
        statements = [(question, answer) for question, answers in questions for answer in answers]
        num_statements, num_entities = len(statements), self.graph.num_entities
        pairs_Q3 = _rows(((s, q, a) for s, concepts in enumerate(statements) for q, a in product(*concepts)), 3)
        owners_P, ends_P2, paths = self._prune_pairs(pairs_Q3[pairs_Q3[:, 1] != pairs_Q3[:, 2]])
        owners_K = owners_P[paths.pairs_K]
        # The nodes of a statement, sorted by entity; a key is statement * N + entity.
        mentioned = [_rows(((s, c) for s, concepts in enumerate(statements) for c in concepts[i]), 2) for i in (0, 1)]
        keys = [rows[:, 0] * num_entities + rows[:, 1] for rows in mentioned]
        on_path_KH = owners_K[:, None] * num_entities + paths.nodes_KH
        keys_C = np.unique(np.concatenate([*keys, on_path_KH.ravel()]))
        node_offsets = np.searchsorted(keys_C, np.arange(num_statements + 1) * num_entities)

        def local(keys: np.ndarray, owners: np.ndarray) -> np.ndarray:
            """The node of each key, counted from the first of its statement."""
            return np.searchsorted(keys_C, keys) - node_offsets[owners].reshape(len(owners), *[1] * (keys.ndim - 1))

        nodes_KH = local(on_path_KH, owners_K)
        edges = self._edges(statements, on_path_KH, paths.lengths_K)
        return SchemaGraphs(
            node_offsets=node_offsets,
            edge_offsets=np.searchsorted(edges[:, 0] // num_entities, np.arange(num_statements + 1)),
            pair_offsets=np.searchsorted(owners_P, np.arange(num_statements + 1)),
            path_offsets=np.searchsorted(owners_K, np.arange(num_statements + 1)),
            entities_C=keys_C % num_entities,
            in_question_C=np.isin(keys_C, keys[0]),
            in_answer_C=np.isin(keys_C, keys[1]),
            edges_E2=local(edges, edges[:, 0] // num_entities),
            pairs_P2=local(owners_P[:, None] * num_entities + ends_P2, owners_P),
            paths_K=paths.pairs_K - np.searchsorted(owners_P, owners_K),
            nodes_KH=nodes_KH,
            relations_KH=paths.relations_KH,
            lengths_K=paths.lengths_K,
            scores_K=paths.scores_K,
        )

    def _prune_pairs(self, pairs_Q3: np.ndarray) -> tuple[np.ndarray, np.ndarray, "_Paths"]:
        """The pairs of (statement, question concept, answer concept) that are connected: their statements, their two
        entities, and their paths, pruned and the best first."""
        num_entities = self.graph.num_entities
        unique, unique_Q = np.unique(pairs_Q3[:, 1] * num_entities + pairs_Q3[:, 2], return_inverse=True)
        paths = self._paths(unique // num_entities, unique % num_entities)
        offsets = np.searchsorted(paths.pairs_K, np.arange(len(unique) + 1))
        # The best pairs of a statement: by their best path, which comes first.
        connected = np.flatnonzero(np.diff(offsets)[unique_Q])
        best = paths.ranks_K[offsets[unique_Q[connected]]]
        order = connected[np.lexsort((connected, -best, pairs_Q3[connected, 0]))]
        chosen = np.sort(order[position_in_group(pairs_Q3[order, 0]) < self.settings.pairs])
        rows, indices = expand(offsets, unique_Q[chosen])
        return pairs_Q3[chosen, 0], pairs_Q3[chosen, 1:], paths.select(indices, rows)

    def _paths(self, heads_Q: np.ndarray, tails_Q: np.ndarray) -> "_Paths":
        """The paths of each pair of entities, the best first, pruned."""
        limits = self.settings
        max_paths = limits.paths if self.vectors is None else max(limits.paths, MAX_CANDIDATES)
        found = self.graph.paths_batch(heads_Q, tails_Q, limits.hops, max_paths)
        pairs_K = np.repeat(np.arange(len(heads_Q)), np.diff(found.offsets_Q))
        lengths_K = found.num_hops_K.astype(np.int64) + 1
        is_padding = np.arange(limits.hops + 1) >= lengths_K[:, None]
        last_K = found.nodes_KH[np.arange(len(lengths_K)), lengths_K - 1]
        nodes_KH = np.where(is_padding, last_K[:, None], found.nodes_KH)
        has_edge = ~is_padding[:, 1:]
        pairs = self.graph.adjacency.find(nodes_KH[:, :-1], nodes_KH[:, 1:])[has_edge]
        unique, inverse = np.unique(pairs, return_inverse=True)
        relations, scores = self._hops(unique)
        relations_KH, factors = np.zeros_like(nodes_KH), np.ones(has_edge.shape)
        relations_KH[:, :-1][has_edge], factors[has_edge] = relations[inverse], scores[inverse]
        scores_K = factors.prod(1)
        # Without vectors all scores are 1: short paths come first, then those through entities with few neighbours.
        ranks_K = scores_K if self.vectors is not None else -lengths_K.astype(float)
        order = np.lexsort((np.arange(len(pairs_K)), -ranks_K, pairs_K))
        if self.vectors is not None:
            order = order[scores_K[order] >= limits.min_score]
        order = order[position_in_group(pairs_K[order]) < limits.paths]
        return _Paths(pairs_K, nodes_KH, relations_KH, lengths_K, scores_K, ranks_K).select(order)

    def _hops(self, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For neighbours (indices of `Adjacency.pairs`), the relation of the path from the first to the second and its
        score: the most plausible one or, without vectors, the one with the largest weight and the score 1."""
        graph = self.graph
        rows, indices = expand(graph.edge_offsets, pairs)
        signed = graph.pair_edges[indices].astype(np.int64)
        is_inverse = signed < 0
        edges = np.where(is_inverse, ~signed, signed)
        relations = graph.relation_ids[edges] + graph.num_relations * is_inverse
        if self.vectors is None:
            ranks = graph.weights[edges].astype(float)
        else:
            ranks = self.vectors.plausibility(graph.heads[edges], graph.relation_ids[edges], graph.tails[edges])
        order = np.lexsort((relations, -ranks, rows))
        best = order[position_in_group(rows[order]) == 0]
        scores = np.ones(len(best)) if self.vectors is None else ranks[best]
        return relations[best], scores

    def _edges(
        self, statements: Sequence[tuple[Concepts, Concepts]], on_path_KH: np.ndarray, lengths_K: np.ndarray
    ) -> np.ndarray:
        """The edges in both directions as keys of two nodes, each once, sorted."""
        has_edge = np.arange(1, on_path_KH.shape[1]) < lengths_K[:, None]
        on_paths = np.stack([on_path_KH[:, :-1][has_edge], on_path_KH[:, 1:][has_edge]], 1)
        mentions = ((s, concepts) for s, statement in enumerate(statements) for concepts in statement)
        inside = _rows(((s, a, b) for s, concepts in mentions for a, b in permutations(concepts, 2)), 3)
        inside = inside[self.graph.adjacency.find(inside[:, 1], inside[:, 2]) >= 0]
        inside = inside[:, :1] * self.graph.num_entities + inside[:, 1:]
        return np.unique(np.concatenate([on_paths, on_paths[:, ::-1], inside]).reshape(-1, 2), axis=0)

    def concepts_of(self, schema: SchemaGraphs, statement: int, is_chosen_C: np.ndarray) -> tuple[str, ...]:
        """The names of the chosen nodes of a statement, such as those that the question mentions."""
        nodes = slice(*schema.node_offsets[statement : statement + 2])
        return tuple(self.graph.label(int(entity)) for entity in schema.entities_C[nodes][is_chosen_C[nodes]])

    def paths_of(self, schema: SchemaGraphs, statement: int) -> list[GraphPath]:
        first, last = schema.path_offsets[statement : statement + 2]
        entities = schema.entities_C[schema.node_offsets[statement] :]
        paths = []
        for path in range(first, last):
            length, hops = schema.lengths_K[path], []
            for relation in schema.relations_KH[path, : length - 1]:
                name = (self.graph.relation_name(relation % self.graph.num_relations),)
                hops.append(Hop(name, ()) if relation < self.graph.num_relations else Hop((), name))
            labels = (self.graph.label(entities[node]) for node in schema.nodes_KH[path, :length])
            paths.append(GraphPath(tuple(labels), tuple(hops)))
        return paths


@dataclass(frozen=True)
class _Paths:
    """Paths, sorted by the pair they belong to, then by descending rank."""

    pairs_K: np.ndarray
    nodes_KH: np.ndarray
    relations_KH: np.ndarray
    lengths_K: np.ndarray
    scores_K: np.ndarray
    ranks_K: np.ndarray

    def select(self, indices: np.ndarray, pairs: np.ndarray | None = None) -> "_Paths":
        """The paths with these indices, as those of other `pairs` if they are given."""
        values = {name: array[indices] for name, array in vars(self).items()}
        return _Paths(**values | ({} if pairs is None else {"pairs_K": pairs}))


def shuffled_entities(adjacency: Adjacency) -> np.ndarray:
    """For every entity another one with about as many neighbours, always the same; each once."""
    generator = np.random.default_rng(0)
    order = np.argsort(adjacency.degree(np.arange(adjacency.num_entities)), kind="stable")[::-1]
    replaced_by = np.empty_like(order)
    for first in range(0, len(order), SIMILAR_DEGREES):
        block = order[first : first + SIMILAR_DEGREES]
        replaced_by[block] = generator.permutation(block)
    return replaced_by


def _words(name: str) -> list[str]:
    """The words of a name that has several."""
    words = name.split()
    return words if len(words) > 1 else []


def _rows(rows: Iterable[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(list(rows), np.int64).reshape(-1, width)
