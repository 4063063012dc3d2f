"""The PTX vocabulary: each instruction is one asm statement with operands, arch and section."""

from __future__ import annotations

import re

import pytest

from ptxgen.arch import ARCHS
from ptxgen.errors import ArchError, ConfigError
from ptxgen.ptx import (
    bulk,
    cluster,
    cp_async,
    global_memory,
    launch_control,
    mbarrier,
    mma,
    named_barrier,
    packed16,
    registers,
    shared,
    tensor,
    tile_counter,
)
from ptxgen.ptx.instruction import Instruction, render_all

SM80, SM90 = ARCHS["sm_80"], ARCHS["sm_90a"]

VOCABULARY: list[Instruction] = [
    cp_async.cp_async_16(),
    cp_async.cp_async_16_zfill(),
    cp_async.cp_async_8_zfill(),
    cp_async.cp_async_commit(),
    cp_async.cp_async_wait(3),
    shared.shared_address(),
    shared.ld_shared_v4(),
    shared.ld_shared_u32(),
    shared.ld_shared_u8(),
    shared.ldmatrix(2),
    shared.ldmatrix(4),
    mma.mma_m16n8k16("fp16"),
    mma.mma_m16n8k16("bf16"),
    packed16.and_or_const(0x000F000F, 0x64006400, "pick"),
    packed16.permute(0x1010, "low_half_twice"),
    global_memory.st_global_v2(),
    global_memory.ld_global_nc_v2(),
    global_memory.ld_global_nc_u32(),
    global_memory.ld_global_nc_u8(),
    global_memory.st_partial(),
    global_memory.ld_partial(),
    tile_counter.arrive_on_tile(),
    tile_counter.leave_tile(),
    tile_counter.count_part(),
    tile_counter.parts_there(),
    tile_counter.sleep_ns(),
    launch_control.launch_dependents(),
    launch_control.wait_for_previous(),
    cluster.cluster_arrive(),
    cluster.cluster_arrive_relaxed(),
    cluster.cluster_wait(),
    cluster.release_shared(),
    cluster.map_to_cta(),
    cluster.ld_cluster_v4(),
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
    bulk.bulk_store(),
    bulk.bulk_commit(),
    bulk.bulk_wait_read(),
    bulk.bulk_wait(),
    bulk.fence_proxy_async_global(),
    tensor.tensor_copy_2d(),
    tensor.prefetch_tensor_map(),
    registers.set_registers_up(232),
    registers.set_registers_down(40),
    named_barrier.named_barrier_sync(),
    *(packed16.unpack_to_float(dtype) for dtype in ("fp16", "bf16")),
    *(packed16.pack_from_float(dtype) for dtype in ("fp16", "bf16")),
    *(packed16.sub2(dtype, arch) for dtype in ("fp16", "bf16") for arch in (SM80, SM90)),
    *(packed16.mul2(dtype, arch) for dtype in ("fp16", "bf16") for arch in (SM80, SM90)),
    *(
        by_half(dtype, half)
        for by_half in (packed16.fma2_by_half, packed16.sub2_by_half, packed16.mul2_by_half)
        for dtype in ("fp16", "bf16")
        for half in ("low", "high")
    ),
]


@pytest.mark.parametrize("instruction", VOCABULARY, ids=lambda item: item.ptx[:40])
def test_operands_and_constraints_match(instruction: Instruction) -> None:
    used = {int(number) for number in re.findall(r"%(\d+)", instruction.ptx)}
    operands = len(instruction.outputs) + len(instruction.inputs)
    assert used == set(range(operands)), "every operand is used, and no other"
    assert instruction.section


@pytest.mark.parametrize("instruction", VOCABULARY, ids=lambda item: item.ptx[:40])
def test_one_asm_statement(instruction: Instruction) -> None:
    text = instruction.render()
    assert text.count("asm") == 1
    assert f"// PTX ISA: {instruction.section}" in text
    assert instruction.name in text


def test_memory_instructions_are_volatile() -> None:
    for instruction in VOCABULARY:
        if instruction.memory:
            assert instruction.volatile, instruction.name


def test_an_instruction_that_the_arch_lacks_is_refused() -> None:
    with pytest.raises(ArchError, match=r"griddepcontrol.wait; needs .* 9\.0; sm_80"):
        render_all([launch_control.wait_for_previous()], SM80)


def test_functions_are_rendered_once() -> None:
    text = render_all([shared.ld_shared_u32(), shared.ld_shared_u32()], SM80)
    assert text.count("ld.shared.b32") == 1


@pytest.mark.parametrize("count", range(0, 300))
def test_registers_are_multiples_of_eight(count: int) -> None:
    if count in range(24, 257, 8):
        up, down = registers.set_registers_up(count), registers.set_registers_down(count)
        assert (up.name, down.name) == (f"set_registers_up_{count}", f"set_registers_down_{count}")
        assert up.ptx == f"setmaxnreg.inc.sync.aligned.u32 {count};"
        assert down.ptx == f"setmaxnreg.dec.sync.aligned.u32 {count};"
    else:
        for function in (registers.set_registers_up, registers.set_registers_down):
            with pytest.raises(
                ConfigError, match=rf"{count} registers; .* of 8 between 24 and 256"
            ):
                function(count)
