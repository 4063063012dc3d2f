"""CUDA text of split K over a cluster: partial tiles stay in shared memory, every CTA adds up a share.

A CTA leaves its partial tile where its warps reduce and reads the same place of the others' memory.
Ranks are added in the order in which a workspace's partial tiles would be: the bits are the same.
"""

from __future__ import annotations

from ptxgen.families.mma.shape import Shape
from ptxgen.ptx import cluster
from ptxgen.ptx.instruction import Instruction


def instructions() -> list[Instruction]:
    """The PTX that this module's text calls."""
    return [
        cluster.release_shared(),
        cluster.cluster_arrive_relaxed(),
        cluster.cluster_wait(),
        cluster.map_to_cta(),
        cluster.ld_cluster_v4(),
    ]


def cluster_reduction(shape: Shape) -> str:
    """From the fragments' tiles in shared memory to stored outputs; all threads come through."""
    return f"""\
  // ---- split K: the CTAs of a tile are a cluster, and each adds up a share of all partial tiles ----
  const int tokens = min(BLOCK_M, m - m_first);
{_reduce_warps() if shape.config.warps_k > 1 else ""}\
  release_shared();
  cluster_arrive_relaxed();
  cluster_wait();  // every partial tile is complete
  // A share is whole runs of 16 features, 32 bytes of y. The grid's z is the cluster's: a rank.
  const int share = (tokens * (BLOCK_N / 16) + SPLIT_K - 1) / SPLIT_K * 4;
  const int share_end = min((int)(blockIdx.z + 1) * share, tokens * (BLOCK_N / 4));
  for (int i = blockIdx.z * share + tid; i < share_end; i += THREADS) {{
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    if (n_tile * BLOCK_N + feature >= N) continue;
    const u32 place = smem_base + 4 * (token * TILE_ROW + feature);
    float4 parts[SPLIT_K];
#pragma unroll
    for (int s = 0; s < SPLIT_K; ++s) parts[s] = ld_cluster_v4(map_to_cta(place, s));
    float4 sum = parts[0];
#pragma unroll
    for (int s = 1; s < SPLIT_K; ++s)
      sum.x += parts[s].x, sum.y += parts[s].y, sum.z += parts[s].z, sum.w += parts[s].w;
    store(token, feature, sum);
  }}
  // Whatever was read has been stored: the others' memory is not needed any more.
  cluster_arrive_relaxed();
  cluster_wait();  // and neither is this CTA's, which may end now
"""


def _reduce_warps() -> str:
    return """\
  for (int i = tid; i < tokens * (BLOCK_N / 4); i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    *(float4*)&tile[token * TILE_ROW + feature] = sum_over_warps(token, feature);
  }
"""
