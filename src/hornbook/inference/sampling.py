"""Sampling the next token: logits processors (repetition penalty, temperature, top-k, top-p) and the random draw.

Shapes: N sequences, V vocabulary.
The processors compute what those of the same name in `transformers` do, in the same order. Each token is drawn with one
uniform number between 0 and 1, so a sample is the same on every device and in every batch.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from hornbook.config import setting
from hornbook.tasks.text.sampling import SamplingSettings


@dataclass(frozen=True)
class Sampling(SamplingSettings, group=""):
    repetition_penalty: float = setting(
        1.0, "above 1, tokens already in the text become less likely", above=0, high=1e6
    )

    def process(self, logits_NV: Tensor, seen_NV: Tensor | None = None) -> Tensor:
        """Returns the processed logits to sample from; `seen_NV` (bool) marks the tokens already in each text."""
        if seen_NV is not None and self.repetition_penalty != 1:
            logits_NV = penalize_repetition(logits_NV, seen_NV, self.repetition_penalty)
        if self.is_greedy:
            return logits_NV
        logits_NV = logits_NV / self.temperature
        if self.top_k is not None:
            logits_NV = keep_top_k(logits_NV, self.top_k)
        if self.top_p is not None and self.top_p < 1:
            logits_NV = keep_top_p(logits_NV, self.top_p)
        return logits_NV

    def choose(self, logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
        """Returns the next token of each sequence, N, from processed logits and uniform numbers in [0, 1)."""
        return argmax(logits_NV) if self.is_greedy else sample_by_inverse_cdf(logits_NV, uniform_N)


def argmax(logits_NV: Tensor) -> Tensor:
    """The first maximum of each row; on a CPU by numpy, which takes a tenth of the time of torch."""
    if logits_NV.device.type == "cpu":
        return torch.from_numpy(logits_NV.numpy().argmax(-1))
    return logits_NV.argmax(-1)


def penalize_repetition(logits_NV: Tensor, seen_NV: Tensor, penalty: float) -> Tensor:
    """Keskar et al. 2019 (arXiv 1909.05858): logits of seen tokens are divided by the penalty, or multiplied if < 0."""
    less_NV = torch.where(logits_NV < 0, logits_NV * penalty, logits_NV / penalty)
    return torch.where(seen_NV, less_NV, logits_NV)


def keep_top_k(logits_NV: Tensor, k: int) -> Tensor:
    """Keeps the `k` highest logits and those equal to the last of them; the others become -inf."""
    last_N1 = logits_NV.topk(min(k, logits_NV.shape[-1])).values[:, -1:]
    return logits_NV.masked_fill(logits_NV < last_N1, -torch.inf)


def keep_top_p(logits_NV: Tensor, p: float) -> Tensor:
    """Holtzman et al. 2020 (arXiv 1904.09751): keeps the fewest tokens whose total probability reaches `p`."""
    ascending = logits_NV.sort(-1)
    is_out_NV = ascending.values.softmax(-1).cumsum(-1) <= 1 - p
    is_out_NV[:, -1] = False
    return logits_NV.masked_fill(is_out_NV.scatter(-1, ascending.indices, is_out_NV), -torch.inf)


def sample_by_inverse_cdf(logits_NV: Tensor, uniform_N: Tensor) -> Tensor:
    """Inverse transform sampling: the token at which the cumulative probability, in vocabulary order, passes each
    uniform number."""
    # In float64: in float32 the error of the sum over 50,000 tokens exceeds the probability of a rare token.
    cumulative_NV = logits_NV.double().softmax(-1).cumsum(-1)
    targets_N1 = (uniform_N * cumulative_NV[:, -1]).unsqueeze(-1)
    return torch.searchsorted(cumulative_NV, targets_N1, right=True).squeeze(-1).clamp(max=logits_NV.shape[-1] - 1)


def uniform_numbers(seed: int, sample: int, num: int) -> np.ndarray:
    """`num` uniform numbers in [0, 1) for sample `sample` of a prompt. They depend on the seed and the sample only; a
    larger `num` extends the same sequence.

    >>> bool((uniform_numbers(0, 1, 5)[:3] == uniform_numbers(0, 1, 3)).all())
    True
    """
    return np.random.default_rng([seed, sample]).random(num)
