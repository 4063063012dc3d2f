"""GpuWorker: the parent's view of the one process that touches the GPU. It may crash or hang.

Every request ends in an Outcome. After a kill the next request starts a fresh process, which first
has to measure the last good candidate again: a GPU that is broken for good is an error, not a row
of bad configs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from db.records import DeviceRecord
from ptxgen.errors import DriverError
from ptxgen.outcome import Outcome, Status
from search.child import (
    Child,
    ChildDiedError,
    ChildFailedError,
    ChildGarbageError,
    ChildTimeoutError,
)
from search.evaluator import Effort, EvaluateRequest, FinalsRequest
from search.messages import MessageError, device_from_dict, outcome_from_dict, request_to_dict

SERVER = "search.evaluator_server:make_handler"


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts of the worker, in seconds.

    Attributes:
        start_s: for the process to start, open the device and measure its ceilings.
        measure_s: for one candidate (Helion, TVM and TileLang use 30).
        shrunk_min_s: the measure limit never shrinks below this.
        shrunk_factor: after a good result the limit is this many times its wall time.
        final_s: added for every finalist of a finals request.
    """

    start_s: float = 180.0
    measure_s: float = 30.0
    shrunk_min_s: float = 5.0
    shrunk_factor: float = 50.0
    final_s: float = 10.0


class FinalsError(Exception):
    """The worker died or hung during finals; which finalist did it is not known."""


HARMLESS = frozenset(
    {"DriverError", "OutOfMemoryError", "TensorError", "ConfigError", "MessageError"}
)
"""Errors, unless they are sticky, after which the worker's context is known to be good."""


