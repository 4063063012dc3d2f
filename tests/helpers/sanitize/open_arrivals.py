"""The wgmma_tma kernel for racecheck: every lane releases a slot, not one for its warp.

As shipped, a warp that has read a slot meets at a __syncwarp, and one lane of it arrives at the
slot's mbarrier. That is enough: bar.warp.sync orders memory among the lanes, and what an arrival
releases is cumulative (PTX ISA, "bar.warp.sync", "mbarrier.arrive" and "Memory Consistency Model").
racecheck orders the reads of the lane that arrives, and reports those of the other 31 (of CUDA
13.0, on an H200, 2026-11-30). Where every lane arrives for itself, it can follow all else: which
slot is filled when, and who waits for what.
"""

from __future__ import annotations

import re

from ptxgen.errors import ToolError

HEADING = """\
// A variant for racecheck, never shipped: every lane of a consumer releases a slot, not one a warp.
"""

_INIT = (
    r"mbarrier_init\(empty \+ slot \* 8, (CONSUMER_WARPS|SLOT_READERS)( \* MULTICAST)?\);",
    r"mbarrier_init(empty + slot * 8, \1\2 * 32);",
)
_ARRIVE = (
    r"mbarrier_arrive_if\(empty \+ slot \* 8, yes && lane == 0\);",
    r"mbarrier_arrive_if(empty + slot * 8, yes);",
)
_ARRIVE_IN_CLUSTER = (
    r"    const u32 barrier = map_to_cta\(empty \+ slot \* 8, (.*)lane % (\d+)\);\n"
    r"    mbarrier_arrive_cluster_if\(barrier, yes && lane < \2\);\n",
    r"""#pragma unroll
    for (int cta = 0; cta < MULTICAST; ++cta)
      mbarrier_arrive_cluster_if(map_to_cta(empty + slot * 8, \1cta), yes);
""",
)


def open_arrivals(text: str) -> str:
    """A wgmma_tma kernel's text, changed so that every lane arrives and is waited for.

    Raises:
        ToolError: the text does not have exactly one of what is changed; it must not pass for the
            variant then.
    """
    text = _edited_once(text, "count of a slot's arrivals", _INIT)
    return HEADING + _edited_once(text, "arrival that releases a slot", _ARRIVE, _ARRIVE_IN_CLUSTER)


def _edited_once(text: str, what: str, *edits: tuple[str, str]) -> str:
    """The text after the one of the edits that fits it, in one place."""
    total = 0
    for pattern, replacement in edits:
        text, count = re.subn(pattern, replacement, text)
        total += count
    if total != 1:
        raise ToolError(
            f"the variant for racecheck changes one {what}, and this kernel's text has {total} of "
            f"the wording that tests/helpers/sanitize/open_arrivals.py knows. Where the wgmma_tma "
            f"emitter has changed, change the wording there too."
        )
    return text
