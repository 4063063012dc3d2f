"""The wgmma family: Hopper's warpgroup mma for larger batches."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.families.adapter import FunctionFamily
from ptxgen.families.mma.emit import plan
from ptxgen.families.wgmma.config import KNOBS, WgmmaConfig
from ptxgen.families.wgmma.emit import emit
from ptxgen.families.wgmma.rules import violations
from ptxgen.families.wgmma.shape import WgmmaShape
from ptxgen.families.wgmma.space import candidates, default_config
from ptxgen.families.wgmma.summation import summation_key
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan


def _plan(problem: Problem, config: WgmmaConfig, arch: ArchSpec) -> LaunchPlan:
    return plan(WgmmaShape(problem, config), arch)


WGMMA = FunctionFamily(
    config_type=WgmmaConfig,
    emitter_version=2,
    choices=KNOBS,
    legality=violations,
    search_space=candidates,
    untuned=default_config,
    summation=summation_key,
    planner=_plan,
    emitter=emit,
)
