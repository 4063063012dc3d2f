"""Mbarriers in shared memory (PTX ISA, "mbarrier"), sm_90 and up. Addresses are shared ones."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_SECTION = "Parallel Synchronization and Communication Instructions: "


def _effect(signature: str, ptx: str, section: str, inputs: tuple[str, ...] = ()) -> Instruction:
    return effect(signature, ptx, _SECTION + section, inputs)


def mbarrier_init() -> Instruction:
    """Makes eight bytes, 8-byte aligned, an mbarrier of phase 0 that waits for `count` arrivals."""
    return _effect(
        "void mbarrier_init(u32 barrier, u32 count)",
        "mbarrier.init.shared::cta.b64 [%0], %1;",
        "mbarrier.init",
        ('"r"(barrier)', '"r"(count)'),
    )


def fence_mbarrier_init() -> Instruction:
    """Makes this thread's mbarrier_init visible to copies and to the cluster, after a barrier."""
    return _effect(
        "void fence_mbarrier_init()", "fence.mbarrier_init.release.cluster;", "membar, fence"
    )


def mbarrier_inval() -> Instruction:
    """Ends an mbarrier: its bytes are free for other use."""
    return _effect(
        "void mbarrier_inval(u32 barrier)",
        "mbarrier.inval.shared::cta.b64 [%0];",
        "mbarrier.inval",
        ('"r"(barrier)',),
    )


def mbarrier_arrive() -> Instruction:
    """One arrival, which releases what this thread did before."""
    return _effect(
        "void mbarrier_arrive(u32 barrier)",
        "mbarrier.arrive.shared::cta.b64 _, [%0];",
        "mbarrier.arrive",
        ('"r"(barrier)',),
    )


def mbarrier_arrive_if() -> Instruction:
    """One arrival where `yes` is not 0, without a branch: ptxas serialises wgmma across one."""
    return _effect(
        "void mbarrier_arrive_if(u32 barrier, u32 yes)",
        "{ .reg .pred p; setp.ne.u32 p, %1, 0; @p mbarrier.arrive.shared::cta.b64 _, [%0]; }",
        "mbarrier.arrive",
        ('"r"(barrier)', '"r"(yes)'),
    )


def mbarrier_arrive_cluster_if() -> Instruction:
    """One arrival where `yes` is not 0, at a cluster address, such as map_to_cta gives.

    With the default semantics: as .release.cluster it becomes a membar and costs 10-80 % (H200).
    """
    return _effect(
        "void mbarrier_arrive_cluster_if(u32 barrier, u32 yes)",
        "{ .reg .pred p; setp.ne.u32 p, %1, 0; @p mbarrier.arrive.shared::cluster.b64 _, [%0]; }",
        "mbarrier.arrive",
        ('"r"(barrier)', '"r"(yes)'),
    )


def mbarrier_arrive_expect_tx() -> Instruction:
    """One arrival, and the present phase also waits for `bytes` of copies."""
    return _effect(
        "void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes)",
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;",
        "mbarrier.arrive",
        ('"r"(barrier)', '"r"(bytes)'),
    )


def mbarrier_wait() -> Instruction:
    """Waits until the phase of this parity (0 for the first) is complete, and acquires it.

    The loop is inside the asm statement: its labels are local to the braces, so that the function
    may be inlined many times.
    """
    return _effect(
        "void mbarrier_wait(u32 barrier, u32 parity)",
        "{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; "
        "@!done bra again; }",
        "mbarrier.test_wait, mbarrier.try_wait",
        ('"r"(barrier)', '"r"(parity)'),
    )
