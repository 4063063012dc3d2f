"""The interpreter and the GPU agree on every instruction, bit for bit (mma within a bound)."""

from __future__ import annotations

import pytest
import torch

from ptxgen.interp.hardware import compare_opcodes

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("seed", [0, 1])
def test_one_instruction_kernels(seed: int) -> None:
    torch.zeros(1, device="cuda")  # makes torch's context current
    wrong = [result for result in compare_opcodes(seed) if not result["ok"]]
    assert wrong == []
