"""The counter of a tile that CTAs share along K, and waiting for it (PTX ISA, "red", "ld", "atom",
"nanosleep")."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_SECTION = "Parallel Synchronization and Communication Instructions: "


def arrive_on_tile() -> Instruction:
    """Counts this CTA in, returns how many came before; releases its partials, acquires theirs."""
    return _counted("u32 arrive_on_tile(u32* counter)", "global.acq_rel.gpu.inc", "SPLIT_K - 1")


def leave_tile() -> Instruction:
    """Adds to a tile's counter, returns what was there before; acquires all sums that are there."""
    return _counted("u32 leave_tile(u32* counter, u32 value)", "acq_rel.gpu.global.add", "value")


def _counted(signature: str, operation: str, value: str) -> Instruction:
    return Instruction(
        signature,
        f"atom.{operation}.u32 %0, [%1], %2;",
        _SECTION + "atom",
        outputs=('"=r"(before)',),
        inputs=('"l"(counter)', f'"r"({value})'),
        volatile=True,
        memory=True,
        declares="u32 before",
        returns="before",
    )


def count_part() -> Instruction:
    """One part of a tile more is there: what this thread has seen written before."""
    return effect(
        "void count_part(u32* counter)",
        "red.release.gpu.global.add.u32 [%0], 1;",
        _SECTION + "red",
        ('"l"(counter)',),
        min_capability=(8, 0),
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


def sleep_ns() -> Instruction:
    """Suspends the thread for about that long, twice as long at most."""
    return effect(
        "void sleep_ns(u32 nanoseconds)",
        "nanosleep.u32 %0;",
        "Miscellaneous Instructions: nanosleep",
        ('"r"(nanoseconds)',),
        min_capability=(7, 0),
    )
