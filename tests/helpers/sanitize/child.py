"""The process that runs under a tool: python -m sanitize.child FOLDER. The driver API, no torch.

Launches every kernel of the folder's manifest twice, the second time chained, and writes y as the
second launch left it. What fails is a line of failures.jsonl, and the next kind goes on.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from cuda.bindings import driver

from ptxgen.device import LoadedKernel, call
from ptxgen.errors import PtxtuneError
from ptxgen.source import LaunchPlan

FAILURES = "failures.jsonl"
POISON = b"\xff\x7f"
"""ptxgen.check.POISON in memory; that module needs torch."""

NO_DEVICE = 3
"""Exit code."""


@contextmanager
def current_context() -> Iterator[None]:
    """The primary context of the first device. Raises DriverError where there is none."""
    call(driver.cuInit(0), "cuInit")
    device = call(driver.cuDeviceGet(0), "cuDeviceGet")
    context = call(driver.cuDevicePrimaryCtxRetain(device), "cuDevicePrimaryCtxRetain")
    call(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    try:
        yield
    finally:
        driver.cuDevicePrimaryCtxRelease(device)  # may fail after a fault, which is told already


@contextmanager
def on_device(data: bytes) -> Iterator[int]:
    """Device memory of exactly these bytes; 0 for none."""
    if not data:
        yield 0
        return
    pointer = call(driver.cuMemAlloc(len(data)), f"allocating {len(data)} bytes")
    host = ctypes.create_string_buffer(data, len(data))
    try:
        copied = driver.cuMemcpyHtoD(pointer, ctypes.addressof(host), len(data))
        call(copied, f"copying {len(data)} bytes")
        yield int(pointer)
    finally:
        driver.cuMemFree(pointer)


def from_device(pointer: int, count: int) -> bytes:
    """Bytes of device memory."""
    host = ctypes.create_string_buffer(count)
    call(driver.cuMemcpyDtoH(ctypes.addressof(host), pointer, count), f"reading {count} bytes")
    return host.raw


def run(job: Mapping[str, Any], folder: Path) -> None:
    """Launches one kind and writes its y. Raises DriverError where the driver refuses or faults."""
    plan = LaunchPlan.from_dict(job["plan"])
    m, n = job["m"], job["problem"]["n"]
    counters, workspace_bytes = plan.counter_bytes(m), plan.workspace_bytes(m)
    blank = POISON * ((m - 1) * job["ldy"] + n)

    def file(what: str) -> Path:
        return folder / f"{job['entry']}.{what}"

    kernel = LoadedKernel(file("cubin").read_bytes(), job["entry"], plan)
    with ExitStack() as stack:
        pointers = {
            "x": stack.enter_context(on_device(file("x").read_bytes())),
            "packed": stack.enter_context(on_device(file("packed").read_bytes())),
            "bias": stack.enter_context(on_device(file("bias").read_bytes())),
            "y": stack.enter_context(on_device(blank)),
            "workspace": stack.enter_context(
                on_device(bytes(counters) + b"\xff" * (workspace_bytes - counters))
            ),
        }
        for chained in (False, True):
            kernel.launch(
                **pointers, m=m, ldx=job["ldx"], ldy=job["ldy"], stream=0, chained=chained
            )
        call(driver.cuCtxSynchronize(), f"running {job['name']}")
        file("y").write_bytes(from_device(pointers["y"], len(blank)))


def main(folder: Path) -> int:
    """Runs all kinds. Exit code NO_DEVICE where there is no device to run them on."""
    jobs = json.loads((folder / "manifest.json").read_text())
    try:
        with current_context(), (folder / FAILURES).open("w") as failures:
            for job in jobs:
                try:
                    run(job, folder)
                except PtxtuneError as error:
                    failures.write(
                        json.dumps({"entry": job["entry"], "message": str(error)}) + "\n"
                    )
    except (PtxtuneError, RuntimeError) as error:  # RuntimeError: there is no libcuda
        sys.stderr.write(f"no kernel ran: {error}\n")
        return NO_DEVICE
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
