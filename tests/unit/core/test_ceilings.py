"""The kernels that measure a device's ceilings have a name of their own."""

from __future__ import annotations

from ptxgen.ceilings import ENTRY, mma_kernel, read_kernel
from ptxgen.source import ENTRY as OURS


def test_a_profiler_that_looks_for_our_kernels_does_not_find_these() -> None:
    """They run first: two of three profiles of a winner were of the streaming read."""
    assert OURS not in ENTRY
    for text in (read_kernel(), mma_kernel()):
        assert f"{ENTRY}(" in text
        assert OURS not in text
