"""The counter of a tile that CTAs share along K, and waiting for it (PTX ISA, "red", "ld", "atom",
"nanosleep")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction

_ATOMIC = "Parallel Synchronization and Communication Instructions: {}"


def count_part() -> Instruction:
    """One part of a tile more is there: what the CTA wrote before a barrier in front of it."""
    return Instruction(
        "void count_part(u32* counter)",
        "red.release.gpu.global.add.u32 [%0], 1;",
        _ATOMIC.format("red"),
        inputs=('"l"(counter)',),
        volatile=True,
        memory=True,
    )


def parts_there() -> Instruction:
    """Parts of a tile that are there, the low byte of its counter; acquires their sums."""
    return Instruction(
        "u32 parts_there(const u32* counter)",
        "ld.acquire.gpu.global.u32 %0, [%1];",
        "Data Movement and Conversion Instructions: ld",
        outputs=('"=r"(word)',),
        inputs=('"l"(counter)',),
        volatile=True,
        memory=True,
        declares="u32 word",
        returns="word & 255",
    )


def leave_tile() -> Instruction:
    """Adds to a tile's counter, returns what was there before; acquires all sums that are there."""
    return Instruction(
        "u32 leave_tile(u32* counter, u32 value)",
        "atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;",
        _ATOMIC.format("atom"),
        outputs=('"=r"(before)',),
        inputs=('"l"(counter)', '"r"(value)'),
        volatile=True,
        memory=True,
        declares="u32 before",
        returns="before",
    )


def sleep_ns() -> Instruction:
    """Suspends the thread for about that long, twice as long at most."""
    return Instruction(
        "void sleep_ns(u32 nanoseconds)",
        "nanosleep.u32 %0;",
        "Miscellaneous Instructions: nanosleep",
        inputs=('"r"(nanoseconds)',),
        min_capability=(7, 0),
        volatile=True,
        memory=True,
    )
