"""The sample: blocks of kernels, each of one family, problem and arch, and of committed results.

A block's configs are the steps of random walks over the family's knobs, seeded by its name: a
change of one family's rules moves that family's blocks and no others.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import get_args

from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.families import FAMILIES, config_from_dict
from ptxgen.problem import Dtype, Problem, Zero
from ptxgen.source import KernelSource

RESULTS = Path(__file__).parents[3] / "reports" / "results"
RESULTS_ARCH = "sm_90a"
"""Of the device that all committed results are of."""

SHAPES: tuple[tuple[int, int, int, bool], ...] = (
    (4096, 4096, 128, False),
    (232, 2688, 128, True),
    (10240, 8192, 64, True),
    (712, 2752, 64, False),
    (57344, 8192, 32, False),
    (1096, 2720, 32, True),
    (4096, 4096, 4096, True),
    (520, 2784, 2784, False),
)
"""N, K, group size and bias: for each group size one that tiles divide, and one that they do not.
"""

PROBLEMS = tuple(
    Problem(n, k, group, dtype, zero, bias)
    for (n, k, group, bias), dtype, zero in product(SHAPES, get_args(Dtype), get_args(Zero))
)
MMA: dict[str, Scalar] = {
    "block_m": 8,
    "warp_m": 8,
    "block_n": 32,
    "warp_n": 32,
    "block_k": 512,
    "warps_k": 4,
    "num_stages": 2,
    "split_k": 1,
    "scale_on": "accumulators",
    "weights_first": False,
    "min_ctas": 1,
}
WGMMA: dict[str, Scalar] = {
    "block_m": 64,
    "block_n": 128,
    "warpgroups": 2,
    "num_stages": 4,
    "split_k": 1,
    "weights_first": False,
    "min_ctas": 1,
}
WGMMA_TMA: dict[str, Scalar] = {
    "block_m": 64,
    "block_n": 128,
    "warpgroups": 2,
    "num_stages": 4,
    "chunk": 2,
    "split_k": 1,
    "multicast": 1,
    "min_ctas": 1,
    "max_ctas": 0,
}
STARTS: dict[str, tuple[dict[str, Scalar], ...]] = {
    "mma": (
        MMA,
        {**MMA, "block_m": 128, "warp_m": 32, "block_n": 64, "block_k": 128, "warps_k": 1},
    ),
    "wgmma": (WGMMA, {**WGMMA, "block_m": 256, "num_stages": 3}),
    "wgmma_tma": (
        WGMMA_TMA,
        {**WGMMA_TMA, "block_m": 128, "block_n": 256, "num_stages": 3, "max_ctas": 132},
        {**WGMMA_TMA, "block_m": 128, "max_ctas": 132, "stream_k": True},
        {**WGMMA_TMA, "block_n": 448, "warpgroups": 7, "block_m": 32, "num_stages": 3, "chunk": 1},
    ),
}
"""Where walks start, small tiles and large ones: legal for every problem above, on every arch."""

STEPS = {"mma": 24, "wgmma": 50, "wgmma_tma": 36}
"""Kernels of a walk."""

MAX_CHANGED_KNOBS = 4
PATIENCE = 400
"""Changes that are tried for each step on average before a walk ends early."""


@dataclass(frozen=True, slots=True)
class Block:
    """One family's kernels of one problem and arch.

    Attributes:
        family: its name.
        problem: the problem.
        arch: name of the arch.
    """

    family: str
    problem: Problem
    arch: str

    @property
    def name(self) -> str:
        return f"{self.family} {self.problem.key()} {self.arch}"

    def configs(self) -> Iterator[KernelConfig]:
        """Different legal configs, in the order of the walks."""
        found: dict[KernelConfig, None] = {}
        for start in STARTS[self.family]:
            found.update(dict.fromkeys(self._walk(start)))
        yield from found

    def _walk(self, start: dict[str, Scalar]) -> list[KernelConfig]:
        family, arch = FAMILIES[self.family], ARCHS[self.arch]
        rng = random.Random(f"{self.name} {start}")  # noqa: S311
        config = family.config_type.from_knobs(dict(start))
        found = {config: None}
        for _ in range(STEPS[self.family] * PATIENCE):
            if len(found) == STEPS[self.family]:
                break
            changed = _step(config, family.knobs(), rng)
            if changed not in found and not family.violations(self.problem, changed, arch):
                config = changed
                found[config] = None
        return list(found)

    def kernels(self) -> Iterator[tuple[str, KernelSource]]:
        """Each kernel with a name."""
        family, arch = FAMILIES[self.family], ARCHS[self.arch]
        for config in self.configs():
            source = family.emit(self.problem, config, arch)
            assert source.plan == family.plan(self.problem, config, arch)
            yield f"{config.key()} {self.problem.key()} {self.arch}", source


@dataclass(frozen=True, slots=True)
class DenseBlock:
    """The kernels that unpack weights on one arch, one for each problem."""

    arch: str

    @property
    def name(self) -> str:
        return f"dequantize {self.arch}"

    def kernels(self) -> Iterator[tuple[str, KernelSource]]:
        """Each kernel with a name."""
        for problem in PROBLEMS:
            yield f"{problem.key()} {self.arch}", emit_dequantize(problem, ARCHS[self.arch])


@dataclass(frozen=True, slots=True)
class ResultsBlock:
    """The kernels of our rows in one committed file of results."""

    path: Path

    @property
    def name(self) -> str:
        return f"results {self.path.name}"

    def kernels(self) -> Iterator[tuple[str, KernelSource]]:
        """Each kernel with a name."""
        arch = ARCHS[RESULTS_ARCH]
        for problem, config in self.winners():
            source = FAMILIES[config.family].emit(problem, config, arch)
            yield f"{config.key()} {problem.key()} {arch.name}", source

    def winners(self) -> Iterator[tuple[Problem, KernelConfig]]:
        """Each row's problem and config."""
        for line in self.path.read_text().splitlines():
            row = json.loads(line)
            if row.get("config") is None:
                continue
            problem = Problem(
                row["n"], row["k"], row["group"], row["dtype"], row["zero"], row["bias"]
            )
            yield problem, config_from_dict(row["config"])


AnyBlock = Block | DenseBlock | ResultsBlock


def blocks() -> list[AnyBlock]:
    """All of them, in a fixed order."""
    found: list[AnyBlock] = [
        Block(family, problem, arch.name)
        for family in FAMILIES
        for index, problem in enumerate(PROBLEMS)
        for arch in _archs_of(family, index)
    ]
    found += [DenseBlock(arch) for arch in ARCHS]
    return found + [ResultsBlock(path) for path in sorted(RESULTS.glob("*/*.jsonl"))]


def _archs_of(family: str, index: int) -> list[ArchSpec]:
    """Every arch of the family; of mma, which has five, three for each problem in turns."""
    if family == "mma":
        return [arch for number, arch in enumerate(ARCHS.values()) if (number + index) % 5 < 3]
    return [arch for arch in ARCHS.values() if arch.has_wgmma]


def _step(
    config: KernelConfig, knobs: dict[str, tuple[Scalar, ...]], rng: random.Random
) -> KernelConfig:
    names = rng.sample(sorted(knobs), rng.randint(1, MAX_CHANGED_KNOBS))
    values = {name: rng.choice(knobs[name]) for name in names}
    for name in names:  # a tile of the CTA often is that of its warps
        warps = name.replace("block_", "warp_")
        if warps not in values and values[name] in knobs.get(warps, ()) and rng.random() < 0.5:
            values[warps] = values[name]
    return replace(config, **values)  # type: ignore[arg-type]
