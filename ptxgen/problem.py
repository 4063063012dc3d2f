"""Problem: what is computed. y[M, N] = x[M, K] @ W[N, K]^T with 4-bit W; nothing about how."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

from ptxgen.errors import ProblemError

Dtype = Literal["fp16", "bf16"]
Zero = Literal["sym", "int"]

GROUP_SIZES = (32, 64, 128)
N_MULTIPLE = 8
K_MULTIPLE = 32
MAX_DIMENSION = 1 << 20
MAX_M = 1 << 20
SYMMETRIC_ZERO = 8

# vLLM's list of batch sizes without 1536 and 3072.
M_BUCKETS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 2048, 4096, 8192)


@dataclass(frozen=True, slots=True)
class Problem:
    """One W4A16 linear layer.

    Attributes:
        n: output features.
        k: input features.
        group_size: inputs that share a scale: 32, 64, 128, or k itself ("whole K").
        dtype: of activations, scales, bias and output; accumulation is FP32.
        zero: "sym" (every zero point is 8) or "int" (an integer 0..15 per group).
        bias: whether a bias of n values is added.
    """

    n: int
    k: int
    group_size: int = 128
    dtype: Dtype = "fp16"
    zero: Zero = "sym"
    bias: bool = False

    def __post_init__(self) -> None:
        for name, value, multiple in (("n", self.n, N_MULTIPLE), ("k", self.k, K_MULTIPLE)):
            _check_dimension(name, value, multiple)
        if self.dtype not in get_args(Dtype):
            raise ProblemError(f"dtype {self.dtype!r} is not supported; choose fp16 or bf16.")
        if self.zero not in get_args(Zero):
            raise ProblemError(
                f"zero {self.zero!r} is not supported; choose sym (zero point 8) or int (0..15)."
            )
        if self.group_size not in GROUP_SIZES and self.group_size != self.k:
            raise ProblemError(
                f"group size {self.group_size} is not supported; choose 32, 64, 128, "
                f"or {self.k} (whole K; -1 on the command line)."
            )
        if self.k % self.group_size:
            raise ProblemError(
                f"group size {self.group_size} does not divide K = {self.k} "
                f"({self.k / self.group_size:g} groups). If K is one rank's share of a layer, "
                f"use another tensor-parallel size, or a smaller group."
            )

    @property
    def whole_k(self) -> bool:
        """True where one scale serves a whole row and is not kept inside the K blocks."""
        return self.group_size not in GROUP_SIZES

    @property
    def num_groups(self) -> int:
        return self.k // self.group_size

    def flops(self, m: int) -> int:
        """Multiply and add counted apart: 2 M N K."""
        return 2 * m * self.n * self.k

    def bytes_moved(self, m: int) -> int:
        """The fewest bytes through device memory: weights, scales, zeros, x and y once each."""
        weights = self.n * self.k // 2
        groups = self.n * self.num_groups
        zeros = (groups + 1) // 2 if self.zero == "int" else 0
        bias = 2 * self.n if self.bias else 0
        return weights + 2 * groups + zeros + bias + 2 * m * (self.k + self.n)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Problem:
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})

    def key(self) -> str:
        """Readable unique key, such as n4096-k4096-g128-fp16-sym."""
        group = "k" if self.whole_k else str(self.group_size)
        bias = "-bias" if self.bias else ""
        return f"n{self.n}-k{self.k}-g{group}-{self.dtype}-{self.zero}{bias}"


def check_m(m: int, least: int = 0) -> int:
    """Returns m, or raises ProblemError where it is no batch size (0 is one: an empty result).

    With least = 1 a batch of 0 is refused too, where a kernel is wanted that runs.
    """
    if isinstance(m, bool) or not isinstance(m, int) or not 0 <= m <= MAX_M:
        raise ProblemError(
            f"M = {m!r} is not a batch size; it must be an integer {least}..{MAX_M}."
        )
    if m < least:
        raise ProblemError(f"M = {m} has nothing to run; the least is {least}.")
    return m


def bucket_of(m: int, buckets: tuple[int, ...] = M_BUCKETS) -> int:
    """The smallest bucket >= m, or the largest bucket where m is above all of them."""
    return next((bucket for bucket in sorted(buckets) if bucket >= m), max(buckets))


def _check_dimension(name: str, value: int, multiple: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= MAX_DIMENSION:
        raise ProblemError(
            f"{name} = {value!r} is no layer dimension; it must be an integer 1..{MAX_DIMENSION}."
        )
    if value % multiple:
        up = -(-value // multiple) * multiple
        raise ProblemError(
            f"{name} = {value} cannot be packed: it must be a multiple of {multiple}. "
            f"Pad the weight to {up}, or choose another tensor-parallel size."
        )
