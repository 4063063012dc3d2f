"""Every deliberately broken wgmma_tma kernel is caught without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
from cpucheck_mutants import VALUE, Mutant
from cpucheck_tma_mutants import (
    PTX_MUTANTS,
    RING,
    SEEN_UNDER,
    TMA_MUTANTS,
)
from wgmma_tma_cases import CASES

from ptxgen.compile import compile_source
from ptxgen.cpucheck.run import SCHEDULES, FailureKind, check_compiled, schedule_name
from ptxgen.families import emit

pytestmark = pytest.mark.compile


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("mutant", TMA_MUTANTS, ids=lambda mutant: mutant.name)
def test_broken_kernels_are_caught(mutant: Mutant) -> None:
    """Wrong arithmetic shows under any schedule; missing synchronisation, under each of ours."""
    case = CASES[mutant.case]
    schedules = SCHEDULES[:1] if mutant.caught_by == {VALUE} else SCHEDULES
    if mutant.name in SEEN_UNDER:
        schedules = tuple(item for item in SCHEDULES if item.policy == SEEN_UNDER[mutant.name])
    broken = mutant.apply(emit(case.problem, case.config, case.arch))
    result = check_compiled(case, broken, compile_source(broken), schedules)
    for schedule in map(schedule_name, schedules):
        found = {item.kind for item in result.failures if item.schedule == schedule}
        assert found & mutant.caught_by, f"{schedule} found {sorted(found)}"


@pytest.mark.parametrize("name", PTX_MUTANTS)
def test_what_wgmma_needs_is_missed_in_the_ptx_too(name: str) -> None:
    case = CASES[RING]
    source = emit(case.problem, case.config, case.arch)
    compiled = compile_source(source)
    assert PTX_MUTANTS[name] in compiled.ptx
    lost = replace(compiled, ptx=compiled.ptx.replace(PTX_MUTANTS[name], ""))
    kinds = {item.kind for item in check_compiled(case, source, lost, SCHEDULES).failures}
    assert kinds & {FailureKind.FAULT, FailureKind.VALUE}
