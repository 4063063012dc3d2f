"""The device's own limits, measured: streaming read, copy, mma.sync, and what a launch costs.

Every floor that ptxtune prints comes from these. The kernels take ptxtune's usual arguments (see
ptxgen.source.ENTRY): packed is the buffer, ldx its size in bytes, y a place for one word.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.compile import compile_source
from ptxgen.device import LoadedKernel
from ptxgen.ptx import cp_async, shared
from ptxgen.ptx.instruction import render_all
from ptxgen.ptx.mma import mma_m16n8k16
from ptxgen.source import KernelSource, LaunchPlan
from ptxgen.timing import TimedGraph, Timing, burn_in

ENTRY = "ptxtune_ceiling"
"""A name of their own: a profiler asked for ptxtune_w4a16 must not show these, which run first."""

# Not powers of two: source and target of a copy that lie 2^29 bytes apart share memory channels and
# ran at 2,750 instead of 4,200 GB/s (H200, 2026-11-29).
READ_BYTES = 600 << 20
COPY_BYTES = 2 * READ_BYTES
READ_THREADS = 256
READ_CTAS_PER_SM = 2
READ_STAGE_BYTES = 16 * READ_THREADS
READ_STAGES = 12
MMA_CHAINS = 8
CUBLAS_SIZE = 4096
MMA_ROUNDS = 4096

ARGUMENTS = (
    "const void* x, const void* packed, const void* bias, void* y, void* workspace,"
    " int m, long long ldx, long long ldy"
)

_READ_PTX = (
    shared.shared_address(),
    cp_async.cp_async_16(),
    cp_async.cp_async_commit(),
    cp_async.cp_async_wait(READ_STAGES - 1),
    cp_async.cp_async_wait(0),
)


@dataclass(frozen=True, slots=True)
class Ceilings:
    """Measured limits: GB/s (10^9 bytes), TFLOP/s, microseconds.

    tensor_tflops is the better of mma.sync on registers and a large cuBLAS product: on Hopper the
    second, by wgmma, is the higher one.
    """

    read_gbps: float
    copy_gbps: float
    tensor_tflops: float
    launch_us: float


def measure_ceilings(arch: ArchSpec, num_sms: int) -> Ceilings:
    """Measures all four on the current device; takes about a second."""
    burn_in()
    return Ceilings(
        read_gbps=_read_gbps(arch, num_sms),
        copy_gbps=_copy_gbps(),
        tensor_tflops=max(_mma_tflops(arch, num_sms), _cublas_tflops()),
        launch_us=_launch_us(arch, num_sms),
    )


def _load(text: str, arch: ArchSpec, threads: int, smem_bytes: int, ctas: int) -> LoadedKernel:
    plan = LaunchPlan(threads, smem_bytes, 1, 1, ctas, 1, pdl=False)
    source = KernelSource(text=text, arch=arch.name, plan=plan, entry=ENTRY)
    return LoadedKernel(compile_source(source).cubin, ENTRY, plan)


def _launch(kernel: LoadedKernel, buffer: int = 0, size: int = 0, y: int = 0) -> None:
    stream = torch.cuda.current_stream().cuda_stream
    kernel.launch(x=0, packed=buffer, bias=0, y=y, workspace=0, m=1, ldx=size, ldy=0, stream=stream)


def _time(launch: LoadedKernel, **arguments: int) -> Timing:
    graph = TimedGraph(lambda _: _launch(launch, **arguments), copies=2)
    return Timing.of(graph.samples_us(15))


def _read_gbps(arch: ArchSpec, num_sms: int) -> float:
    """cp.async into a ring that nobody consumes: the best of the ways tried on an H200."""
    ctas = num_sms * READ_CTAS_PER_SM
    smem_bytes = READ_STAGE_BYTES * READ_STAGES
    kernel = _load(read_kernel(), arch, READ_THREADS, smem_bytes, ctas)
    buffer = torch.randint(0, 255, (READ_BYTES,), dtype=torch.uint8, device="cuda")
    timing = _time(kernel, buffer=buffer.data_ptr(), size=READ_BYTES)
    return READ_BYTES / timing.median_us / 1e3


def read_kernel() -> str:
    """Text of the streaming-read kernel: every CTA reads its own contiguous part."""
    return f"""\
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

