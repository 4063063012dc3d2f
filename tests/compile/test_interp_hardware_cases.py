"""The interpreter's half of the hardware comparison: every case compiles and runs, a result that is
off is found."""

from __future__ import annotations

import numpy as np
import pytest

from ptxgen.compile import CompiledKernel
from ptxgen.interp import hardware, hardware_cases
from ptxgen.interp.hardware import Words, compare_opcodes, execute_on_interpreter
from ptxgen.source import KernelSource

pytestmark = pytest.mark.compile


def test_every_case_runs_and_agrees_with_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "LANES", 512)
    results = compare_opcodes(1, "sm_90a", execute_on_interpreter)
    assert len(results) == len(hardware_cases.cases()) == len({r["opcode"] for r in results})
    assert [r["opcode"] for r in results if not r["ok"] or r["mismatches"]] == []


def test_a_wrong_bit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hardware that is off in the last bit of one lane; for mma it is within the bound, which a
    wrong fragment is not."""
    monkeypatch.setattr(hardware, "LANES", 256)
    some = [
        c for c in hardware_cases.cases() if c.opcode.startswith(("mma", "wgmma", "shf.l", "atom"))
    ]
    monkeypatch.setattr(hardware, "cases", lambda: some)

    def last_bit(kernel: CompiledKernel, source: KernelSource, x: Words, rows: int) -> Words:
        y = execute_on_interpreter(kernel, source, x, rows)
        y[0, 77] ^= np.uint64(1)
        return y

    def shuffled(kernel: CompiledKernel, source: KernelSource, x: Words, rows: int) -> Words:
        return np.roll(execute_on_interpreter(kernel, source, x, rows), 1, axis=1)

    for result in compare_opcodes(2, "sm_90a", last_bit):
        assert result["mismatches"] == 1
        assert result["ok"] == (not result["exact"])
        assert result["example"]["output"] == 0
    wrong = [r for r in compare_opcodes(2, "sm_90a", shuffled) if not r["exact"]]
    assert len(wrong) == 4
    assert not any(r["ok"] for r in wrong)
