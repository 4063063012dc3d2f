"""The mma family: mma.sync kernels for every supported arch."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.families.adapter import FunctionFamily
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.families.mma.emit import emit, plan
from ptxgen.families.mma.rules import violations
from ptxgen.families.mma.shape import Shape
from ptxgen.families.mma.space import candidates, default_config
from ptxgen.families.mma.summation import summation_key
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan


def _plan(problem: Problem, config: MmaConfig, arch: ArchSpec) -> LaunchPlan:
    return plan(Shape(problem, config), arch)


MMA = FunctionFamily(
    config_type=MmaConfig,
    emitter_version=2,
    choices=KNOBS,
    legality=violations,
    search_space=candidates,
    untuned=default_config,
    summation=summation_key,
    planner=_plan,
    emitter=emit,
)
