"""Every deliberately broken kernel is caught without a GPU, and the unbroken ones are not."""

from __future__ import annotations

import pytest
from cpucheck_mutants import CASES, MUTANTS, VALUE, Mutant

from ptxgen.compile import compile_source
from ptxgen.cpucheck.run import SCHEDULES, check_compiled, check_on_cpu, schedule_name
from ptxgen.families import emit

pytestmark = pytest.mark.compile


@pytest.mark.parametrize("name", CASES)
def test_unbroken_kernels_pass(name: str) -> None:
    case = CASES[name]
    result = check_on_cpu(case.problem, case.config, case.arch, case.m)
    assert result.ok, "\n".join(map(str, result.failures))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_broken_kernels_are_caught(mutant: Mutant) -> None:
    """Wrong arithmetic shows under any schedule; missing synchronisation, under each of ours."""
    case = CASES[mutant.case]
    schedules = SCHEDULES[:1] if mutant.caught_by == {VALUE} else SCHEDULES
    broken = mutant.apply(emit(case.problem, case.config, case.arch))
    result = check_compiled(case, broken, compile_source(broken), schedules)
    for schedule in map(schedule_name, schedules):
        found = {item.kind for item in result.failures if item.schedule == schedule}
        assert found & mutant.caught_by, f"{schedule} found {sorted(found)}"


def test_edits_that_do_not_apply_are_no_mutants() -> None:
    case = CASES["shared"]
    source = emit(case.problem, case.config, case.arch)
    idle = Mutant("idle", "shared", (("no such text", ""),), frozenset({VALUE}))
    with pytest.raises(ValueError, match="applied 0 times"):
        idle.apply(source)
