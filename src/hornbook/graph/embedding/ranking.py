"""Ranks of triples among all entities, and the metrics of them.

Shapes: B triples of a chunk, E triples, N entities, R relations.
"""

import numpy as np
import torch
from torch import Tensor

from hornbook.graph.embedding.models import EmbeddingModel
from hornbook.graph.paths import expand_ranges

HITS = (1, 3, 10)
RANKED_AT_ONCE = 128  # triples


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
    queries = torch.from_numpy(with_inverses(np.asarray(triples_E3, np.int64), num_relations))
    device, ranks = model.entities.device, [np.zeros(0)]
    for part in queries.split(RANKED_AT_ONCE):
        head, relation, tail = part.unbind(1)
        scores_BN = model.score_all(head.to(device), relation.to(device))
        ranks.append(_ranks(scores_BN, tail.to(device), *known.rows(head.numpy(), relation.numpy())))
    return np.concatenate(ranks)


def _ranks(scores_BN: Tensor, tail_B: Tensor, rows: np.ndarray, tails: np.ndarray) -> np.ndarray:
    tail_scores_B1 = scores_BN.gather(1, tail_B[:, None])
    device = scores_BN.device
    scores_BN[torch.from_numpy(rows).to(device), torch.from_numpy(tails).to(device)] = -torch.inf
    scores_BN.scatter_(1, tail_B[:, None], -torch.inf)
    num_better = (scores_BN > tail_scores_B1).sum(1)
    num_equal = (scores_BN == tail_scores_B1).sum(1)  # without the tail itself
    return (1 + num_better + num_equal / 2).double().cpu().numpy()


def ranking_metrics(ranks: np.ndarray) -> dict[str, float]:
    """Mean reciprocal rank, mean rank and the fraction of ranks of at most 1, 3 and 10.

    >>> ranking_metrics(np.array([1.0, 2.0, 4.0, 20.0]))
    {'mrr': 0.45, 'mean_rank': 6.75, 'hits@1': 0.25, 'hits@3': 0.5, 'hits@10': 0.75}
    """
    means = {"mrr": float((1 / ranks).mean()), "mean_rank": float(ranks.mean())}
    return means | {f"hits@{k}": float((ranks <= k).mean()) for k in HITS}
