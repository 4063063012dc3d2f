"""CUDA text of split K over a cluster: partial tiles stay in shared memory, every CTA adds up a share.

A CTA leaves its partial tile where its warps reduce and reads the same place of the others' memory.
Ranks are added in the order in which a workspace's partial tiles would be: the bits are the same.
"""

from __future__ import annotations

from ptxgen.families.mma.shape import Shape
from ptxgen.ptx import cluster
from ptxgen.ptx.instruction import Instruction

MAX_VECTORS = 8
"""16-byte loads that a thread has in flight at most; four registers each."""


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
  auto read = [&](float4 (&parts)[SPLIT_K], int i) {{
    const u32 place = smem_base + 4 * (i / (BLOCK_N / 4) * TILE_ROW + i % (BLOCK_N / 4) * 4);
#pragma unroll
    for (int s = 0; s < SPLIT_K; ++s) parts[s] = ld_cluster_v4(map_to_cta(place, s));
  }};
  auto add_up = [&](const float4 (&parts)[SPLIT_K], int i) {{
    float4 sum = parts[0];
#pragma unroll
    for (int s = 1; s < SPLIT_K; ++s)
      sum.x += parts[s].x, sum.y += parts[s].y, sum.z += parts[s].z, sum.w += parts[s].w;
    store(i / (BLOCK_N / 4), i % (BLOCK_N / 4) * 4, sum);
  }};
  // A share is whole runs of 16 features, 32 bytes of y. The grid's z is the cluster's: a rank.
  const int share = (tokens * (BLOCK_N / 16) + SPLIT_K - 1) / SPLIT_K * 4;
  const int share_end = min((int)(blockIdx.z + 1) * share, tokens * (BLOCK_N / 4));
  int i = blockIdx.z * share + tid;
{_batches(shape)}\
#pragma unroll 1
  for (; i < share_end; i += THREADS) {{
    if (n_tile * BLOCK_N + i % (BLOCK_N / 4) * 4 >= N) continue;
    float4 parts[SPLIT_K];
    read(parts, i);
    add_up(parts, i);
  }}
  // Whatever was read has been stored: the others' memory is not needed any more.
  cluster_arrive_relaxed();
  cluster_wait();  // and neither is this CTA's, which may end now
"""


def _batches(shape: Shape) -> str:
    """A loop over several vectors a thread at once, where a full tile has so many.

    Only in tiles without a tail of N: what is read must be stored, so that it has arrived.
    """
    config = shape.config
    share = -(-config.block_m * config.block_n // 16 // config.split_k) * 4
    batch = min(-(-share // shape.threads), MAX_VECTORS // config.split_k)
    if batch < 2:
        return ""
    whole = "  if ((n_tile + 1) * BLOCK_N <= N)\n" if shape.problem.n % config.block_n else ""
    return f"""\
  constexpr int BATCH = {batch};  // vectors of every rank that a thread has in flight
{whole}#pragma unroll 1
  for (; i + (BATCH - 1) * THREADS < share_end; i += BATCH * THREADS) {{
    float4 parts[BATCH][SPLIT_K];
#pragma unroll
    for (int b = 0; b < BATCH; ++b) read(parts[b], i + b * THREADS);
#pragma unroll
    for (int b = 0; b < BATCH; ++b) add_up(parts[b], i + b * THREADS);
  }}
"""


def _reduce_warps() -> str:
    return """\
  for (int i = tid; i < tokens * (BLOCK_N / 4); i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    *(float4*)&tile[token * TILE_ROW + feature] = sum_over_warps(token, feature);
  }
"""
