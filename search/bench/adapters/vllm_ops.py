"""vLLM's compiled operators without vLLM's Python: one library, loaded into torch."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("_C_stable_libtorch.abi3.so", "_C.abi3.so")
"""Where its releases keep the quantized operators, newest first."""

UINT4_ID = 1 << 50 | 4 << 8
"""The 64-bit word by which the operators know an unsigned 4-bit value without a bias: 4 mantissa
bits in bits 8..15, the bias in bits 17..48, IEEE NaNs in bits 50..57."""

UINT4_BIAS_8_ID = UINT4_ID | 8 << 17
"""The same with zero point 8."""


def load_operators(needed: str) -> Any:
    """torch.ops._C with vLLM's operators.

    Args:
        needed: an operator that must be among them.

    Raises:
        ImportError: vllm is not installed, or its library lacks the operator.
    """
    spec = importlib.util.find_spec("vllm")  # finds the folder; vllm itself is not imported
    folders = list(spec.submodule_search_locations or ()) if spec else []
    found = [Path(folder) / name for folder in folders for name in LIBRARIES]
    for path in found:
        if path.is_file():
            torch.ops.load_library(str(path))  # type: ignore[no-untyped-call]
            if hasattr(torch.ops._C, needed):
                return torch.ops._C
    raise ImportError(
        f"no library of vllm with the operator {needed} in {', '.join(folders) or 'sys.path'}; "
        f"looked for {', '.join(LIBRARIES)}"
    )
