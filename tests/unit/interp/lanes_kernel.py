"""Tiny PTX kernels for tests: apply a body to every element of arrays, or run one as it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ptxgen.interp import GlobalMemory, Launch, RunOptions, RunReport, Schedule, load_program, run

Array = NDArray[Any]
HEADER = ".version 8.6\n.target sm_90a\n.address_size 64\n"
REGISTERS = (
    ".reg .pred %p<8>; .reg .b16 %h<8>; .reg .b32 %r<32>; .reg .f32 %f<16>; .reg .b64 %rd<16>;"
)


def kernel_text(body: str, params: int, shared: str = "", directives: str = "") -> str:
    """A kernel `k` of 64-bit parameters p0, p1, ... with registers %p %h %r %f %rd."""
    named = ", ".join(f".param .u64 p{index}" for index in range(params))
    head = f"{HEADER}{shared}\n.visible .entry k({named})\n{directives}\n"
    return f"{head}{{\n{REGISTERS}\n{body}\nret;\n}}\n"


def apply(body: str, *inputs: Array, outputs: Sequence[Any] = (np.uint32,)) -> list[Array]:
    """Runs a body for every element: it reads %i0, %i1, ... and writes %o0, %o1, ..."""
    count = len(inputs[0])
    assert count % 32 == 0
    threads = next(size for size in (1024, 256, 32) if count % size == 0)
    memory = GlobalMemory()
    args = [memory.allocate(f"i{n}", array, readonly=True) for n, array in enumerate(inputs)]
    results = [np.zeros(count, dtype=dtype) for dtype in outputs]
    args += [memory.allocate(f"o{n}", array) for n, array in enumerate(results)]
    lines = [
        "mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ntid.x; mov.u32 %r2, %tid.x;",
        "mad.lo.s32 %r0, %r0, %r1, %r2;",
    ]
    for number, array in enumerate((*inputs, *results)):
        kind, bits = ("i", number) if number < len(inputs) else ("o", number - len(inputs)), 0
        bits = array.dtype.itemsize * 8
        lines.append(f".reg .b{bits} %{kind[0]}{kind[1]}; ld.param.u64 %rd0, [p{number}];")
        lines.append(f"mul.wide.u32 %rd1, %r0, {bits // 8}; add.s64 %rd2, %rd0, %rd1;")
        lines.append(f".reg .b64 %at{number}; mov.b64 %at{number}, %rd2;")
        if kind[0] == "i":
            lines.append(f"ld.global.b{bits} %{kind[0]}{kind[1]}, [%at{number}];")
    lines.append(body)
    for number, array in enumerate(results):
        bits = array.dtype.itemsize * 8
        lines.append(f"st.global.b{bits} [%at{number + len(inputs)}], %o{number};")
    program = load_program(kernel_text("\n".join(lines), len(args)), "k")
    run(program, Launch((count // threads, 1, 1), (threads, 1, 1), 0, tuple(args)), memory)
    return [memory.array(f"o{number}") for number in range(len(results))]


def one(body: str, *inputs: Array, output: Any = np.uint32) -> Array:
    """apply with one output."""
    return apply(body, *inputs, outputs=(output,))[0]


def run_text(
    body: str,
    buffers: dict[str, Array] | None = None,
    *,
    threads: int = 32,
    shared: str = "",
    smem_bytes: int = 0,
    schedule: Schedule | None = None,
    options: RunOptions | None = None,
    grid: tuple[int, int, int] = (1, 1, 1),
) -> tuple[RunReport, dict[str, Array]]:
    """Runs a body whose parameters p0, p1, ... are the buffers in order."""
    memory = GlobalMemory()
    buffers = buffers or {}
    args = tuple(memory.allocate(name, array) for name, array in buffers.items())
    program = load_program(kernel_text(body, len(args), shared), "k")
    launch = Launch(grid, (threads, 1, 1), smem_bytes, args)
    report = run(program, launch, memory, schedule, options)
    return report, {name: memory.array(name) for name in buffers}


def random_words(count: int, seed: int = 0) -> Array:
    """Random 32-bit words with the corners among them."""
    words = np.random.default_rng(seed).integers(0, 2**32, count, dtype=np.uint32)
    corners = [0, 1, 2, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF, 0xFFFF, 0x10000, 31, 32, 33]
    words[: len(corners)] = corners
    return words


def random_longs(count: int, seed: int = 0) -> Array:
    high, low = (
        random_words(count, seed),
        np.random.default_rng(seed + 1).permutation(random_words(count, seed + 2)),
    )
    return high.astype(np.uint64) << np.uint64(32) | low


def mixed(values: Array, seed: int = 1) -> Array:
    """The same values in another order, so that pairs meet corners on both sides."""
    return np.random.default_rng(seed).permutation(values)
