"""The programs in examples/ do what their README says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
import torch
from bundle_helpers import CpuBackend, small_bundle

from ptxgen.bundle.load import load
from ptxgen.problem import Problem

EXAMPLES = Path(__file__).parents[3] / "examples"
PROBLEM = Problem(n=72, k=160, group_size=32, dtype="bf16", bias=True)


def example(name: str) -> ModuleType:
    found = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bundle(tmp_path / "bundle", PROBLEM, (1, 16))


def test_inspect_prints_every_kernel(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert example("inspect_bundle").main(str(folder)) == 0
    output = capsys.readouterr().out
    assert "n72-k160-g32-bf16-sym-bias for sm_90 (Fake GPU)" in output
    assert "M <= 1: grid (1, 3, 2) of 128 threads, 40 registers, 60000 bytes" in output
    assert "M <= 16:" in output
    assert "3.25 us measured" in output


def test_inspect_refuses_a_damaged_bundle(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "example.c").write_text("")
    assert example("inspect_bundle").main(str(folder)) == 2
    assert "example.c of the bundle" in capsys.readouterr().err


def test_run_reports_small_errors(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert example("run_bundle").report(load(folder, backend=CpuBackend())) == 0
    assert "M = 16: relative error" in capsys.readouterr().out


def test_run_fails_on_a_kernel_that_drifts(folder: Path) -> None:
    backend = CpuBackend()
    kernel = load(folder, backend=backend)
    backend.spoil = lambda y: y.mul_(1.05)
    assert example("run_bundle").report(kernel) == 1


def test_run_without_a_gpu_is_one_paragraph(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device here")
    assert example("run_bundle").main(str(folder)) == 2
    assert "no CUDA device can be used here" in capsys.readouterr().err


def test_every_example_is_in_the_readme() -> None:
    listed = (EXAMPLES / "README.md").read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f"]({path.name})" in listed
