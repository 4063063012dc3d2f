"""Thread-block clusters: their barrier, and the shared memory of their other CTAs (PTX ISA,
"barrier.cluster", "mapa", "State Spaces: Shared State Space")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_SM90 = (9, 0)
_BARRIER = "Parallel Synchronization and Communication Instructions: barrier.cluster"


def _barrier(signature: str, ptx: str) -> Instruction:
    return effect(signature, ptx, _BARRIER)


def cluster_arrive() -> Instruction:
    """Arrives with all threads of the cluster; what they wrote is seen after the wait."""
    return _barrier("void cluster_arrive()", "barrier.cluster.arrive.release.aligned;")


def cluster_arrive_relaxed() -> Instruction:
    """Arrives without passing on any writes; only tells that this thread has come so far."""
    return _barrier("void cluster_arrive_relaxed()", "barrier.cluster.arrive.relaxed.aligned;")


def release_shared() -> Instruction:
    """Lets the next relaxed arrival pass on writes to this CTA's own shared memory, and no others.

    cluster_arrive passes on all writes, and first waits for those to global memory: dearer.
    """
    return effect(
        "void release_shared()",
        "fence.release.sync_restrict::shared::cta.cluster;",
        "Parallel Synchronization and Communication Instructions: membar, fence",
    )


def cluster_wait() -> Instruction:
    """Waits until every thread of the cluster has arrived or ended."""
    return _barrier("void cluster_wait()", "barrier.cluster.wait.acquire.aligned;")


def map_to_cta() -> Instruction:
    """Where a place of this CTA's shared memory lies in the CTA of a rank, as a cluster address."""
    return Instruction(
        "u32 map_to_cta(u32 address, u32 rank)",
        "mapa.shared::cluster.u32 %0, %1, %2;",
        "Data Movement and Conversion Instructions: mapa",
        outputs=('"=r"(mapped)',),
        inputs=('"r"(address)', '"r"(rank)'),
        min_capability=_SM90,
        declares="u32 mapped",
        returns="mapped",
    )


def ld_cluster_v4() -> Instruction:
    """Four FP32 values from a 16-byte aligned cluster address."""
    return Instruction(
        "float4 ld_cluster_v4(u32 src)",
        "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];",
        "Data Movement and Conversion Instructions: ld",
        outputs=('"=f"(v.x)', '"=f"(v.y)', '"=f"(v.z)', '"=f"(v.w)'),
        inputs=('"r"(src)',),
        min_capability=_SM90,
        volatile=True,
        memory=True,
        declares="float4 v",
        returns="v",
    )


def st_async_v4() -> Instruction:
    """Four FP32 values to a 16-byte aligned cluster address, counted on an mbarrier of that CTA."""
    return effect(
        "void st_async_v4(u32 dst, float a, float b, float c, float d, u32 barrier)",
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 "
        "[%0], {%1, %2, %3, %4}, [%5];",
        "Data Movement and Conversion Instructions: st.async",
        inputs=('"r"(dst)', '"f"(a)', '"f"(b)', '"f"(c)', '"f"(d)', '"r"(barrier)'),
    )
