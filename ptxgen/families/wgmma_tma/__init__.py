"""The wgmma_tma family: warpgroup mma fed by a producer warp through TMA, for larger batches."""

from __future__ import annotations

from ptxgen.families.adapter import FunctionFamily
from ptxgen.families.wgmma_tma.config import KNOBS, WgmmaTmaConfig
from ptxgen.families.wgmma_tma.emit import emit, plan
from ptxgen.families.wgmma_tma.rules import violations
from ptxgen.families.wgmma_tma.space import candidates, default_config
from ptxgen.families.wgmma_tma.summation import summation_key

WGMMA_TMA = FunctionFamily(
    config_type=WgmmaTmaConfig,
    emitter_version=5,
    choices=KNOBS,
    legality=violations,
    search_space=candidates,
    untuned=default_config,
    summation=summation_key,
    planner=plan,
    emitter=emit,
)