class GpuWorker:
    """Runs an evaluator in a process of its own.

    Args:
        factory: "module:function" that makes the evaluator inside the process.
        options: plain JSON data for the factory.
        limits: timeouts.
        gpu_uuid: the only GPU that the process sees; empty: those that this process sees.
    """

    def __init__(
        self,
        factory: str,
        options: dict[str, Any] | None = None,
        limits: Limits | None = None,
        gpu_uuid: str = "",
    ) -> None:
        self._factory = factory
        self._gpu_uuid = gpu_uuid
        self._options = dict(options or {})
        self._limits = limits or Limits()
        self._child: Child | None = None
        self._device: DeviceRecord | None = None
        self._driver_version = ""
        self._last_good: EvaluateRequest | None = None
        self._needs_health_check = False
        self._best_wall_s: dict[tuple[str, int], float] = {}
        self._prepared: set[tuple[str, int]] = set()
        self.restarts = 0

    def device(self) -> DeviceRecord:
        """The device with its ceilings. Raises DriverError where there is none."""
        if self._device is None:
            self._started()
        if self._device is None:
            raise DriverError("the GPU worker did not say which device it runs on.")
        return self._device

    def driver_version(self) -> str:
        """The CUDA driver's version. Raises DriverError where there is no device."""
        self.device()
        return self._driver_version

    def evaluate(
        self, request: EvaluateRequest, meanwhile: Callable[[], None] | None = None
    ) -> Outcome:
        """Checks and times one candidate; CRASH and HANG are outcomes.

        Args:
            request: what to run.
            meanwhile: work of this process while the worker measures, at most once.

        Raises:
            DriverError: no device, or it does not work any more.
        """
        child = self._healthy()
        key = (request.problem.key(), request.m)
        begin = time.monotonic()
        outcome = self._ask(child, request, self._measure_limit(key), meanwhile)
        wall_s = time.monotonic() - begin
        self._prepared.add(key)
        if outcome.status is Status.OK:
            self._last_good = request
            self._best_wall_s[key] = min(wall_s, self._best_wall_s.get(key, wall_s))
        return outcome

    def finals(
        self, request: FinalsRequest, meanwhile: Callable[[], None] | None = None
    ) -> list[Outcome]:
        """Times several candidates in turns.

        Args:
            request: what to run.
            meanwhile: work of this process while the worker measures, at most once.

        Returns:
            Outcomes in the order of request.candidates.

        Raises:
            FinalsError: the worker crashed or hung; the candidates can be measured one by one.
            DriverError: no device, or it does not work any more.
        """
        child = self._healthy()
        limit = self._limits.measure_s + self._limits.final_s * len(request.candidates)
        try:
            reply = child.request(request_to_dict(request), limit, meanwhile)
            outcomes = [outcome_from_dict(item) for item in _list_of(reply)]
            if len(outcomes) != len(request.candidates):
                raise MessageError(f"{len(outcomes)} outcomes, not {len(request.candidates)}")
        except ChildFailedError as error:
            if error.sticky:
                self.kill()
            raise FinalsError(str(error)) from error
        except ChildTimeoutError as error:
            self.kill()
            raise FinalsError(f"no answer within {limit:.0f} s") from error
        except (ChildDiedError, ChildGarbageError, MessageError) as error:
            self.kill()
            raise FinalsError(str(error)) from error
        if any(outcome.status is Status.CRASH for outcome in outcomes):
            self.kill()
        return outcomes

    def kill(self) -> None:
        """Ends the process at once; the next request starts another one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            self._prepared.clear()
            self._needs_health_check = self._last_good is not None

    def close(self) -> None:
        """Ends the process for good. Safe to call again."""
        self._last_good = None
        self.kill()

    def __enter__(self) -> GpuWorker:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask(
        self,
        child: Child,
        request: EvaluateRequest,
        limit_s: float,
        meanwhile: Callable[[], None] | None = None,
    ) -> Outcome:
        """One request, every way to fail turned into an outcome; kills the child where needed."""
        try:
            reply = child.request(request_to_dict(request), limit_s, meanwhile)
            outcome = outcome_from_dict(reply, timed=request.effort is not Effort.CHECK)
        except ChildFailedError as error:
            if not error.sticky and error.kind not in HARMLESS:
                self.kill()  # nobody knows what state it left the context in
            status = Status.CRASH if error.sticky else Status.LAUNCH_ERROR
            outcome = Outcome(status, f"{error.kind}: {error}")
        except ChildTimeoutError:
            self.kill()
            return Outcome(Status.HANG, f"no answer within {limit_s:.1f} s; the worker was killed")
        except (ChildDiedError, ChildGarbageError, MessageError) as error:
            self.kill()
            return Outcome(Status.CRASH, str(error))
        if outcome.status in (Status.CRASH, Status.HANG):
            self.kill()
        return outcome

    def _measure_limit(self, key: tuple[str, int]) -> float:
        """Seconds for one candidate; the first of a problem also pays for weights and reference."""
        limits = self._limits
        wall_s = self._best_wall_s.get(key)
        if wall_s is None or key not in self._prepared:
            return limits.measure_s
        return min(limits.measure_s, max(limits.shrunk_min_s, limits.shrunk_factor * wall_s))

    def _started(self) -> Child:
        """The running process; starts one, and lets it say its device, where there is none."""
        if self._child is not None and self._child.alive():
            return self._child
        if self._child is not None:
            self.kill()
        if self._device is not None:
            self.restarts += 1
        options = self._options
        if self._device is not None and self._device.measured:  # not measured again after a crash
            options = {**options, "ceilings": asdict(self._device)}
        child = self._child = Child(
            SERVER, {"factory": self._factory, "options": options}, self._gpu_uuid
        )
        try:
            reply = child.request({"kind": "device"}, self._limits.start_s)
            self._device = device_from_dict(reply["device"])
            self._driver_version = str(reply["driver_version"])
        except ChildFailedError as error:
            self.kill()
            raise DriverError(str(error), error.code, error.sticky) from error
        except ChildTimeoutError as error:
            self.kill()
            raise DriverError(
                f"the GPU worker did not start within {self._limits.start_s:.0f} s; see whether "
                f"another process keeps the GPU busy (nvidia-smi)."
            ) from error
        except (ChildDiedError, ChildGarbageError, MessageError, KeyError, TypeError) as error:
            self.kill()
            raise DriverError(f"the GPU worker did not start: {error}") from error
        return child

    def _healthy(self) -> Child:
        """The running process, proven on the last good candidate after a kill.

        A device may need a moment after a crash: a failed check is repeated once in a new process.
        """
        for _ in range(2):
            child = self._started()
            if not self._needs_health_check or self._last_good is None:
                return child
            outcome = self._ask(child, self._last_good, self._limits.measure_s)
            if outcome.status is Status.OK:
                self._needs_health_check = False
                # Weights and reference are there again: the next one's limit is the short one.
                self._prepared.add((self._last_good.problem.key(), self._last_good.m))
                return self._started()
            self.kill()
        raise DriverError(
            f"the GPU does not work any more: a config that ran well before now ends as "
            f"{outcome.status} ({outcome.message}). All results so far are kept; run the same "
            f"command again once nvidia-smi shows the GPU in order."
        )


def _list_of(reply: Any) -> list[Any]:
    if not isinstance(reply, list):
        raise MessageError(f"not a list of outcomes: {str(reply)[:200]}")
    return reply
