"""Puts the wgmma kernel's text together. Pure: the same problem, config and arch give the same bytes."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.mma.emit import WAIT, KernelParts, assemble, prologue
from ptxgen.families.wgmma import compute
from ptxgen.families.wgmma.config import WgmmaConfig
from ptxgen.families.wgmma.rules import violations
from ptxgen.families.wgmma.shape import WgmmaShape
from ptxgen.problem import Problem
from ptxgen.ptx import cp_async, wgmma
from ptxgen.source import KernelSource

ABOUT = """\
// Weights are the m64 register operand of wgmma, tokens its n dimension, read from shared memory. All
// threads stream weights and activations through a ring of {num_stages} cp.async stages.
"""


def emit(problem: Problem, config: WgmmaConfig, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan.

    Raises:
        ConfigError: the config is illegal; the message lists why.
    """
    reasons = violations(problem, config, arch)
    if reasons:
        raise ConfigError(f"{config.key()} is illegal for {problem.key()}: {'; '.join(reasons)}.")
    shape = WgmmaShape(problem, config)
    parts = KernelParts(
        about=ABOUT.format(num_stages=config.num_stages),
        instructions=[
            cp_async.cp_async_wait(config.num_stages - 3),
            wgmma.wgmma_m64_k16(problem.dtype, config.block_m),
            wgmma.wgmma_fence(),
            wgmma.wgmma_commit(),
            wgmma.wgmma_wait(1),
            wgmma.wgmma_wait(0),
            wgmma.fence_proxy_async(),
        ],
        setup=compute.setup(shape),
        consume=compute.consume(shape),
        main_loop=_main_loop(shape),
        raster=_raster(config.raster),
        helpers=f"enum : int {{ CHUNK_STEPS = {compute.CHUNK_STEPS} }};"
        f"  // k16 steps that are dequantized at once\n\n{compute.KEEP_ALIVE}",
    )
    return assemble(shape, arch, parts)


def _raster(group: int) -> str:
    """Tiles in groups of rows, N fastest within a group; the last group may be smaller."""
    if group == 1:
        return "  const int m_tile = blockIdx.x, n_tile = blockIdx.y;\n"
    return f"""\
  // CTAs start in the order of blockIdx.x, then y: {group} tiles along M share every tile along N
  const int index = blockIdx.x + gridDim.x * blockIdx.y;
  const int first_row = index / ({group} * (int)gridDim.y) * {group};
  const int rows = min({group}, (int)gridDim.x - first_row);
  const int in_group = index - first_row * (int)gridDim.y;
  const int m_tile = first_row + in_group % rows, n_tile = in_group / rows;
"""


def _main_loop(shape: WgmmaShape) -> str:
    stages = shape.config.num_stages
    return f"""\
  // ---- prologue: fill all slots but two ----------------------------------------------------------
{prologue(shape, WAIT, 2)}
  // The zeros of the accumulators are written before the first wgmma_fence, not moved behind it.
{_keep_accumulators()}
  // ---- main loop: one slot is consumed, one may still be read by wgmma in flight ------------------
  u32 slot = 0, free_slot = (STAGES - 2) * STAGE_BYTES;
  for (int stage = 0; stage < num_stages; ++stage) {{
    cp_async_wait_{stages - 3}();
    fence_proxy_async();
    __syncthreads();  // everybody's copies are visible to wgmma, and the free slot is done with
    if (stage + STAGES - 2 < num_stages) {{
      load_weights(stage + STAGES - 2, free_slot);
      load_x(stage + STAGES - 2, free_slot);
    }}
    cp_async_commit();
    consume(slot);
    slot = slot == (STAGES - 1) * STAGE_BYTES ? 0 : slot + STAGE_BYTES;
    free_slot = free_slot == (STAGES - 1) * STAGE_BYTES ? 0 : free_slot + STAGE_BYTES;
  }}
  wgmma_wait_0();
#pragma unroll
  for (int i = 0; i < 2 * CHUNK_STEPS * ROW_BLOCKS * 4; ++i)
    keep_alive(a[i / (CHUNK_STEPS * ROW_BLOCKS * 4)][i / (ROW_BLOCKS * 4) % CHUNK_STEPS][i / 4 % ROW_BLOCKS][i % 4]);
{_keep_accumulators()}
"""


def _keep_accumulators() -> str:
    return """\
#pragma unroll
  for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES * 4; ++i)
    keep_alive(acc[i / (TOKEN_TILES * 4)][i / 4 % TOKEN_TILES][i % 4]);"""
