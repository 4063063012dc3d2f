"""Budget: how long one problem x bucket x protocol is searched, in measured trials and seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from ptxgen.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one search; the first one reached ends it, before its finals.

    Attributes:
        trials: candidates that reach the GPU; duplicates and failed compiles do not count.
        seconds: wall seconds.
        patience: candidates in a row that may bring nothing: at least one of them must be faster
            than the best before by LEAST_GAIN.
    """

    trials: int | None = None
    seconds: float | None = None
    patience: int | None = None

    def __post_init__(self) -> None:
        if self.trials is not None and self.trials < 1:
            raise ConfigError(f"a budget of {self.trials} trials measures nothing; give 1 or more.")
        if self.seconds is not None and not 0 < self.seconds < float("inf"):
            raise ConfigError(f"a budget of {self.seconds} seconds is no time; give more than 0.")
        if self.patience is not None and self.patience < 1:
            raise ConfigError(f"a patience of {self.patience} trials is none; give 1 or more.")


LEAST_GAIN = 0.005
"""Share of the time by which a candidate must be faster to count: less is within the noise."""

PRESETS: dict[str, Budget] = {
    "quick": Budget(trials=120, seconds=3.9),
    "full": Budget(trials=2000, seconds=900.0, patience=300),
}
"""quick, with its finals of about 1.5 s, takes 90 s for one layer of 14 buckets on an H200 whose
host has 16 cores; full looks at up to 2,000 configs, until 300 in a row bring nothing."""

PREDICTED: dict[str, Budget] = {**PRESETS, "quick": Budget(trials=120, seconds=45.0)}
"""Without a GPU the seconds go into compiling, on whatever cores a laptop has."""


def budget_named(
    name: str = "quick",
    trials: int | None = None,
    seconds: float | None = None,
    *,
    predicted: bool = False,
) -> Budget:
    """A preset, or explicit limits, which replace the preset altogether.

    Args:
        name: of the preset.
        trials: explicit limit.
        seconds: explicit limit.
        predicted: whether nothing will be measured: kernels are compiled and ranked by the model.

    Raises:
        ConfigError: an unknown preset, or limits that allow nothing.
    """
    if trials is not None or seconds is not None:
        return Budget(trials, seconds)
    if name not in PRESETS:
        raise ConfigError(f"budget {name!r} is not known; choose one of {', '.join(PRESETS)}.")
    return (PREDICTED if predicted else PRESETS)[name]


class Meter:
    """Counts what a search has used. The clock starts at construction.

    Args:
        budget: what may be used.
        clock: seconds since any moment.
    """

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._begin = clock()
        self.trials = 0
        self._best_us: float | None = None
        self._last_gain = 0  # the trial that brought it

    def note_time(self, time_us: float) -> None:
        """Told the time of every trial that ended well, once it is counted."""
        if self._best_us is None or time_us < self._best_us * (1 - LEAST_GAIN):
            self._best_us, self._last_gain = time_us, self.trials

    def out_of_patience(self) -> bool:
        """Whether the last candidates brought nothing."""
        patience = self._budget.patience
        return patience is not None and self.trials - self._last_gain >= patience

    @property
    def seconds(self) -> float:
        return self._clock() - self._begin

    def out_of_time(self) -> bool:
        """Whether the seconds are used up."""
        return self._budget.seconds is not None and self.seconds >= self._budget.seconds

    def exhausted(self, pending: int = 0) -> bool:
        """Whether no further candidate may start, `pending` ones being under way already."""
        budget = self._budget
        if budget.trials is not None and self.trials + pending >= budget.trials:
            return True
        return self.out_of_patience() or self.out_of_time()
