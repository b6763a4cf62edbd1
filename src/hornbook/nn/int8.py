"""A linear layer with int8 weights: a quarter of the memory to read, which is what a step at batch 1 waits for.

weight ~ step_O x q_OI, |q| <= 127, step_O = largest weight of the row / 127: off by half a step of its row at most

Shapes: T tokens, I width that comes in, O width that goes out.
Only weights are rounded to 8 bits. Values that come in are rounded to 15 bits and a sign, the largest of a token being
127 x 254, and go through the kernel as two int8 each, low + 254 high. Its products are whole numbers: exact, and a
token's result depends on no other.
"""

from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST = 127  # of an int8; -128 stays unused
HIGH = 2 * MOST  # what the higher part of a value counts: the lower one then lies within MOST
SMALLEST = 1e-30  # a row of zeros is divided by it
NUM_AT_ONCE = 256  # tokens; over a vocabulary of 50,000 they need 300 MB


def quantized_rows(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """int8 numbers, O x I, and the step of each row, O.

    >>> numbers, steps = quantized_rows(torch.tensor([[1.27, -0.5], [0.0, 0.0]]))
    >>> numbers.tolist(), [round(step, 4) for step in steps.tolist()]
    ([[127, -50], [0, 0]], [0.01, 0.0])
    """
    weight_OI = weight_OI.detach().float()
    steps_O = torch.linalg.vector_norm(weight_OI, torch.inf, -1).clamp(min=SMALLEST) / MOST
    return (weight_OI / steps_O[:, None]).round().to(torch.int8), steps_O


class Int8Linear(nn.Module):
    """What `nn.Linear` computes, with rounded weights, on a CPU. Where no kernel multiplies int8 exactly, weights are
    made float again in each call: right everywhere, and no faster than they were."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None):
        super().__init__()
        numbers_OI, steps_O = quantized_rows(weight_OI)
        self.register_buffer("numbers_OI", numbers_OI)
        self.register_buffer("steps_O", steps_O)
        self.register_buffer("bias_O", None if bias_O is None else bias_O.detach().clone())

    def forward(self, x_TI: Tensor) -> Tensor:
        if len(x_TI) == 1 and x_TI.dtype == torch.float32 and x_TI.device.type == "cpu" and has_exact_kernel():
            return torch.from_numpy(self._one_token(x_TI[0].detach().numpy()))[None]
        if not has_exact_kernel() or x_TI.device.type != "cpu":
            y_TO = F.linear(x_TI, self.numbers_OI.to(x_TI.dtype))
        elif len(x_TI) <= NUM_AT_ONCE:
            y_TO = self._by_whole_numbers(x_TI)
        else:
            y_TO = torch.cat([self._by_whole_numbers(each) for each in x_TI.split(NUM_AT_ONCE)])
        return y_TO.mul_(self.steps_O) if self.bias_O is None else torch.addcmul(self.bias_O, y_TO, self.steps_O)

    def _by_whole_numbers(self, x_TI: Tensor) -> Tensor:
        """x q."""
        largest_T1 = x_TI.abs().amax(-1, keepdim=True)
        parts_2TI = parts_of(x_TI, largest_T1)
        low_TO, high_TO = torch._int_mm(parts_2TI.flatten(0, 1), self.numbers_OI.T).chunk(2)
        return low_TO.to(x_TI.dtype).add_(high_TO, alpha=HIGH).mul_(largest_T1.div_(MOST * HIGH))

    def _one_token(self, x_I: np.ndarray) -> np.ndarray:
        """The whole layer for a single token: what numpy does in 16 us around the product takes torch 60. With the
        weights on the left, as they lie, the kernel is 1.5 x as fast."""
        largest = max(x_I.max(), -x_I.min()) or np.float32(1)
        unit = 1 / largest * MOST  # in the order of `parts_of`, so that each value is rounded the same
        high_I = np.rint(x_I * unit)
        parts_2I = np.empty((2, len(x_I)), np.int8)
        parts_2I[0] = np.rint(x_I * (unit * HIGH)) - HIGH * high_I
        parts_2I[1] = high_I
        low_high_O2 = torch._int_mm(self.numbers_OI, torch.from_numpy(parts_2I).T).numpy()
        y_O = low_high_O2.astype(np.float32) @ (np.array([1, HIGH], np.float32) * (largest / (MOST * HIGH)))
        y_O *= self.steps_O.numpy()
        return y_O if self.bias_O is None else y_O + self.bias_O.numpy()


def parts_of(x_TI: Tensor, largest_T1: Tensor) -> Tensor:
    """Each value as low + 254 high, in units of its token's largest / (127 x 254): int8, first all low, then all high.
    A token of zeros gives anything; its largest, 0, makes nothing of it.

    >>> parts_of(torch.tensor([[1.0, -0.5, 0.25 / 127]]), torch.tensor([[1.0]])).tolist()
    [[[0, 127, 64]], [[127, -64, 0]]]
    """
    units_T1 = MOST / largest_T1
    both_2TI = (torch.stack((units_T1 * HIGH, units_T1)) * x_TI).round_()
    both_2TI[0].sub_(both_2TI[1], alpha=HIGH)
    return both_2TI.to(torch.int8)


@cache
def has_exact_kernel() -> bool:
    """Whether oneDNN multiplies int8 here without overflow. Processors without instructions for it (VNNI, AMX) add two
    products in 16 bits, which the largest numbers exceed."""
    if not torch.backends.mkldnn.is_available():
        return False
    most = torch.full((64, 64), MOST, dtype=torch.int8)
    most[1::2] = -MOST
    return torch.equal(torch._int_mm(most, most.T), most.int() @ most.int().T)
