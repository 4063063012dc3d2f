"""ArchSpec: what a GPU generation allows, and the table of GPUs known by name."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.errors import ArchError
from ptxgen.suggestion import did_you_mean

KIB = 1024
RESERVED_SMEM_BYTES = 1 * KIB
"""Shared memory the driver keeps for itself in every CTA (CUDA C Programming Guide)."""


@dataclass(frozen=True, slots=True)
class ArchSpec:
    """Limits of one compute capability (CUDA C Programming Guide, "Compute Capabilities").

    Attributes:
        name: NVRTC target, such as sm_90a.
        capability: (major, minor) of the devices that run it.
        smem_per_cta: most shared memory a CTA may opt in to, in bytes.
        smem_per_sm: shared memory of one SM, in bytes.
        max_warps_per_sm: resident warps of one SM.
        max_ctas_per_sm: resident CTAs of one SM.
        has_pdl: griddepcontrol exists (sm_90 and up).
        has_wgmma: the target has wgmma and TMA (sm_90a only).
        has_clusters: CTAs run in clusters and read each other's shared memory (sm_90 and up).
        has_bf16x2_arith: add, sub and mul on bf16x2 are single instructions (sm_90 and up).
        tensor_flops: of an SM in a clock, dense fp16, by its fastest tensor instruction (NVIDIA's
            architecture whitepapers).
    """

    name: str
    capability: tuple[int, int]
    smem_per_cta: int
    smem_per_sm: int
    max_warps_per_sm: int
    max_ctas_per_sm: int
    has_pdl: bool = False
    has_wgmma: bool = False
    has_bf16x2_arith: bool = False
    has_clusters: bool = False
    tensor_flops: int = 1024

    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_cta: int = 1024


ARCHS: dict[str, ArchSpec] = {
    spec.name: spec
    for spec in (
        ArchSpec("sm_80", (8, 0), 163 * KIB, 164 * KIB, 64, 32, tensor_flops=2048),
        ArchSpec("sm_86", (8, 6), 99 * KIB, 100 * KIB, 48, 16),
        ArchSpec("sm_89", (8, 9), 99 * KIB, 100 * KIB, 48, 24),
        ArchSpec("sm_90", (9, 0), 227 * KIB, 228 * KIB, 64, 32, True, False, True, True, 4096),
        ArchSpec("sm_90a", (9, 0), 227 * KIB, 228 * KIB, 64, 32, True, True, True, True, 4096),
    )
}


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """A GPU known by name: what the predictions use where there is no device to measure.

    Attributes:
        name: short name on the command line, such as h200.
        device_name: the name the driver reports.
        arch: key of ARCHS.
        num_sms: multiprocessors.
        l2_bytes: size of the L2 cache.
        read_gbps: streaming read of device memory, GB/s (10^9 bytes).
        tensor_tflops: dense fp16 mma.sync with FP32 accumulation, TFLOP/s.
        launch_us: what one launch costs in a graph, microseconds.
        measured: True where the rates were measured, False where they derive from a datasheet.
    """

    name: str
    device_name: str
    arch: str
    num_sms: int
    l2_bytes: int
    read_gbps: float
    tensor_tflops: float
    launch_us: float
    measured: bool = False

    @property
    def spec(self) -> ArchSpec:
        return ARCHS[self.arch]


MIB = KIB * KIB

# Datasheet rates; read_gbps is 93 % of the datasheet bandwidth, the share that an H200 reached
# (4.48 of 4.8 TB/s, 2026-11-29). The H200 row is measured.
GPUS: dict[str, GpuSpec] = {
    gpu.name: gpu
    for gpu in (
        GpuSpec("h200", "NVIDIA H200", "sm_90a", 132, 60 * MIB, 4480.0, 634.0, 1.7, True),
        GpuSpec("h100", "NVIDIA H100 80GB HBM3", "sm_90a", 132, 50 * MIB, 3115.0, 620.0, 1.7),
        GpuSpec("h100-pcie", "NVIDIA H100 PCIe", "sm_90a", 114, 50 * MIB, 1860.0, 470.0, 1.7),
        GpuSpec("a100", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 40 * MIB, 1896.0, 312.0, 1.9),
        GpuSpec("a10", "NVIDIA A10", "sm_86", 72, 6 * MIB, 558.0, 125.0, 1.9),
        GpuSpec("l40s", "NVIDIA L40S", "sm_89", 142, 96 * MIB, 803.0, 362.0, 1.8),
        GpuSpec("rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 128, 72 * MIB, 937.0, 165.0, 1.8),
        GpuSpec("rtx3090", "NVIDIA GeForce RTX 3090", "sm_86", 82, 6 * MIB, 870.0, 71.0, 1.9),
    )
}


def arch_named(name: str) -> ArchSpec:
    """The arch of an NVRTC target name. Raises ArchError that lists the known ones."""
    if name not in ARCHS:
        raise ArchError(f"arch {name!r} is not known; choose one of {', '.join(ARCHS)}.")
    return ARCHS[name]


def gpu_named(name: str) -> GpuSpec:
    """The GPU of a short or driver name. Raises ArchError that lists the known ones."""
    if not isinstance(name, str):
        raise ArchError(f"GPU {name!r} is no name; choose one of {', '.join(GPUS)}.")
    wanted = name.lower().replace(" ", "").replace("_", "-")
    for gpu in GPUS.values():
        if wanted in (gpu.name, gpu.device_name.lower().replace(" ", "")):
            return gpu
    raise ArchError(
        f"GPU {name!r} is not known; {did_you_mean(name, GPUS)}Choose one of {', '.join(GPUS)}, or "
        f"run on the GPU itself."
    )


def arch_of_capability(major: int, minor: int) -> ArchSpec:
    """The best arch for a device's compute capability. Raises ArchError for an unsupported one."""
    found = [spec for spec in ARCHS.values() if spec.capability == (major, minor)]
    if not found:
        known = ", ".join(sorted({f"{a}.{b}" for a, b in (s.capability for s in ARCHS.values())}))
        raise ArchError(
            f"compute capability {major}.{minor} is not supported; ptxtune has kernels for {known}."
        )
    return found[-1]
