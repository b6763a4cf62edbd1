"""A linear layer with int8 weights: a quarter of the memory to read, which is what a step at batch 1 waits for.

weight ~ step_O x q_OI, |q| <= 127, step_O = largest weight of the row / 127: off by half a step of its row at most

Shapes: T tokens, I width that comes in, O width that goes out, B blocks of W columns.
Only weights are rounded to 8 bits. Values that come in are rounded to 15 bits and a sign, the largest of a token being
127 x 254, and go through the kernel as two int8 each, low + 254 high. Its products are whole numbers: exact, and a
token's result depends on no other. A single token, as in writing one text, is rounded the same and has a kernel and a
copy of the weights of its own.
"""

from collections.abc import Callable
from functools import cache, cached_property

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

MOST = 127  # of an int8; -128 stays unused
HIGH = 2 * MOST  # what the higher part of a value counts: the lower one then lies within MOST
SMALLEST = 1e-30  # a row of zeros is divided by it
NUM_AT_ONCE = 256  # tokens; over a vocabulary of 50,000 they need 300 MB
OFFSET = 128  # of a weight as a byte
WIDEST, LANES = 448, 16  # columns of a block: as many as fit into the registers of AVX-512, and into one of them

_add_rows = torch.ops.quantized.embedding_bag_byte_rowwise_offsets.default


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
    made float again in each call of several tokens: right everywhere, and no faster than they were."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None):
        super().__init__()
        numbers_OI, steps_O = quantized_rows(weight_OI)
        self.register_buffer("numbers_OI", numbers_OI)
        self.register_buffer("steps_O", steps_O)
        self.register_buffer("bias_O", None if bias_O is None else bias_O.detach().clone())

    def forward(self, x_TI: Tensor) -> Tensor:
        if len(x_TI) == 1 and x_TI.dtype == torch.float32 and x_TI.device.type == "cpu":
            return torch.from_numpy(self.alone(x_TI[0].detach().numpy()))[None]
        return self._scaled(x_TI)

    def _scaled(self, x_TI: Tensor) -> Tensor:
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

    @cached_property
    def alone(self) -> Callable[[np.ndarray], np.ndarray]:
        """The layer for a single token, made when a first one comes."""
        if has_table_kernel() and self.steps_O.dtype == torch.float32:
            return OneToken(self.numbers_OI, self.steps_O, self.bias_O)
        return lambda x_I: self._scaled(torch.from_numpy(x_I)[None]).numpy()[0]


class OneToken:
    """The layer for a single token, by the kernel of `EmbeddingBag` over a table of bytes, which adds up rows, each
    times a number. It takes three quarters of the time of `_int_mm`, which rearranges the matrix in every call.

    A bag is a block of W columns: row i holds the weights of input i as bytes, and behind them the scale and the offset
    that make numbers of bytes again.
    """

    def __init__(self, numbers_OI: Tensor, steps_O: Tensor, bias_O: Tensor | None):
        num_out, num_in = numbers_OI.shape
        num_threads = torch.get_num_threads()
        num_blocks = -(-num_out // (num_threads * WIDEST)) * num_threads  # a thread takes whole blocks
        width = -(-num_out // (num_blocks * LANES)) * LANES
        numbers_OI = F.pad(numbers_OI, (0, 0, 0, num_blocks * width - num_out))
        rows_BIW = numbers_OI.new_empty((num_blocks, num_in, width + 8), dtype=torch.uint8)
        rows_BIW[:, :, :width] = (numbers_OI.view(torch.uint8) ^ OFFSET).view(num_blocks, width, num_in).mT
        rows_BIW[:, :, width:] = torch.tensor([1.0, -OFFSET]).view(torch.uint8)
        self.rows = rows_BIW.flatten(0, 1)
        self.shape_BI = num_blocks, num_in
        self.indices = torch.arange(num_blocks * num_in, dtype=torch.int32)
        self.starts = torch.arange(0, num_blocks * num_in + 1, num_in, dtype=torch.int32)
        self.num_out, self.steps_O = num_out, steps_O.numpy()
        self.bias_O = None if bias_O is None else bias_O.numpy()
        self.rounds = has_exact_kernel()  # as beside others

    def __call__(self, x_I: np.ndarray) -> np.ndarray:
        x_BI = np.empty(self.shape_BI, np.float32)
        x_BI[:] = rounded(x_I) if self.rounds else x_I
        factors = torch.from_numpy(x_BI).view(-1)
        sums_BW = _add_rows(self.rows, self.indices, self.starts, False, 0, False, factors, None, True)
        y_O = sums_BW.numpy().reshape(-1)[: self.num_out]
        y_O *= self.steps_O
        if self.bias_O is not None:
            y_O += self.bias_O
        return y_O


def rounded(x_I: np.ndarray) -> np.ndarray:
    """A token's values as `parts_of` rounds them."""
    largest = max(np.maximum.reduce(x_I), -np.minimum.reduce(x_I)) or np.float32(1)
    whole_I = x_I * (1 / largest * MOST * HIGH)
    np.rint(whole_I, whole_I)
    whole_I *= largest / (MOST * HIGH)
    return whole_I


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


@cache
def has_table_kernel() -> bool:
    """Whether rows of bytes are added up by fbgemm; what stands in for it elsewhere is slow."""
    return "fbgemm" in torch.backends.quantized.supported_engines
