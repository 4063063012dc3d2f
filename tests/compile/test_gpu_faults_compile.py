"""The kernels of the GPU soak: every fault fits into every config's text, and compiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from ptxgen.arch import arch_named
from ptxgen.compile import compile_source
from ptxgen.errors import CompileError, ConfigError
from ptxgen.families import FAMILIES, default_config
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from search.gpu_faults import EDITS, STORE, broken
from search.soak import spec_for
from search.soak_run import offered

pytestmark = pytest.mark.compile

ARCH = arch_named("sm_90a")
PROBLEM = Problem(4096, 4096)


def source() -> KernelSource:
    config = default_config(PROBLEM, ARCH, 8, 132)
    return FAMILIES[config.family].emit(PROBLEM, config, ARCH)


@pytest.mark.parametrize("fault", [name for name in EDITS if name != "compiler refuses"])
def test_a_broken_kernel_compiles_to_another_cubin(fault: str) -> None:
    made = broken(source(), fault)
    assert made.text != source().text
    assert compile_source(made).cubin != compile_source(source()).cubin


def test_one_fault_is_refused_by_the_compiler() -> None:
    with pytest.raises(CompileError, match="injected"):
        compile_source(broken(source(), "compiler refuses"))


def test_every_config_of_the_soak_has_room_for_its_fault(tmp_path: Path) -> None:
    spec = spec_for(tmp_path, 1000, kernels=True)
    (problem,) = spec.problems()
    family = FAMILIES["mma"]
    for config in offered(spec, problem)[::40]:
        whole = family.emit(problem, config, ARCH)
        for fault in EDITS:
            assert broken(whole, fault).text.count(EDITS[fault][1]) >= 1


def test_a_kernel_without_the_place_is_refused() -> None:
    other = KernelSource(source().text.replace(STORE, ""), "sm_90a", source().plan)
    with pytest.raises(ConfigError, match="fault 'NaN on a tail' cannot be put"):
        broken(other, "NaN on a tail")
