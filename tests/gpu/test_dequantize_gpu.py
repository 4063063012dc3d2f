"""The dequantize kernel on a GPU: every bit, its rate beside the copy ceiling, and its product."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest
import torch
from gpu_kernels import alone, arch
from torch import Tensor

from db.records import Protocol
from ptxgen.bundle.load import load
from ptxgen.bundle.manifest import DeviceInfo, ToolchainInfo
from ptxgen.bundle.measurement import Measurement
from ptxgen.bundle.write import BucketSpec, BundleSpec, UnpackingSpec, write_bundle
from ptxgen.ceilings import measure_ceilings
from ptxgen.check import GuardedBuffer, check, compare
from ptxgen.compile import compile_source
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.dequantize.product import DenseWeights, run_dequantized, write_dense
from ptxgen.device import LoadedKernel
from ptxgen.families import default_config, emit
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from ptxgen.reference import ProblemData, random_problem_data, reference_output
from ptxgen.timing import TimedGraph, burn_in, copies_for
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, dequantize
from search.evaluator import Dequantizer, EvaluateRequest, FinalsRequest
from search.gpu_evaluator import create

pytestmark = pytest.mark.gpu

PROBLEMS = [
    *(
        Problem(232, 2752, group, dtype, zero)  # type: ignore[arg-type]
        for group in (32, 64)
        for dtype in ("fp16", "bf16")
        for zero in ("sym", "int")
    ),
    Problem(4096, 4096),
    Problem(6144, 4096, 128, "bf16", "int"),
    Problem(1440, 2880, 2880, "fp16", "int"),
    Problem(8, 32, 32),
    Problem(28672, 8192),
]

LEAST_SHARE = 0.6
"""Of the copy ceiling, which the kernel should come near; a loose bound, for a busy GPU too."""


def loaded(problem: Problem) -> LoadedKernel:
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes torch's context current
    source = emit_dequantize(problem, arch())
    return LoadedKernel(compile_source(source).cubin, source.entry, source.plan)


def data_of(problem: Problem, m: int = 1) -> ProblemData:
    return random_problem_data(problem, m, 0, "cuda")


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_every_bit_is_that_of_the_rounded_weight(problem: Problem) -> None:
    weight, dtype = data_of(problem).weight, TORCH_DTYPES[problem.dtype]
    buffer = GuardedBuffer.create((problem.n, problem.k), dtype, torch.device("cuda"))
    write_dense(loaded(problem), problem, pack(weight, problem), buffer.body)
    torch.cuda.synchronize()
    expected = dequantize(weight, problem, dtype)
    assert torch.equal(buffer.body.view(torch.int16), expected.view(torch.int16))
    assert buffer.damaged() == 0


@alone
@pytest.mark.parametrize("shape", [(4096, 4096), (8192, 8192), (28672, 4096)])
@pytest.mark.parametrize("zero", ["sym", "int"])
def test_it_runs_near_the_copy_ceiling(shape: tuple[int, int], zero: str) -> None:
    problem = Problem(*shape, zero=zero)  # type: ignore[arg-type]
    properties = torch.cuda.get_device_properties(0)
    ceiling = measure_ceilings(arch(), properties.multi_processor_count).copy_gbps
    kernel, packed = loaded(problem), pack(data_of(problem).weight, problem)
    # Rotating dense weights too: one that stays in L2 would be written faster than memory takes it.
    moved = packed.numel() + 2 * problem.n * problem.k
    copies = copies_for(moved, properties.L2_cache_size)
    weights = [packed.clone() for _ in range(copies)]
    dense = [torch.empty(shape, dtype=torch.float16, device="cuda") for _ in range(copies)]
    graph = TimedGraph(lambda i: write_dense(kernel, problem, weights[i], dense[i]), copies)
    burn_in()
    rate = moved / statistics.median(graph.samples_us(15)) / 1e3
    print(f"\n{problem.key()}: {rate:.0f} GB/s, {rate / ceiling:.0%} of copying at {ceiling:.0f}")
    assert rate > LEAST_SHARE * ceiling


@pytest.mark.parametrize("m", [64, 65, 257])
@pytest.mark.parametrize(
    "problem",
    [Problem(520, 1056, 32, "bf16", "int", bias=True), Problem(4096, 4096)],
    ids=Problem.key,
)
def test_the_product_is_right(problem: Problem, m: int) -> None:
    data, kernel = data_of(problem, m), loaded(problem)
    packed = pack(data.weight, problem)
    dense = DenseWeights().of(problem, packed.device, 0)

    def launch(y: Tensor) -> None:
        run_dequantized(kernel, problem, data.x, packed, data.bias, y, dense=dense)

    ref = reference_output(data.x, data.weight, problem, data.bias)
    found = check(launch, problem, ref)
    assert found.ok, found.message
    wide = torch.zeros(m, problem.k + 8, dtype=data.x.dtype, device="cuda")
    wide[:, : problem.k] = data.x
    y = run_dequantized(kernel, problem, wide[:, : problem.k], packed, data.bias, dense=dense)
    assert compare(y, problem, ref).ok, "rows with gaps between them"
    empty = run_dequantized(kernel, problem, data.x[:0], packed, data.bias, dense=dense)
    assert empty.shape == (0, problem.n)


def test_it_is_captured_in_a_graph() -> None:
    problem = Problem(1024, 1024)
    data, kernel = data_of(problem, 128), loaded(problem)
    packed = pack(data.weight, problem)
    dense = DenseWeights().of(problem, packed.device, 0)
    y = torch.empty(128, problem.n, dtype=torch.float16, device="cuda")

    def launch(_: int) -> None:
        run_dequantized(kernel, problem, data.x, packed, out=y, dense=dense)

    graph = TimedGraph(launch, copies=1)
    y.fill_(torch.nan)
    dense.fill_(torch.nan)
    graph.sample_us()
    assert compare(y, problem, reference_output(data.x, data.weight, problem)).ok


@alone
def test_the_evaluator_times_it_with_the_others(tmp_path: Path) -> None:
    problem, m = Problem(4096, 4096), 256
    source = emit_dequantize(problem, arch())
    compiled = compile_source(source)
    cubin = tmp_path / "dequantize.cubin"
    cubin.write_bytes(compiled.cubin)
    contender = Dequantizer(
        source.plan, source.entry, str(cubin), compiled.resources, source.digest()
    )
    evaluator = create({})
    alone = evaluator.evaluate(EvaluateRequest(problem, m, Protocol.PLAIN, contender))
    assert alone.status is Status.OK, alone.message
    cublas, dense = evaluator.finals(
        FinalsRequest(problem, m, Protocol.PLAIN, (None, contender), rounds=5)
    )
    assert cublas.time_us is not None
    assert dense.time_us is not None, dense.message
    print(f"\ncuBLAS {cublas.time_us:.1f} us, dequantize + matmul {dense.time_us:.1f} us")
    assert dense.floor_us is not None
    assert dense.time_us > dense.floor_us


def test_a_loaded_bundle_goes_that_way(tmp_path: Path) -> None:
    problem, m = Problem(520, 1056, 32, "bf16", "int", bias=True), 128
    config = default_config(problem, arch(), m, 132)
    source, dense = emit(problem, config, arch()), emit_dequantize(problem, arch())
    kernel, unpacker = compile_source(source), compile_source(dense)
    timed = Measurement(m, 9.0, False, "plain", dequantized_us=8.0)
    bucket = BucketSpec(
        m, config, source, kernel.ptx, kernel.cubin, kernel.resources, timed, dequantize_first=True
    )
    properties = torch.cuda.get_device_properties(0)
    device = DeviceInfo(properties.name, f"{properties.major}.{properties.minor}")
    spec = BundleSpec(
        problem,
        (bucket,),
        device,
        ToolchainInfo("0.1.0", kernel.nvrtc),
        UnpackingSpec(dense, unpacker.ptx, unpacker.cubin),
    )
    bundle = load(write_bundle(tmp_path / "bundle", spec))
    data = data_of(problem, m)
    packed = pack(data.weight, problem)
    ref = reference_output(data.x, data.weight, problem, data.bias)
    assert [bundle.dequantizes(count) for count in (1, 64, 65, m)] == [False, False, True, True]
    for count in (1, 64, 65, m):
        y = bundle(data.x[:count], packed, data.bias)
        assert compare(y, problem, ref[:count]).ok
