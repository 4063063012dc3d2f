"""The PTX that a wgmma_tma kernel calls."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.families.wgmma_tma import dequant
from ptxgen.families.wgmma_tma.shape import CONSUMER_REGISTERS, PRODUCER_REGISTERS, TmaShape
from ptxgen.ptx import (
    bulk,
    cluster,
    global_memory,
    launch_control,
    matrix_move,
    mbarrier,
    named_barrier,
    packed16,
    registers,
    shared,
    shuffle,
    tensor,
    tile_counter,
    wgmma,
)
from ptxgen.ptx.instruction import Instruction


def instructions(shape: TmaShape, arch: ArchSpec) -> list[Instruction]:
    moves = [
        registers.set_registers_down(PRODUCER_REGISTERS),
        registers.set_registers_up(CONSUMER_REGISTERS),
    ]
    return [
        *(moves if shape.moves_registers else []),
        shared.shared_address(),
        launch_control.launch_dependents(),
        launch_control.wait_for_previous(),
        mbarrier.mbarrier_init(),
        mbarrier.fence_mbarrier_init(),
        tensor.prefetch_tensor_map(),
        *([cluster.cluster_arrive_relaxed(), cluster.cluster_wait()] if shape.cluster > 1 else []),
        *_producer(shape),
        *dequant.instructions(shape.problem, arch),
        *_consumer(shape),
        *_epilogue(shape),
        *_shared_tiles(shape),
    ]


def _producer(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    return [
        mbarrier.mbarrier_wait(),
        mbarrier.mbarrier_arrive_expect_tx(),
        tensor.tensor_copy_2d_multicast()
        if shape.config.multicast > 1
        else tensor.tensor_copy_2d(),
        bulk.bulk_copy(),
        *([] if shape.config.stream_k else [bulk.bulk_prefetch()]),
    ]


def _consumer(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    problem = shape.problem
    used = [
        shared.ld_shared_v4(),
        wgmma.wgmma_m64_k16_swizzled(problem.dtype, shape.config.block_m),
        shuffle.warp_uniform(),
        wgmma.wgmma_fence(),
        wgmma.wgmma_commit(),
        wgmma.wgmma_wait(1),
        wgmma.wgmma_wait(0),
    ]
    if shape.config.multicast > 1:
        used += [cluster.map_to_cta(), mbarrier.mbarrier_arrive_cluster_if()]
    else:
        used.append(mbarrier.mbarrier_arrive_if())
    if not problem.whole_k:
        used.append(shared.ld_shared_u32())
        if problem.zero == "int":
            used.append(shared.ld_shared_u8())
    elif problem.zero == "int":
        used.append(global_memory.ld_global_nc_u8())
    return used


def _epilogue(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    problem = shape.problem
    used = [
        packed16.pack_from_float(problem.dtype),
        matrix_move.store_turned(),
        named_barrier.named_barrier_sync(),
        shared.ld_shared_v2(),
        global_memory.st_global_v2(),
    ]
    if problem.whole_k or problem.bias:
        used += [global_memory.ld_global_nc_u32(), packed16.unpack_to_float(problem.dtype)]
    if problem.bias:
        used.append(global_memory.ld_global_nc_u16())
    if shape.config.split_k > 1:
        used += [
            cluster.map_to_cta(),
            cluster.st_async_v4(),
            shared.ld_shared_float4(),
        ]
    if shape.config.warpgroups_k > 1:
        used += [shared.st_shared_float4(), shared.ld_shared_float4()]
    return used


def _shared_tiles(shape: TmaShape) -> list[Instruction]:
    """The PTX that this module's text calls."""
    if not shape.config.stream_k:
        return []
    return [
        shared.st_shared_float4(),
        shared.ld_shared_float4(),
        wgmma.fence_proxy_async(),
        mbarrier.mbarrier_arrive(),
        bulk.bulk_store(),
        bulk.bulk_commit(),
        bulk.bulk_wait_read(),
        bulk.bulk_wait(),
        bulk.fence_proxy_async_global(),
        tile_counter.count_part(),
        tile_counter.parts_there(),
        tile_counter.leave_tile(),
        tile_counter.sleep_ns(),
    ]
