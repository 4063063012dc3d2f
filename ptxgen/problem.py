"""Problem: what is computed. y[M, N] = x[M, K] @ W[N, K]^T with 4-bit W; nothing about how."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast, get_args

from ptxgen.arguments import as_int, flag, shown
from ptxgen.errors import ProblemError

Dtype = Literal["fp16", "bf16"]
Zero = Literal["sym", "int"]

GROUP_SIZES = (32, 64, 128)
N_MULTIPLE = 8
K_MULTIPLE = 32
MAX_DIMENSION = 1 << 20
MAX_M = 1 << 20
SYMMETRIC_ZERO = 8

KEY = r"n(\d+)-k(\d+)-g(k|\d+)-(\w+)-(\w+?)(-bias)?"

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

    Integers and bools may be numpy's; they are kept as Python's.

    Raises:
        ProblemError: a value of another type, or one that no kernel serves.
    """

    n: int
    k: int
    group_size: int = 128
    dtype: Dtype = "fp16"
    zero: Zero = "sym"
    bias: bool = False

    def __post_init__(self) -> None:
        for name, value, multiple in (("n", self.n, N_MULTIPLE), ("k", self.k, K_MULTIPLE)):
            self._keep(name, _dimension(name, value, multiple))
        group = as_int(self.group_size)
        if group is None:
            raise ProblemError(
                f"group size {shown(self.group_size)} is not an integer; choose 32, 64, 128, or "
                f"{self.k} (whole K)."
            )
        self._keep("group_size", group)
        self._keep("bias", flag(self.bias, "bias", error=ProblemError))
        if self.dtype not in get_args(Dtype):
            raise ProblemError(f"dtype {self.dtype!r} is not supported; choose fp16 or bf16.")
        if self.zero not in get_args(Zero):
            raise ProblemError(
                f"zero {self.zero!r} is not supported; choose sym (zero point 8) or int (0..15)."
            )
        if self.group_size not in GROUP_SIZES and self.group_size != self.k:
            raise ProblemError(
                f"group size {shown(self.group_size)} is not supported; choose 32, 64, 128, "
                f"or {self.k} (whole K; -1 on the command line)."
            )
        if self.k % self.group_size:
            raise ProblemError(
                f"group size {self.group_size} does not divide K = {self.k} "
                f"({self.k / self.group_size:g} groups). If K is one rank's share of a layer, "
                f"use another tensor-parallel size, or a smaller group."
            )

    def _keep(self, name: str, value: int | bool) -> None:
        object.__setattr__(self, name, value)  # frozen: only here, before anybody has it

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

    @classmethod
    def from_key(cls, key: str) -> Problem:
        """The inverse of key. Raises ProblemError where it is no problem's key."""
        found = re.fullmatch(KEY, key)
        if found is None:
            raise ProblemError(
                f"{key!r} is no problem's key; one looks like n4096-k4096-g128-fp16-sym."
            )
        n, k, group, dtype, zero, bias = found.groups()
        size = int(k) if group == "k" else int(group)
        problem = cls(int(n), int(k), size, cast(Dtype, dtype), cast(Zero, zero), bias is not None)
        if problem.key() != key:
            raise ProblemError(f"{key!r} is no problem's key; did you mean {problem.key()!r}?")
        return problem


def check_m(m: int, least: int = 0) -> int:
    """m as an int; raises ProblemError where it is no batch size (0 is one: an empty result).

    With least = 1 a batch of 0 is refused too, where a kernel is wanted that runs.
    """
    found = as_int(m)
    if found is None or not 0 <= found <= MAX_M:
        raise ProblemError(
            f"M = {shown(m)} is not a batch size; it must be an integer {least}..{MAX_M}."
        )
    if found < least:
        raise ProblemError(f"M = {found} has nothing to run; the least is {least}.")
    return found


def bucket_of(m: int, buckets: tuple[int, ...] = M_BUCKETS) -> int:
    """The smallest bucket >= m, or the largest bucket where m is above all of them."""
    return next((bucket for bucket in sorted(buckets) if bucket >= m), max(buckets))


def _dimension(name: str, value: object, multiple: int) -> int:
    found = as_int(value)
    if found is None or not 0 < found <= MAX_DIMENSION:
        raise ProblemError(
            f"{name} = {shown(value)} is no layer dimension; it must be an integer "
            f"1..{MAX_DIMENSION}."
        )
    if found % multiple:
        up = -(-found // multiple) * multiple
        raise ProblemError(
            f"{name} = {found} cannot be packed: it must be a multiple of {multiple}. "
            f"Pad the weight to {up}, or choose another tensor-parallel size."
        )
    return found
