"""Asynchronous copies from global to shared memory (PTX ISA, "Asynchronous Copy").

No cache hint anywhere: ptxas before CUDA 13.4 miscompiles cp.async with a policy operand on sm_90.
"""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_SECTION = "Data Movement and Conversion Instructions: cp.async"


def cp_async_16() -> Instruction:
    """16 bytes that bypass L1, with a 128-byte L2 prefetch.

    .L2::256B costs a streaming read 10 % on an H200: 4131 against 4612 GB/s (2026-11-29).
    """
    return effect(
        "void cp_async_16(u32 dst, const u8* src)",
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16;",
        _SECTION,
        inputs=('"r"(dst)', '"l"(src)'),
        min_capability=(8, 0),
    )


def cp_async_16_zfill() -> Instruction:
    """16 bytes of which the first `bytes` are read and the rest are zero."""
    return effect(
        "void cp_async_16_zfill(u32 dst, const u8* src, u32 bytes)",
        "cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;",
        _SECTION,
        inputs=('"r"(dst)', '"l"(src)', '"r"(bytes)'),
        min_capability=(8, 0),
    )


def cp_async_8_zfill() -> Instruction:
    """8 bytes through L1 (.ca is the only form of less than 16), the first `bytes` of them read."""
    return effect(
        "void cp_async_8_zfill(u32 dst, const u8* src, u32 bytes)",
        "cp.async.ca.shared.global [%0], [%1], 8, %2;",
        _SECTION,
        inputs=('"r"(dst)', '"l"(src)', '"r"(bytes)'),
        min_capability=(8, 0),
    )


def cp_async_commit() -> Instruction:
    """Closes the current group of copies."""
    return effect(
        "void cp_async_commit()",
        "cp.async.commit_group;",
        "Data Movement and Conversion Instructions: cp.async.commit_group",
        min_capability=(8, 0),
    )


def cp_async_wait(pending: int) -> Instruction:
    """Waits until at most `pending` of this thread's latest groups are unfinished."""
    return effect(
        f"void cp_async_wait_{pending}()",
        f"cp.async.wait_group {pending};",
        "Data Movement and Conversion Instructions: cp.async.wait_group",
        min_capability=(8, 0),
    )
