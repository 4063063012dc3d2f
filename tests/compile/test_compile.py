"""Real NVRTC, no GPU: cubins for every arch, resources, refusals, and the cache around it."""

from __future__ import annotations

import importlib.util
import multiprocessing
import re
import subprocess
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from ptxgen.arch import ARCHS, RESERVED_SMEM_BYTES
from ptxgen.cache import CacheEntry, CompileCache
from ptxgen.compile import compile_source, nvrtc_path, nvrtc_version, supported_archs
from ptxgen.errors import ArchError, CompileError
from ptxgen.source import ENTRY, KernelSource, LaunchPlan

pytestmark = pytest.mark.compile

PLAN = LaunchPlan(
    threads=128, smem_bytes=1024, block_m=8, block_n=64, n_tiles=1, split_k=1, pdl=False
)
TEXT = f"""
extern "C" __global__ void __launch_bounds__(128) {ENTRY}(float* x) {{
    __shared__ float s[64];
    s[threadIdx.x % 64] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = s[63 - threadIdx.x % 64];
}}
"""
SPILLS = f"""
extern "C" __global__ void __launch_bounds__(1024) {ENTRY}(float* x) {{
    float a[200];
    #pragma unroll
    for (int i = 0; i < 200; i++) a[i] = x[i * threadIdx.x];
    __syncthreads();
    #pragma unroll
    for (int i = 0; i < 200; i++) x[i * 7 + threadIdx.x] = a[i] * a[199 - i];
}}
"""
LOCAL_ARRAY = f"""
extern "C" __global__ void {ENTRY}(float* x, const int* at) {{
    float a[64];
    for (int i = 0; i < 64; i++) a[at[i] & 63] = x[i];
    x[threadIdx.x] = a[at[threadIdx.x] & 63];
}}
"""
EM_CUDA = 190


@pytest.mark.parametrize("arch", ARCHS)
def test_every_arch_gets_a_cubin_of_its_own(arch: str) -> None:
    source = KernelSource(TEXT, arch, PLAN)
    compiled = compile_source(source)
    assert compiled.cubin[:4] == b"\x7fELF"
    assert int.from_bytes(compiled.cubin[18:20], "little") == EM_CUDA
    assert ENTRY.encode() in compiled.cubin
    assert f".target {arch}" in compiled.ptx
    assert f".entry {ENTRY}" in compiled.ptx
    assert compiled.arch == arch
    assert compiled.source_digest == source.digest()
    assert 0 < compiled.resources.registers <= 64
    assert compiled.resources.spill_bytes == 0
    assert compiled.resources.smem_bytes == 64 * 4 + 1024
    assert compiled.resources.compile_ms > 0
    assert compiled.nvrtc == nvrtc_version()


def cuobjdump() -> Path:
    """The wheel's cuobjdump, an independent reader of cubins."""
    spec = importlib.util.find_spec("nvidia.cu13")
    places = list(spec.submodule_search_locations or []) if spec else []
    found = [Path(place) / "bin" / "cuobjdump" for place in places]
    if not found or not found[0].exists():
        pytest.skip("nvidia-cuda-cuobjdump is not installed")
    return found[0]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("text", [TEXT, SPILLS, LOCAL_ARRAY])
def test_resources_are_those_that_cuobjdump_reads(tmp_path: Path, text: str, arch: str) -> None:
    compiled = compile_source(KernelSource(text, arch, PLAN))
    (tmp_path / "k.cubin").write_bytes(compiled.cubin)
    command = [cuobjdump(), "--dump-resource-usage", tmp_path / "k.cubin"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = dict(re.findall(r"(REG|STACK|SHARED):(\d+)", said))
    assert compiled.resources.registers == int(usage["REG"])
    assert (compiled.resources.spill_bytes > 0) == (int(usage["STACK"]) > 0)
    assert compiled.resources.spill_bytes >= int(usage["STACK"])
    # cuobjdump may add what the driver reserves for itself
    static = compiled.resources.smem_bytes - PLAN.smem_bytes
    assert int(usage["SHARED"]) in (static, static + RESERVED_SMEM_BYTES)


@pytest.mark.parametrize(("text", "least"), [(SPILLS, 200), (LOCAL_ARRAY, 256)])
def test_local_memory_is_seen(text: str, least: int) -> None:
    assert compile_source(KernelSource(text, "sm_90a", PLAN)).resources.spill_bytes >= least


def test_the_same_source_gives_the_same_bytes() -> None:
    source = KernelSource(TEXT, "sm_80", PLAN)
    assert compile_source(source).cubin == compile_source(source).cubin


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (TEXT.replace("threadIdx", "thread_idx"), "thread_idx"),
        (TEXT.replace("__syncthreads();", 'asm volatile("bogus;");'), "bogus"),
        ("#include <cuda_fp16.h>\n" + TEXT, "cuda_fp16.h"),
    ],
)
def test_a_refused_source_says_where_and_why(text: str, said: str) -> None:
    with pytest.raises(CompileError) as caught:
        compile_source(KernelSource(text, "sm_89", PLAN))
    for part in (said, "sm_89", nvrtc_version(), nvrtc_path()):
        assert part in str(caught.value)


def test_a_source_without_the_entry_is_refused() -> None:
    with pytest.raises(CompileError, match="no kernel named 'other'"):
        compile_source(KernelSource(TEXT, "sm_80", PLAN, entry="other"))


@pytest.mark.parametrize("arch", ["sm_70", "sm_999", "compute_80", "x", ""])
def test_an_arch_beyond_nvrtc_is_refused_with_the_list(arch: str) -> None:
    with pytest.raises(ArchError, match="sm_80") as caught:
        compile_source(KernelSource(TEXT, arch, PLAN))
    assert repr(arch) in str(caught.value)
    assert nvrtc_path() in str(caught.value)


def test_the_toolchain_names_itself() -> None:
    assert Path(nvrtc_path()).exists()
    assert int(nvrtc_version().split(".")[0]) >= 13
    assert {name.removesuffix("a") for name in ARCHS} <= set(supported_archs())


def compile_in_worker(root: Path, arch: str) -> CacheEntry:
    return CompileCache(root).get_or_compile(KernelSource(TEXT, arch, PLAN))


def test_worker_processes_share_a_cache(tmp_path: Path) -> None:
    archs = ["sm_80", "sm_90a"] * 3
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        entries = list(pool.map(compile_in_worker, [tmp_path] * 6, archs))
    assert sum(not entry.hit for entry in entries) == 2
    for arch, entry in zip(archs, entries, strict=True):
        fresh = compile_source(KernelSource(TEXT, arch, PLAN))
        assert entry.compiled.cubin == fresh.cubin == entry.cubin_path.read_bytes()