{render_all(_READ_PTX, ARCHS["sm_80"])}

extern "C" __global__ void __launch_bounds__({READ_THREADS})
{ENTRY}({ARGUMENTS}) {{
  extern __shared__ __align__(128) u8 smem[];
  const u64 rows = (u64)ldx / {READ_STAGE_BYTES};
  const u64 first = rows * blockIdx.y / gridDim.y, last = rows * (blockIdx.y + 1) / gridDim.y;
  const u8* source = (const u8*)packed + first * {READ_STAGE_BYTES} + threadIdx.x * 16;
  const u32 slot = shared_address(smem) + threadIdx.x * 16;
  u32 offset = 0;
  for (u64 row = first; row < last; ++row) {{
    cp_async_16(slot + offset, source);
    cp_async_commit();
    cp_async_wait_{READ_STAGES - 1}();
    source += {READ_STAGE_BYTES};
    offset = offset == {READ_STAGE_BYTES * (READ_STAGES - 1)} ? 0 : offset + {READ_STAGE_BYTES};
  }}
  cp_async_wait_0();
}}
"""


def _copy_gbps() -> float:
    source = torch.randint(0, 255, (COPY_BYTES // 2,), dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def launch(_: int) -> None:
        target.copy_(source)

    graph = TimedGraph(launch, copies=2)
    return COPY_BYTES / Timing.of(graph.samples_us(9)).median_us / 1e3


def _mma_tflops(arch: ArchSpec, num_sms: int) -> float:
    threads, ctas = 256, 2 * num_sms
    kernel = _load(mma_kernel(), arch, threads, 0, ctas)
    sink = torch.zeros(1, dtype=torch.float32, device="cuda")
    timing = _time(kernel, y=sink.data_ptr())
    flops = 2 * 16 * 8 * 16 * MMA_CHAINS * MMA_ROUNDS * (threads // 32) * ctas
    return flops / timing.median_us / 1e6


def _cublas_tflops() -> float:
    a, b = (torch.randn(CUBLAS_SIZE, CUBLAS_SIZE, device="cuda").half() for _ in range(2))
    out = torch.empty_like(a)

    def launch(_: int) -> None:
        torch.matmul(a, b, out=out)

    graph = TimedGraph(launch, copies=2)
    return 2 * CUBLAS_SIZE**3 / Timing.of(graph.samples_us(5)).median_us / 1e6


def mma_kernel() -> str:
    """Text of the tensor-core kernel: independent chains of mma.sync on arbitrary registers."""
    return f"""\
typedef unsigned int u32;

{render_all([mma_m16n8k16("fp16")], ARCHS["sm_80"])}

extern "C" __global__ void __launch_bounds__(256)
{ENTRY}({ARGUMENTS}) {{
  u32 seed = threadIdx.x * 2654435761u + blockIdx.y * 40503u;
  u32 a[4], b[2];
  auto next = [&] {{  // two fp16 values of 0.25..0.5 and either sign
    seed = seed * 1664525u + 1013904223u;
    return (seed & 0x83ff83ff) | 0x34003400;
  }};
  for (int i = 0; i < 4; ++i) a[i] = next();
  for (int i = 0; i < 2; ++i) b[i] = next();
  float d[{MMA_CHAINS}][4] = {{}};
  for (int round = 0; round < {MMA_ROUNDS}; ++round)
#pragma unroll
    for (int chain = 0; chain < {MMA_CHAINS}; ++chain) mma_m16n8k16(d[chain], a, b[0], b[1]);
  float sum = 0.0f;
#pragma unroll
  for (int chain = 0; chain < {MMA_CHAINS}; ++chain)
    sum += d[chain][0] + d[chain][1] + d[chain][2] + d[chain][3];
  if (sum == 1234.5f) *(float*)y = sum;  // keeps the sums alive
}}
"""


def _launch_us(arch: ArchSpec, num_sms: int) -> float:
    """A kernel that fills every SM and does nothing: what a graph pays for each node."""
    text = f'extern "C" __global__ void {ENTRY}({ARGUMENTS}) {{}}\n'
    kernel = _load(text, arch, READ_THREADS, READ_STAGE_BYTES * READ_STAGES, num_sms)
    graph = TimedGraph(lambda _: _launch(kernel), copies=64)
    return Timing.of(graph.samples_us(15)).median_us
