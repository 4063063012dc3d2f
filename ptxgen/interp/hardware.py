"""compare_opcodes: one-instruction kernels on a GPU and on the interpreter, bit by bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ptxgen.arch import arch_of_capability
from ptxgen.compile import CompiledKernel, compile_source
from ptxgen.device import LoadedKernel
from ptxgen.interp.api import Launch
from ptxgen.interp.global_memory import GlobalMemory
from ptxgen.interp.hardware_cases import THREADS, HardwareCase, cases
from ptxgen.interp.hardware_values import operand
from ptxgen.interp.machine import run
from ptxgen.interp.program import load_program
from ptxgen.source import KernelSource

LANES = 8192
"""Threads of a case."""
SCRATCH_ROWS = 1
"""Rows of the output behind the results, for the atomics."""
MMA_BOUND = 2.0**-22
"""Bound on |difference| / (sum |a b| + |c|) of an mma: the hardware aligns the products to the
largest one and cuts off what is below, where the interpreter rounds the exact sum once."""

Words = NDArray[np.uint64]
Execute = Callable[[CompiledKernel, KernelSource, Words, int], Words]
"""Runs a kernel on inputs [operands, lanes] and gives y [rows, lanes]."""


def compare_opcodes(
    seed: int = 0, arch: str | None = None, execute: Execute | None = None
) -> list[dict[str, Any]]:
    """Runs every case of hardware_cases on both sides.

    Args:
        seed: of the operands.
        arch: NVRTC target; None: that of the current GPU.
        execute: runs a kernel; None: on the current GPU.

    Returns:
        One dict a case: opcode, exact (bits must agree), lanes, mismatches (results that differ in
        a bit), largest_error (mma: in units of sum |a b| + |c|, else None), ok, and example (inputs
        and both results of the first mismatch, in hex, or None).

    Raises:
        DriverError: the GPU refused a kernel.
    """
    if arch is None:
        arch = arch_of_capability(*torch.cuda.get_device_capability()).name
    execute = execute or execute_on_gpu
    results = []
    for number, case in enumerate(cases()):
        if case.only_arch not in ("", arch):
            continue
        rng = np.random.default_rng((seed, number))
        inputs = np.stack([operand(values, LANES, rng) for values in case.inputs])
        source = case.source(arch)
        kernel = compile_source(source)
        rows = len(case.outputs) + SCRATCH_ROWS
        hardware = execute(kernel, source, inputs, rows)[: len(case.outputs)]
        mine = execute_on_interpreter(kernel, source, inputs, rows)[: len(case.outputs)]
        results.append(_verdict(case, inputs, hardware, mine))
    return results


def execute_on_interpreter(
    kernel: CompiledKernel, source: KernelSource, inputs: Words, rows: int
) -> Words:
    """The Execute of the interpreter."""
    lanes = inputs.shape[1]
    memory = GlobalMemory()
    x = memory.allocate("x", inputs, readonly=True)
    y = memory.allocate("y", np.zeros((rows, lanes), dtype=np.uint64))
    launch = Launch(source.plan.grid(lanes), (THREADS, 1, 1), 0, (x, 0, 0, y, 0, lanes, 0, 0))
    run(load_program(kernel.ptx, kernel.entry), launch, memory)
    return memory.array("y")


def execute_on_gpu(kernel: CompiledKernel, source: KernelSource, inputs: Words, rows: int) -> Words:
    """The Execute of the current CUDA device."""
    lanes = inputs.shape[1]
    x = torch.from_numpy(inputs.view(np.int64)).cuda()
    y = torch.zeros((rows, lanes), dtype=torch.int64, device="cuda")
    loaded = LoadedKernel(kernel.cubin, kernel.entry, source.plan)
    try:
        loaded.launch(
            x=x.data_ptr(),
            packed=0,
            bias=0,
            y=y.data_ptr(),
            workspace=0,
            m=lanes,
            ldx=0,
            ldy=0,
            stream=torch.cuda.current_stream().cuda_stream,
        )
        torch.cuda.synchronize()
    finally:
        loaded.unload()
    result: Words = y.cpu().numpy().view(np.uint64)
    return result


def _verdict(case: HardwareCase, inputs: Words, hardware: Words, mine: Words) -> dict[str, Any]:
    differ = hardware != mine
    example = None
    if differ.any():
        row, lane = (int(index) for index in np.argwhere(differ)[0])
        example = {
            "inputs": [f"{int(word):#x}" for word in inputs[:, lane]],
            "output": row,
            "hardware": f"{int(hardware[row, lane]):#x}",
            "interpreter": f"{int(mine[row, lane]):#x}",
        }
    error = None if case.exact else _mma_error(case, inputs, hardware, mine)
    return {
        "opcode": case.opcode,
        "exact": case.exact,
        "lanes": inputs.shape[1],
        "mismatches": int(differ.sum()),
        "largest_error": error,
        "ok": not differ.any() if error is None else error <= MMA_BOUND,
        "example": example,
    }


def _mma_error(case: HardwareCase, inputs: Words, hardware: Words, mine: Words) -> float:
    """Largest |difference| over the size of what was added up."""
    bf16 = ".bf16." in case.opcode
    halves = inputs[:6].astype(np.uint32).view(np.uint16).reshape(6, -1, 32, 2)
    wide = halves.astype(np.uint32) << np.uint32(16)
    values = wide.view(np.float32) if bf16 else halves.view(np.float16).astype(np.float32)
    size = np.abs(values.astype(np.float64))
    spread = _spread(size) if case.opcode.startswith("mma") else _spread_of_warpgroups(size)
    added = np.abs(_floats(inputs[6:]))
    error = np.abs(_floats(hardware) - _floats(mine)) / (spread + added)
    return float(error.max())


def _spread(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """sum |a b| of every accumulator [4, lanes] of mma; size is [6, warps, 32, 2]."""
    warps = size.shape[1]
    # Fragments of the manual: a[register, warp, group, thread, half], and so on.
    b = size[4:].reshape(2, warps, 8, 4, 2).transpose(1, 0, 3, 4, 2).reshape(warps, 16, 8)
    return _accumulators(_rows_of_a(size) @ b)


def _spread_of_warpgroups(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """The same of wgmma: B is 8 rows of 128 swizzled bytes, 8 of them from each thread."""
    groups = size.shape[1] // 4
    image = size[4:].transpose(1, 2, 0, 3).reshape(groups, 8, 8, 8)  # row, chunk, half
    rows = np.arange(8)
    b = np.stack([image[:, rows, chunk ^ rows] for chunk in (0, 1)], axis=2).reshape(groups, 8, 16)
    per_warp = np.repeat(b.transpose(0, 2, 1), 4, axis=0)
    return _accumulators(_rows_of_a(size) @ per_warp)


def _rows_of_a(size: NDArray[np.float64]) -> NDArray[np.float64]:
    """[warps, 16, 16] out of the four registers of A."""
    warps = size.shape[1]
    parts = size[:4].reshape(2, 2, warps, 8, 4, 2).transpose(2, 1, 3, 0, 4, 5)
    return parts.reshape(warps, 16, 16)


def _accumulators(products: NDArray[np.float64]) -> NDArray[np.float64]:
    """[4, lanes] out of [warps, 16, 8]."""
    parts = products.reshape(-1, 2, 8, 4, 2).transpose(1, 4, 0, 2, 3)
    return parts.reshape(4, -1)


def _floats(words: Words) -> NDArray[np.float64]:
    return words.astype(np.uint32).view(np.float32).astype(np.float64)
