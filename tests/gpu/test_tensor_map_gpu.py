"""Tensor maps on a device: boxes with tails in m and K, other rows and pointers, graph capture."""

from __future__ import annotations

import pytest
import torch
from box_copy import box_copy
from torch import Tensor

from ptxgen.compile import compile_source
from ptxgen.device import LoadedKernel
from ptxgen.errors import TensorError

K, PAD = 200, 8


@pytest.fixture(scope="module", autouse=True)
def _hopper() -> None:
    capability = torch.cuda.get_device_capability()
    if capability != (9, 0):
        pytest.skip(f"tensor maps need sm_90a; this device has {capability}")
    torch.zeros(1, device="cuda")  # makes torch's context current


pytestmark = pytest.mark.gpu


def loaded(tokens: int, max_ctas: int) -> LoadedKernel:
    source = box_copy(K, tokens, stages=2, max_ctas=max_ctas)
    return LoadedKernel(compile_source(source).cubin, source.entry, source.plan)


def rows_of(m: int, first: int = 0) -> Tensor:
    """x[m, K + PAD] of distinct bits, `first` rows into a larger tensor."""
    count = (m + first) * (K + PAD)
    values = torch.arange(1, count + 1, dtype=torch.int32, device="cuda").to(torch.int16)
    return values.view(m + first, K + PAD)[first:]


def padded(kernel: LoadedKernel, m: int) -> Tensor:
    plan = kernel.plan
    shape = (plan.m_tiles(m) * plan.block_m, plan.n_tiles * plan.block_n)
    return torch.full(shape, -1, dtype=torch.int16, device="cuda")


def launch(kernel: LoadedKernel, x: Tensor, y: Tensor) -> None:
    kernel.launch(
        x=x.data_ptr(),
        packed=0,
        bias=0,
        y=y.data_ptr(),
        workspace=0,
        m=len(x),
        ldx=x.stride(0),
        ldy=y.stride(0),
        stream=torch.cuda.current_stream().cuda_stream,
    )


def expected(x: Tensor, y: Tensor) -> Tensor:
    zeros = torch.zeros_like(y)
    zeros[: len(x), :K] = x[:, :K]
    return zeros


@pytest.mark.parametrize("max_ctas", [1, 3, 1000])
@pytest.mark.parametrize("tokens", [8, 24, 256])
def test_boxes_with_tails(tokens: int, max_ctas: int) -> None:
    kernel = loaded(tokens, max_ctas)
    for m in (1, tokens - 1, tokens, tokens + 1, 3 * tokens + 5):
        x, y = rows_of(m), padded(kernel, m)
        launch(kernel, x, y)
        assert torch.equal(y, expected(x, y)), m
    kernel.unload()


def test_a_map_follows_x_m_and_ldx() -> None:
    kernel = loaded(8, 100)
    wide = rows_of(40)
    for x in (wide, wide, wide[:9], wide[7:20], wide[::2], wide[::3], wide):
        y = padded(kernel, len(x))
        launch(kernel, x, y)
        assert torch.equal(y, expected(x, y))
    kernel.unload()


def test_a_graph_keeps_the_maps_of_its_launches() -> None:
    kernel = loaded(24, 3)
    first, second = rows_of(30), rows_of(55, first=30)
    outputs = [padded(kernel, len(first)), padded(kernel, len(second))]
    for x, y in zip((first, second), outputs, strict=True):
        launch(kernel, x, y)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for x, y in zip((first, second), outputs, strict=True):
            launch(kernel, x, y)
    first.neg_()
    second.neg_()
    for y in outputs:
        y.fill_(-1)
    graph.replay()
    torch.cuda.synchronize()
    for x, y in zip((first, second), outputs, strict=True):
        assert torch.equal(y, expected(x, y))
    kernel.unload()


def test_a_misaligned_x_is_refused_before_the_launch() -> None:
    kernel = loaded(8, 100)
    x, y = rows_of(9), padded(kernel, 9)
    with pytest.raises(TensorError, match="multiple of 16"):
        launch(kernel, x[:, 1:], y)
    with pytest.raises(TensorError, match="multiple of 16 from 400"):
        launch(kernel, x.contiguous().view(-1)[: 9 * 204].view(9, 204), y)
    torch.cuda.synchronize()
    assert torch.equal(y, torch.full_like(y, -1))
    kernel.unload()
