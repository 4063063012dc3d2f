"""Logs as NVRTC writes them, and what they say."""

from __future__ import annotations

from ptxgen.ptxas_log import PtxasReport, read_ptxas_log

SPILLING = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90a'
ptxas info    : Function properties for other
ptxas         .     8 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 256 bytes smem, 360 bytes cmem[0]
ptxas info    : Compile time = 2.166 ms
ptxas info    : Compiling entry function 'kernel' for 'sm_90a'
ptxas info    : Function properties for kernel
ptxas         .     496 bytes stack frame, 844 bytes spill stores, 840 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 496 bytes cumulative stack size
ptxas info    : Compile time = 124.042 ms
"""


def test_each_kernel_has_its_own_numbers() -> None:
    assert read_ptxas_log(SPILLING, "other") == PtxasReport(12, 8, 256)
    assert read_ptxas_log(SPILLING, "kernel") == PtxasReport(32, 844, 0)


def test_a_functions_local_memory_counts() -> None:
    log = SPILLING.replace(
        "ptxas info    : Used 32",
        "ptxas info    : Function properties for helper\n"
        "ptxas         .     1000 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
        "ptxas info    : Used 32",
    )
    assert read_ptxas_log(log, "kernel") == PtxasReport(32, 1000, 0)


def test_a_log_without_the_kernel_says_nothing() -> None:
    assert read_ptxas_log("", "kernel") is None
    assert read_ptxas_log(SPILLING, "kern") is None
    assert read_ptxas_log(SPILLING.replace("Used", "used"), "kernel") is None
