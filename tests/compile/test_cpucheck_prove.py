"""The static verifier agrees: ours are race-free under every schedule, the mutants are not."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
from cpucheck_mutants import CASES, EARLY, MUTANTS, RACE, Mutant

from ptxgen.arch import ARCHS
from ptxgen.compile import compile_source
from ptxgen.cpucheck.prove import Verdict, prove_race_free
from ptxgen.cpucheck.reduced import Case
from ptxgen.errors import ToolError
from ptxgen.families import emit
from ptxgen.families.mma.config import MmaConfig
from ptxgen.problem import Problem

pytestmark = pytest.mark.compile

SMALL = ("private", "weights_first", "whole_k")


@pytest.fixture(autouse=True)
def _installed() -> None:
    pytest.importorskip("sentryward", reason="the optional verifier sentryward is not installed")


@pytest.mark.sampled
@pytest.mark.parametrize("name", SMALL)
def test_ours_are_proved(name: str) -> None:
    case = CASES[name]
    source = emit(case.problem, case.config, case.arch)
    proof = prove_race_free(case, source.plan, compile_source(source))
    assert (proof.verdict, proof.message) == (Verdict.PROVED, "")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    "mutant",
    [item for item in MUTANTS if item.case == "private" and RACE in item.caught_by],
    ids=lambda item: item.name,
)
def test_mutants_are_not(mutant: Mutant) -> None:
    case = CASES[mutant.case]
    broken = mutant.apply(emit(case.problem, case.config, case.arch))
    proof = prove_race_free(case, broken.plan, compile_source(broken))
    assert proof.verdict is Verdict.RACE
    assert "no proven required ordering" in proof.message


def test_split_k_through_the_workspace_is_beyond_it() -> None:
    case = CASES["split"]
    assert any(EARLY in item.caught_by for item in MUTANTS if item.case == "split")
    source = emit(case.problem, case.config, case.arch)
    proof = prove_race_free(case, source.plan, compile_source(source))
    assert proof.verdict is Verdict.UNSUPPORTED
    assert "control predicate" in proof.message


CLUSTER = Case(
    Problem(32, 256),
    MmaConfig(8, 8, 32, 32, 128, 1, 2, 2, "accumulators", False, 1, cluster=True),
    ARCHS["sm_90a"],
    8,
)


def test_split_k_over_a_cluster_is_proved_and_needs_its_barrier() -> None:
    source = emit(CLUSTER.problem, CLUSTER.config, CLUSTER.arch)
    compiled = compile_source(source)
    assert prove_race_free(CLUSTER, source.plan, compiled).verdict is Verdict.PROVED
    lost = compiled.ptx
    for word in (
        "barrier.cluster.arrive.relaxed.aligned;",
        "barrier.cluster.wait.acquire.aligned;",
    ):
        assert lost.count(word) == 2
        lost = lost.replace(word, "", 1)
    proof = prove_race_free(CLUSTER, source.plan, replace(compiled, ptx=lost))
    assert proof.verdict is Verdict.RACE


def test_without_it_the_cure_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentryward", None)
    case = CASES["whole_k"]
    source = emit(case.problem, case.config, case.arch)
    with pytest.raises(ToolError, match="pip install sentryward"):
        prove_race_free(case, source.plan, compile_source(source))
