"""The wgmma_tma family on a GPU: right for every M, shape, group, dtype and zero kind, and the same
bits on every launch, chained or not."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
import torch
from gpu_kernels import Layer, arch

from ptxgen.check import compare
from ptxgen.families import default_config, violations
from ptxgen.families.wgmma import WGMMA
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.families.wgmma_tma import WGMMA_TMA
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight

pytestmark = pytest.mark.gpu

BASE = WgmmaTmaConfig(
    block_m=32,
    block_n=128,
    warpgroups=2,
    num_stages=4,
    chunk=2,
    split_k=1,
    multicast=1,
    min_ctas=1,
    max_ctas=0,
)
KINDS: dict[str, WgmmaTmaConfig] = {
    "one warpgroup": replace(BASE, block_m=16, block_n=64, warpgroups=1, chunk=4, num_stages=6),
    "two row blocks": replace(BASE, block_m=48, warpgroups=1, num_stages=3, chunk=1),
    "three warpgroups": replace(BASE, block_m=64, block_n=192, warpgroups=3, num_stages=3),
    "four warpgroups": replace(BASE, block_n=256, warpgroups=4),
    "five warpgroups": replace(BASE, block_m=64, block_n=320, warpgroups=5, num_stages=3, chunk=1),
    "six warpgroups, persistent": replace(
        BASE, block_m=24, block_n=384, warpgroups=6, chunk=1, max_ctas=132
    ),
    "seven warpgroups, split K": replace(BASE, block_n=448, warpgroups=7, chunk=1, split_k=2),
    "registers moved, 128 x 256": replace(BASE, block_m=128, block_n=256, num_stages=3),
    "registers moved, 256 x 128": replace(BASE, block_m=256, num_stages=2),
    "split K in two": replace(BASE, split_k=2),
    "split K in four": replace(BASE, block_m=64, split_k=4),
    "split K in eight": replace(BASE, block_m=64, block_n=64, warpgroups=1, split_k=8),
    "multicast over two": replace(BASE, multicast=2),
    "multicast over four": replace(BASE, multicast=4, num_stages=3),
    "multicast and split K": replace(BASE, multicast=2, split_k=4),
    "multicast over two, rasters": replace(BASE, multicast=2, raster=4, block_m=16),
    "multicast over two, persistent": replace(BASE, multicast=2, max_ctas=132, raster=8),
    "multicast over four, persistent": replace(BASE, multicast=4, max_ctas=132, num_stages=3),
    "persistent": replace(BASE, block_m=16, max_ctas=132, raster=8),
    "persistent, two CTAs an SM": replace(BASE, max_ctas=264, min_ctas=2, num_stages=3),
    "stream-K": replace(BASE, max_ctas=132, stream_k=True),
    "stream-K, two CTAs an SM, rasters": replace(
        BASE, block_m=16, max_ctas=264, min_ctas=2, num_stages=3, stream_k=True, raster=4
    ),
    # One CTA fits an SM: half of them start when others have left their slices to them.
    "stream-K, more CTAs than fit": replace(BASE, num_stages=8, max_ctas=264, stream_k=True),
    "in turns": replace(BASE, warpgroups_k=2),
    "in turns, one share, split K": replace(
        BASE, block_n=64, warpgroups=1, warpgroups_k=2, num_stages=6, split_k=2
    ),
}
SIZES = (*range(1, 66), 127, 128, 129, 255, 256, 257, 1000, 4099)
EVERYTHING = Problem(232, 2752, 64, "fp16", "int", bias=True)

LLAMA_LAYERS = (
    (6144, 4096),
    (4096, 4096),
    (28672, 4096),
    (4096, 14336),
    (10240, 8192),
    (8192, 8192),
    (57344, 8192),
    (8192, 28672),
)


def layer_of(problem: Problem, config: WgmmaTmaConfig) -> Layer:
    if reasons := violations(problem, config, arch()):
        pytest.skip(f"{config.key()} is illegal here: {reasons[0]}")
    return Layer.create(problem, config)


@pytest.mark.parametrize("kind", KINDS)
def test_every_m(kind: str) -> None:
    """One kernel and one workspace for all batches, in an order that grows and shrinks."""
    layer = layer_of(EVERYTHING, KINDS[kind])
    for m in (*SIZES, 3, 1000, 1):
        result = layer.check(m)
        assert result.ok, (kind, m, result)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("dtype", "zero"), [*itertools.product(("fp16", "bf16"), ("sym", "int"))])
def test_odd_shapes_with_every_group_size(kind: str, dtype: str, zero: str) -> None:
    shapes = ((48, 1088), (1440, 7392), (2880, 2880), (4096, 4096))
    for number, ((n, k), group) in enumerate(itertools.product(shapes, (32, 64, 128, 0))):
        if group and k % group:
            continue
        problem = Problem(n, k, group or k, dtype, zero, bias=bool(number % 2))  # type: ignore[arg-type]
        layer = layer_of(problem, KINDS[kind])
        for m in (1, 33, 64, 300):
            result = layer.check(m)
            assert result.ok, (kind, problem.key(), m, result)


@pytest.mark.parametrize("number", range(24))
def test_random_configs_of_the_space(number: int) -> None:
    chooser = random.Random(number)  # noqa: S311
    dtype, zero = chooser.choice([*itertools.product(("fp16", "bf16"), ("sym", "int"))])
    n, k = chooser.choice([(232, 2752), (1440, 7392), (4096, 4096), (320, 14336), (28672, 1024)])
    group = chooser.choice([g for g in (32, 64, 128, k) if k % g == 0])
    problem = Problem(n, k, group, dtype, zero, bias=bool(number % 2))  # type: ignore[arg-type]
    m = chooser.choice([17, 32, 64, 128, 512, 2048])
    space = [*WGMMA_TMA.candidates(problem, arch(), m)]
    if not space:
        pytest.skip(f"family wgmma_tma has no configs on {arch().name}")
    for config in chooser.sample(space, 6):
        layer = Layer.create(problem, config)
        for batch in (1, m, m + 3):
            result = layer.check(batch)
            assert result.ok, (problem.key(), config.key(), batch, result)


@pytest.mark.parametrize("kind", KINDS)
def test_every_launch_gives_the_same_bits_chained_or_not(kind: str) -> None:
    layer = layer_of(Problem(4096, 2048), KINDS[kind])
    for m in (5, 64, 257):
        x = layer.x(m)
        first = layer(x)
        for launch in range(100):
            assert torch.equal(layer(x, chained=launch % 2 == 1), first), (kind, m, launch)


@pytest.mark.parametrize("split_k", [1, 2, 4])
def test_the_bits_are_those_of_the_wgmma_family(split_k: int) -> None:
    """One order, two names: weights that are subnormal in one unit may differ, and none is."""
    problem = Problem(1440, 4096, 64, "bf16", "int", bias=True)
    ours = replace(BASE, block_m=64, split_k=split_k)
    other = WgmmaConfig(64, 128, 2, 4, split_k, False, 1)
    layer = layer_of(problem, ours)
    key = WGMMA_TMA.summation_key(problem, ours)
    order = "in order of K" if split_k == 1 else f"split_k={split_k}"
    assert (key, WGMMA.summation_key(problem, other)) == (f"wgmma_tma {order}", f"wgmma {order}")
    reference = Layer.create(problem, other)
    for m in (1, 40, 64, 200):
        x = layer.x(m)
        assert torch.equal(layer(x), reference(x)), m


CHAINED = (
    "four warpgroups",
    "registers moved, 128 x 256",
    "split K in two",
    "multicast over two",
    "multicast and split K",
    "persistent",
    "stream-K",
)


@pytest.mark.parametrize("kind", CHAINED)
def test_a_chain_of_dependent_kernels_equals_the_unchained_one(kind: str) -> None:
    """32 layers, each reading the one before, by programmatic dependent launch in a graph."""
    layer = layer_of(Problem(2048, 2048), KINDS[kind])
    x = layer.x(96)
    buffers = [torch.empty_like(x) for _ in range(2)]

    def chain(chained: bool) -> torch.Tensor:
        source = x
        for number in range(32):
            target = buffers[number % 2]
            layer(source, target, chained=chained)
            source = target
        return source

    expected = chain(False).clone()
    assert expected.isfinite().all()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        chain(True)  # sizes the workspace of this stream
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        result = chain(True)
    for _ in range(300):
        graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(result, expected)


@pytest.mark.parametrize("kind", ["split K in two", "persistent", "stream-K"])
def test_two_streams_at_once(kind: str) -> None:
    layer = layer_of(Problem(4096, 2048), KINDS[kind])
    streams = [torch.cuda.Stream() for _ in range(2)]
    inputs = [layer.x(100, seed) for seed in range(2)]
    expected = [layer(x).clone() for x in inputs]
    torch.cuda.synchronize()
    for _ in range(100):
        outs = []
        for stream, x in zip(streams, inputs, strict=True):
            with torch.cuda.stream(stream):
                outs.append(layer(x))
        torch.cuda.synchronize()
        assert all(torch.equal(out, want) for out, want in zip(outs, expected, strict=True))


@pytest.mark.parametrize(("offset", "stride"), [(1, 2048), (4, 2048), (8, 2056), (0, 2049)])
def test_any_offset_and_row_stride(offset: int, stride: int) -> None:
    layer = layer_of(Problem(1024, 2048), BASE)
    storage = torch.randn(offset + 70 * stride, device="cuda", dtype=torch.float16)
    x = storage.as_strided((70, 2048), (stride, 1), offset)
    result = compare(layer(x), layer.problem, layer.reference(x))
    assert result.ok, result


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_every_nibble_and_zero_point_is_bit_exact(dtype: str) -> None:
    """One-hot activations and scale 1: the output is q - z itself, for all 256 pairs."""
    n, k = 256, 256
    problem = Problem(n, k, 32, dtype, "int")  # type: ignore[arg-type]
    rows, columns = torch.arange(n), torch.arange(k)
    q = ((rows[:, None] + columns[None, :] * 7) % 16).to(torch.uint8)
    zeros = ((rows[:, None] // 16 + torch.arange(k // 32)[None, :] * 5) % 16).to(torch.uint8)
    scales = torch.ones(n, k // 32, dtype=TORCH_DTYPES[problem.dtype])
    wide = zeros.repeat_interleave(32, dim=1)
    pairs = set(zip(q.flatten().tolist(), wide.flatten().tolist(), strict=True))
    assert len(pairs) == 256
    layer = layer_of(problem, BASE)
    layer.packed = pack(QuantizedWeight(q.cuda(), scales.cuda(), zeros.cuda()), problem)
    out = layer(torch.eye(k, dtype=TORCH_DTYPES[problem.dtype], device="cuda"))
    assert torch.equal(out.float().cpu(), (q.float() - wide.float()).t())


@pytest.mark.parametrize(("n", "k"), LLAMA_LAYERS)
def test_the_default_is_right_on_real_layers(n: int, k: int) -> None:
    for problem in (Problem(n, k), Problem(n, k, 128, "bf16", "int")):
        for m in (64, 512):
            config = default_config(problem, arch(), m, 132)
            if arch().has_wgmma:
                assert config.family == "wgmma_tma"
            result = Layer.create(problem, config).check(m)
            assert result.ok, (problem.key(), m, config.key(), result)
