"""Before and after the GPU: compiles the kinds, writes their inputs, and checks their outputs.

Everything slow happens here, so that the process under a tool only loads files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from ptxgen.arch import ArchSpec
from ptxgen.check import POISON, compare
from ptxgen.compile import compile_source
from ptxgen.cpucheck.buffers import X_PAD, Y_PAD, halves
from ptxgen.families import emit
from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data, reference_output
from ptxgen.source import ENTRY, KernelSource
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES
from sanitize.kinds import Kind
from sanitize.open_arrivals import open_arrivals
from sanitize.tool import RACECHECK

MANIFEST = "manifest.json"


@dataclass(frozen=True, slots=True)
class Job:
    """What the process under a tool does for one kind; files lie in the manifest's folder.

    Attributes:
        name: of the kind; also of its files, with an index.
        entry: of the kernel.
        plan: the launch plan as a dictionary.
        m: batch.
        ldx: row stride of x in elements.
        ldy: row stride of y in elements.
        problem: as a dictionary.
        variant: the kernel is not the one that is shipped, but open_arrivals's variant of it.
    """

    name: str
    entry: str
    plan: dict[str, object]
    m: int
    ldx: int
    ldy: int
    problem: dict[str, object]
    variant: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """A prepared folder, and what is run from it."""

    folder: Path
    jobs: list[Job]


def prepare(kinds: Sequence[Kind], arch: ArchSpec, folder: Path) -> list[Job]:
    """Writes kernels (source and cubin) and inputs of all kinds, and the manifest.

    Raises:
        CompileError: a kernel does not compile.
    """
    jobs = [_job(kind, arch, folder) for kind in kinds]
    _write_manifest(jobs, folder)
    return jobs


def prepare_for(
    tools: Sequence[str], kinds: Sequence[Kind], arch: ArchSpec, root: Path
) -> dict[str, Batch]:
    """What each tool runs: racecheck variants that it can follow, all others what is shipped.

    Raises:
        CompileError: a kernel or a variant does not compile.
        ToolError: a kernel has no variant, since its text is not what open_arrivals knows.
    """
    folder = root / "shipped"
    folder.mkdir()
    shipped = Batch(folder, prepare(kinds, arch, folder))
    batches = dict.fromkeys(tools, shipped)
    if RACECHECK in batches:
        batches[RACECHECK] = _opened(shipped, kinds, arch, root / RACECHECK)
    return batches


def _opened(shipped: Batch, kinds: Sequence[Kind], arch: ArchSpec, folder: Path) -> Batch:
    """The same inputs in another folder, with the sources and cubins of the variants."""
    shutil.copytree(shipped.folder, folder)
    for kind in kinds:
        if kind.opened_for_racecheck:
            _write_kernel(variant_of(kind, arch), folder)
    jobs = [
        replace(job, variant=kind.opened_for_racecheck)
        for kind, job in zip(kinds, shipped.jobs, strict=True)
    ]
    _write_manifest(jobs, folder)
    return Batch(folder, jobs)


def source_of(kind: Kind, arch: ArchSpec) -> KernelSource:
    """The kernel as it is shipped, but for its entry name, which is the kind's own."""
    source = emit(kind.problem, kind.config, arch)
    return replace(source, text=source.text.replace(ENTRY, kind.entry), entry=kind.entry)


def variant_of(kind: Kind, arch: ArchSpec) -> KernelSource:
    """What racecheck runs instead. Raises ToolError where open_arrivals does not know the text."""
    source = source_of(kind, arch)
    return replace(source, text=open_arrivals(source.text))


def _write_kernel(source: KernelSource, folder: Path) -> None:
    (folder / f"{source.entry}.cu").write_text(source.text)
    compiled = compile_source(source, line_info=True)
    (folder / f"{source.entry}.cubin").write_bytes(compiled.cubin)


def _write_manifest(jobs: Sequence[Job], folder: Path) -> None:
    (folder / MANIFEST).write_text(json.dumps([asdict(job) for job in jobs]))


def _job(kind: Kind, arch: ArchSpec, folder: Path) -> Job:
    _write_kernel(source_of(kind, arch), folder)
    problem, m = kind.problem, kind.m
    data = random_problem_data(problem, m)
    rows = np.pad(halves(data.x), ((0, 0), (0, X_PAD)), constant_values=POISON).reshape(-1)
    (folder / f"{kind.entry}.x").write_bytes(rows[: rows.size - X_PAD].tobytes())
    (folder / f"{kind.entry}.packed").write_bytes(pack(data.weight, problem).numpy().tobytes())
    bias = b"" if data.bias is None else halves(data.bias).tobytes()
    (folder / f"{kind.entry}.bias").write_bytes(bias)
    torch.save(
        reference_output(data.x, data.weight, problem, data.bias), folder / f"{kind.entry}.ref"
    )
    plan = kind.plan(arch).to_dict()
    ldx, ldy = problem.k + X_PAD, problem.n + Y_PAD
    return Job(kind.name, kind.entry, plan, m, ldx, ldy, problem.to_dict())


def output_fault(job: Job, folder: Path) -> str:
    """What is wrong with a kind's output; empty where nothing is, or where it was not written."""
    path = folder / f"{job.entry}.y"
    if not path.exists():
        return "no output"
    problem = Problem.from_dict(job.problem)
    flat = np.frombuffer(path.read_bytes(), dtype=np.uint16)
    ended = np.concatenate((flat, np.full(job.ldy - problem.n, POISON, dtype=np.uint16)))
    rows = ended.reshape(job.m, job.ldy)
    if (rows[:, problem.n :] != POISON).any():
        return "wrote between the rows"
    if (rows[:, : problem.n] == POISON).any():
        return "left outputs unwritten"
    bits = torch.from_numpy(rows[:, : problem.n].astype(np.int16))
    ref = torch.load(folder / f"{job.entry}.ref", weights_only=True)
    return compare(bits.view(TORCH_DTYPES[problem.dtype]), problem, ref).message
