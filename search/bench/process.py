"""A contender's process as the parent sees it: it may crash or hang, and is then started anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from search.bench.case import Verdict
from search.child import (
    Child,
    ChildDiedError,
    ChildFailedError,
    ChildGarbageError,
    ChildTimeoutError,
)

SERVER = "search.bench.server:make_handler"
GPU_KIT = "search.bench.gpu:open_gpu"


class EntryFailedError(Exception):
    """A request of an entry did not end well.

    Attributes:
        key: of the entry.
        verdict: how it ended.
    """

    def __init__(self, key: str, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.key = key
        self.verdict = verdict


@dataclass(frozen=True, slots=True)
class BenchLimits:
    """Timeouts in seconds.

    Attributes:
        start_s: for a process to start and open the device.
        prepare_s: to import the package, pack, compile or tune itself, check and capture.
        sample_s: for the replays of one round.
    """

    start_s: float = 180.0
    prepare_s: float = 300.0
    sample_s: float = 60.0


class PidWatch(Protocol):
    """Tells our own processes from the neighbours on the GPU; search.clocks.Clocks, or a fake."""

    def compute_pids(self) -> frozenset[int] | None:
        """Processes that compute on the GPU now; None where hidden."""
        ...

    def learn_own(self, before: frozenset[int] | None, pid: int | None = None) -> None:
        """Counts a process as ours."""
        ...


class BenchProcess:
    """The process of one group of contenders.

    Args:
        options: plain data for search.bench.server.make_handler; "gpu_uuid", where it is there and
            not empty, is the only GPU that the process sees.
        limits: timeouts.
        watch: told about every process that is started.
    """

    def __init__(self, options: dict[str, Any], limits: BenchLimits, watch: PidWatch) -> None:
        self._options, self._limits, self._watch = options, limits, watch
        self._child: Child | None = None
        self.generation = 0
        """Raised with every end of a process: what was prepared before is gone."""

    def ask(self, key: str, message: dict[str, Any], limit_s: float) -> Any:
        """The answer to a request of an entry.

        Raises:
            EntryFailedError: no good answer. Unless the verdict is UNSUPPORTED the process has
                been ended, because nobody knows what state it is in.
        """
        try:
            return self._started().request({**message, "key": key}, limit_s)
        except ChildFailedError as error:
            if error.kind == "UnsupportedError":
                raise EntryFailedError(key, Verdict.UNSUPPORTED, str(error)) from error
            verdict = Verdict.CRASHED if error.sticky else Verdict.FAILED
            reason = f"{error.kind}: {_first_lines(str(error))}"
        except ChildTimeoutError:
            verdict, reason = Verdict.HUNG, f"no answer within {limit_s:g} s; it was killed"
        except (ChildDiedError, ChildGarbageError) as error:
            verdict, reason = Verdict.CRASHED, _first_lines(str(error))
        self.kill()
        raise EntryFailedError(key, verdict, reason)

    def alive(self) -> bool:
        """Whether a process runs now."""
        return self._child is not None and self._child.alive()

    def kill(self) -> None:
        """Ends the process, if any. Safe to call again."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            self.generation += 1

    def _started(self) -> Child:
        if self._child is not None and self._child.alive():
            return self._child
        self.kill()
        before = self._watch.compute_pids()
        gpu_uuid = str(self._options.get("gpu_uuid", ""))
        child = self._child = Child(SERVER, self._options, gpu_uuid)
        child.request({"kind": "hello"}, self._limits.start_s)
        self._watch.learn_own(before, child.pid)
        return child


def _first_lines(text: str, limit: int = 400) -> str:
    """An error as one short paragraph: its words without line breaks, cut at the limit."""
    words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 3] + "..."
