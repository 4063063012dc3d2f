"""The Hopper vocabulary compiles for sm_90a, every function used twice, and gives its SASS."""

from __future__ import annotations

import re

import pytest

from ptxgen.arch import ARCHS
from ptxgen.compile import compile_source
from ptxgen.ptx import bulk, mbarrier, named_barrier, registers, shared, tensor
from ptxgen.ptx.instruction import render_all
from ptxgen.source import KernelSource, LaunchPlan

pytestmark = pytest.mark.compile

FUNCTIONS = [
    mbarrier.mbarrier_init(),
    mbarrier.fence_mbarrier_init(),
    mbarrier.mbarrier_inval(),
    mbarrier.mbarrier_arrive(),
    mbarrier.mbarrier_arrive_expect_tx(),
    mbarrier.mbarrier_wait(),
    bulk.bulk_copy(),
    bulk.bulk_copy_hint(),
    bulk.bulk_prefetch(),
    bulk.evict_first_policy(),
    tensor.tensor_copy_2d(),
    tensor.prefetch_tensor_map(),
    registers.set_registers_up(232),
    registers.set_registers_down(40),
    named_barrier.named_barrier_sync(),
    shared.shared_address(),
]

KERNEL = """
extern "C" __global__ void __launch_bounds__(256, 1) ptxtune_w4a16(
    const void* x, const void* packed, const void* bias, void* y, void* workspace,
    int m, long long ldx, long long ldy, const __grid_constant__ TensorMap x_map) {
  extern __shared__ __align__(1024) u8 smem[];
  const u32 base = shared_address(smem), barrier = base + 8192;
  const u64 map = reinterpret_cast<u64>(&x_map);
  if (threadIdx.x == 0) {
    mbarrier_init(barrier, 1);
    mbarrier_init(barrier + 8, 128);
    fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    set_registers_down_40();
    if (threadIdx.x == 0) {
      prefetch_tensor_map(map);
      bulk_prefetch(packed, 512);
      bulk_prefetch(x, 512);
      const u64 policy = evict_first_policy();
      for (u32 step = 0; step < 2; ++step) {
        mbarrier_wait(barrier + 8, step ^ 1);
        mbarrier_arrive_expect_tx(barrier, 5120);
        tensor_copy_2d(base, map, step * 64, blockIdx.x * 32, barrier);
        bulk_copy(base + 4096, packed, 512, barrier);
        bulk_copy_hint(base + 4608, packed, 512, barrier, policy);
      }
    }
  } else {
    set_registers_up_232();
    for (u32 step = 0; step < 2; ++step) {
      mbarrier_wait(barrier, step);
      named_barrier_sync(1, 128);
      mbarrier_arrive(barrier + 8);
    }
  }
  __syncthreads();
  if (threadIdx.x == 0) mbarrier_inval(barrier);
}
"""
TYPES = "typedef unsigned char u8; typedef unsigned int u32; typedef unsigned long long u64;"


def test_every_function_compiles_and_none_is_ignored() -> None:
    arch = ARCHS["sm_90a"]
    text = "\n".join([TYPES, tensor.TENSOR_MAP_TYPE, render_all(FUNCTIONS, arch), KERNEL])
    plan = LaunchPlan(256, 8192 + 16, 32, 64, 1, 1, True)
    compiled = compile_source(KernelSource(text, arch.name, plan))
    assert "ignored" not in compiled.log
    assert ".param .align 64 .b8 ptxtune_w4a16_param_8[128]" in compiled.ptx
    for function in FUNCTIONS:
        opcodes = re.findall(r"\b[a-z]+(?:\.[\w:]+)+", function.ptx)
        assert opcodes, function.name
        assert all(opcode in compiled.ptx for opcode in opcodes), function.name
