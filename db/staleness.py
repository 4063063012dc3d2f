"""Staleness: when a stored winner may still be served, and what is merely worth saying."""

from __future__ import annotations

from collections.abc import Callable

from db.records import PROTOCOL_VERSION, ToolchainRecord, WinnerRecord
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.families import emit, violations
from ptxgen.families.invariant import is_invariant
from ptxgen.problem import Problem
from ptxgen.weights.layout import LAYOUT_VERSION

SourceDigest = Callable[[Problem, KernelConfig, ArchSpec], str]


def emitted_digest(problem: Problem, config: KernelConfig, arch: ArchSpec) -> str:
    """Digest of the source that the emitter of this version writes. The config must be legal."""
    return emit(problem, config, arch).digest()


def capability_text(arch: ArchSpec) -> str:
    """Compute capability as devices are stored with it, such as "9.0"."""
    return ".".join(map(str, arch.capability))


def hard_reasons(winner: WinnerRecord, toolchain: ToolchainRecord, arch: ArchSpec) -> list[str]:
    """Why a winner must not be served: its kernel would not be the one that was measured."""
    reasons = quick_reasons(winner, toolchain, arch)
    if violations(winner.problem, winner.config, arch):
        return reasons
    if emitted_digest(winner.problem, winner.config, arch) != winner.source_digest:
        reasons.append("the emitter writes another source for this config now")
    return reasons


def quick_reasons(winner: WinnerRecord, toolchain: ToolchainRecord, arch: ArchSpec) -> list[str]:
    """Those of hard_reasons that are known without writing the kernel, in microseconds."""
    reasons = []
    wanted = capability_text(arch)
    if winner.device.capability != wanted:
        reasons.append(f"compute capability {winner.device.capability}, now {wanted}")
    if winner.layout_version != LAYOUT_VERSION:
        reasons.append(f"packed layout {winner.layout_version}, now {LAYOUT_VERSION}")
    if _differ(_major(winner.toolchain.nvrtc), _major(toolchain.nvrtc)):
        reasons.append(f"NVRTC {winner.toolchain.nvrtc}, now {toolchain.nvrtc}")
    illegal = violations(winner.problem, winner.config, arch)
    if illegal:
        reasons.append(f"config is illegal here: {'; '.join(illegal)}")
    elif winner.batch_invariant and not is_invariant(winner.problem, winner.config):
        reasons.append("its sums have another order than batch-invariant kernels have now")
    return reasons


def soft_reasons(winner: WinnerRecord, toolchain: ToolchainRecord) -> tuple[str, ...]:
    """Why a winner's time may no longer hold, although its kernel is the same."""
    reasons = []
    then = winner.toolchain
    if _differ(then.driver, toolchain.driver):
        reasons.append(f"measured with driver {then.driver}, now {toolchain.driver}")
    if _differ(then.nvrtc, toolchain.nvrtc):
        reasons.append(f"compiled by NVRTC {then.nvrtc}, now {toolchain.nvrtc}")
    if winner.protocol_version != PROTOCOL_VERSION:
        reasons.append(f"protocol version {winner.protocol_version}, now {PROTOCOL_VERSION}")
    return tuple(reasons)


def _major(version: str) -> str:
    return version.partition(".")[0]


def _differ(then: str, now: str) -> bool:
    """An unknown version (empty) says nothing."""
    return bool(then) and bool(now) and then != now
