"""The one way a launch is timed: cold L2 by rotating weight copies, a CUDA graph, the median."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

PROTOCOL_COPIES_L2 = 4
"""Weight copies together are at least this many times the L2."""

MIN_LAUNCHES = 128
"""Launches in a graph of short ones, as many as a decode step of Llama 3.1 8B has matrix products.

The graph's own start (5-7 us) is then under 1.5 % of the shortest kernel; with 28 launches a chain
of 4096 x 4096 took 3.67 us each instead of 3.53 (H200, 2026-11-30)."""

LONG_GRAPH_US = 1000.0
"""A graph at least this long needs no more launches: its start is under 1 % of it."""

LONG_REPLAY_US = 1000.0
"""Of replays longer than this three make a screening, of shorter ones seven.

The median of the first three of seven was within 0.4 % of that of all in nine trials of ten, within
1 % in 98 of 100 (16,346 trials, H200, 2026-11-30); who is near the fastest is timed again."""

MAX_COPIES = 512
BURN_IN_S = 0.2
BUSY_S = 0.003
"""Work queued for one reading of the clocks, which takes about a millisecond."""

Launch = Callable[[int], None]
"""Launches a contender once, on the given copy of the weights, on the current stream."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds per launch.

    Attributes:
        median_us: of the samples.
        spread: (p75 - p25) / median.
        samples_us: in measuring order; a sample is one replay divided by its launches.
    """

    median_us: float
    spread: float
    samples_us: tuple[float, ...]

    @classmethod
    def of(cls, samples_us: Sequence[float]) -> Timing:
        ordered = sorted(samples_us)
        median = statistics.median(ordered)
        quarter = len(ordered) // 4
        spread = (ordered[-1 - quarter] - ordered[quarter]) / median if median > 0 else 0.0
        return cls(median, spread, tuple(samples_us))


def copies_for(weight_bytes: int, l2_bytes: int) -> int:
    """Copies of the weights that keep L2 cold when launches rotate over them.

    Args:
        weight_bytes: of one copy, or all bytes that one launch moves: at large M the activations
            and outputs alone turn the L2 over.
        l2_bytes: of the device.
    """
    needed = -(-PROTOCOL_COPIES_L2 * l2_bytes // max(1, weight_bytes))
    return min(MAX_COPIES, max(2, needed))


class TimedGraph:
    """A contender's launches, captured once and replayed."""

    def __init__(self, launch: Launch, copies: int, floor_us: float = 0.0) -> None:
        """Captures launches that rotate over the copies; how many, launches_for says.

        Work that is queued on the current stream comes first: the launches before the capture may
        write to memory that such work still reads, as PyTorch hands freed memory on at once.
        """
        self.launches = launches_for(copies, floor_us)
        self._launch = launch  # owns the tensors that the captured launches point to
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for copy in range(min(2, copies)):
                launch(copy)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=stream):
            for index in range(self.launches):
                launch(index % copies)
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._last_us = 0.0

    def sample_us(self) -> float:
        """One replay: microseconds per launch."""
        self._start.record()
        self._graph.replay()
        self._end.record()
        self._end.synchronize()
        self._last_us = float(self._start.elapsed_time(self._end)) * 1e3 / self.launches
        return self._last_us

    def keep_busy(self) -> None:
        """Queues BUSY_S of replays and returns at once: the GPU is at work while it is read."""
        replay_s = max(self._last_us, 1.0) * self.launches * 1e-6
        for _ in range(min(100, max(1, round(BUSY_S / replay_s)))):
            self._graph.replay()

    def samples_us(
        self, count: int, warmups: int = 2, stop_above_us: float | None = None
    ) -> list[float]:
        """Samples after warm-ups; stops after 5 where their median is above the bound."""
        for _ in range(warmups):
            self.sample_us()
        samples: list[float] = []
        for _ in range(count):
            samples.append(self.sample_us())
            if len(samples) != 5 or stop_above_us is None:
                continue
            if statistics.median(samples) > stop_above_us:
                break
        return samples


def launches_for(copies: int, floor_us: float = 0.0) -> int:
    """Launches in a graph: a multiple of the copies, at least MIN_LAUNCHES where they are short.

    Args:
        copies: of the weights.
        floor_us: no launch is shorter than this; 0 where it is not known.
    """
    enough = math.ceil(LONG_GRAPH_US / floor_us) if floor_us > 0 else MIN_LAUNCHES
    return -(-max(min(MIN_LAUNCHES, enough), copies) // copies) * copies


def sample_count(estimate_us: float, launches: int, seconds: float) -> int:
    """Replays that fit into a time, between 7 (3 where they are long) and 200."""
    replay_us = max(1e-3, estimate_us * launches)
    least = 3 if replay_us > LONG_REPLAY_US else 7
    return max(least, min(200, int(seconds * 1e6 / replay_us)))


def burn_in(seconds: float = BURN_IN_S) -> None:
    """Brings an idle GPU to its working clock."""
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(8):
            a @ a
        torch.cuda.synchronize()
