"""Target: the GPU that a command is about, whether it is here, and the arch that follows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from db.records import DeviceRecord
from ptxgen.arch import GPUS, ArchSpec, GpuSpec, arch_of_capability, gpu_named
from ptxgen.errors import ArchError
from ptxtune.choose_gpu import chosen
from ptxtune.detect import DetectedGpu, Detection, detect

FALLBACK_GPU = "h200"
"""What predictions are for where no GPU is here and none is named."""


@dataclass(frozen=True, slots=True)
class Target:
    """The GPU in question.

    Attributes:
        arch: the target of compilation.
        device: the device as it is stored; ceilings are those of the table of known GPUs.
        gpu: the row of the table of known GPUs; None for a GPU that is here but not in the table.
        detected: the GPU in this machine; None where the target is only named.
        reason: in words, why this target.
        only_uuid: the UUID that worker processes are limited to; empty where CUDA has no choice.
            CUDA counts GPUs in another order than NVML does, so an index would not do.
    """

    arch: ArchSpec
    device: DeviceRecord
    gpu: GpuSpec | None
    detected: DetectedGpu | None
    reason: str
    only_uuid: str = ""

    @property
    def driver(self) -> str:
        return self.detected.driver if self.detected else ""


def resolve_target(
    name: str | None, detection: Detection | None = None, device: str | None = None
) -> Target:
    """The target of a command.

    Args:
        name: a GPU's short or driver name; None for the GPU in this machine, else the fallback.
        detection: what is in this machine; looked up where None.
        device: which GPU of this machine, by index or UUID; None for the first visible one.

    Raises:
        ArchError: an unknown name or device, two names for different GPUs, or a GPU whose compute
            capability has no kernels.
    """
    found = detect() if detection is None else detection
    several = len(found.gpus) > 1
    if device is not None:
        found = chosen(found, device)
    target = _resolve(name, found)
    if device is not None and target.detected is None:
        raise ArchError(
            f"--device {device} is {found.gpus[0].name}, and --gpu {name} names another GPU; give "
            f"one of the two."
        )
    if target.detected is None or not (several or device is not None):
        return target
    return replace(target, only_uuid=target.detected.uuid)


def _resolve(name: str | None, found: Detection) -> Target:
    present = found.first
    if name is None and present is not None:
        return _of_detected(present, f"{present.name} is in this machine")
    if name is None:
        return _of_table(GPUS[FALLBACK_GPU], f"{FALLBACK_GPU} by default: {found.reason}")
    try:
        wanted = gpu_named(name)
    except ArchError:
        if present is not None and name == present.name:
            return _of_detected(present, f"{present.name} is in this machine")
        raise
    if present is not None and _table_row(present) == wanted:
        return _of_detected(present, f"{present.name} is in this machine")
    return _of_table(wanted, f"{wanted.name} was named and is not in this machine")


def _of_table(gpu: GpuSpec, reason: str) -> Target:
    return Target(gpu.spec, _record(gpu), gpu, None, reason)


def _of_detected(present: DetectedGpu, reason: str) -> Target:
    arch = arch_of_capability(*present.capability)
    gpu = _table_row(present)
    base = (
        _record(gpu)
        if gpu
        else DeviceRecord(present.name, _capability(arch), present.num_sms, arch.smem_per_cta, 0)
    )
    device = replace(
        base,
        name=present.name,
        num_sms=present.num_sms or base.num_sms,
        memory_bytes=present.memory_bytes,
        uuid=present.uuid,
        power_limit_w=present.power_limit_w,
    )
    return Target(arch, device, gpu, present, reason)


def _record(gpu: GpuSpec) -> DeviceRecord:
    return DeviceRecord(
        name=gpu.device_name,
        capability=_capability(gpu.spec),
        num_sms=gpu.num_sms,
        smem_optin_bytes=gpu.spec.smem_per_cta,
        l2_bytes=gpu.l2_bytes,
        read_gbps=gpu.read_gbps,
        tensor_tflops=gpu.tensor_tflops,
        launch_us=gpu.launch_us,
    )


def _table_row(present: DetectedGpu) -> GpuSpec | None:
    try:
        return gpu_named(present.name)
    except ArchError:
        return None


def _capability(arch: ArchSpec) -> str:
    return ".".join(map(str, arch.capability))
