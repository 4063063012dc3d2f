"""Bulk copies between global and shared memory, whose ends an mbarrier or a group counts (PTX ISA,
"cp.async.bulk")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction

_SECTION = "Data Movement and Conversion Instructions: "
_SM90 = (9, 0)
_COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"


def bulk_copy() -> Instruction:
    """`bytes` (a multiple of 16) between 16-byte aligned addresses; counted on the mbarrier."""
    return Instruction(
        "void bulk_copy(u32 dst, const void* src, u32 bytes, u32 barrier)",
        f"{_COPY} [%0], [%1], %2, [%3];",
        _SECTION + "cp.async.bulk",
        inputs=('"r"(dst)', '"l"(src)', '"r"(bytes)', '"r"(barrier)'),
        min_capability=_SM90,
        volatile=True,
        memory=True,
    )


def bulk_copy_hint() -> Instruction:
    """bulk_copy with an L2 policy from evict_first_policy.

    The bulk engine's hint is safe: the ptxas fault with policy operands is of cp.async alone.
    """
    return Instruction(
        "void bulk_copy_hint(u32 dst, const void* src, u32 bytes, u32 barrier, u64 policy)",
        f"{_COPY}.L2::cache_hint [%0], [%1], %2, [%3], %4;",
        _SECTION + "cp.async.bulk",
        inputs=('"r"(dst)', '"l"(src)', '"r"(bytes)', '"r"(barrier)', '"l"(policy)'),
        min_capability=_SM90,
        volatile=True,
        memory=True,
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
    return Instruction(
        "void bulk_store(void* dst, u32 src, u32 bytes)",
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;",
        _SECTION + "cp.async.bulk",
        inputs=('"l"(dst)', '"r"(src)', '"r"(bytes)'),
        min_capability=_SM90,
        volatile=True,
        memory=True,
    )


def bulk_commit() -> Instruction:
    """Closes the thread's current group of bulk copies to global memory."""
    return _group("void bulk_commit()", "commit_group", "cp.async.bulk.commit_group")


def bulk_wait_read() -> Instruction:
    """Waits until all of the thread's groups have been read from shared memory."""
    return _group("void bulk_wait_read()", "wait_group.read 0", "cp.async.bulk.wait_group")


def bulk_wait() -> Instruction:
    """Waits until all of the thread's groups have been written, for this thread to see."""
    return _group("void bulk_wait()", "wait_group 0", "cp.async.bulk.wait_group")


def _group(signature: str, operation: str, section: str) -> Instruction:
    return Instruction(
        signature,
        f"cp.async.bulk.{operation};",
        _SECTION + section,
        min_capability=_SM90,
        volatile=True,
        memory=True,
    )


def fence_proxy_async_global() -> Instruction:
    """Between bulk copies to global memory and what other threads read of it as usual."""
    return Instruction(
        "void fence_proxy_async_global()",
        "fence.proxy.async.global;",
        "Parallel Synchronization and Communication Instructions: membar, fence",
        min_capability=_SM90,
        volatile=True,
        memory=True,
    )
