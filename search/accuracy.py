"""The accuracy table: how far outputs are off, by batch and by the spread of a row's scales.

One group of every row has scales that are a given number of times those of the others, and there
activations are 0: all that is seen is how the other groups fare beside it. The kernels are the
built-in ones. They run in a process of their own (search.accuracy_child), so that the caller never
touches CUDA.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

from ptxgen.errors import DriverError
from ptxgen.problem import Dtype, Problem, Zero

BATCHES = (1, 2, 4, 8, 16, 17, 32, 64, 128, 256, 512, 1024)
RATIOS = (1.0, 1e1, 1e2, 1e3, 1e4, 1e5)
KINDS: tuple[tuple[Dtype, Zero], ...] = (
    ("fp16", "sym"),
    ("fp16", "int"),
    ("bf16", "sym"),
    ("bf16", "int"),
)
TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Accuracy:
    """One launch.

    Attributes:
        dtype: of activations and scales.
        zero: kind of zero points.
        ratio: scale of the group without activations over those of the others.
        m: tokens.
        family: of the kernel.
        rel_err: ||y - exact|| / ||exact||.
        of_bound: the largest error of an output in units of ptxgen.error_bound.
        passed: within the bound, and within the tolerance that trials are held to.
    """

    dtype: Dtype
    zero: Zero
    ratio: float
    m: int
    family: str
    rel_err: float
    of_bound: float
    passed: bool


def accuracy(problem: Problem, seed: int, gpu_uuid: str = "") -> list[Accuracy]:
    """The table, from a process that sees one GPU.

    Args:
        problem: its N, K and group size; all KINDS of dtype and zero points are taken.
        seed: of weights and activations.
        gpu_uuid: the GPU; empty: the first one that is visible.

    Raises:
        DriverError: the process failed.
    """
    asked = json.dumps({"n": problem.n, "k": problem.k, "group": problem.group_size, "seed": seed})
    environment = {**os.environ, **({"CUDA_VISIBLE_DEVICES": gpu_uuid} if gpu_uuid else {})}
    command = [sys.executable, "-m", "search.accuracy_child", asked]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise DriverError(f"the accuracy table took more than {TIMEOUT_S:.0f} s.") from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise DriverError(
            f"the process that measures accuracy ended with code {done.returncode}: {last}"
        )
    return [Accuracy(**row) for row in json.loads(done.stdout.splitlines()[-1])]
