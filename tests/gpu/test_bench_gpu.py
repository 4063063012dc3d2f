"""The bench on a GPU: cuBLAS, tinygemm and ours are right and timed, and so is whoever else is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_kernels import arch

from db.records import Protocol
from ptxgen.device import device_facts
from ptxgen.families import default_config
from ptxgen.problem import Dtype, Problem, Zero
from search.bench.case import Case, Entry, Verdict
from search.bench.registry import CONTENDERS
from search.bench.runner import BenchRunner
from search.clocks import Clocks
from search.gpu_lock import GpuLock

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BenchRunner]:
    uuid = device_facts(0).uuid
    lock = GpuLock(uuid, tmp_path_factory.mktemp("lock"))
    with BenchRunner(Clocks.of_device(uuid), lock) as runner:
        yield runner


def ours(problem: Problem, m: int, protocol: Protocol, cache: Path) -> Entry:
    config = default_config(problem, arch(), m, device_facts(0).num_sms)
    options = {
        "config": config.to_dict(),
        "cache_root": str(cache),
        "chained": protocol is Protocol.CHAINED,
    }
    return Entry(CONTENDERS["ptxtune"], protocol, options, "default")


def test_ours_cublas_and_tinygemm_are_right_and_timed(runner: BenchRunner, tmp_path: Path) -> None:
    problem = Problem(1024, 2048, dtype="bf16", zero="int")
    entries = [ours(problem, 8, protocol, tmp_path) for protocol in Protocol]
    entries += [Entry(CONTENDERS["cublas"]), Entry(CONTENDERS["tinygemm"])]
    results = runner.run(Case(problem, 8, 0.0), entries, rounds=5)
    for result in results:
        assert result.verdict is Verdict.OK, result.reason
        outcome = result.outcome
        assert outcome is not None
        assert outcome.time_us is not None
        assert 0.5 < outcome.time_us < 200
        assert len(outcome.samples_us) == 5
        assert outcome.rel_err is not None
        assert 0 < outcome.rel_err < 1e-2
    assert len({result.outcome.evidence for result in results if result.outcome}) == 1  # one window


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("m", [1, 16, 100])
def test_every_installed_contender_is_right(
    runner: BenchRunner, tmp_path: Path, m: int, dtype: Dtype, zero: Zero
) -> None:
    problem = Problem(1024, 2048, dtype=dtype, zero=zero)
    others = [Entry(item) for name, item in CONTENDERS.items() if name != "ptxtune"]
    entries = [ours(problem, m, Protocol.PLAIN, tmp_path), *others]
    results = runner.run(Case(problem, m, 0.0), entries, rounds=2)
    fine = {Verdict.OK, Verdict.NOT_INSTALLED, Verdict.UNSUPPORTED}
    assert {item.entry.key: item.reason for item in results if item.verdict not in fine} == {}
    assert [item.verdict for item in results[:2]] == [Verdict.OK, Verdict.OK]
