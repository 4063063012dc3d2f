"""The model as queries ask it: how long a config would take for the M, launches and GPU asked."""

from __future__ import annotations

from db.records import Protocol
from db.serving import Model
from ptxgen.config import KernelConfig
from ptxgen.families import family_named
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxtune.target import Target
from search.model import estimate_resources, predict_us
from search.ranking import gpu_spec_of


def serving_model(problem: Problem, target: Target) -> Model:
    """Predicts one problem's configs on the target's GPU, in microseconds."""
    gpu, arch = gpu_spec_of(target.device), target.arch

    def predicted(
        config: KernelConfig, resources: Resources | None, m: int, protocol: Protocol
    ) -> float:
        plan = family_named(config.family).plan(problem, config, arch)
        known = resources or estimate_resources(problem, config, plan)
        return predict_us(problem, config, plan, known, m, gpu=gpu, protocol=protocol)

    return predicted
