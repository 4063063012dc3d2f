"""The launch contract on a GPU: strides, offsets, empty batches, streams, graphs, refusals."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gpu_kernels import Layer, arch

from ptxgen.check import compare
from ptxgen.errors import DriverError, TensorError
from ptxgen.families import default_config
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.problem import Problem

pytestmark = pytest.mark.gpu

PROBLEM = Problem(1024, 2048)
SPLIT = MmaConfig(
    block_m=8,
    warp_m=8,
    block_n=64,
    warp_n=64,
    block_k=512,
    warps_k=4,
    num_stages=3,
    split_k=4,
    scale_on="accumulators",
    weights_first=True,
    min_ctas=1,
)


@pytest.fixture(scope="module")
def layer() -> Layer:
    return Layer.create(PROBLEM, SPLIT)


def assert_right(layer: Layer, x: torch.Tensor, out: torch.Tensor) -> None:
    rows = x.reshape(-1, layer.problem.k)
    result = compare(out.reshape(-1, layer.problem.n), layer.problem, layer.reference(rows))
    assert result.ok, result


def test_an_empty_batch_gives_an_empty_result(layer: Layer) -> None:
    assert layer(layer.x(1)[:0]).shape == (0, 1024)
    assert layer(torch.empty(2, 0, 2048, dtype=torch.float16, device="cuda")).shape == (2, 0, 1024)


def test_leading_dimensions_are_the_batch(layer: Layer) -> None:
    x = layer.x(6).view(2, 3, 2048)
    out = layer(x)
    assert out.shape == (2, 3, 1024)
    assert_right(layer, x, out)


def test_a_slice_of_a_wider_tensor(layer: Layer) -> None:
    wide = torch.randn(9, 4096, device="cuda", dtype=torch.float16)
    x = wide[:, 512 : 512 + 2048]
    assert_right(layer, x, layer(x))


@pytest.mark.parametrize("offset", [1, 2, 4, 7, 8])
def test_any_storage_offset(layer: Layer, offset: int) -> None:
    storage = torch.randn(offset + 5 * 2048, device="cuda", dtype=torch.float16)
    x = storage[offset:].view(5, 2048)
    assert_right(layer, x, layer(x))


@pytest.mark.parametrize("stride", [2049, 2052, 2056])
def test_any_row_stride(layer: Layer, stride: int) -> None:
    storage = torch.randn(5 * stride, device="cuda", dtype=torch.float16)
    x = storage.as_strided((5, 2048), (stride, 1))
    assert_right(layer, x, layer(x))


def test_transposed_and_expanded_inputs(layer: Layer) -> None:
    transposed = torch.randn(2048, 5, device="cuda", dtype=torch.float16).t()
    assert_right(layer, transposed, layer(transposed))
    expanded = torch.randn(1, 2048, device="cuda", dtype=torch.float16).expand(5, 2048)
    assert_right(layer, expanded, layer(expanded))


def test_a_captured_graph_follows_its_input(layer: Layer) -> None:
    x = layer.x(8)
    out = torch.empty(8, 1024, device="cuda", dtype=torch.float16)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        layer(x, out)  # sizes the workspace of this stream
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        layer(x, out)
    for seed in range(3):
        x.copy_(layer.x(8, seed + 10))
        graph.replay()
        torch.cuda.synchronize()
        assert_right(layer, x, out)


def test_two_streams_at_once(layer: Layer) -> None:
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [layer.x(8, seed) for seed in range(2)]
    expected = [layer(x).clone() for x in inputs]
    outs = [[], []]
    torch.cuda.synchronize()
    for _ in range(200):
        for index, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                outs[index].append(layer(inputs[index]))
    torch.cuda.synchronize()
    for index in range(2):
        assert all(torch.equal(out, expected[index]) for out in outs[index])


@pytest.mark.parametrize("trigger", KNOBS["trigger"])
@pytest.mark.parametrize("split_k", [1, 2])
def test_a_chain_of_dependent_kernels_equals_the_unchained_one(split_k: int, trigger: str) -> None:
    """64 layers, each reading the one before, by programmatic dependent launch in a graph."""
    problem = Problem(2048, 2048)
    config = replace(SPLIT, split_k=split_k, weights_first=True, trigger=trigger)
    layer = Layer.create(problem, config)
    layer.packed = layer.packed.clone()
    x = layer.x(4)
    buffers = [torch.empty_like(x) for _ in range(2)]

    def chain(chained: bool) -> torch.Tensor:
        source = x
        for number in range(64):
            target = buffers[number % 2]
            layer(source, target, chained=chained)
            source = target
        return source

    expected = chain(False).clone()
    assert expected.isfinite().all()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        chain(True)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = chain(True)
    for _ in range(1000):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, expected)


def bad_inputs(layer: Layer) -> list[tuple[str, dict[str, object]]]:
    x = layer.x(2)
    return [
        ("float32", {"x": x.float()}),
        ("bfloat16", {"x": x.bfloat16()}),
        ("K = 2048", {"x": x[:, :1024]}),
        ("cpu", {"x": x.cpu()}),
        ("out has shape", {"x": x, "out": torch.empty(2, 512, device="cuda", dtype=torch.float16)}),
        ("out has dtype", {"x": x, "out": torch.empty(2, 1024, device="cuda")}),
    ]


@pytest.mark.parametrize("index", range(6))
def test_wrong_tensors_are_refused_before_the_launch(layer: Layer, index: int) -> None:
    text, arguments = bad_inputs(layer)[index]
    with pytest.raises(TensorError, match=text):
        layer(**arguments)  # type: ignore[arg-type]


def test_an_output_over_an_input_is_refused() -> None:
    square = Layer.create(Problem(1024, 1024), default_config(Problem(1024, 1024), arch(), 16, 132))
    x = square.x(16)
    before = x.clone()
    with pytest.raises(TensorError, match="out overlaps x in memory"):
        square(x, x)
    weights = square.packed[: 16 * 2048].view(torch.float16).view(16, 1024)
    with pytest.raises(TensorError, match="out overlaps packed in memory"):
        square(x, weights)
    memory = torch.empty(16, 2048, dtype=torch.float16, device="cuda")
    memory[:, :1024] = x
    assert_right(square, memory[:, :1024], square(memory[:, :1024]))
    assert torch.equal(x, before)


def test_a_missing_bias_is_refused() -> None:
    problem = replace(PROBLEM, bias=True)
    layer = Layer.create(problem, default_config(problem, arch(), 1, 132))
    layer.bias = None
    with pytest.raises(TensorError, match="bias is missing"):
        layer(layer.x(1))


def test_packed_weights_of_another_problem_are_refused(layer: Layer) -> None:
    other = Layer.create(Problem(512, 2048), SPLIT)
    with pytest.raises(TensorError, match="packed has shape"):
        replace(layer, packed=other.packed)(layer.x(1))


def test_a_cubin_for_another_arch_is_a_typed_error() -> None:
    from ptxgen.arch import ARCHS
    from ptxgen.compile import compile_source
    from ptxgen.device import LoadedKernel
    from ptxgen.families import emit

    config = default_config(PROBLEM, ARCHS["sm_80"], 1, 108)
    source = emit(PROBLEM, config, ARCHS["sm_80"])
    if torch.cuda.get_device_capability()[0] == 8:
        pytest.skip("this device runs sm_80 cubins")
    with pytest.raises(DriverError, match="NO_BINARY_FOR_GPU") as caught:
        LoadedKernel(compile_source(source).cubin, source.entry, source.plan)
    assert not caught.value.sticky
