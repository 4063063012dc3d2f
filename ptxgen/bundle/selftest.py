"""The self-test vector of a bundle: inputs from a formula, expected outputs in FP64, the verdict.

The formula stands in words.SELF_TEST and, for C, in runtime.h. Scales are 4-bit multiples of 2^-10
and activations 5-bit multiples of 2^-4, so that a dequantized weight is exact even in BF16, every
product is a multiple of 2^-14 and FP32 sums are exact in any order: a right kernel differs from the
expected output only by the rounding of y, and one wrong weight shows.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ptxgen.bundle.manifest import SelfTestInfo
from ptxgen.errors import BundleError
from ptxgen.problem import SYMMETRIC_ZERO, Problem
from ptxgen.source import LaunchPlan
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight

Words = npt.NDArray[np.uint32]

ROWS = 5
"""Distinct activation rows; coprime to every token tile, so that swapped tiles differ."""

EXPECTED_FILE = "selftest_y.f32"
STREAM_CODES, STREAM_SCALES, STREAM_ZEROS, STREAM_X, STREAM_BIAS = 1, 2, 3, 4, 5

REL_TOLERANCE = {"fp16": 2.0**-10, "bf16": 2.0**-7}
"""Twice the rounding of y."""
ABS_TOLERANCE = 2.0**-13

CHUNK_ELEMENTS = 1 << 23
BYTES_PER_WEIGHT = 2
"""Held at once while the codes are made: a hash's index, the hash, and the code itself."""
NIBBLES = 8


@dataclass(frozen=True, slots=True)
class SelfTest:
    """Inputs of the self-test, on the CPU.

    Attributes:
        weight: the quantized weight of the formula.
        x: [ROWS, K] in the problem's dtype.
        bias: [N] in the problem's dtype; None where the problem has none.
    """

    weight: QuantizedWeight
    x: Tensor
    bias: Tensor | None

    def batch(self, m: int) -> Tensor:
        """The activations of a batch of m: row i is x[i % ROWS]."""
        return self.x[torch.arange(m) % ROWS]


def hash32(stream: int, index: Words) -> Words:
    """The hash of the formula, for an array of element indices."""
    h = index * np.uint32(0x9E3779B1) + np.uint32((stream * 0x85EBCA77 + 1) & 0xFFFFFFFF)
    h ^= h >> np.uint32(16)
    h *= np.uint32(0x7FEB352D)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x846CA68B)
    h ^= h >> np.uint32(16)
    return h


def self_test(problem: Problem) -> SelfTest:
    """The self-test's inputs for a problem."""
    groups = (problem.n, problem.num_groups)
    scales = _small(8 + (_hashes(STREAM_SCALES, groups) & 7), 1024, problem)
    zeros = None
    if problem.zero == "int":
        values = (_hashes(STREAM_ZEROS, groups) & 15).astype(np.uint8)
        zeros = torch.from_numpy(values)
    x = (_hashes(STREAM_X, (ROWS, problem.k)) & 31).astype(np.int32) - 16
    bias = None
    if problem.bias:
        shifted = (_hashes(STREAM_BIAS, (problem.n,)) & 63).astype(np.int32) - 32
        bias = _small(shifted, 16, problem)
    return SelfTest(QuantizedWeight(_codes(problem), scales, zeros), _small(x, 16, problem), bias)


