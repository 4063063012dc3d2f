"""The kernel of box_copy.cu with its vocabulary, for tests with and without a GPU."""

from __future__ import annotations

from pathlib import Path

from ptxgen.arch import ARCHS
from ptxgen.ptx import mbarrier, registers, shared, tensor
from ptxgen.ptx.instruction import render_all
from ptxgen.source import KernelSource, LaunchPlan

ARCH = ARCHS["sm_90a"]
TYPES = "typedef unsigned char u8; typedef unsigned int u32; typedef unsigned long long u64;"
TEXT = Path(__file__).with_suffix(".cu").read_text()


def box_copy(k: int, tokens: int, stages: int, max_ctas: int) -> KernelSource:
    """The kernel that copies x[m, k] to y[ceil(m / tokens) * tokens, ceil(k / 64) * 64]."""
    k_tiles = -(-k // 64)
    functions = [
        mbarrier.mbarrier_init(),
        mbarrier.fence_mbarrier_init(),
        mbarrier.mbarrier_arrive(),
        mbarrier.mbarrier_arrive_expect_tx(),
        mbarrier.mbarrier_wait(),
        tensor.tensor_copy_2d(),
        tensor.prefetch_tensor_map(),
        registers.set_registers_up(232),
        registers.set_registers_down(40),
        shared.shared_address(),
        shared.ld_shared_v4(),
    ]
    constants = f"enum : unsigned {{ BOX_TOKENS = {tokens}, K_TILES = {k_tiles}, "
    constants += f"STAGES = {stages} }};"
    text = "\n".join(
        [TYPES, tensor.TENSOR_MAP_TYPE, constants, render_all(functions, ARCH), "", TEXT]
    )
    plan = LaunchPlan(
        threads=256,
        smem_bytes=stages * (tokens * 128 + 16),
        block_m=tokens,
        block_n=64,
        n_tiles=k_tiles,
        split_k=1,
        pdl=False,
        max_ctas=max_ctas,
        k=k,
        x_box=(64, tokens),
    )
    return KernelSource(text, ARCH.name, plan)
