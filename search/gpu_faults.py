"""Real kernels that fail on a GPU: edits of an emitted kernel's text, one a fault."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families.base import Family
from ptxgen.families.view import FamilyView
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from search.faults import FaultPlan

ENTRY = "  u8* y = (u8*)y_arg;\n"
"""In every kernel of the mma family: the output's address is known, nothing has run yet."""

STORE = "    const int n = n_tile * BLOCK_N + feature;\n"
"""In the lambda that stores four results `v` of token `m_first + token` from feature `n` on, which
may still lie beyond the last one."""

EDITS: dict[str, tuple[str, str]] = {
    "illegal address": (ENTRY, "  if (threadIdx.x == 0) *(volatile int*)16 = 1;\n"),
    "misaligned address": (ENTRY, "  if (threadIdx.x == 0) *(volatile int*)(y + 1) = 1;\n"),
    "endless loop": (ENTRY, '  for (;;) asm volatile("nanosleep.u32 1000;");\n'),
    "wrong result in one tile": (STORE, "    if (n < 16) v.x += 8.0f;\n"),
    "writes past the output": (
        STORE,
        "    if (n == 0) st_global_v2(y + 2 * ((u64)m * ldy) + 64, 0, 0);\n",
    ),
    "NaN on a tail": (STORE, "    if (n + 4 >= N) v.w = __int_as_float(0x7fc00000);\n"),
    "a tile is not written": (STORE, "    if (n < 16) return;\n"),
    "differs from run to run": (STORE, "    v.x *= 1.0f + 0.01f * (float)(clock64() % 97);\n"),
    "compiler refuses": (ENTRY, "#error injected\n"),
}
"""Fault -> the line after which the statement stands."""


def broken(source: KernelSource, fault: str) -> KernelSource:
    """A kernel with a fault.

    Raises:
        ConfigError: the kernel has no such place, because its family writes another text.
    """
    anchor, statement = EDITS[fault]
    if anchor not in source.text:
        raise ConfigError(
            f"fault {fault!r} cannot be put into this kernel: it has no line {anchor.strip()!r}."
        )
    text = source.text.replace(anchor, anchor + statement)
    return replace(source, text=text)


class BrokenFamily(FamilyView):
    """A family of which a few configs are offered, most of them with a fault.

    Args:
        base: the family; its kernels must have the places named above.
        plan: which config fails how.
        configs: what is offered.
    """

    def __init__(self, base: Family, plan: FaultPlan, configs: Sequence[KernelConfig]) -> None:
        super().__init__(base)
        self._plan = plan
        self._configs = list(configs)

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        yield from self._configs

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        """The first offered config without a fault."""
        good = (item for item in self._configs if self._plan.fault_of(item, problem.key()) is None)
        return next(good, self._configs[0])

    def emit(self, problem: Problem, config: KernelConfig, arch: ArchSpec) -> KernelSource:
        source = self._base.emit(problem, config, arch)
        fault = self._plan.fault_of(config, problem.key())
        return source if fault is None else broken(source, fault.name)
