"""Models of triples, and the ranks of triples: TransE (Bordes et al. 2013), DistMult (Yang et al. 2015, arXiv
1412.6575) and RotatE (Sun et al. 2019, arXiv 1902.10197).

Every relation has a second vector for its inverse (reciprocal relations, Lacroix et al. 2018, arXiv 1806.07297), so
that only tails are ever predicted. Shapes: B triples, K candidates, D width, N entities, R relations.
"""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from hornbook.graph.paths import expand_ranges

HITS = (1, 3, 10)
RANKED_AT_ONCE = 128  # triples
MAX_ELEMENTS = 1 << 25  # of the largest intermediate tensor when all entities are scored


class EmbeddingModel(nn.Module):
    """The vectors and the score of a triple: higher is likelier."""

    def __init__(self, num_entities: int, num_relations: int, width: int):
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.entities = nn.Parameter(torch.empty(num_entities, width).uniform_(-bound, bound))
        self.relations = nn.Parameter(self.initial_relations(2 * num_relations, width))

    def initial_relations(self, num: int, width: int) -> Tensor:
        """The vectors of relations before the training, for entity vectors of this width."""
        bound = 1 / math.sqrt(width)
        return torch.empty(num, width).uniform_(-bound, bound)

    def vectors(self, entity_B: Tensor, sparse: bool = False) -> Tensor:
        """The vectors of entities: BD. `sparse` gradients touch only their rows, which saves most of a step in a large
        graph."""
        return functional.embedding(entity_B, self.entities, sparse=sparse)

    def query(self, head_BD: Tensor, relation_B: Tensor) -> Tensor:
        """What the tail's vector is compared with: BD."""
        raise NotImplementedError

    def compare(self, query_BD: Tensor, tail_KD: Tensor) -> Tensor:
        """Scores of every query with every candidate: BK."""
        raise NotImplementedError

    def compare_each(self, query_BD: Tensor, tail_BD: Tensor) -> Tensor:
        """Score of each query with its own tail: B."""
        raise NotImplementedError

    def forward(self, head_B: Tensor, relation_B: Tensor, tail_B: Tensor) -> Tensor:
        """Scores of triples: B. A relation of at least R is the inverse of that number minus R."""
        return self.compare_each(self.query(self.vectors(head_B), relation_B), self.vectors(tail_B))

    def plausibility(self, head_BD: Tensor, relation_B: Tensor, tail_BD: Tensor) -> Tensor:
        """How plausible triples are, from 0 to 1: (1 + cosine of the query and the tail) / 2; B."""
        return (1 + functional.cosine_similarity(self.query(head_BD, relation_B), tail_BD, dim=-1)) / 2

    def score_all(self, head_B: Tensor, relation_B: Tensor) -> Tensor:
        """Scores with every entity as the tail: BN."""
        return self.compare(self.query(self.vectors(head_B), relation_B), self.entities)


class DistanceModel(EmbeddingModel):
    """Score: minus the distance between the query and the tail."""

    def compare(self, query_BD: Tensor, tail_KD: Tensor) -> Tensor:
        return -torch.cdist(query_BD, tail_KD, p=1.0)

    def compare_at_once(self, query_BD: Tensor, tail_KD: Tensor) -> Tensor:
        """The same as `compare`, for `torch.compile` on a GPU: it sums the B x K x D differences without storing them,
        also in the backward pass."""
        return self.compare_each(query_BD[:, None], tail_KD[None])

    def compare_each(self, query_BD: Tensor, tail_BD: Tensor) -> Tensor:
        return -(query_BD - tail_BD).abs().sum(-1)


class TransE(DistanceModel):
    """-|h + r - t|, the sum of absolute differences."""

    def query(self, head_BD: Tensor, relation_B: Tensor) -> Tensor:
        return head_BD + self.relations[relation_B]

    def plausibility(self, head_BD: Tensor, relation_B: Tensor, tail_BD: Tensor) -> Tensor:
        """As in KagNet's code: the relation's vector is compared with the difference of tail and head."""
        return (1 + functional.cosine_similarity(self.relations[relation_B], tail_BD - head_BD, dim=-1)) / 2


class DistMult(EmbeddingModel):
    """The sum of h * r * t."""

    def query(self, head_BD: Tensor, relation_B: Tensor) -> Tensor:
        return head_BD * self.relations[relation_B]

    def compare(self, query_BD: Tensor, tail_KD: Tensor) -> Tensor:
        return query_BD @ tail_KD.T

    def compare_each(self, query_BD: Tensor, tail_BD: Tensor) -> Tensor:
        return (query_BD * tail_BD).sum(-1)


