"""Bulk copies between global and shared memory, whose ends an mbarrier or a group counts, and bulk
prefetches to L2 (PTX ISA, "cp.async.bulk")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_SECTION = "Data Movement and Conversion Instructions: "
_COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def bulk_copy() -> Instruction:
    """`bytes` (a multiple of 16) between 16-byte aligned addresses; counted on the mbarrier."""
    return effect(
        "void bulk_copy(u32 dst, const void* src, u32 bytes, u32 barrier)",
        f"{_COPY} [%0], [%1], %2, [%3];",
        _SECTION + "cp.async.bulk",
        ('"r"(dst)', '"l"(src)', '"r"(bytes)', '"r"(barrier)'),
    )


def bulk_copy_hint() -> Instruction:
    """bulk_copy with an L2 policy from evict_first_policy.

    The bulk engine's hint is safe: the ptxas fault with policy operands is of cp.async alone.
    """
    return effect(
        "void bulk_copy_hint(u32 dst, const void* src, u32 bytes, u32 barrier, u64 policy)",
        f"{_COPY}.L2::cache_hint [%0], [%1], %2, [%3], %4;",
        _SECTION + "cp.async.bulk",
        ('"r"(dst)', '"l"(src)', '"r"(bytes)', '"r"(barrier)', '"l"(policy)'),
    )


def bulk_prefetch() -> Instruction:
    """`bytes` (a multiple of 16) from a 16-byte aligned address to L2; nobody waits for them."""
    return effect(
        "void bulk_prefetch(const void* src, u32 bytes)",
        "cp.async.bulk.prefetch.L2.global [%0], %1;",
        _SECTION + "cp.async.bulk.prefetch",
        ('"l"(src)', '"r"(bytes)'),
    )


def evict_first_policy() -> Instruction:
    """The L2 policy of data that is read once: the first to make room."""
    return Instruction(
        "u64 evict_first_policy()",
        "createpolicy.fractional.L2::evict_first.b64 %0, 1.0;",
        _SECTION + "createpolicy",
        outputs=('"=l"(d)',),
        declares="u64 d",
        returns="d",
    )


def bulk_store() -> Instruction:
    """`bytes` (a multiple of 16) of shared to global memory, in the thread's current group."""
    return effect(
        "void bulk_store(void* dst, u32 src, u32 bytes)",
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;",
        _SECTION + "cp.async.bulk",
        ('"l"(dst)', '"r"(src)', '"r"(bytes)'),
    )


def bulk_commit() -> Instruction:
    """Closes the thread's current group of bulk copies to global memory."""
    return effect(
        "void bulk_commit()", "cp.async.bulk.commit_group;", _SECTION + "cp.async.bulk.commit_group"
    )


def bulk_wait_read() -> Instruction:
    """Waits until all of the thread's groups have been read from shared memory."""
    return effect(
        "void bulk_wait_read()",
        "cp.async.bulk.wait_group.read 0;",
        _SECTION + "cp.async.bulk.wait_group",
    )


def bulk_wait() -> Instruction:
    """Waits until all of the thread's groups have been written, for this thread to see."""
    return effect(
        "void bulk_wait()", "cp.async.bulk.wait_group 0;", _SECTION + "cp.async.bulk.wait_group"
    )


def fence_proxy_async_global() -> Instruction:
    """Between bulk copies to global memory and what other threads read of it as usual."""
    return effect(
        "void fence_proxy_async_global()",
        "fence.proxy.async.global;",
        "Parallel Synchronization and Communication Instructions: membar, fence",
    )
