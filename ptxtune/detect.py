"""Which GPUs are here, asked of NVML alone: nothing in this process touches CUDA."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pynvml


@dataclass(frozen=True, slots=True)
class DetectedGpu:
    """One GPU as NVML reports it.

    Attributes:
        index: NVML index.
        name: such as "NVIDIA H200".
        capability: (major, minor).
        driver: version, such as "580.159.03".
        uuid: of the card.
        memory_bytes: total device memory.
        free_bytes: free device memory now.
        power_limit_w: enforced limit in watts; 0 where it cannot be read.
        num_sms: multiprocessors; 0 where they cannot be read.
        compute_pids: other processes that compute on it now.
    """

    index: int
    name: str
    capability: tuple[int, int]
    driver: str
    uuid: str
    memory_bytes: int
    free_bytes: int
    power_limit_w: int
    num_sms: int = 0
    compute_pids: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Detection:
    """All GPUs, and in words why there is none.

    Attributes:
        gpus: visible GPUs in NVML order; the first is the one that is used.
        reason: why gpus is empty; empty otherwise.
    """

    gpus: tuple[DetectedGpu, ...]
    reason: str = ""

    @property
    def first(self) -> DetectedGpu | None:
        return self.gpus[0] if self.gpus else None


def detect() -> Detection:
    """The visible GPUs. Never raises: where there is none, the answer is empty and says why."""
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    try:
        with _nvml():
            gpus = tuple(_read(index) for index in range(pynvml.nvmlDeviceGetCount()))
    except pynvml.NVMLError as error:
        return Detection((), f"NVML found no NVIDIA driver ({error})")
    if not gpus:
        return Detection((), "the NVIDIA driver is loaded but lists no GPU")
    shown = visible(gpus, hidden)
    if not shown:
        return Detection((), f"CUDA_VISIBLE_DEVICES = {hidden!r} hides all {len(gpus)} GPUs")
    return Detection(shown)


def visible(gpus: tuple[DetectedGpu, ...], setting: str | None) -> tuple[DetectedGpu, ...]:
    """What CUDA_VISIBLE_DEVICES leaves: indices or UUIDs, up to the first unknown one."""
    if setting is None:
        return gpus
    chosen = []
    for word in (part.strip() for part in setting.split(",")):
        match = [
            gpu for gpu in gpus if str(gpu.index) == word or (word and gpu.uuid.startswith(word))
        ]
        if not match:
            break
        chosen.append(match[0])
    return tuple(chosen)


@contextmanager
def _nvml() -> Iterator[None]:
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def _read(index: int) -> DetectedGpu:
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    return DetectedGpu(
        index=index,
        name=_text(pynvml.nvmlDeviceGetName(handle)),
        capability=(int(major), int(minor)),
        driver=_text(pynvml.nvmlSystemGetDriverVersion()),
        uuid=_text(pynvml.nvmlDeviceGetUUID(handle)),
        memory_bytes=int(memory.total),
        free_bytes=int(memory.free),
        power_limit_w=_power_limit(handle),
        num_sms=_num_sms(handle, int(major), int(minor)),
        compute_pids=_compute_pids(handle),
    )


def _power_limit(handle: object) -> int:
    try:
        return int(pynvml.nvmlDeviceGetEnforcedPowerLimit(handle)) // 1000
    except pynvml.NVMLError:  # not every board has a power limit
        return 0


def _num_sms(handle: object, major: int, minor: int) -> int:
    """NVML counts FP32 lanes: 64 in an SM of 8.0, 128 in one of 8.6, 8.9 and 9.0."""
    try:
        lanes = int(pynvml.nvmlDeviceGetNumGpuCores(handle))
    except pynvml.NVMLError:  # hidden from MIG slices
        return 0
    return lanes // (64 if (major, minor) == (8, 0) else 128)


def _compute_pids(handle: object) -> tuple[int, ...]:
    try:
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError:  # hidden in some containers
        return ()
    return tuple(int(process.pid) for process in found if int(process.pid) != os.getpid())


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
