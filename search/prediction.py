"""Prediction: a launch as the model sees it, taken apart. Data only."""

from __future__ import annotations

from dataclasses import dataclass

from search.main_loop import WaveLimits


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted launch taken apart; times in microseconds.

    Attributes:
        ctas_per_sm: that one SM holds at once.
        ctas: of the grid.
        slots: CTAs that the GPU holds at once.
        in_flight_bytes: that the busiest SM keeps in flight in a full wave.
        launch_us: what the launch costs.
        fill_us: first loads of every wave.
        main_us: the main loops of all waves.
        tail_us: of main_us, what a last wave costs more than its share of a full one.
        epilogue_us: reduction in the CTA, and store.
        split_us: reduction across CTAs.
        limits: of a full wave, or of the only one.
    """

    ctas_per_sm: int
    ctas: int
    slots: int
    in_flight_bytes: float
    launch_us: float
    fill_us: float
    main_us: float
    tail_us: float
    epilogue_us: float
    split_us: float
    limits: WaveLimits

    @property
    def total_us(self) -> float:
        """The whole launch."""
        parts = (self.launch_us, self.fill_us, self.main_us, self.epilogue_us, self.split_us)
        return sum(parts)