class RotatE(DistanceModel):
    """-|h turned by r - t| with complex vectors: the first half of an entity's numbers is real, the second imaginary,
    and a relation is one angle per complex number. The distance is the sum of moduli."""

    def initial_relations(self, num: int, width: int) -> Tensor:
        return torch.empty(num, width // 2).uniform_(-math.pi, math.pi)

    def query(self, head_BD: Tensor, relation_B: Tensor) -> Tensor:
        real, imaginary = head_BD.chunk(2, -1)
        angle = self.relations[relation_B]
        cos, sin = angle.cos(), angle.sin()
        return torch.cat([real * cos - imaginary * sin, real * sin + imaginary * cos], -1)

    def compare(self, query_BD: Tensor, tail_KD: Tensor) -> Tensor:
        # One chunk of candidates at a time: a tensor of B x K x D / 2 would take gigabytes.
        size = max(1, MAX_ELEMENTS // max(1, query_BD.numel()))
        return torch.cat([self.compare_each(query_BD[:, None], part[None]) for part in tail_KD.split(size)], dim=1)

    def compare_each(self, query_BD: Tensor, tail_BD: Tensor) -> Tensor:
        real, imaginary = (query_BD - tail_BD).chunk(2, -1)
        return -(real.square() + imaginary.square() + 1e-12).sqrt().sum(-1)


MODELS = {"transe": TransE, "distmult": DistMult, "rotate": RotatE}


class KnownTails:
    """The known tails of each (head, relation), including inverse relations: the entities that are filtered out."""

    def __init__(self, triples_E3: np.ndarray, num_relations: int):
        both = with_inverses(triples_E3, num_relations)
        self._num_relations = 2 * num_relations
        keys = both[:, 0] * self._num_relations + both[:, 1]
        order = np.lexsort((both[:, 2], keys))
        self._keys, self._tails = keys[order], both[order, 2]

    def rows(self, head_B: np.ndarray, relation_B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(row, tail) of all known tails of these heads and relations."""
        keys = head_B * self._num_relations + relation_B
        rows, indices = expand_ranges(*(np.searchsorted(self._keys, keys, side) for side in ("left", "right")))
        return rows, self._tails[indices]


def with_inverses(triples_E3: np.ndarray, num_relations: int) -> np.ndarray:
    """The triples followed by their inverses (tail, relation + R, head): 2E x 3."""
    head, relation, tail = triples_E3.T
    return np.concatenate([triples_E3, np.stack([tail, relation + num_relations, head], 1)])


@torch.no_grad()
def filtered_ranks(model: EmbeddingModel, triples_E3: np.ndarray, known: KnownTails, num_relations: int) -> np.ndarray:
    """The filtered ranks (from 1) of each triple's tail and then of each triple's head: 2E, float64. A rank is that
    among all entities in its place, without those that form another known triple (Bordes et al. 2013). Entities with
    the same score share the mean of their ranks, so that a constant score is not rewarded."""
    queries = with_inverses(np.asarray(triples_E3, np.int64), num_relations)
    device = model.entities.device
    ranks = []
    for start in range(0, len(queries), RANKED_AT_ONCE):
        head, relation, tail = queries[start : start + RANKED_AT_ONCE].T
        scores_BN = model.score_all(
            torch.from_numpy(head.copy()).to(device), torch.from_numpy(relation.copy()).to(device)
        )
        ranks.append(_ranks(scores_BN, torch.from_numpy(tail.copy()).to(device), *known.rows(head, relation)))
    return np.concatenate(ranks) if ranks else np.zeros(0)


def _ranks(scores_BN: Tensor, tail_B: Tensor, rows: np.ndarray, tails: np.ndarray) -> np.ndarray:
    tail_scores_B1 = scores_BN.gather(1, tail_B[:, None])
    device = scores_BN.device
    scores_BN[torch.from_numpy(rows).to(device), torch.from_numpy(tails).to(device)] = -torch.inf
    scores_BN.scatter_(1, tail_B[:, None], -torch.inf)
    num_better = (scores_BN > tail_scores_B1).sum(1)
    num_equal = (scores_BN == tail_scores_B1).sum(1)  # without the tail itself
    return (1 + num_better + num_equal / 2).double().cpu().numpy()


def metrics(ranks: np.ndarray) -> dict[str, float]:
    """Mean reciprocal rank, mean rank and the fraction of ranks of at most 1, 3 and 10.

    >>> metrics(np.array([1.0, 2.0, 4.0, 20.0]))
    {'mrr': 0.45, 'mean_rank': 6.75, 'hits@1': 0.25, 'hits@3': 0.5, 'hits@10': 0.75}
    """
    means = {"mrr": float((1 / ranks).mean()), "mean_rank": float(ranks.mean())}
    return means | {f"hits@{k}": float((ranks <= k).mean()) for k in HITS}
