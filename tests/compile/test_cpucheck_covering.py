"""Every knob value and every legal pair of values, on reduced problems, in the interpreter."""

from __future__ import annotations

from itertools import cycle

import pytest

from ptxgen.cpucheck.covering import covering_set
from ptxgen.cpucheck.run import SCHEDULES, check_on_cpu
from ptxgen.families import FAMILIES

pytestmark = [pytest.mark.compile, pytest.mark.timeout(600)]

PARTS = 10
COVERED = [name for name in FAMILIES if name == "mma"]


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("family", COVERED)
def test_the_covering_set_is_right(family: str, part: int) -> None:
    """One schedule a case: pairs of knobs and schedules are covered as a whole."""
    numbered = list(zip(covering_set(family), cycle(SCHEDULES), strict=False))
    for case, schedule in numbered[part::PARTS]:
        result = check_on_cpu(case.problem, case.config, case.arch, case.m, [schedule])
        assert result.ok, f"{case}\n" + "\n".join(map(str, result.failures))
