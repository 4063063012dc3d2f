"""The operator and its kernels without a device: keys, shapes for tracing, who serves a batch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ptxgen.errors import ProblemError, TensorError
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from ptxtune.layers.kernel_set import KernelSet, Served
from ptxtune.layers.operator import SCHEMA

PROBLEMS = [
    Problem(n, k, group, dtype, zero, bias)
    for n, k in ((64, 256), (4096, 14336))
    for group in (32, 64, 128, k)
    for dtype in ("fp16", "bf16")
    for zero in ("sym", "int")
    for bias in (False, True)
]


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_a_key_names_one_problem(problem: Problem) -> None:
    assert Problem.from_key(problem.key()) == problem


@pytest.mark.parametrize(
    "key",
    [
        "",
        "n64",
        "n64-k256-g128-fp16-sym-bias-",
        "n064-k256-g128-fp16-sym",
        "n64-k256-g256-fp16-sym",
    ],
)
def test_what_is_no_key_is_refused(key: str) -> None:
    with pytest.raises(ProblemError, match="no problem's key"):
        Problem.from_key(key)


def test_the_operator_is_known_by_its_schema() -> None:
    assert str(torch.ops.ptxtune.w4a16_linear.default._schema).endswith(SCHEMA)


@pytest.mark.parametrize("leading", [(), (0,), (3,), (2, 5)])
def test_shapes_are_known_without_running(leading: tuple[int, ...]) -> None:
    x = torch.empty((*leading, 256), dtype=torch.float16, device="meta")
    packed = torch.empty(1, dtype=torch.uint8, device="meta")
    y = torch.ops.ptxtune.w4a16_linear(x, packed, None, "n64-k256-g128-fp16-sym")
    assert y.shape == (*leading, 64)
    assert y.dtype is torch.float16


def test_tracing_refuses_another_k() -> None:
    x = torch.empty((2, 128), dtype=torch.float16, device="meta")
    packed = torch.empty(1, dtype=torch.uint8, device="meta")
    with pytest.raises(TensorError, match="K = 256"):
        torch.ops.ptxtune.w4a16_linear(x, packed, None, "n64-k256-g128-fp16-sym")


class Kernel:
    """A loaded kernel's stand-in: a plan without a workspace."""

    def __init__(self) -> None:
        self.plan = LaunchPlan(128, 0, 8, 64, 1, 1, True)


def test_a_batch_is_served_by_the_smallest_bucket_that_holds_it() -> None:
    served = [Served(m, Kernel()) for m in (1, 8, 16)]  # type: ignore[arg-type]
    kernels = KernelSet(Problem(64, 256), torch.device("cpu"), served)
    expected: dict[int, Any] = {1: 0, 2: 1, 8: 1, 9: 2, 16: 2, 17: 2, 10_000: 2}
    for m, index in expected.items():
        assert kernels.serves(m) is served[index]
