"""CompilePool: compiles kernels ahead of the measuring, in processes that can be killed.

Threads cannot be killed when ptxas never ends, so each thread here only waits on its own process.
"""

from __future__ import annotations

import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.source import KernelSource
from search.child import (
    Child,
    ChildDiedError,
    ChildFailedError,
    ChildGarbageError,
    ChildTimeoutError,
)

HANDLER = "search.compile_server:make_handler"
MAX_WORKERS = 16
"""NVRTC takes 0.4 GB of memory each. With 8 an H200 waited for them for more than half of a search
at M = 256, whose kernels compile for 0.4 s and are measured within 0.03 s (2026-11-30)."""

FEW_CORES, SPARE_CORES = 8, 2
"""Up to the first all cores compile; of more some are kept for the tuner and its GPU worker."""

TIMEOUT_S = 60.0  # Helion and BitBLAS use 60, TVM 30


@dataclass(frozen=True, slots=True)
class Compiled:
    """What the compile of one source gave.

    Attributes:
        cubin_path: file in the compile cache; empty where nothing was compiled.
        resources: registers, spills, shared memory; None where nothing was compiled.
        failure: the outcome that rejects the candidate; None where it may run.
    """

    cubin_path: str = ""
    resources: Resources | None = None
    failure: Outcome | None = None


class CompilePool:
    """Compiles in up to `workers` processes.

    Args:
        cache_root: folder of the compile cache.
        workers: processes; default_workers() of this host where None.
        timeout_s: a compile that takes longer is killed.
        handler: "module:function" of the handler inside the processes.
    """

    def __init__(
        self,
        cache_root: Path,
        workers: int | None = None,
        timeout_s: float = TIMEOUT_S,
        handler: str = HANDLER,
    ) -> None:
        self.workers = workers or default_workers(cores())
        self._options = {"cache_root": str(cache_root)}
        self._timeout_s = timeout_s
        self._handler = handler
        self._local = threading.local()
        self._children: set[Child] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._executor = ThreadPoolExecutor(self.workers, thread_name_prefix="compile")

    def submit(self, source: KernelSource) -> Future[Compiled]:
        """Queues a source; the future's result is there for good and for bad candidates alike."""
        return self._executor.submit(self._compile, source)

    def close(self) -> None:
        """Kills what is being compiled and drops what waits. Safe to call again."""
        with self._lock:
            self._closed = True
            children = list(self._children)
        for child in children:
            child.kill()
        self._executor.shutdown(wait=True, cancel_futures=True)

    def __enter__(self) -> CompilePool:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _compile(self, source: KernelSource) -> Compiled:
        message = {
            "text": source.text,
            "arch": source.arch,
            "plan": source.plan.to_dict(),
            "entry": source.entry,
        }
        try:
            return _accepted(self._answer(message))
        except ChildFailedError as error:
            return _failed(Status.COMPILE_ERROR, f"{error.kind}: {error}")
        except ChildTimeoutError:
            self._drop_child()
            return _failed(
                Status.COMPILE_TIMEOUT,
                f"not compiled within {self._timeout_s:.0f} s; the compiler was killed",
            )
        except (ChildDiedError, ChildGarbageError, KeyError, TypeError) as error:
            self._drop_child()
            return _failed(Status.COMPILE_ERROR, f"the compiler process failed: {error}")

    def _answer(self, message: dict[str, Any]) -> dict[str, object]:
        """The compile process's answer; one that died may have been another's victim: once more."""
        try:
            reply = self._child().request(message, self._timeout_s)
        except ChildDiedError:
            self._drop_child()
            reply = self._child().request(message, self._timeout_s)
        return dict(reply)

    def _child(self) -> Child:
        """This thread's process; starts one where there is none."""
        child: Child | None = getattr(self._local, "child", None)
        if child is None or not child.alive():
            self._drop_child()
            with self._lock:
                if self._closed:
                    raise ChildDiedError("the pool is closed")
                child = self._local.child = Child(self._handler, self._options)
                self._children.add(child)
        return child

    def _drop_child(self) -> None:
        child: Child | None = getattr(self._local, "child", None)
        self._local.child = None
        if child is not None:
            child.kill()
            with self._lock:
                self._children.discard(child)


def compile_outcome(source: KernelSource, cache_root: Path) -> Outcome:
    """What a run makes of one kernel before any launch: OK with its resources, or the failure.

    Raises:
        CompileError: NVRTC is missing.
    """
    with CompilePool(cache_root, 1) as pool:
        found = pool.submit(source).result()
    return found.failure or Outcome(Status.OK, resources=found.resources)


def _accepted(reply: dict[str, object]) -> Compiled:
    """A reply of the compile process; a kernel that spills is rejected before any launch."""
    if "compile_error" in reply:
        return _failed(Status.COMPILE_ERROR, str(reply["compile_error"]))
    resources = Resources(**reply["resources"])  # type: ignore[arg-type]
    cubin_path = str(reply["cubin_path"])
    if resources.spill_bytes:
        message = f"spills {resources.spill_bytes} bytes of registers to local memory"
        return Compiled(
            cubin_path, resources, Outcome(Status.SPILLED, message, resources=resources)
        )
    return Compiled(cubin_path, resources)


def _failed(status: Status, message: str) -> Compiled:
    return Compiled(failure=Outcome(status, message))


def default_workers(count: int) -> int:
    """Compile processes for a host of so many cores."""
    return count if count <= FEW_CORES else min(max(FEW_CORES, count - SPARE_CORES), MAX_WORKERS)


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
