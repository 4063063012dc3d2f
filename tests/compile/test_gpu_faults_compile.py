"""The kernels of the GPU soak: every fault fits into every config's text, and compiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ptxgen.arch import arch_named
from ptxgen.compile import compile_source
from ptxgen.errors import CompileError, ConfigError
from ptxgen.families import FAMILIES, config_from_dict, default_config
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from search.fake_parts import DEVICE
from search.faults import KERNEL_FAULTS
from search.gpu_faults import EDITS, STORE, broken
from search.soak import soak
from search.soak_plan import Disturbances, Lane, plan_soak
from search.soak_run import offered

pytestmark = pytest.mark.compile

ARCH = arch_named("sm_90a")
PROBLEM = Problem(4096, 4096)


def source(cluster: bool = False) -> KernelSource:
    """The default's kernel, or the first one whose CTAs reduce as a cluster."""
    family = FAMILIES["mma"]
    configs = family.candidates(PROBLEM, ARCH, 8)
    config = next(item for item in configs if item.to_dict()["cluster"]) if cluster else None
    config = config or default_config(PROBLEM, ARCH, 8, 132)
    return FAMILIES[config.family].emit(PROBLEM, config, ARCH)


@pytest.mark.parametrize("cluster", [False, True])
@pytest.mark.parametrize("fault", [name for name in EDITS if name != "compiler refuses"])
def test_a_broken_kernel_compiles_to_another_cubin(fault: str, cluster: bool) -> None:
    whole = source(cluster)
    made = broken(whole, fault)
    assert made.text != whole.text
    assert compile_source(made).cubin != compile_source(whole).cubin


def test_one_fault_is_refused_by_the_compiler() -> None:
    with pytest.raises(CompileError, match="injected"):
        compile_source(broken(source(), "compiler refuses"))


def test_every_config_of_the_soak_has_room_for_its_fault(tmp_path: Path) -> None:
    lanes = plan_soak(tmp_path, 1000, lanes=4, device=DEVICE)
    (problem,) = lanes[0].spec.problems()
    family = FAMILIES["mma"]
    for config in [config for lane in lanes for config in offered(lane.spec, problem)][::10]:
        whole = family.emit(problem, config, ARCH)
        for fault in EDITS:
            assert broken(whole, fault).text.count(EDITS[fault][1]) == 1


def test_a_kernel_without_the_place_is_refused() -> None:
    other = KernelSource(source().text.replace(STORE, ""), "sm_90a", source().plan)
    with pytest.raises(ConfigError, match="fault 'NaN on a tail' cannot be put"):
        broken(other, "NaN on a tail")


@pytest.mark.deep
def test_a_soak_of_real_kernels_is_rehearsed_without_a_gpu(tmp_path: Path) -> None:
    """Everything of the GPU's soak but the GPU: its plan, its kernels, NVRTC, its accounts.

    Endless loops are left out, because each costs its time limit, and nothing comes from outside.
    """
    lanes = [rehearsed(lane) for lane in plan_soak(tmp_path, 12, device=DEVICE)]
    report = soak(lanes, 12)
    assert report.passed, report
    stored = report.audit.stored
    met = [fault for fault in KERNEL_FAULTS if fault.name != "endless loop"]
    assert stored.keys() == {fault.name for fault in met}
    for fault in met:
        assert set(stored[fault.name]) <= fault.expected
        assert report.faults[fault.name] == sum(stored[fault.name].values())
        if fault.deadly:  # twice, and then never again
            assert report.faults[fault.name] == 2
    assert report.runs == 3
    assert report.workers == report.runs + 4  # two deadly configs, twice each


def rehearsed(lane: Lane) -> Lane:
    plan, case = lane.spec.plan, lane.spec.problems()[0].key()
    faults = ((item, plan.fault_of(config_from_dict(item), case)) for item in lane.spec.chosen)
    chosen = tuple(item for item, fault in faults if not fault or fault.name != "endless loop")
    spec = replace(lane.spec, evaluator="soak_rehearsal:create", chosen=chosen)
    return Lane(spec, Disturbances())
