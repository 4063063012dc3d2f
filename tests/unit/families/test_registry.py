"""The registry of families: names, and that each family refuses the configs of the others."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from ptxgen.arch import ARCHS
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES
from ptxgen.families.base import Family
from ptxgen.problem import Problem

PROBLEM = Problem(4096, 4096)
ARCH = ARCHS["sm_90a"]
TAKE_A_CONFIG: dict[str, Callable[[Family], Callable[..., Any]]] = {
    "violations": lambda family: family.violations,
    "plan": lambda family: family.plan,
    "emit": lambda family: family.emit,
    "summation_key": lambda family: (
        lambda problem, config, _arch: family.summation_key(problem, config)
    ),
}


def test_every_family_is_registered_under_the_name_of_its_configs() -> None:
    assert set(FAMILIES) >= {"mma", "wgmma", "wgmma_tma"}
    for name, family in FAMILIES.items():
        assert (family.name, family.config_type.family) == (name, name)
        assert tuple(family.knobs()) == family.config_type.knob_names()


@pytest.mark.parametrize("method", TAKE_A_CONFIG)
@pytest.mark.parametrize(("own", "other"), list(permutations(FAMILIES, 2)))
def test_a_config_of_another_family_is_refused(method: str, own: str, other: str) -> None:
    foreign = FAMILIES[other].default_config(PROBLEM, ARCH, 64, 132)
    with pytest.raises(ConfigError, match=rf"of family '{other}', not of '{own}'"):
        TAKE_A_CONFIG[method](FAMILIES[own])(PROBLEM, foreign, ARCH)
