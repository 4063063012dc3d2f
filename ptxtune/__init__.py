"""ptxtune: W4A16 kernels tuned for your GPU. A small public API that loads on first use."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from ptxtune.version import VERSION

if TYPE_CHECKING:
    from ptxgen.bundle.contents import BundleContents, verify
    from ptxgen.bundle.load import load
    from ptxgen.errors import BundleError, PtxtuneError
    from ptxgen.problem import Problem
    from ptxgen.weights.pack import pack, unpack
    from ptxgen.weights.quantize import QuantizedWeight, dequantize, quantize
    from ptxtune.api import best, export, problem, tune
    from ptxtune.layers.linear import W4A16Linear

__version__ = VERSION

__all__ = [
    "BundleContents",
    "BundleError",
    "Problem",
    "PtxtuneError",
    "QuantizedWeight",
    "W4A16Linear",
    "__version__",
    "best",
    "dequantize",
    "export",
    "load",
    "pack",
    "problem",
    "quantize",
    "tune",
    "unpack",
    "verify",
]

# Where each name lives: importing ptxtune must stay fast and load neither torch nor CUDA.
_HOMES = {
    "BundleContents": "ptxgen.bundle.contents",
    "BundleError": "ptxgen.errors",
    "Problem": "ptxgen.problem",
    "PtxtuneError": "ptxgen.errors",
    "QuantizedWeight": "ptxgen.weights.quantize",
    "W4A16Linear": "ptxtune.layers.linear",
    "best": "ptxtune.api",
    "dequantize": "ptxgen.weights.quantize",
    "export": "ptxtune.api",
    "load": "ptxgen.bundle.load",
    "pack": "ptxgen.weights.pack",
    "problem": "ptxtune.api",
    "quantize": "ptxgen.weights.quantize",
    "tune": "ptxtune.api",
    "unpack": "ptxgen.weights.pack",
    "verify": "ptxgen.bundle.contents",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ptxtune' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
