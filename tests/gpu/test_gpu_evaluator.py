"""The evaluator on a GPU: measures its ceilings, times right kernels, and catches wrong ones."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from gpu_kernels import alone, arch

from db.records import Protocol
from ptxgen.compile import compile_source
from ptxgen.families import default_config, emit
from ptxgen.outcome import Status
from ptxgen.problem import Problem
from ptxgen.source import KernelSource
from search.evaluator import Candidate, Effort, EvaluateRequest, FinalsRequest
from search.gpu_evaluator import GpuEvaluator, create

pytestmark = pytest.mark.gpu

PROBLEM = Problem(4096, 4096)


@pytest.fixture(scope="module")
def evaluator() -> GpuEvaluator:
    return create({})


def candidate(path: Path, old: str = "", new: str = "") -> Candidate:
    """The default config's kernel; `old` in its text replaced by `new`."""
    config = default_config(PROBLEM, arch(), 8, 132)
    source = emit(PROBLEM, config, arch())
    assert old in source.text
    source = KernelSource(source.text.replace(old, new, 1), source.arch, source.plan)
    compiled = compile_source(source)
    cubin = path / f"{source.digest()}.cubin"
    cubin.write_bytes(compiled.cubin)
    return Candidate(
        config, source.plan, source.entry, str(cubin), compiled.resources, source.digest()
    )


def request(item: Candidate | None, **changes: object) -> EvaluateRequest:
    base = EvaluateRequest(PROBLEM, 8, Protocol.PLAIN, item, Effort.FULL)
    return replace(base, **changes)  # type: ignore[arg-type]


@alone
def test_the_device_is_measured(evaluator: GpuEvaluator) -> None:
    device = evaluator.device()
    assert device.measured
    assert device.uuid.startswith("GPU-")
    assert 100 < device.read_gbps < 20000
    assert device.copy_gbps > device.read_gbps / 2
    assert 10 < device.tensor_tflops < 5000
    assert 0.1 < device.launch_us < 20
    assert evaluator.driver_version().count(".") >= 1


@alone
@pytest.mark.parametrize("protocol", list(Protocol))
def test_a_right_kernel_is_timed(
    evaluator: GpuEvaluator, tmp_path: Path, protocol: Protocol
) -> None:
    outcome = evaluator.evaluate(request(candidate(tmp_path), protocol=protocol))
    assert outcome.status is Status.OK, outcome.message
    assert outcome.time_us is not None
    assert outcome.floor_us is not None
    assert outcome.floor_us < outcome.time_us < 1000
    assert outcome.spread is not None
    assert outcome.spread < 0.2
    assert len(outcome.samples_us) >= 7
    assert outcome.clock_mhz is None or outcome.clock_mhz > 300
    evidence = outcome.evidence
    assert evidence is not None
    assert evidence.after.sm_mhz == outcome.clock_mhz
    assert os.getpid() not in (evidence.other_pids or ())


def test_the_baseline_is_timed(evaluator: GpuEvaluator) -> None:
    outcome = evaluator.evaluate(request(None))
    assert outcome.status is Status.OK
    assert outcome.rel_err is not None
    assert outcome.rel_err < 1e-2


@alone
def test_twice_the_time_within_noise(evaluator: GpuEvaluator, tmp_path: Path) -> None:
    item = candidate(tmp_path)
    first, second = (evaluator.evaluate(request(item)).time_us for _ in range(2))
    assert first is not None
    assert second is not None
    assert abs(first - second) / first < 0.15


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("if (n >= N) return;", "if (n >= N - 8) return;", "unwritten"),
        ("const int n = n_tile", "const int n = 8 + n_tile", "unwritten|outside"),
        ("0x64086408", "0x64096409", "relative error"),
        ("m_first + row < m ? 16", "m_first + row < m - 1 ? 16", "error"),
        ("lane / 4 + i / 2 * 8", "lane / 4 + (1 - i / 2) * 8", "relative error"),
    ],
    ids=["short tail", "shifted", "wrong zero", "missing row", "swapped rows"],
)
def test_broken_kernels_are_caught(
    evaluator: GpuEvaluator, tmp_path: Path, old: str, new: str, message: str
) -> None:
    outcome = evaluator.evaluate(request(candidate(tmp_path, old, new)))
    assert outcome.status is Status.WRONG
    assert any(part in outcome.message for part in message.split("|")), outcome.message
    assert outcome.time_us is None


@alone
def test_finals_take_turns(evaluator: GpuEvaluator, tmp_path: Path) -> None:
    item = candidate(tmp_path)
    outcomes = evaluator.finals(
        FinalsRequest(PROBLEM, 8, Protocol.PLAIN, (item, None, item), rounds=5)
    )
    assert [outcome.status for outcome in outcomes] == [Status.OK] * 3
    first, cublas, again = (outcome.time_us for outcome in outcomes)
    assert first is not None
    assert again is not None
    assert cublas is not None
    assert abs(first - again) / first < 0.1
    assert all(len(outcome.samples_us) == 5 for outcome in outcomes)
    assert len({outcome.evidence for outcome in outcomes}) == 1  # one window
