"""Device buffers of a check: guarded, poisoned, with strides longer than their rows.

Whatever a kernel must not read is NaN, whatever it must not write is watched: rows of x and y end
in padding, partial sums and the output start as NaN, the interpreter stops any access outside.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ptxgen.check import POISON
from ptxgen.cpucheck.reduced import Case
from ptxgen.cpucheck.watched import Arrivals, WatchedMemory
from ptxgen.families.wgmma_tma.schedule import MOST_SHARERS
from ptxgen.interp import Launch, encode_map
from ptxgen.reference import ProblemData, random_problem_data
from ptxgen.source import LaunchPlan
from ptxgen.weights.layout import BLOCK_K, BLOCK_ROWS, packed_layout
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES

X_PAD = 8
Y_PAD = 4
"""Elements between two rows; the launch contract asks for strides of multiples of these."""

TILES_EACH = 3
"""Tiles that the CTAs of a persistent kernel walk in a check."""
LEAST_STAGE = 64
"""Least inputs of a stage of the kernels that have stream_k."""
LARGEST_CLUSTER = 4
"""CTAs along N that may share activations."""

Halves = NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Buffers:
    """The memory of one launch and how the kernel is told about it."""

    case: Case
    memory: WatchedMemory
    launch: Launch
    counter_bytes: int

    @classmethod
    def create(cls, case: Case, plan: LaunchPlan, data: ProblemData, packed: Tensor) -> Buffers:
        """Fresh memory with the inputs in it.

        Args:
            case: what is run.
            plan: of its kernel.
            data: its inputs.
            packed: the packed weights.
        """
        memory, problem, m = WatchedMemory(), case.problem, case.m
        x = memory.allocate("x", _rows(halves(data.x), X_PAD), readonly=True)
        weights = memory.allocate("packed", packed.numpy(), readonly=True)
        bias = 0
        if data.bias is not None:
            bias = memory.allocate("bias", halves(data.bias), readonly=True)
        blank = np.full((m, problem.n), POISON, dtype=np.uint16)
        y = memory.allocate("y", _rows(blank, Y_PAD))
        memory.watch("y", y)
        workspace = 0
        if plan.workspace_bytes(m):
            workspace = memory.allocate("workspace", _workspace(plan, m))
            counters = plan.counter_bytes(m)
            memory.watch("workspace", workspace, first=counters)
            memory.watch_arrivals(_arrivals(plan, m, workspace))
        ldx = problem.k + X_PAD
        args: tuple[int | bytes, ...] = (x, weights, bias, y, workspace, m, ldx, problem.n + Y_PAD)
        if (recipe := plan.x_map(x, m, ldx)) is not None:
            args = (*args, encode_map(recipe))
        grid = crowded(plan, m).grid(m)
        launch = Launch(grid, (plan.threads, 1, 1), plan.smem_bytes, args)
        return cls(case, memory, launch, plan.counter_bytes(m))

    def output(self) -> Tensor:
        """y [m, n] in the problem's dtype."""
        bits = self._y_rows()[:, : self.case.problem.n]
        dtype = TORCH_DTYPES[self.case.problem.dtype]
        return torch.from_numpy(bits.astype(np.int16)).view(dtype)

    def unwritten(self) -> int:
        """Outputs that are still poison."""
        return int((self._y_rows()[:, : self.case.problem.n] == POISON).sum())

    def damaged(self) -> int:
        """Elements between the rows of y that are no longer poison."""
        return int((self._y_rows()[:-1, self.case.problem.n :] != POISON).sum())

    def rewritten(self) -> int:
        """Outputs that were written more than once."""
        return int((self.memory.writes("y")[::2] > 1).sum())

    def early_reads(self) -> int:
        """Words of the workspace that were read before anybody had written them."""
        return self.memory.early_reads

    def early_arrivals(self) -> int:
        """Tiles on which a CTA counted itself in before all its partial sums were written."""
        arrivals = self.memory.arrivals
        return arrivals.early_tiles() if arrivals else 0

    def open_counters(self) -> int:
        """Tile counters that the launch did not leave at zero for the next one."""
        if not self.counter_bytes:
            return 0
        head = self.memory.array("workspace")[: self.counter_bytes]
        return int(np.count_nonzero(head.view(np.uint32)))

    def _y_rows(self) -> Halves:
        """All rows of y with their padding; the last one's padding does not exist and is poison."""
        n = self.case.problem.n
        flat: Halves = self.memory.array("y")
        padded = np.concatenate((flat, np.full(Y_PAD, POISON, dtype=np.uint16)))
        return padded.reshape(self.case.m, n + Y_PAD)


