"""Models of triples: TransE (Bordes et al. 2013), DistMult (Yang et al. 2015, arXiv 1412.6575) and RotatE (Sun et al.
2019, arXiv 1902.10197).

Every relation has a second vector for its inverse (reciprocal relations, Lacroix et al. 2018, arXiv 1806.07297), so
that only tails are ever predicted. Shapes: B triples, K candidates, D width, N entities, R relations.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

MAX_ELEMENTS = 1 << 25  # of the largest intermediate tensor when all entities are scored


class EmbeddingModel(nn.Module):
    """The vectors and the score of a triple: higher is likelier."""

    def __init__(self, num_entities: int, num_relations: int, width: int):
        super().__init__()
        bound = 1 / math.sqrt(width)
        self.entities = nn.Parameter(torch.empty(num_entities, width).uniform_(-bound, bound))
        self.relations = nn.Parameter(self.initial_relations(2 * num_relations, width))

    def initial_relations(self, num: int, width: int) -> Tensor:
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
