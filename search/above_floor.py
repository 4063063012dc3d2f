"""A prediction as it is shown and stored beside the physical floor, which it never falls below.

The model knows tensor cores at their highest rate, which short runs of a cool GPU reach, and the
floor at the rate that they sustain: of large batches the model may come out below it.
"""

from __future__ import annotations

from dataclasses import replace

from ptxgen.arch import GpuSpec
from ptxgen.problem import Problem
from search.model import floor_us
from search.prediction import Prediction

ROOM = 0.01
"""Predictions below the floor lie within this share above it, in their order."""


def above_floor(found: Prediction, problem: Problem, m: int, gpu: GpuSpec) -> Prediction:
    """A prediction whose main loop is lengthened where the launch would beat the floor.

    The order of any two predictions of one problem, m and GPU stays; longer ones are left alone.
    """
    least_us = floor_us(problem, m, gpu.read_gbps, gpu.tensor_tflops)
    bound_us, total_us = least_us * (1 + ROOM), found.total_us
    if total_us >= bound_us:
        return found
    shown_us = least_us * (1 + ROOM * total_us / bound_us)
    return replace(found, main_us=found.main_us + shown_us - total_us)
