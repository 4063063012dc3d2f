"""A persistent producer-consumer kernel on a tensor map, from CUDA text through the interpreter."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from box_copy import box_copy
from numpy.typing import NDArray

from ptxgen.compile import compile_source
from ptxgen.errors import DeadlockError, MbarrierError
from ptxgen.interp import (
    POLICIES,
    GlobalMemory,
    Launch,
    Policy,
    Program,
    RunReport,
    Schedule,
    encode_map,
    load_program,
    run,
)
from ptxgen.source import KernelSource, LaunchPlan

pytestmark = pytest.mark.compile

K, TOKENS, PAD = 200, 24, 8
SOURCE = box_copy(K, TOKENS, stages=2, max_ctas=3)

Array = NDArray[Any]


def program_of(source: KernelSource) -> Program:
    compiled = compile_source(source)
    assert "ignored" not in compiled.log, "ptxas honours setmaxnreg"
    return load_program(compiled.ptx, compiled.entry)


@pytest.fixture(scope="module")
def program() -> Program:
    return program_of(SOURCE)


def copied(
    program: Program, plan: LaunchPlan, m: int, schedule: Schedule
) -> tuple[RunReport, Array, Array]:
    """(report, x with its padding, y) of one launch."""
    memory = GlobalMemory()
    x = np.arange(1, m * (K + PAD) + 1, dtype=np.uint16).reshape(m, K + PAD)
    rows, columns = plan.m_tiles(m) * TOKENS, plan.n_tiles * 64
    address = memory.allocate("x", x, readonly=True)
    y = memory.allocate("y", np.full((rows, columns), 0xFFFF, dtype=np.uint16))
    recipe = plan.x_map(address, m, K + PAD)
    assert recipe is not None
    args = (address, 0, 0, y, 0, m, K + PAD, columns, encode_map(recipe))
    launch = Launch(plan.grid(m), (plan.threads, 1, 1), plan.smem_bytes, args)
    return run(program, launch, memory, schedule), x, memory.array("y")


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("m", [1, 24, 75])
def test_every_box_arrives_with_zeros_around_x(program: Program, policy: Policy, m: int) -> None:
    report, x, y = copied(program, SOURCE.plan, m, Schedule(m, policy, resident=2))
    expected = np.zeros_like(y)
    expected[:m, :K] = x[:, :K]
    assert np.array_equal(y, expected)
    assert report.races == ()
    tiles = SOURCE.plan.m_tiles(m) * SOURCE.plan.n_tiles
    assert SOURCE.plan.grid(m) == (min(tiles, 3), 1, 1)
    assert report.counts.bytes["async_copy"] == tiles * TOKENS * 128


def broken(*changes: tuple[str, str]) -> Program:
    text = SOURCE.text
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    return program_of(KernelSource(text, SOURCE.arch, SOURCE.plan))


def test_a_producer_that_does_not_wait_for_room_is_caught() -> None:
    program = broken(("        mbarrier_wait(empty + slot * 8, parity ^ 1);\n", ""))
    with pytest.raises(MbarrierError, match="1 arrivals at an mbarrier that waits for 0"):
        copied(program, SOURCE.plan, 75, Schedule(0, "random"))


def test_consumers_that_make_room_before_they_read_are_a_race() -> None:
    arrive, loop = "      mbarrier_arrive(empty + slot * 8);\n", "      for (u32 i = threadIdx.x"
    program = broken((arrive, ""), (loop, arrive + loop))
    found = [copied(program, SOURCE.plan, 75, Schedule(s, "random"))[0].races for s in range(3)]
    assert any("tensor.2d" in race.second.text for races in found for race in races)


def test_bytes_that_no_copy_brings_are_a_deadlock() -> None:
    program = broken(("slot * 8, BOX_BYTES);", "slot * 8, BOX_BYTES + 16);"))
    with pytest.raises(DeadlockError, match="16 bytes"):
        copied(program, SOURCE.plan, 30, Schedule())
