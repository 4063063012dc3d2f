"""Every knob value and every legal pair of values, on reduced problems and in corners.

In the interpreter, and the machine code held to its promises.
"""

from __future__ import annotations

from itertools import cycle

import pytest

from ptxgen.compile import compile_source
from ptxgen.cpucheck.covering import covering_set
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.run import SCHEDULES, check_compiled
from ptxgen.errors import CompileError
from ptxgen.families import FAMILIES, emit
from ptxgen.interp import Schedule
from ptxgen.sass.gates import check_sass

pytestmark = [pytest.mark.compile, pytest.mark.timeout(600)]

PARTS = {"mma": 12, "wgmma": 6, "wgmma_tma": 6}
REFUSED = {"mma": 0.0, "wgmma": 0.3, "wgmma_tma": 0.0}
"""Share of a set that NVRTC may refuse: ptxas serialises the wgmma of a few configs, which is an
outcome that the tuner stores."""


def numbered(family: str) -> list[tuple[Case, Schedule]]:
    """One schedule a case: knobs and schedules are covered as a whole."""
    return list(zip(covering_set(family), cycle(SCHEDULES), strict=False))


def failures(cases: list[tuple[Case, Schedule]], refusals: float) -> list[str]:
    found, refused = [], 0
    for case, schedule in cases:
        source = emit(case.problem, case.config, case.arch)
        try:
            compiled = compile_source(source)
        except CompileError:
            refused += 1
            continue
        result = check_compiled(case, source, compiled, [schedule])
        found += [f"{case}\n{failure}" for failure in result.failures]
        if compiled.resources.spill_bytes == 0:  # a tuner stores what spills, and never times it
            report = check_sass(case.problem, case.config, case.arch, source.plan, compiled)
            found += [f"{case}\n{failure}" for failure in report.failures]
    assert refused <= refusals * len(cases)
    return found


@pytest.mark.sampled(every=6)
@pytest.mark.parametrize(
    ("family", "part"), [(family, part) for family, parts in PARTS.items() for part in range(parts)]
)
def test_the_covering_set_is_right(family: str, part: int) -> None:
    assert not failures(numbered(family)[part :: PARTS[family]], REFUSED[family])


def test_every_family_is_covered() -> None:
    assert PARTS.keys() == FAMILIES.keys()