def checked_data(case: Case, seed: int) -> ProblemData:
    """Inputs of a check: those of random_problem_data, but the last strip's scales spread widely.

    So kernels with a way of their own for such strips (ptxgen.weights.spread) go both ways. The
    scale of one group of one row is small for that, which leaves nearly all values as they were. A
    weight of a single strip has it where the batch is odd.
    """
    problem = case.problem
    data = random_problem_data(problem, case.m, seed)
    last = (problem.n - 1) // BLOCK_ROWS
    has_ways = packed_layout(problem).factor_bytes > 0 and problem.num_groups > 1
    if has_ways and (last or case.m % 2):
        scales = data.weight.scales.clone()
        row = scales[last * BLOCK_ROWS]
        row[-1] = row[:-1].max() / 128
        data = replace(data, weight=replace(data.weight, scales=scales))
    return data


def crowded(plan: LaunchPlan, m: int) -> LaunchPlan:
    """The plan with so few CTAs that a persistent kernel's walk three tiles each, or the rest.

    A small problem would otherwise give each CTA one tile, and the way to the next go unchecked.
    With stream_k an even batch runs on so many CTAs that some tiles are left over to be shared, an
    odd one on more CTAs than there are stages to share.
    """
    if not plan.max_ctas:
        return plan
    tiles = plan.m_tiles(m) * plan.n_tiles
    if not plan.stream_k:
        ctas = -(-tiles // TILES_EACH) * plan.split_k
        cluster = math.gcd(plan.n_tiles, LARGEST_CLUSTER)  # n_tiles are whole clusters
        ctas = -(-ctas // cluster) * cluster
    elif m % 2:
        ctas = tiles * -(-plan.k // LEAST_STAGE) + 1
    else:
        ctas = next(count for count in range(2, tiles + 2) if tiles % count)
    return replace(plan, max_ctas=min(plan.max_ctas, ctas))


def packed_weights(case: Case, data: ProblemData) -> Tensor:
    """The packed weights of a case's data."""
    return pack(data.weight, case.problem)


def halves(tensor: Tensor) -> Halves:
    """The bits of a 16-bit float tensor."""
    bits: Halves = tensor.contiguous().view(torch.int16).numpy().view(np.uint16)
    return bits


def _rows(values: Halves, pad: int) -> Halves:
    """Rows with poison between them; the last row ends where its values end."""
    padded = np.pad(values, ((0, 0), (0, pad)), constant_values=POISON).reshape(-1)
    ended: Halves = padded[: padded.size - pad]
    return ended


def _arrivals(plan: LaunchPlan, m: int, workspace: int) -> Arrivals:
    """What is watched in the workspace."""
    tiles = plan.m_tiles(m) * plan.n_tiles
    if plan.stream_k:
        tile_of = shared_tiles(tiles, -(-plan.k // BLOCK_K), crowded(plan, m).max_ctas)
    else:
        tile_of = tuple(part // plan.split_k for part in range(tiles * plan.split_k))
    return Arrivals(
        counters=workspace,
        partials=workspace + plan.counter_bytes(m),
        tile_of=tile_of,
        slice_bytes=4 * plan.block_m * plan.block_n,
    )


def shared_tiles(tiles: int, stages: int, ctas: int) -> tuple[int, ...]:
    """By partial tile of stream-K, two a CTA, the shared tile that it is a part of, or -1.

    Args:
        tiles: output tiles; those left over by whole rounds of the CTAs are shared.
        stages: of K, of each tile.
        ctas: of the grid; where there are fewer stages to share, only as many CTAs share them, and
            in the mean no more than MOST_SHARERS for each tile.
    """
    total = tiles % ctas * stages
    sharers = min(ctas, total, MOST_SHARERS * (tiles % ctas))
    found = []
    for cta in range(ctas):
        first, end = (min(cta + i, sharers) * total // max(sharers, 1) for i in (0, 1))
        mine = sorted({stage // stages for stage in range(first, end)})
        found += [*mine, -1, -1][:2]
    return tuple(found)


def _workspace(plan: LaunchPlan, m: int) -> NDArray[np.uint8]:
    """Zero counters, then partial sums of all ones bits, which are NaN."""
    filled = np.full(plan.workspace_bytes(m), 0xFF, dtype=np.uint8)
    filled[: plan.counter_bytes(m)] = 0
    return filled
