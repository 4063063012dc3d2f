"""wgmma with the A operand in registers (PTX ISA, "Asynchronous Warpgroup Level Matrix"), sm_90a.

Registers of an operand may not be touched between a wgmma and the wait that covers it; the family's
keep_alive pins them in the compiler's eyes until then.
"""

from __future__ import annotations

from ptxgen.problem import Dtype
from ptxgen.ptx.instruction import Instruction, effect
from ptxgen.ptx.mma import MMA_TYPE

_SECTION = "Asynchronous Warpgroup Level Matrix Instructions: "
_SM90 = (9, 0)


def wgmma_m64_k16(dtype: Dtype, n: int) -> Instruction:
    """d[64 x `n`] += a[64 x 16] b[16 x `n`]: a in registers, b in shared memory by a descriptor."""
    return _mma_async(dtype, n, "", "u64 b", '"l"(b)', "", f"%{n // 2 + 4}", "")


def wgmma_m64_k16_swizzled(dtype: Dtype, n: int) -> Instruction:
    """d[64 x `n`] += a[64 x 16] b[16 x `n`]: a in registers, b in shared memory, in 8-row atoms of
    128 swizzled bytes that follow each other.

    `b` is the low half of the descriptor (address and leading offset); the high half, the swizzle
    and 1024 bytes from atom to atom, is constant, which saves 64-bit arithmetic.
    """
    joined = f"{{ .reg .b64 descriptor; mov.b64 descriptor, {{%{n // 2 + 4}, 0x40000040}}; "
    return _mma_async(dtype, n, "_swizzled", "u32 b", '"r"(b)', joined, "descriptor", " }")


def _mma_async(  # noqa: PLR0917
    dtype: Dtype,
    n: int,
    kind: str,
    parameter: str,
    constraint: str,
    before: str,
    descriptor: str,
    after: str,
) -> Instruction:
    """wgmma.mma_async with a in registers; `before` and `after` go round the instruction."""
    suffix = MMA_TYPE[dtype]
    count = n // 2
    registers = ", ".join(f"%{i}" for i in range(count))
    a = ", ".join(f"%{count + i}" for i in range(4))
    return Instruction(
        f"void wgmma_m64n{n}k16{kind}(float (&d)[{n // 8}][4], const u32 (&a)[4], {parameter})",
        f"{before}wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{suffix}.{suffix} "
        f"{{{registers}}}, {{{a}}}, {descriptor}, 1, 1, 1, 0;{after}",
        _SECTION + "wgmma.mma_async",
        outputs=tuple(f'"+f"(d[{i // 4}][{i % 4}])' for i in range(count)),
        inputs=(*(f'"r"(a[{i}])' for i in range(4)), constraint),
        min_capability=_SM90,
        volatile=True,
        memory=True,
    )


def wgmma_fence() -> Instruction:
    """Orders earlier register writes before the wgmma that follow."""
    return effect("void wgmma_fence()", "wgmma.fence.sync.aligned;", _SECTION + "wgmma.fence")


def wgmma_commit() -> Instruction:
    """Closes the current group of wgmma."""
    return effect(
        "void wgmma_commit()",
        "wgmma.commit_group.sync.aligned;",
        _SECTION + "wgmma.commit_group",
    )


def wgmma_wait(pending: int) -> Instruction:
    """Waits until at most `pending` of the latest groups are unfinished."""
    return effect(
        f"void wgmma_wait_{pending}()",
        f"wgmma.wait_group.sync.aligned {pending};",
        _SECTION + "wgmma.wait_group",
    )


def fence_proxy_async() -> Instruction:
    """Makes this thread's writes to shared memory visible to wgmma, after the next barrier."""
    return effect(
        "void fence_proxy_async()",
        "fence.proxy.async.shared::cta;",
        "Parallel Synchronization and Communication Instructions: membar, fence",
    )
