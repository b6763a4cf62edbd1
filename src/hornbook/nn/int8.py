"""A linear layer with int8 weights: a quarter of the memory traffic, which limits a decoding step at batch size 1; and
weights that are only stored in int8, in a quarter of the space.

weight ~ scales_O x q_OI, |q| <= 127, scales_O = largest weight of the row / 127: the error is at most half the scale

Shapes: T tokens, I input width, O output width, P output width padded to whole tiles, B blocks of W columns.
Only weights are rounded to 8 bits. Inputs are rounded to 15 bits and a sign, scaled so that the largest value of each
token is 127 x 256, and go through the kernel as two int8 each, low + 256 high. The integer products are exact, so a
token's result does not depend on the other tokens. A layer that is used often gets a copy of its weights packed for the
kernel. A single token, as when one text is generated, is rounded in the same way but has its own kernel and copy.
"""

from collections.abc import Callable
from functools import cache, cached_property
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hornbook.devices import fastest_seconds
from hornbook.files import INT8_SCALE

WeightFormat = Literal["float", "int8"]
QMAX = 127  # largest absolute value of a weight; -128 is unused
HIGH = 256  # factor of the high part of a value
TILE = 64  # output widths that are not whole tiles, such as 50,257 logits, take 1.7 x as long
NUM_BEFORE_PACKING = 100  # calls; about as many as it takes to regain the time of packing, 0.9 s for 124M weights
SMALLEST = 1e-30  # avoids division by zero for a row of zeros
NUM_AT_ONCE = 256  # tokens per product; over a vocabulary of 50,000 they need 300 MB
OFFSET = 128  # added to a signed byte to store it as an unsigned one
WIDEST, LANES = 448, 16  # columns of a block: at most all AVX-512 registers, in multiples of one register

_add_rows = torch.ops.quantized.embedding_bag_byte_rowwise_offsets.default


def quantized_rows(weight_OI: Tensor) -> tuple[Tensor, Tensor]:
    """Symmetric per-row quantization: int8 weights, O x I, and the scale of each row, O.

    >>> weight, scales = quantized_rows(torch.tensor([[1.27, -0.5], [0.0, 0.0]]))
    >>> weight.tolist(), [round(scale, 4) for scale in scales.tolist()]
    ([[127, -50], [0, 0]], [0.01, 0.0])
    """
    weight_OI = weight_OI.detach().float()
    scales_O = torch.linalg.vector_norm(weight_OI, torch.inf, -1).clamp(min=SMALLEST) / QMAX
    return (weight_OI / scales_O[:, None]).round().to(torch.int8), scales_O


class Int8Linear(nn.Module):
    """`nn.Linear` with rounded weights, for a CPU. If no kernel multiplies int8 exactly, each call with several tokens
    dequantizes the weights: correct on every device, but no faster than float weights."""

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None):
        super().__init__()
        weight_int8_OI, scales_O = quantized_rows(weight_OI)
        self.register_buffer("weight_int8_PI", F.pad(weight_int8_OI, (0, 0, 0, -len(scales_O) % TILE)))
        self.register_buffer("scales_O", scales_O)
        self.register_buffer("bias_O", None if bias_O is None else bias_O.detach().clone())
        self.num_calls = 0  # of the integer kernel

    @property
    def weight_int8_OI(self) -> Tensor:
        return self.weight_int8_PI[: len(self.scales_O)]

    def forward(self, x_TI: Tensor) -> Tensor:
        if len(x_TI) == 1 and x_TI.dtype == torch.float32 and x_TI.device.type == "cpu":
            return torch.from_numpy(self.single_token(x_TI[0].detach().numpy()))[None]
        return self._scaled(x_TI)

    def _scaled(self, x_TI: Tensor) -> Tensor:
        if not has_exact_kernel() or x_TI.device.type != "cpu":
            y_TO = F.linear(x_TI, self.weight_int8_OI.to(x_TI.dtype))
        elif len(x_TI) <= NUM_AT_ONCE:
            y_TO = self._integer_product(x_TI)
        else:
            y_TO = torch.cat([self._integer_product(each) for each in x_TI.split(NUM_AT_ONCE)])
        return y_TO.mul_(self.scales_O) if self.bias_O is None else torch.addcmul(self.bias_O, y_TO, self.scales_O)

    def _integer_product(self, x_TI: Tensor) -> Tensor:
        """x q by integer products, T x O."""
        self.num_calls += 1
        largest_T1 = x_TI.abs().amax(-1, keepdim=True)
        parts_2TI = low_and_high_parts(x_TI, largest_T1).flatten(0, 1)
        if self.num_calls > NUM_BEFORE_PACKING and x_TI.dtype == torch.float32 and has_packed_kernel():
            products_2TP = self._packed(parts_2TI)
        else:
            products_2TP = torch._int_mm(parts_2TI, self.weight_int8_PI.T).to(x_TI.dtype)
        return joined(products_2TP, largest_T1)[:, : len(self.scales_O)]

    @cached_property
    def _packed(self) -> Callable[[Tensor], Tensor]:
        return packed_product(self.weight_int8_PI)

    @cached_property
    def single_token(self) -> Callable[[np.ndarray], np.ndarray]:
        """The layer for a single token, created at its first use."""
        if has_table_kernel() and self.scales_O.dtype == torch.float32:
            return SingleTokenInt8Linear(self.weight_int8_OI, self.scales_O, self.bias_O)
        return lambda x_I: self._scaled(torch.from_numpy(x_I)[None]).numpy()[0]


