"""Bundles of real kernels: emitted, compiled, embedded in the header, built with a C compiler."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bundle_helpers import CpuBackend, FakeDriver, compiled, run, spec

from ptxgen.arch import arch_named
from ptxgen.bundle.load import load
from ptxgen.bundle.verify import verify
from ptxgen.bundle.write import BucketSpec, write_bundle
from ptxgen.compile import compile_source
from ptxgen.families import config_from_dict, default_config, emit
from ptxgen.problem import Problem

pytestmark = pytest.mark.compile

PROBLEM = Problem(n=256, k=512, zero="int", bias=True)
NUM_SMS = 132
M_MAXES = (1, 16, 64)


def real_bucket(problem: Problem, m_max: int, arch_name: str) -> BucketSpec:
    arch = arch_named(arch_name)
    config = default_config(problem, arch, m_max, NUM_SMS)
    source = emit(problem, config, arch)
    kernel = compile_source(source)
    return BucketSpec(
        m_max=m_max,
        config=config,
        source=source,
        ptx=kernel.ptx,
        cubin=kernel.cubin,
        resources=kernel.resources,
        measurement=None,
    )


@pytest.mark.parametrize(
    ("arch", "capability"), [("sm_80", (8, 0)), ("sm_90", (9, 0)), ("sm_90a", (9, 0))]
)
def test_real_kernels_export_load_and_build(
    tmp_path: Path, fake_driver: FakeDriver, arch: str, capability: tuple[int, int]
) -> None:
    made = [real_bucket(PROBLEM, m_max, arch) for m_max in M_MAXES]
    folder = write_bundle(tmp_path / "bundle", spec(PROBLEM, made))
    for item in made:
        stored = folder / f"m{item.m_max}"
        assert (stored / "kernel.cubin").read_bytes() == item.cubin
        assert ".visible .entry ptxtune_w4a16" in (stored / "kernel.ptx").read_text()
        assert 'extern "C" __global__' in (stored / "kernel.cu").read_text()
    load(folder, backend=CpuBackend(capability=capability))
    program = compiled(folder / "example.c", folder / "example", folder, "cc", "-std=c99")
    environment = fake_driver.environment(
        PROBLEM, FAKE_CUDA_CAPABILITY=f"{capability[0]}{capability[1]}"
    )
    code, output = run(program, environment, str(folder))
    assert code == 0, output
    plans = {launch["m"]: launch["grid"] for launch in fake_driver.launches()}
    for bucket in verify(folder).buckets:
        assert plans[bucket.self_test_m] == bucket.plan.grid(bucket.self_test_m)


def test_manifest_rebuilds_the_very_kernel(tmp_path: Path) -> None:
    folder = write_bundle(tmp_path / "b", spec(PROBLEM, [real_bucket(PROBLEM, 16, "sm_90a")]))
    data = json.loads((folder / "manifest.json").read_text())
    problem = Problem.from_dict(data["problem"])
    bucket = data["buckets"][0]
    source = emit(problem, config_from_dict(bucket["config"]), arch_named(data["arch"]))
    assert source.text == (folder / "kernel.cu").read_text()
    assert source.digest() == bucket["source_digest"]
    assert source.plan.to_dict() == bucket["plan"]
