"""Copies of a box of a tensor by its tensor map (PTX ISA, "cp.async.bulk.tensor"), sm_90 and up."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_SECTION = "Data Movement and Conversion Instructions: "

TENSOR_MAP_TYPE = "struct alignas(64) TensorMap { u64 opaque[16]; };"
"""C++ type of a tensor map; a kernel takes it as `const __grid_constant__ TensorMap x_map`."""


def tensor_copy_2d() -> Instruction:
    """The box at input c0 and token c1 of a 2-D map; zeros stand for what lies outside the tensor.

    dst: shared address, 128-byte aligned (1024-byte aligned where the swizzle is to start afresh).
    map_address: generic address of the map, reinterpret_cast<u64>(&x_map).
    All bytes of the box are counted on the mbarrier, those outside the tensor included.
    """
    return effect(
        "void tensor_copy_2d(u32 dst, u64 map_address, int c0, int c1, u32 barrier)",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];",
        _SECTION + "cp.async.bulk.tensor",
        inputs=('"r"(dst)', '"l"(map_address)', '"r"(c0)', '"r"(c1)', '"r"(barrier)'),
    )


def tensor_copy_2d_multicast() -> Instruction:
    """The box at input c0 and token c1 of a 2-D map, into every CTA whose bit is set in `ctas`.

    The box goes to the same offset of each CTA's shared memory as dst has in this one's, and its
    bytes are counted on the mbarrier at the same offset there.
    """
    return effect(
        "void tensor_copy_2d_multicast("
        "u32 dst, u64 map_address, int c0, int c1, u32 barrier, u32 ctas)",
        "{ .reg .b16 mask; cvt.u16.u32 mask, %5; "
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], mask; }",
        _SECTION + "cp.async.bulk.tensor",
        inputs=(
            '"r"(dst)',
            '"l"(map_address)',
            '"r"(c0)',
            '"r"(c1)',
            '"r"(barrier)',
            '"r"(ctas)',
        ),
    )


def prefetch_tensor_map() -> Instruction:
    """Brings a tensor map into the cache of the copy engine before its first use."""
    return effect(
        "void prefetch_tensor_map(u64 map_address)",
        "prefetch.tensormap [%0];",
        _SECTION + "prefetch, prefetchu",
        inputs=('"l"(map_address)',),
    )
