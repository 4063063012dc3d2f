"""Small bundles without NVRTC, and ways to run them without a GPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ptxgen.bundle.backend import BackendFacts
from ptxgen.bundle.manifest import DeviceInfo, Manifest, ToolchainInfo
from ptxgen.bundle.measurement import Measurement
from ptxgen.bundle.write import BucketSpec, BundleSpec, write_bundle
from ptxgen.families.mma.config import MmaConfig
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.source import KernelSource, LaunchPlan
from ptxgen.weights.pack import unpack
from ptxgen.weights.quantize import dequantize

STRICT = ("-Wall", "-Wextra", "-Werror", "-Wshadow", "-Wconversion", "-pedantic")


def plan(
    problem: Problem, block_m: int, block_n: int, split_k: int, pdl: bool = True
) -> LaunchPlan:
    """A launch plan with the given tile."""
    return LaunchPlan(
        threads=128,
        smem_bytes=60_000,
        block_m=block_m,
        block_n=block_n,
        n_tiles=-(-problem.n // block_n),
        split_k=split_k,
        pdl=pdl,
    )


def bucket(
    problem: Problem, m_max: int, made: LaunchPlan, predicted: bool = False, arch: str = "sm_90"
) -> BucketSpec:
    """A bucket whose cubin only the fake driver can run (see fake_cuda.c).

    The cubin carries its tile where split K is to use the workspace.
    """
    box_tokens = made.x_box[1] if made.x_box else 0
    numbers = (made.block_m, made.block_n, made.max_ctas, box_tokens)
    tile = b"FAKE%d %d %d %d " % numbers if made.cluster_k == 1 else b""
    config = MmaConfig(
        block_m=made.block_m,
        warp_m=made.block_m,
        block_n=made.block_n,
        warp_n=16,
        block_k=128,
        warps_k=1,
        num_stages=2,
        split_k=made.split_k,
        scale_on="weights",
        weights_first=False,
        min_ctas=1,
        cluster=made.cluster_k > 1,
    )
    return BucketSpec(
        m_max=m_max,
        config=config,
        source=KernelSource(f"// kernel of bucket {m_max}\n", arch, made),
        ptx=f"// ptx of bucket {m_max}\n",
        cubin=b"\x7fELF" + tile + bytes(40),
        resources=Resources(40, 0, made.smem_bytes, 12.5),
        measurement=Measurement(
            m=m_max,
            time_us=3.25,
            predicted=predicted,
            protocol="plain",
            default_us=4.5,
            cublas_us=None if predicted else 8.75,
        ),
    )


def spec(problem: Problem, buckets: Iterable[BucketSpec]) -> BundleSpec:
    """A bundle of these buckets, on a device that does not exist."""
    return BundleSpec(
        problem=problem,
        buckets=tuple(buckets),
        device=DeviceInfo("Fake GPU", "9.0"),
        toolchain=ToolchainInfo(ptxtune="0.1.0", nvrtc="13.0", driver="580.0"),
    )


def small_bundle(folder: Path, problem: Problem, m_maxes: Sequence[int] = (8,)) -> Path:
    """Writes a bundle whose buckets have different tiles and splits."""
    tiles = ((8, 32, 2), (16, 64, 1), (8, 16, 4), (32, 64, 3))
    buckets = [
        bucket(problem, m_max, plan(problem, *tiles[i % len(tiles)], pdl=i % 2 == 0))
        for i, m_max in enumerate(m_maxes)
    ]
    return write_bundle(folder, spec(problem, buckets))


@dataclass(frozen=True, slots=True)
class FakeDriver:
    """A folder with a fake libcuda.so.1, and what to tell it."""

    folder: Path
    log: Path

    def environment(self, problem: Problem, mode: str = "ok", **settings: str) -> dict[str, str]:
        """Environment variables of a process that is to find the fake driver."""
        flags = (problem.whole_k, problem.dtype == "bf16", problem.zero == "int", problem.bias)
        numbers = (problem.n, problem.k, problem.group_size, *map(int, flags))
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.folder),
            "FAKE_CUDA_LOG": str(self.log),
            "FAKE_CUDA_PROBLEM": " ".join(map(str, numbers)),
            "FAKE_CUDA_MODE": mode,
            **settings,
        }

    def launches(self) -> list[dict[str, Any]]:
        """The launches so far: kernel, grid, block, smem, m, ldx, ldy, pdl."""
        return [_parsed(line) for line in self._lines() if line.startswith("launch")]

    def calls(self, name: str) -> list[str]:
        return [line for line in self._lines() if line.startswith(name)]

    def _lines(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []


def _parsed(line: str) -> dict[str, Any]:
    words = line.split()
    tail = dict(zip(words[10::2], map(int, words[11::2]), strict=True))
    return {
        "kernel": int(words[1]),
        "grid": tuple(map(int, words[3:6])),
        "block": tuple(map(int, words[7:10])),
        **tail,
    }


def compiled(
    source: Path, program: Path, include: Path, compiler: str = "cc", *options: str
) -> Path:
    """Builds a C or C++ program with every warning an error."""
    command = [compiler, *STRICT, *options, f"-I{include}", str(source), "-o", str(program)]
    result = subprocess.run(
        [*command, "-ldl", "-lm"], capture_output=True, text=True, check=False, timeout=120
    )
    if result.returncode:
        raise AssertionError(result.stderr)
    return program


def run(program: Path, environment: dict[str, str], *arguments: str) -> tuple[int, str]:
    """Exit code, and both outputs together."""
    result = subprocess.run(
        [str(program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return result.returncode, result.stdout + result.stderr


@dataclass(slots=True)
class CpuBackend:
    """A backend that computes on the CPU, from the packed weight as the package unpacks it.

    Attributes:
        capability: compute capability that it claims.
        spoil: called with every output, to make it wrong.
        used: m_max-bearing plans of the kernels that ran, in order.
    """

    capability: tuple[int, int] = (9, 0)
    smem_per_cta: int = 232_448
    spoil: Any = None
    used: list[LaunchPlan] = field(default_factory=list)
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def facts(self) -> BackendFacts:
        return BackendFacts("CPU", self.capability, self.smem_per_cta)

    def load(self, cubin: bytes, entry: str, plan: LaunchPlan) -> LaunchPlan:
        return plan

    def run(
        self,
        kernel: LaunchPlan,
        problem: Problem,
        *,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None,
        out: Tensor | None,
        chained: bool,
    ) -> Tensor:
        self.used.append(kernel)
        y = x.double() @ dequantize(unpack(packed, problem), problem, torch.float64).T
        if bias is not None:
            y += bias.double()
        out = torch.empty_like(y, dtype=x.dtype) if out is None else out
        out.copy_(y)
        if self.spoil is not None:
            self.spoil(out)
        return out


@dataclass(slots=True)
class DenseBackend(CpuBackend):
    """One that also goes by way of the dense weight; dequantized counts those batches.

    Attributes:
        dequantized: batches that went that way, in order.
        spoil_dense: called with every such output, to make it wrong.
    """

    dequantized: list[int] = field(default_factory=list)
    spoil_dense: Any = None

    def run_dequantized(
        self,
        kernel: LaunchPlan,
        problem: Problem,
        *,
        x: Tensor,
        packed: Tensor,
        bias: Tensor | None,
        out: Tensor | None,
    ) -> Tensor:
        assert kernel.block_m == 256, "the dequantize kernel's plan"
        y = CpuBackend.run(
            self, kernel, problem, x=x, packed=packed, bias=bias, out=out, chained=False
        )
        self.used.pop()
        self.dequantized.append(y.numel() // problem.n)
        if self.spoil_dense is not None:
            self.spoil_dense(y)
        return y


def rewritten(folder: Path, manifest: Manifest) -> None:
    """Puts a changed manifest, with a right digest, into a bundle."""
    (folder / "manifest.json").write_text(manifest.to_json())
