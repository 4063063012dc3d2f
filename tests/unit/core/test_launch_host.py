"""What a launch does on the host: aligned rows, workspaces, refusals; no device needed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from ptxgen.errors import TensorError
from ptxgen.launch import WorkspacePool, aligned_rows, run
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan

CPU = torch.device("cpu")


def fake_kernel(split_k: int = 4, block_m: int = 8, n_tiles: int = 3) -> Any:
    return SimpleNamespaceHashable(plan=LaunchPlan(128, 0, block_m, 64, n_tiles, split_k, True))


class SimpleNamespaceHashable(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.mark.parametrize("m", [1, 2, 5])
@pytest.mark.parametrize("offset", range(9))
@pytest.mark.parametrize("stride", [32, 33, 36, 40])
def test_rows_end_up_aligned_with_the_same_values(m: int, offset: int, stride: int) -> None:
    storage = torch.arange(offset + m * stride, dtype=torch.float16)
    rows = storage[offset:].as_strided((m, 32), (stride, 1))
    result = aligned_rows(rows)
    assert torch.equal(result, rows)
    assert result.data_ptr() % 16 == 0
    assert result.stride(0) % 8 == 0
    assert result.stride(1) == 1
    fits = rows.data_ptr() % 16 == 0 and (stride % 8 == 0 or m == 1)
    assert (result.data_ptr() == rows.data_ptr()) == fits, "copied only where it must be"


def test_transposed_and_expanded_rows_are_copied() -> None:
    transposed = torch.arange(32 * 4, dtype=torch.float16).view(32, 4).t()
    expanded = torch.arange(32, dtype=torch.float16).expand(4, 32)
    for rows in (transposed, expanded):
        result = aligned_rows(rows)
        assert torch.equal(result, rows)
        assert result.stride() == (32, 1)


def test_no_workspace_without_split_k() -> None:
    assert WorkspacePool().pointer(fake_kernel(split_k=1), 100, CPU, 0) == 0


def test_streams_and_kernels_never_share_a_workspace() -> None:
    pool = WorkspacePool()
    kernels = [fake_kernel(), fake_kernel()]
    pointers = {pool.pointer(kernel, 8, CPU, stream) for kernel in kernels for stream in (1, 2)}
    assert len(pointers) == 4


def test_counters_and_partials_of_any_two_batches_never_overlap() -> None:
    """Whatever the order of batches: counters stay in the head, partials behind it."""
    pool, kernel = WorkspacePool(), fake_kernel(block_m=1, n_tiles=100)
    plan = kernel.plan
    largest = 64
    pool.pointer(kernel, largest, CPU, 0)
    start = pool.pointer(kernel, largest, CPU, 0)
    boundary = start + plan.counter_bytes(largest)
    end = start + plan.workspace_bytes(largest)
    for m in range(1, largest + 1):
        pointer = pool.pointer(kernel, m, CPU, 0)
        assert start <= pointer
        assert pointer + plan.counter_bytes(m) == boundary
        assert pointer + plan.workspace_bytes(m) <= end
        assert pointer % 16 == 0


def test_a_larger_batch_gets_fresh_zeroed_memory() -> None:
    pool, kernel = WorkspacePool(), fake_kernel()
    small = pool.pointer(kernel, 8, CPU, 0)
    large = pool.pointer(kernel, 800, CPU, 0)
    assert small != large
    assert pool.pointer(kernel, 800, CPU, 0) == large
    pool.forget(kernel)
    assert not pool._workspaces


def test_a_cpu_tensor_is_refused() -> None:
    problem = Problem(64, 128)
    with pytest.raises(TensorError, match="x is on cpu"):
        run(
            fake_kernel(),
            problem,
            torch.zeros(1, 128, dtype=torch.float16),
            torch.zeros(1, dtype=torch.uint8),
            workspaces=WorkspacePool(),
        )


@pytest.fixture
def capturing(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """[whether the current stream captures]; the pool asks only of CUDA devices."""
    state = [False]
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state[0])
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *size, **kw: zeros(*size, **{**kw, "device": "cpu"}))
    return state


GPU = torch.device("cuda", 0)


def test_a_capture_allocates_nothing(capturing: list[bool]) -> None:
    pool, kernel = WorkspacePool(), fake_kernel()
    capturing[0] = True
    with pytest.raises(TensorError, match=r"captured.*reserve.8."):
        pool.pointer(kernel, 8, GPU, 1)


def test_a_capture_takes_its_streams_own_workspace_first(capturing: list[bool]) -> None:
    pool, kernel = WorkspacePool(), fake_kernel()
    pool.reserve(kernel, 8, GPU)
    own = pool.pointer(kernel, 8, GPU, 1)
    capturing[0] = True
    assert pool.pointer(kernel, 8, GPU, 1) == own
    other = pool.pointer(kernel, 8, GPU, 2)
    assert other != own
    assert pool.pointer(kernel, 8, GPU, 3) == other, "the reserved one"


def test_what_a_graph_holds_is_never_freed(capturing: list[bool]) -> None:
    """Later launches that need more, and a larger reservation, leave the graph its memory."""
    pool, kernel = WorkspacePool(), fake_kernel()
    pool.reserve(kernel, 8, GPU)
    pool.pointer(kernel, 8, GPU, 1)
    capturing[0] = True
    held = {pool.pointer(kernel, 8, GPU, stream) for stream in (1, 2)}
    capturing[0] = False
    pool.reserve(kernel, 800, GPU)
    later = [pool.pointer(kernel, 800, GPU, stream) for stream in (1, 2)]
    kept = {workspace.pointer(kernel.plan, 8) for workspace in pool._held[kernel].values()}
    assert held <= kept
    assert not held & set(later)
