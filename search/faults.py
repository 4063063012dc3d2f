"""Faults: what can go wrong with a candidate, and which candidate of a soak gets which fault.

A plan is a pure function of a seed and a config's key: the injecting processes and the audit
afterwards agree on it without talking to each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

from ptxgen.config import KernelConfig
from ptxgen.outcome import Status


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail.

    Attributes:
        name: of the fault.
        weight: how often it is chosen, relative to the others.
        expected: how such a trial may be stored; OK where the fault must not matter.
        deadly: whether it costs a process; such a fault may be transient.
    """

    name: str
    weight: float
    expected: frozenset[Status]
    deadly: bool = False


def _fault(name: str, weight: float, *expected: Status, deadly: bool = False) -> Fault:
    return Fault(name, weight, frozenset(expected), deadly)


CRASH_OR_HANG = (Status.CRASH, Status.HANG)

PROCESS_FAULTS: tuple[Fault, ...] = (
    _fault("segv", 0.8, *CRASH_OR_HANG, deadly=True),
    _fault("exit", 0.8, *CRASH_OR_HANG, deadly=True),
    _fault("killed for memory", 0.8, *CRASH_OR_HANG, deadly=True),
    _fault("sticky error", 0.8, *CRASH_OR_HANG, deadly=True),
    _fault("garbage", 0.8, *CRASH_OR_HANG, deadly=True),
    _fault("half a reply", 0.3, *CRASH_OR_HANG, deadly=True),
    _fault("hang", 0.3, *CRASH_OR_HANG, deadly=True),
    _fault("slow reply", 2.0, Status.OK),
    _fault("out of memory", 7.0, Status.LAUNCH_ERROR),
    _fault("too many resources", 8.0, Status.LAUNCH_ERROR),
    _fault("not an outcome", 7.0, Status.LAUNCH_ERROR),
    _fault("time is NaN", 6.0, Status.NOISY),
    _fault("time is negative", 6.0, Status.NOISY),
    _fault("wrong result", 14.0, Status.WRONG),
    _fault("compiler refuses", 8.0, Status.COMPILE_ERROR),
    _fault("compiler raises", 5.0, Status.COMPILE_ERROR),
    _fault("compiler dies", 1.0, Status.COMPILE_ERROR),
    _fault("compiler never ends", 0.4, Status.COMPILE_TIMEOUT, Status.COMPILE_ERROR),
    _fault("spills", 8.0, Status.SPILLED),
)
"""Faults without a GPU: real processes, a fake kernel and a fake compiler."""

KERNEL_FAULTS: tuple[Fault, ...] = (
    _fault("illegal address", 2.5, *CRASH_OR_HANG, deadly=True),
    _fault("misaligned address", 2.5, *CRASH_OR_HANG, deadly=True),
    _fault("endless loop", 0.6, *CRASH_OR_HANG, deadly=True),
    _fault("wrong result in one tile", 19.0, Status.WRONG),
    _fault("writes past the output", 19.0, Status.WRONG),
    _fault("NaN on a tail", 19.0, Status.WRONG),
    _fault("a tile is not written", 19.0, Status.WRONG),
    _fault("differs from run to run", 13.0, Status.WRONG),
    _fault("compiler refuses", 5.4, Status.COMPILE_ERROR),
)
"""Faults of real kernels on a real GPU, the deadly ones first (soak_plan.quotas). A deadly one
happens twice, and each time costs a worker: five or six seconds on a core, and an endless loop also
its time limit and the driver's recovery of the GPU."""

TRANSIENT = 0.5
"""Share of deadly faults that happen only once: the config is a good one."""


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Which config gets which fault.

    Attributes:
        faults: what to choose from.
        share: of the configs that get one.
        seed: of the choice.
    """

    faults: tuple[Fault, ...]
    share: float
    seed: int

    def fault_of(self, config: KernelConfig, case: str) -> Fault | None:
        """The fault of a config in a case (a problem's key); None for a good one."""
        if self._draw("share", config, case) >= self.share:
            return None
        point = self._draw("which", config, case) * sum(item.weight for item in self.faults)
        for item in self.faults:
            point -= item.weight
            if point < 0:
                return item
        return self.faults[-1]

    def is_transient(self, config: KernelConfig, case: str) -> bool:
        """Whether the config's deadly fault happens only the first time."""
        return self._draw("transient", config, case) < TRANSIENT

    def _draw(self, purpose: str, config: KernelConfig, case: str) -> float:
        """A number in [0, 1) that depends on nothing but its arguments and the seed."""
        text = f"{self.seed}/{purpose}/{case}/{config.key()}"
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2.0**64


PLANS: Mapping[str, tuple[Fault, ...]] = {"process": PROCESS_FAULTS, "kernel": KERNEL_FAULTS}
