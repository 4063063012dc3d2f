"""The contenders by name: which package each needs, who adapts it, and which process it shares."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from ptxgen.errors import PtxtuneError

OURS = "ptxtune"
CUBLAS = "cublas"


class ContenderError(PtxtuneError):
    """A contender that is not known."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One competitor, or ourselves.

    Attributes:
        name: on the command line and in the rows.
        group: contenders of a group share a process; what crashes one may take the others along.
        module: importable name that must be there.
        distributions: whose versions are reported.
        factory: "module:function" that makes its search.bench.base.Adapter.
        about: what it is, in words.
    """

    name: str
    group: str
    module: str
    distributions: tuple[str, ...]
    factory: str
    about: str

    def missing(self) -> str:
        """Why it cannot be run here; empty where its package is installed. Imports nothing."""
        if importlib.util.find_spec(self.module) is not None:
            return ""
        return f"{self.distributions[0]} is not installed"

    def version(self) -> str:
        """Versions of its packages, such as "torch 2.11.0"."""
        found = [(name, _version(name)) for name in self.distributions]
        return ", ".join(f"{name} {text}" for name, text in found if text)


def _adapter(name: str) -> str:
    return f"search.bench.adapters.{name}:create"


CONTENDERS: dict[str, Contender] = {
    item.name: item
    for item in (
        Contender(OURS, OURS, "ptxgen", (OURS,), _adapter("ours"), "our own kernels"),
        Contender(
            CUBLAS,
            "torch",
            "torch",
            ("torch", "nvidia-cublas"),
            _adapter("cublas"),
            "cuBLAS on dequantized weights",
        ),
        Contender(
            "tinygemm",
            "torch",
            "torch",
            ("torch",),
            _adapter("tinygemm"),
            "torch's int4 operator, bf16 only",
        ),
        Contender(
            "gemlite",
            "gemlite",
            "gemlite",
            ("gemlite",),
            _adapter("gemlite"),
            "gemlite's Triton kernels",
        ),
        Contender(
            "humming",
            "humming",
            "humming",
            ("humming-kernels",),
            _adapter("humming"),
            "humming-kernels, configs by its own heuristics",
        ),
        Contender("marlin", "vllm", "vllm", ("vllm",), _adapter("marlin"), "vLLM's Marlin"),
        Contender(
            "machete",
            "vllm",
            "vllm",
            ("vllm",),
            _adapter("machete"),
            "vLLM's Machete, the fastest of its schedules",
        ),
    )
}


def contenders_named(names: Sequence[str]) -> tuple[Contender, ...]:
    """The contenders of these names in the registry's order; all of them where none is named.

    Raises:
        ContenderError: a name is not known; the message lists those that are.
    """
    unknown = [name for name in names if name not in CONTENDERS]
    if unknown:
        raise ContenderError(
            f"contender {unknown[0]!r} is not known; choose from {', '.join(CONTENDERS)}."
        )
    return tuple(item for item in CONTENDERS.values() if not names or item.name in names)


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""