class SingleTokenInt8Linear:
    """The layer for a single token, by the kernel of a quantized `EmbeddingBag`, which computes weighted sums of rows
    of bytes. It takes three quarters of the time of `_int_mm`, which rearranges the matrix in every call.

    A bag is a block of W columns: row i holds the weights of input i as bytes, followed by the scale and the offset
    that dequantize them.
    """

    def __init__(self, weight_int8_OI: Tensor, scales_O: Tensor, bias_O: Tensor | None):
        num_out, num_in = weight_int8_OI.shape
        num_threads = torch.get_num_threads()
        num_blocks = -(-num_out // (num_threads * WIDEST)) * num_threads  # a thread takes whole blocks
        width = -(-num_out // (num_blocks * LANES)) * LANES
        weight_int8_OI = F.pad(weight_int8_OI, (0, 0, 0, num_blocks * width - num_out))
        rows_BIW = weight_int8_OI.new_empty((num_blocks, num_in, width + 8), dtype=torch.uint8)
        rows_BIW[:, :, :width] = (weight_int8_OI.view(torch.uint8) ^ OFFSET).view(num_blocks, width, num_in).mT
        rows_BIW[:, :, width:] = torch.tensor([1.0, -OFFSET]).view(torch.uint8)
        self.rows = rows_BIW.flatten(0, 1)
        self.shape_BI = num_blocks, num_in
        self.indices = torch.arange(num_blocks * num_in, dtype=torch.int32)
        self.offsets = torch.arange(0, num_blocks * num_in + 1, num_in, dtype=torch.int32)
        self.num_out, self.scales_O = num_out, scales_O.numpy()
        self.bias_O = None if bias_O is None else bias_O.numpy()
        self.rounds = has_exact_kernel()  # then the result is the same as in a batch

    def __call__(self, x_I: np.ndarray) -> np.ndarray:
        x_BI = np.empty(self.shape_BI, np.float32)
        x_BI[:] = rounded(x_I) if self.rounds else x_I
        factors = torch.from_numpy(x_BI).view(-1)
        sums_BW = _add_rows(self.rows, self.indices, self.offsets, False, 0, False, factors, None, True)
        y_O = sums_BW.numpy().reshape(-1)[: self.num_out]
        y_O *= self.scales_O
        if self.bias_O is not None:
            y_O += self.bias_O
        return y_O


def rounded(x_I: np.ndarray) -> np.ndarray:
    """A token's values, rounded as by `low_and_high_parts`."""
    largest = max(np.maximum.reduce(x_I), -np.minimum.reduce(x_I)) or np.float32(1)
    whole_I = x_I * (1 / largest * QMAX * HIGH)  # the order in which torch divides a number by a tensor
    np.rint(whole_I, whole_I)
    whole_I *= largest / (QMAX * HIGH)
    return whole_I


def low_and_high_parts(x_TI: Tensor, largest_T1: Tensor) -> Tensor:
    """Splits each value into low + 256 high, in units of its token's largest value / (127 x 256); int8, 2 x T x I, low
    first. For a token of zeros the result is arbitrary, as it is multiplied by its largest value, 0.

    >>> low_and_high_parts(torch.tensor([[1.0, -0.5, 0.25 / 127]]), torch.tensor([[1.0]])).tolist()
    [[[0, -128, 64]], [[127, -63, 0]]]
    """
    whole_TI = (x_TI * (QMAX * HIGH / largest_T1)).round_().to(torch.int16)
    parts_2TI = torch.empty((2, *x_TI.shape), dtype=torch.int8)
    parts_2TI[0] = whole_TI  # the lower byte, signed
    parts_2TI[1] = whole_TI.add_(HIGH // 2).bitwise_right_shift_(8)
    return parts_2TI


def joined(products_2TO: Tensor, largest_T1: Tensor) -> Tensor:
    """The products with values, T x O, from those with their low and high parts, which it overwrites."""
    low_TO, high_TO = products_2TO.chunk(2)
    return low_TO.add_(high_TO, alpha=HIGH).mul_(largest_T1 * (1 / (QMAX * HIGH)))


def packed_product(weight_int8_PI: Tensor) -> Callable[[Tensor], Tensor]:
    """oneDNN's quantized linear layer: of int8 rows, which it overwrites, the result of `_int_mm` in float32, in two
    thirds of the time. It is given bytes with an offset, as signed ones are fast on CPUs with AMX alone."""
    packed = torch.ops.onednn.qlinear_prepack(weight_int8_PI, None)
    multiply = torch.ops.onednn.qlinear_pointwise.default
    one, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    nothing_after = (None, 1.0, 0, torch.float32, "none", [], "")

    def product(rows_RI: Tensor) -> Tensor:
        return multiply(rows_RI.view(torch.uint8).bitwise_xor_(OFFSET), 1.0, OFFSET, packed, one, zero, *nothing_after)

    return product


@cache
def has_exact_kernel() -> bool:
    """Whether oneDNN multiplies int8 without overflow on this machine. CPUs without VNNI or AMX add two products in 16
    bits, which the largest values exceed."""
    if not torch.backends.mkldnn.is_available():
        return False
    weights, values = _extremes(64)
    return torch.equal(torch._int_mm(values, weights.T), values.int() @ weights.int().T)


@cache
def has_packed_kernel() -> bool:
    """Whether `packed_product` is as exact as `_int_mm` on this machine, and fast: without a kernel for it, it takes a
    thousand times as long."""
    weights, values = _extremes(128)
    product, expected = packed_product(weights), torch._int_mm(values, weights.T)
    if not torch.equal(product(values.clone()), expected.float()):
        return False
    return fastest_seconds(lambda: product(values)) < 50 * fastest_seconds(lambda: torch._int_mm(values, weights.T))


def _extremes(size: int) -> Tensor:
    """Weights and values with the largest products, 2 x size x size."""
    weights_and_values = torch.full((2, size, size), QMAX, dtype=torch.int8)
    weights_and_values[0, 1::2] = -QMAX
    weights_and_values[1, 1::2] = -QMAX - 1  # the low part of a value may be -128
    return weights_and_values


@cache
def has_table_kernel() -> bool:
    """Whether FBGEMM is available for sums of rows of bytes; the fallback is slow."""
    return "fbgemm" in torch.backends.quantized.supported_engines


def as_int8(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The weights with every matrix rounded to int8, and its scales under its name and `.scale`."""
    stored = {}
    for name, weight in weights.items():
        if weight.dim() == 2 and weight.is_floating_point():
            stored[name], stored[f"{name}{INT8_SCALE}"] = quantized_rows(weight)
        else:
            stored[name] = weight
    return stored


def as_float(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `as_int8`, up to rounding; weights that are not stored in int8 are unchanged.

    >>> weight = torch.tensor([[1.27, -0.5], [0.0, 254.0]])
    >>> as_float(as_int8({"w": weight}))["w"].tolist() == weight.tolist()
    True
    """
    weights = {}
    for name, weight in stored.items():
        scale_R = stored.get(f"{name}{INT8_SCALE}")
        if weight.dtype == torch.int8 and scale_R is not None:
            if scale_R.shape != weight.shape[:1] or not scale_R.is_floating_point():
                raise ValueError(f"{name}{INT8_SCALE} is not one number for each row of {name}")
            weights[name] = weight.to(scale_R.dtype) * scale_R[:, None]
        elif not name.endswith(INT8_SCALE) or name.removesuffix(INT8_SCALE) not in stored:
            weights[name] = weight
    return weights
