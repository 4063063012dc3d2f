"""Rooflines of stored winners: the model's view of them, for best --explain and the report."""

from __future__ import annotations

from collections.abc import Iterable

from db.records import WinnerRecord
from ptxgen.families import FAMILIES
from ptxgen.roofline import Roofline
from search.model import estimate_resources
from search.ranking import gpu_spec_of
from search.roofline import roofline


def roofline_of(winner: WinnerRecord) -> Roofline | None:
    """Where a winner stands on its device; None where its config is no longer legal or known.

    Registers are those that the compiler gave, or a guess where the winner has none stored.
    """
    arch = winner.device.arch
    family = FAMILIES.get(winner.config.family)
    if family is None or family.violations(winner.problem, winner.config, arch):
        return None
    plan = family.plan(winner.problem, winner.config, arch)
    guess = estimate_resources(winner.problem, winner.config, plan)
    return roofline(
        winner.problem,
        winner.config,
        plan,
        winner.resources or guess,
        winner.m,
        gpu=gpu_spec_of(winner.device),
        protocol=winner.protocol,
        time_us=winner.time_us,
    )


def rooflines(winners: Iterable[WinnerRecord]) -> dict[int, Roofline]:
    """Rooflines by trial id, of those winners that have one."""
    found = {winner.trial_id: roofline_of(winner) for winner in winners}
    return {trial_id: item for trial_id, item in found.items() if item is not None}
