"""The launch plan of a bucket, read from a manifest and checked against its problem."""

from __future__ import annotations

from ptxgen.bundle.fields import REFUSED, Fields
from ptxgen.errors import BundleError
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan

# Younger than some bundles, which do without: name and least value.
YOUNGER = (("cluster_k", 1), ("max_ctas", 0), ("k", 0))

MAX_CLUSTER = 16
"""Most CTAs of a cluster, to a whole number of which a kernel may round up its tiles along N."""


def read_plan(fields: Fields, problem: Problem) -> LaunchPlan:
    """The plan. Raises BundleError for a field that is missing, wrong or contradicts another."""
    for name in ("threads", "block_m", "block_n", "n_tiles", "split_k"):
        fields.integer(name, least=1)
    fields.integer("smem_bytes")
    fields.flag("pdl")
    for name, least in YOUNGER:
        if name in fields.data:
            fields.integer(name, least)
    if "x_box" in fields.data:
        fields.optional_pair("x_box")
    if "stream_k" in fields.data:
        fields.flag("stream_k")
    plan: LaunchPlan = fields.rebuilt(LaunchPlan.from_dict)
    if wrong := _contradiction(plan, problem):
        raise BundleError(f"{fields.path} has {wrong}. {REFUSED}")
    return plan


def _contradiction(plan: LaunchPlan, problem: Problem) -> str:
    """What of a plan cannot be, in words; empty where all is right."""
    if plan.cluster_k not in (1, plan.split_k):
        return f"clusters of {plan.cluster_k} CTAs where {plan.split_k} split K"
    least = -(-problem.n // plan.block_n)
    if not least <= plan.n_tiles < least + MAX_CLUSTER:
        return f"{plan.n_tiles} tiles of {plan.block_n} for N = {problem.n}"
    if plan.x_box is not None and plan.k != problem.k:
        return f"a tensor map of {plan.k} inputs for K = {problem.k}"
    return ""
