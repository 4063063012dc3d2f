"""KernelSource -> cubin, PTX text, log and resources. The only module that calls NVRTC; no device.

NVRTC compiles straight to a cubin for the exact arch: PTX text of a toolkit that is newer than the
driver does not load. The PTX is kept for study.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from cuda import pathfinder
from cuda.bindings import nvrtc

from ptxgen.errors import ArchError, CompileError, SerializedError
from ptxgen.outcome import Resources
from ptxgen.ptxas_log import read_ptxas_log
from ptxgen.source import KernelSource

# Without --no-cache NVRTC 12.9 and newer may take a result from the driver's cache and leave the
# log empty (seen with 13.0 on an H200, 2026-11-29): registers and spills would be unknown.
OPTIONS = ("--std=c++17", "--ptxas-options=-v", "--no-cache")
"""Options besides the arch, in order; part of every cache key."""

SERIALIZED = "wgmma.mma_async instructions are serialized"
"""How ptxas says that it waits after every wgmma (its warnings C7510 and up)."""
LINE_INFO = ("--generate-line-info",)

_INSTALL = "pip install 'nvidia-cuda-nvrtc>=13,<14' installs one that works without a CUDA toolkit."


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A compiled kernel and how it came about.

    Attributes:
        cubin: ELF image for exactly arch.
        ptx: the PTX text that ptxas compiled.
        log: what NVRTC and ptxas said.
        resources: registers and local memory a thread (spill_bytes counts every byte of local
            memory: spills and arrays that did not fit registers), and static + dynamic smem_bytes.
        entry: name of the __global__ function.
        arch: NVRTC target name.
        source_digest: KernelSource.digest() of what was compiled.
        nvrtc: NVRTC's version.
    """

    cubin: bytes
    ptx: str
    log: str
    resources: Resources
    entry: str
    arch: str
    source_digest: str
    nvrtc: str


def compile_source(source: KernelSource, line_info: bool = False) -> CompiledKernel:
    """Compiles a kernel for its arch.

    Args:
        source: the emitted kernel.
        line_info: the PTX tells the source line of every instruction; the code is the same.

    Raises:
        ArchError: NVRTC cannot target the arch.
        CompileError: NVRTC is missing, or refused the source; the log is in the message.
    """
    check_arch(source.arch)
    start = time.perf_counter()
    cubin, ptx, log = _run_nvrtc(source, LINE_INFO if line_info else ())
    compile_ms = (time.perf_counter() - start) * 1e3
    if SERIALIZED in log:
        raise SerializedError(
            f"ptxas serialises the wgmma of this kernel for {source.arch} ({_toolchain()}), which "
            f"makes it slow; choose another config. Log:\n{log}"
        )
    report = read_ptxas_log(log, source.entry)
    if report is None:
        raise CompileError(
            f"the compiled source for {source.arch} has no kernel named {source.entry!r} "
            f'({_toolchain()}). Declare it as extern "C" __global__. Log:\n{log}'
        )
    resources = Resources(
        registers=report.registers,
        spill_bytes=report.local_bytes,
        smem_bytes=report.static_smem_bytes + source.plan.smem_bytes,
        compile_ms=compile_ms,
    )
    return CompiledKernel(
        cubin=cubin,
        ptx=ptx,
        log=log,
        resources=resources,
        entry=source.entry,
        arch=source.arch,
        source_digest=source.digest(),
        nvrtc=nvrtc_version(),
    )


@cache
def nvrtc_version() -> str:
    """NVRTC's version, such as "13.5". Raises CompileError where there is no NVRTC."""
    major, minor = _loaded(nvrtc.nvrtcVersion)
    return f"{major}.{minor}"


@cache
def nvrtc_path() -> str:
    """Path of the NVRTC library in use. Raises CompileError where there is none."""
    loaded = _loading(lambda: pathfinder.load_nvidia_dynamic_lib("nvrtc"))
    return str(loaded.abs_path)


@cache
def supported_archs() -> tuple[str, ...]:
    """The archs NVRTC can target, such as sm_80; suffixed ones (sm_90a) go with their number."""
    (numbers,) = _loaded(nvrtc.nvrtcGetSupportedArchs)
    return tuple(f"sm_{number}" for number in numbers)


def check_arch(arch: str) -> None:
    """Raises ArchError where NVRTC cannot target an arch."""
    if re.sub(r"[af]$", "", arch) not in supported_archs():
        raise ArchError(
            f"arch {arch!r} cannot be compiled for by {_toolchain()}, which targets "
            f"{', '.join(supported_archs())}. Choose one of those, or install another NVRTC."
        )


def _run_nvrtc(source: KernelSource, extra: tuple[str, ...]) -> tuple[bytes, str, str]:
    """(cubin, PTX, log) of a source. Raises CompileError with the log."""
    name = f"{source.entry}.cu".encode()
    (program,) = _loaded(nvrtc.nvrtcCreateProgram, source.text.encode(), name, 0, [], [])
    try:
        options = [o.encode() for o in (f"--gpu-architecture={source.arch}", *OPTIONS, *extra)]
        status = nvrtc.nvrtcCompileProgram(program, len(options), options)[0]
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if int(status) != 0:
            raise CompileError(
                f"NVRTC refused the kernel for {source.arch} ({status.name}, {_toolchain()}). "
                f"This is a fault of the emitted source; please report it with this log:\n{log}"
            )
        cubin = _bytes(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program)
        return cubin, _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program), log
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _bytes(size_of: Callable[..., Any], fill: Callable[..., Any], program: Any) -> bytes:
    """One of NVRTC's byte results, through its pair of size and copy calls."""
    size = int(_loaded(size_of, program)[0])
    # At least 2: the call writes into the object, and Python shares the one-byte ones.
    buffer = b" " * max(size, 2)
    _loaded(fill, program, buffer)
    return buffer[:size]


def _text(size_of: Callable[..., Any], fill: Callable[..., Any], program: Any) -> str:
    return _bytes(size_of, fill, program).decode(errors="replace").rstrip("\0 \n")


def _loaded(call: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    """The results of an NVRTC call without its status. Raises CompileError where it failed."""
    status, *results = _loading(lambda: call(*args))
    if int(status) != 0:
        raise CompileError(f"NVRTC call {call.__name__} failed with {status.name}. {_INSTALL}")
    return tuple(results)


def _loading(call: Callable[[], Any]) -> Any:
    """The result of a call that may be the first to load the library."""
    try:
        return call()
    except RuntimeError as error:  # what cuda-bindings and pathfinder raise for a missing library
        raise CompileError(f"NVRTC could not be loaded: {error}. {_INSTALL}") from error


def _toolchain() -> str:
    return f"NVRTC {nvrtc_version()} at {nvrtc_path()}"
