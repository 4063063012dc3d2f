"""Timed: from samples and evidence to an outcome; what no clean measurement can be is NOISY."""

from __future__ import annotations

import math
from dataclasses import replace

from ptxgen.evidence import Evidence
from ptxgen.outcome import Outcome, Status
from ptxgen.timing import Timing

FASTER_THAN_PHYSICS = 0.8
"""A time below this share of the least one is a fault; the margin is for L2 hits on x and y."""


def timed_outcome(
    checked: Outcome, timing: Timing, evidence: Evidence, fault: str, least_us: float
) -> Outcome:
    """The outcome of a contender that was checked, then timed.

    Args:
        checked: status of the check, with the floor.
        timing: of its samples.
        evidence: read around them.
        fault: why the samples are worthless; empty where they are good.
        least_us: no launch is shorter (search.model.least_us); 0 where it is not known.

    Returns:
        NOISY without a time where the samples are worthless, not positive, not finite, or faster
        than physics allows. A status other than OK stays.
    """
    outcome = replace(
        checked,
        spread=timing.spread,
        samples_us=timing.samples_us,
        evidence=evidence,
        clock_mhz=evidence.after.sm_mhz,
    )
    if checked.status is not Status.OK:
        return outcome
    fault = fault or _impossible(timing.median_us, least_us)
    if fault:
        return replace(outcome, status=Status.NOISY, message=fault)
    return replace(outcome, time_us=timing.median_us)


def _impossible(time_us: float, least_us: float) -> str:
    if not math.isfinite(time_us) or time_us <= 0:
        return f"the measured time was {time_us} us, which is not a positive number"
    if time_us < FASTER_THAN_PHYSICS * least_us:
        return (
            f"{time_us:.2f} us is faster than {FASTER_THAN_PHYSICS:.0%} of the {least_us:.2f} us "
            "that memory and tensor cores need"
        )
    return ""
