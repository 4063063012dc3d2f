"""What launches that depend on each other save and cost in the model: launch, fill, successors."""

from __future__ import annotations

from ptxgen.arch import GpuSpec

# Where a constant below says "fitted", see search.model.

HIDDEN_LAUNCH = 0.1
"""Share of the launch cost that stays visible with programmatic dependent launch: 3.46 us become
1.89 where a launch costs 1.7 (measured, 2026-11-29)."""

EARLY_FILL = 0.5
"""Share of the fill that remains under dependent launch with weights first (fitted)."""

CROWD_US = {"start": 3.0, "waited": 0.0, "drained": 0.7, "end": 0.7}
"""Cost, by trigger, of a successor that finds the whole GPU free and starts with its predecessor:
its loads and its waiting CTAs take from the kernel that runs (fitted; a 4096 x 4096 kernel of 128
CTAs that leaves room for three more an SM took 5.5 us plain and 6.6 us chained on an H200,
2026-11-29). One that starts when its predecessor has waited finds one kernel there, spread evenly:
of 0 to 2 us, 0 ranked 1,045 chained times of 15 cells best (H200, 2026-11-30)."""

END_US = 0.45
"""Cost of a successor that may only start at the end of the main loop (fitted)."""


def launch_us(gpu: GpuSpec, *, chained: bool) -> float:
    """What a launch costs where it may, or may not, overlap the one before."""
    return gpu.launch_us * (HIDDEN_LAUNCH if chained else 1.0)


def first_fill_us(
    fill_us: float, *, weights_first: bool, trigger: str, filled: float, chained: bool
) -> float:
    """First loads, and what a predecessor or successor in a chain costs.

    Args:
        fill_us: of a launch by itself.
        weights_first: weights are loaded before the previous kernel has ended.
        trigger: when the next kernel of a chain may start; a key of CROWD_US.
        filled: CTAs of the grid over those that the GPU holds at once.
        chained: whether launches depend on each other.
    """
    fill = fill_us * (EARLY_FILL if chained and weights_first else 1.0)
    if chained:
        fill += CROWD_US[trigger] * max(0.0, 1.0 - filled)
        fill += END_US if trigger == "end" else 0.0
    return fill