def expected(problem: Problem, test: SelfTest) -> npt.NDArray[np.float32]:
    """y of the distinct rows, [ROWS, N], computed in FP64 and rounded to FP32 once."""
    x = test.x.double().numpy()
    y = np.empty((ROWS, problem.n))
    step = max(1, CHUNK_ELEMENTS // problem.k)
    for start in range(0, problem.n, step):
        part = slice(start, min(start + step, problem.n))
        y[:, part] = x @ _dequantized(problem, test.weight, part).T
    if test.bias is not None:
        y += test.bias.double().numpy()
    return y.astype(np.float32)


def batch_for(plan: LaunchPlan, m_max: int, below: int) -> int:
    """A batch that goes through a bucket's kernel: a full token tile and a ragged one where it can.

    Args:
        plan: of the bucket's kernel.
        m_max: of the bucket.
        below: m_max of the bucket before it, 0 where there is none.
    """
    return min(m_max, below + 2 * plan.block_m - 1)


def check_size(problem: Problem, memory_bytes: int | None = None) -> None:
    """Whether this machine can hold a problem's self-test, which is as large as its weight.

    Args:
        problem: the problem.
        memory_bytes: what the machine has; looked up where it is None.

    Raises:
        BundleError: it cannot.
    """
    have = _memory_bytes() if memory_bytes is None else memory_bytes
    need = problem.n * problem.k * BYTES_PER_WEIGHT
    if need > have:
        raise BundleError(
            f"the self-test of a bundle for {problem.key()} takes {need >> 30} GiB of memory to "
            f"make, and this machine has {have >> 30}; export one tensor-parallel rank's share of "
            f"the layer."
        )


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def info(problem: Problem) -> SelfTestInfo:
    """What the manifest says about the self-test."""
    return SelfTestInfo(EXPECTED_FILE, ROWS, REL_TOLERANCE[problem.dtype], ABS_TOLERANCE)


def worst_excess(y: Tensor, rows: Tensor, limits: SelfTestInfo) -> float:
    """How far the worst element is beyond its tolerance; at most 0 where the output passes.

    Args:
        y: [m, N] output of the batch.
        rows: [rows, N] FP32 expected output, on y's device.
        limits: tolerances.

    Returns:
        max(|y - expected| - tolerance), inf where y holds NaN or inf.
    """
    wanted = rows[torch.arange(y.shape[0], device=y.device) % limits.rows]
    allowed = limits.rel_tolerance * wanted.abs() + limits.abs_tolerance
    excess = (y.float() - wanted).abs() - allowed
    return float(torch.nan_to_num(excess, nan=torch.inf, posinf=torch.inf).max())


def _hashes(stream: int, shape: tuple[int, ...]) -> Words:
    count = int(np.prod(shape))
    # Indices beyond 2^32 wrap, as they do in C.
    return hash32(stream, np.arange(count, dtype=np.uint64).astype(np.uint32)).reshape(shape)


def _codes(problem: Problem) -> Tensor:
    """q [N, K] uint8: eight nibbles of each hash word, low nibble first."""
    words = _hashes(STREAM_CODES, (problem.n, problem.k // NIBBLES))
    pairs = words.astype("<u4", copy=False).view(np.uint8)
    codes = np.empty((problem.n, problem.k // 2, 2), dtype=np.uint8)
    np.bitwise_and(pairs, 15, out=codes[:, :, 0])
    np.right_shift(pairs, 4, out=codes[:, :, 1])
    return torch.from_numpy(codes.reshape(problem.n, problem.k))


def _small(values: npt.NDArray[np.generic], divisor: int, problem: Problem) -> Tensor:
    """values / divisor in the problem's dtype, exactly."""
    return torch.from_numpy(values.astype(np.float32) / divisor).to(TORCH_DTYPES[problem.dtype])


def _dequantized(problem: Problem, weight: QuantizedWeight, part: slice) -> npt.NDArray[np.float64]:
    """[rows, K]; written apart from the weights package, so that the two can disagree."""
    zeros: npt.NDArray[np.float64] | int = SYMMETRIC_ZERO
    if weight.zeros is not None:
        zeros = np.repeat(weight.zeros[part].double().numpy(), problem.group_size, axis=1)
    scales = np.repeat(weight.scales[part].double().numpy(), problem.group_size, axis=1)
    values: npt.NDArray[np.float64] = (weight.q[part].double().numpy() - zeros) * scales
    return values
