"""From scores of the next token to the token: what is taken away from them, and how one is drawn.

Shapes: N sequences, V vocabulary.
Each rule does what the processor of the same name in `transformers` does, and they follow in the same order. The draw
is by one number between 0 and 1 a token, so that a sample is the same on every device and beside any neighbours.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hornbook.config import MANY, Typed, setting


@dataclass(frozen=True)
class Sampling(Typed, group=""):
    temperature: float = setting(
        1.0, "below 1 the likely gets likelier; 0 takes the likeliest each time", low=0, high=1e4
    )
    top_k: int | None = setting(
        None, "only so many of the likeliest tokens are drawn from; none: from all", low=1, high=MANY
    )
    top_p: float | None = setting(
        None, "only the likeliest tokens that make up this much probability; none: all", above=0, high=1
    )
    repetition_penalty: float = setting(
        1.0, "above 1, tokens that stand in the text already get less likely", above=0, high=1e6
    )

    @property
    def is_greedy(self) -> bool:
        return self.temperature == 0

    def scores(self, logits_NV: Tensor, written_NV: Tensor | None = None) -> Tensor:
        """The scores that a token is drawn by; `written_NV` says which tokens stand in each text already."""
        if written_NV is not None and self.repetition_penalty != 1:
            logits_NV = penalised(logits_NV, written_NV, self.repetition_penalty)
        if self.is_greedy:
            return logits_NV
        logits_NV = logits_NV / self.temperature
        if self.top_k is not None:
            logits_NV = among_first(logits_NV, self.top_k)
        if self.top_p is not None and self.top_p < 1:
            logits_NV = among_likely(logits_NV, self.top_p)
        return logits_NV

    def choose(self, scores_NV: Tensor, draws_N: Tensor) -> Tensor:
        """A token for each sequence, N."""
        return likeliest(scores_NV) if self.is_greedy else drawn(scores_NV, draws_N)


def likeliest(scores_NV: Tensor) -> Tensor:
    """The first of the highest of each row; on a CPU by numpy, which takes a tenth of the time of torch."""
    if scores_NV.device.type == "cpu":
        return torch.from_numpy(scores_NV.numpy().argmax(-1))
    return scores_NV.argmax(-1)


def penalised(scores_NV: Tensor, written_NV: Tensor, penalty: float) -> Tensor:
    """Keskar et al. 2019 (arXiv 1909.05858): scores of written tokens are divided, or multiplied where below 0."""
    less_NV = torch.where(scores_NV < 0, scores_NV * penalty, scores_NV / penalty)
    return torch.where(written_NV, less_NV, scores_NV)


def among_first(scores_NV: Tensor, num: int) -> Tensor:
    """The `num` highest scores, with those that equal the last of them; the others become impossible."""
    last_N1 = scores_NV.topk(min(num, scores_NV.shape[-1])).values[:, -1:]
    return scores_NV.masked_fill(scores_NV < last_N1, -torch.inf)


def among_likely(scores_NV: Tensor, share: float) -> Tensor:
    """Holtzman et al. 2020 (arXiv 1904.09751): the fewest tokens that make up this much probability."""
    rising = scores_NV.sort(-1)
    is_out_NV = rising.values.softmax(-1).cumsum(-1) <= 1 - share
    is_out_NV[:, -1] = False
    return scores_NV.masked_fill(is_out_NV.scatter(-1, rising.indices, is_out_NV), -torch.inf)


def drawn(scores_NV: Tensor, draws_N: Tensor) -> Tensor:
    """The token at which the summed probability, in the order of the vocabulary, goes over each draw."""
    # In float64: in float32 the sum over 50,000 tokens is off by more than the share of a rare one.
    below_NV = scores_NV.double().softmax(-1).cumsum(-1)
    goals_N1 = (draws_N * below_NV[:, -1]).unsqueeze(-1)
    return torch.searchsorted(below_NV, goals_N1, right=True).squeeze(-1).clamp(max=scores_NV.shape[-1] - 1)


def draws(seed: int, sample: int, num: int) -> np.ndarray:
    """Numbers from 0 to 1 for sample `sample` of a prompt. They depend on nothing else, and more of them begin with the
    same.

    >>> bool((draws(0, 1, 5)[:3] == draws(0, 1, 3)).all())
    True
    """
    return np.random.default_rng([seed, sample]).random(num)
