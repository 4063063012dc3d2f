"""CUDA text that says which tiles and which part of K a CTA works on."""

from __future__ import annotations

from ptxgen.families.wgmma_tma.shape import TmaShape

MOST_SHARERS = 14
"""CTAs that share a tile, in the mean. Shares are of one length, so 16 have a part of one at most, which is
what its counter has bits for."""


def share(shape: TmaShape) -> str:
    """This CTA's tiles and its part of K."""
    if shape.config.split_k > 1:
        stages = """\
  const int first_stage = (int)(K_BLOCKS * blockIdx.z / SPLIT_K);
  const int num_stages = (int)(K_BLOCKS * (blockIdx.z + 1) / SPLIT_K) - first_stage;
"""
    else:
        stages = "  constexpr int first_stage = 0, num_stages = K_BLOCKS;\n"
    return f"""\
  // ---- this CTA's share ---------------------------------------------------------------------------
{_counts(shape)}{_parts(shape) if shape.config.stream_k else _whole_tiles(shape) + stages}\
  auto find_tile = [&](int index, int& m_first, int& n_tile) {{
{_raster(shape)}  }};
"""


def _counts(shape: TmaShape) -> str:
    if shape.config.multicast == 1:
        return "  const int m_tiles = (m + BLOCK_M - 1) / BLOCK_M, tiles = m_tiles * N_TILES;\n"
    along = "x" if shape.config.max_ctas else "y"
    return f"""\
  // CTAs that share activations work on neighbouring tiles along N: one index stands for all of them.
  constexpr int N_GROUPS = N_TILES / MULTICAST;
  const int m_tiles = (m + BLOCK_M - 1) / BLOCK_M, tiles = m_tiles * N_GROUPS;
  const int sharer = blockIdx.{along} % MULTICAST;
"""


def _whole_tiles(shape: TmaShape) -> str:
    step, first = "gridDim.x * gridDim.y", "blockIdx.x + gridDim.x * blockIdx.y"
    if shape.config.multicast > 1 and shape.config.max_ctas:
        step, first = "gridDim.x / MULTICAST", "blockIdx.x / MULTICAST"
    elif shape.config.multicast > 1:
        step = "gridDim.x * gridDim.y / MULTICAST"
        first = "blockIdx.x + gridDim.x * (blockIdx.y / MULTICAST)"
    return f"""\
  const int tile_step = {step};
  int tile = (int)({first}) - tile_step;
  auto next_part = [&] {{ tile += tile_step; return tile < tiles; }};
"""


def _parts(shape: TmaShape) -> str:
    return """\
  // Whole rounds of tiles are walked as they are; the stages of the last tiles are shared out evenly.
  const int ctas = gridDim.x, whole_tiles = tiles / ctas * ctas, shared_tiles = tiles - whole_tiles;
  const int shared_stages = shared_tiles * K_BLOCKS;
  // Each of them has a stage or more, the others none; of a tile 16 at most have a part.
  const int sharers = min(min(ctas, shared_stages), MOST_SHARERS * shared_tiles);
  auto share_of = [&](int cta) {  // its first shared stage
    return cta < sharers ? shared_stages * cta / sharers : shared_stages;
  };
  const int share_first = share_of(blockIdx.x), share_end = share_of(blockIdx.x + 1);
  int shared = share_first, whole = blockIdx.x, tile, first_stage, num_stages;
  auto next_part = [&] {
    // Not first, where there is time: CTAs that start at different stages wait longer for their first slots.
    if (shared < share_end && (whole >= ctas || whole_tiles < 2 * ctas)) {
      tile = whole_tiles + shared / K_BLOCKS;
      first_stage = shared % K_BLOCKS;
      num_stages = min(K_BLOCKS - first_stage, share_end - shared);
      shared += num_stages;
      return true;
    }
    tile = whole, first_stage = 0, num_stages = K_BLOCKS;
    whole += ctas;
    return tile < whole_tiles;
  };
""".replace("MOST_SHARERS", str(MOST_SHARERS))


def _raster(shape: TmaShape) -> str:
    group, shared = shape.config.raster, shape.config.multicast > 1
    n_tiles = "N_GROUPS" if shared else "N_TILES"
    n_tile = "{} * MULTICAST + sharer" if shared else "{}"
    if group == 1:
        return f"""\
    m_first = index % m_tiles * BLOCK_M;  // all tiles along M share a tile along N
    n_tile = {n_tile.format("index / m_tiles")};
"""
    return f"""\
    const int first_row = index / ({group} * {n_tiles}) * {group};  // {group} tiles along M go together
    const int rows = max(1, min({group}, m_tiles - first_row)), in_group = index - first_row * {n_tiles};
    m_first = (first_row + in_group % rows) * BLOCK_M;
    n_tile = {n_tile.format("in_group / rows")};
"""
