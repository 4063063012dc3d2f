"""What a stage of the main loop costs: instructions by pipe and bytes, counted in the interpreter.

Two runs of one CTA with K a few stages apart tell the loop from the rest: the difference is the
stages', what remains is prologue and epilogue. Exact, and of PTX: ptxas merges and drops some.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from ptxgen.arch import ArchSpec
from ptxgen.compile import compile_source
from ptxgen.config import KernelConfig, Scalar
from ptxgen.cpucheck.buffers import Buffers, packed_weights
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.tile import Tile
from ptxgen.families import emit
from ptxgen.interp import Counts, RunOptions, Schedule, load_program, run
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data

STAGES_APART = 2

UNSPLIT: dict[str, Scalar] = {"split_k": 1, "cluster": False}


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one CTA.

    Attributes:
        instructions: warp instructions by pipe (alu, fma, half, tensor, lsu, control, convert).
        bytes: by memory and direction, as in ptxgen.interp.Counts.
    """

    instructions: dict[str, float]
    bytes: dict[str, float]

    @property
    def total(self) -> float:
        """Warp instructions of all pipes."""
        return sum(self.instructions.values())


@dataclass(frozen=True, slots=True)
class KernelCost:
    """Cost of one more stage of K, and of everything else (prologue, epilogue, set-up)."""

    stage: Cost
    fixed: Cost


def kernel_cost(problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelCost:
    """Counts one CTA of a kernel.

    Args:
        problem: its n and k only tell the tails that the counted kernel does not have.
        config: of any family; split_k is counted as 1.
        arch: target.

    Raises:
        ConfigError: the config is illegal for a few stages of K.
        CompileError: NVRTC is missing or refused the source.
    """
    knobs = {name: getattr(config, name) for name in config.knob_names()}
    unsplit = {name: value for name, value in UNSPLIT.items() if name in knobs}
    alone = type(config).from_knobs({**knobs, **unsplit})
    stages = Tile.of(config).num_stages + 1
    short = _counted(problem, alone, arch, stages)
    long = _counted(problem, alone, arch, stages + STAGES_APART)
    instructions = _difference(long.pipes, short.pipes)
    moved = _difference(long.bytes, short.bytes)
    return KernelCost(
        stage=Cost(instructions, moved),
        fixed=Cost(
            _rest(short.pipes, instructions, stages),
            _rest(short.bytes, moved, stages),
        ),
    )


def _counted(problem: Problem, config: KernelConfig, arch: ArchSpec, stages: int) -> Counts:
    """Counts of one full tile over so many stages of K."""
    tile = Tile.of(config)
    k = stages * tile.block_k
    group = k if problem.whole_k else problem.group_size
    small = replace(problem, n=tile.block_n, k=k, group_size=group)
    source = emit(small, config, arch)
    compiled = compile_source(source)
    case = Case(small, config, arch, tile.block_m)
    data = random_problem_data(small, tile.block_m)
    buffers = Buffers.create(case, source.plan, data, packed_weights(case, data))
    program = load_program(compiled.ptx, compiled.entry)
    options = RunOptions(races=False)
    return run(program, buffers.launch, buffers.memory, Schedule(), options).counts


def _difference(long: Counter[str], short: Counter[str]) -> dict[str, float]:
    return {name: (long[name] - short[name]) / STAGES_APART for name in sorted(long)}


def _rest(counts: Counter[str], stage: dict[str, float], stages: int) -> dict[str, float]:
    return {name: counts[name] - stages * stage.get(name, 0.0) for name in sorted(counts)}
