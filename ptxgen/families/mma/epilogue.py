"""CUDA text after the last stage: reduce over warps and CTAs in FP32, add the bias, round once, store."""

from __future__ import annotations

from ptxgen.families.mma.shape import Shape
from ptxgen.ptx import cluster, global_memory, packed16, tile_counter
from ptxgen.ptx.instruction import Instruction


def instructions(shape: Shape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    used = [packed16.pack_from_float(shape.problem.dtype), global_memory.st_global_v2()]
    if shape.problem.whole_k:
        used.append(global_memory.ld_global_nc_u32())
    if shape.problem.bias:
        used.append(global_memory.ld_global_nc_v2())
    if shape.problem.whole_k or shape.problem.bias or shape.config.scale_on == "accumulators":
        used.append(packed16.unpack_to_float(shape.problem.dtype))
    if shape.config.cluster:
        used += [
            cluster.release_shared(),
            cluster.cluster_arrive_relaxed(),
            cluster.cluster_wait(),
            cluster.map_to_cta(),
            cluster.ld_cluster_v4(),
        ]
    elif shape.config.split_k > 1:
        used += [
            global_memory.st_partial(),
            global_memory.ld_partial(),
            tile_counter.arrive_on_tile(),
        ]
    return used
