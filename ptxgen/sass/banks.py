"""Bank conflicts of shared-memory accesses, from the addresses that a run really used.

Shared memory has 32 banks of 4 bytes; a wavefront serves each bank once (CUDA Programming Guide,
"Shared Memory"). An access of 8 or 16 bytes a lane goes in 2 or 4 phases of lanes, and one row of
ldmatrix is 16 bytes of one of its 8-row matrices, so the same rule covers it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ptxgen.interp.api import SharedAccess

BANKS = 32
WORD_BYTES = 4
WAVEFRONT_BYTES = BANKS * WORD_BYTES


@dataclass(frozen=True, slots=True)
class BankReport:
    """All executions of one shared-memory instruction.

    Attributes:
        opcode: the PTX instruction.
        ptx_line: its line in the PTX text.
        executions: warp instructions.
        wavefronts: that they took.
        least: that they would take without any conflict.
    """

    opcode: str
    ptx_line: int
    executions: int
    wavefronts: int
    least: int

    @property
    def conflicts(self) -> int:
        return self.wavefronts - self.least

    def __str__(self) -> str:
        return (
            f"{self.opcode} at PTX line {self.ptx_line}: {self.wavefronts} wavefronts where "
            f"{self.least} would do, in {self.executions} executions"
        )


def wavefronts(addresses: Sequence[int], lane_bytes: int) -> int:
    """Wavefronts that one warp's access takes.

    Args:
        addresses: shared byte addresses of the active lanes (ldmatrix: of the rows).
        lane_bytes: bytes at each address: 1 to 16.
    """
    lanes = WAVEFRONT_BYTES // max(lane_bytes, WORD_BYTES)
    phases = [addresses[first : first + lanes] for first in range(0, len(addresses), lanes)]
    return sum(_phase_wavefronts(phase, lane_bytes) for phase in phases)


def least_wavefronts(addresses: Sequence[int], lane_bytes: int) -> int:
    """Wavefronts without any conflict: one for each 128 bytes."""
    lanes = WAVEFRONT_BYTES // max(lane_bytes, WORD_BYTES)
    return -(-len(addresses) // lanes)


def bank_reports(accesses: Iterable[SharedAccess]) -> list[BankReport]:
    """One report for each instruction, in the order of the PTX lines."""
    found: dict[tuple[int, str], list[int]] = defaultdict(lambda: [0, 0, 0])
    for access in accesses:
        row = found[access.ptx_line, access.opcode]
        row[0] += 1
        row[1] += wavefronts(access.addresses, access.lane_bytes)
        row[2] += least_wavefronts(access.addresses, access.lane_bytes)
    return [BankReport(op, line, *row) for (line, op), row in sorted(found.items())]


def fragment_conflicts(reports: Iterable[BankReport]) -> list[BankReport]:
    """Fragment loads (ldmatrix and 16-byte loads of weights) that conflict; there should be none.

    Loads of partial sums in the epilogue are 16 bytes too, but of type f32 and once a kernel.
    """
    return [item for item in reports if item.conflicts and _is_fragment_load(item.opcode)]


def _is_fragment_load(opcode: str) -> bool:
    return opcode.startswith("ldmatrix") or (opcode.startswith("ld") and ".v4.b32" in opcode)


def _phase_wavefronts(addresses: Sequence[int], lane_bytes: int) -> int:
    words: dict[int, set[int]] = defaultdict(set)
    for address in addresses:
        first, last = address // WORD_BYTES, (address + lane_bytes - 1) // WORD_BYTES
        for word in range(first, last + 1):
            words[word % BANKS].add(word)
    return max(map(len, words.values()), default=0)
