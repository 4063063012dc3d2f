"""BenchRow: how one contender did at one layer, batch and protocol; its JSON form."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from db.records import PROTOCOL_VERSION
from ptxgen.bootstrap import Interval
from ptxgen.outcome import Outcome
from ptxgen.problem import Problem

OK = "ok"
OURS = "ptxtune"
CUBLAS = "cublas"
CHAINED = "chained"


@dataclass(frozen=True, slots=True)
class BenchHost:
    """Where and with what a comparison was run: the same for all its rows.

    Attributes:
        device: as the driver names it.
        driver: its version.
        nvrtc: version that compiled our kernels.
        torch: version.
        commit: of ptxtune; empty where it is not known.
        date: ISO, of the start.
    """

    device: str
    driver: str
    nvrtc: str
    torch: str
    commit: str
    date: str


@dataclass(frozen=True, slots=True)
class BenchRow:
    """One contender at one layer, M and protocol.

    Attributes:
        host: where it ran.
        contender: name.
        version: of its packages, such as "torch 2.11.0"; empty where none is installed.
        protocol: plain or chained.
        problem: what was computed.
        layer: the layer's name in its model; empty where none was named.
        m: batch size.
        verdict: "ok", or how it failed, such as not_installed, unsupported or wrong.
        reason: of a verdict other than ok.
        source: where our config comes from, such as measured or default; empty for others.
        config: ours; None for others.
        outcome: times and conditions; None where it was not timed. Without an ok they do not count.
        variant: which of its package's ways was the fastest; empty where the package chooses.
        over_cublas: cuBLAS' time over this one's, round by round; None without either.
    """

    host: BenchHost
    contender: str
    version: str
    protocol: str
    problem: Problem
    layer: str
    m: int
    verdict: str
    reason: str = ""
    source: str = ""
    config: dict[str, Any] | None = None
    outcome: Outcome | None = None
    variant: str = ""
    over_cublas: Interval | None = None

    @property
    def time_us(self) -> float | None:
        """Median time of a launch; None unless the verdict is ok."""
        return self.outcome.time_us if self.outcome and self.verdict == OK else None

    @property
    def series(self) -> str:
        """The contender's column: chained launches have their own."""
        return f"{self.contender} {CHAINED}" if self.protocol == CHAINED else self.contender

    def to_dict(self) -> dict[str, Any]:
        """A flat JSON object; null where something was not measured or is not known."""
        problem = self.problem
        return {
            "contender": self.contender,
            "version": self.version,
            **asdict(self.host),
            "protocol": self.protocol,
            "protocol_version": PROTOCOL_VERSION,
            "dtype": problem.dtype,
            "zero": problem.zero,
            "bias": problem.bias,
            "group": problem.group_size,
            "layer": self.layer,
            "n": problem.n,
            "k": problem.k,
            "m": self.m,
            "verdict": self.verdict,
            "reason": self.reason,
            "source": self.source or None,
            "config": self.config,
            "variant": self.variant or None,
            **self._measured(),
        }

    def _measured(self) -> dict[str, Any]:
        outcome, valid = self.outcome, self.time_us is not None
        evidence = outcome.evidence if outcome else None
        state = evidence.state if evidence else None
        throttle = evidence.throttle if evidence else None
        others = evidence.other_pids if evidence else None
        return {
            "time_us": self.time_us,
            "spread": outcome.spread if outcome and valid else None,
            "over_cublas": asdict(self.over_cublas) if self.over_cublas else None,
            "floor_us": outcome.floor_us or None if outcome else None,
            "rel_err": outcome.rel_err if outcome else None,
            "clock_mhz": outcome.clock_mhz if outcome else None,
            "state": state.value if state else None,
            "throttle": None if throttle is None else list(throttle),
            "other_processes": None if others is None else len(others),
            "samples_us": list(outcome.samples_us) if outcome and valid else [],
        }
