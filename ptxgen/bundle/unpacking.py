"""Unpacking: what a manifest says of the dequantize kernel, for buckets where it goes first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ptxgen.bundle.fields import REFUSED, Fields
from ptxgen.bundle.plan_fields import read_plan
from ptxgen.errors import BundleError
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan

FILES = {kind: f"dequantize.{kind}" for kind in ("cu", "ptx", "cubin")}

WORDS = (
    "In buckets with dequantize_first the finals found another way faster at measurement.m than "
    "the bucket's own kernel: this kernel writes the dense weight [N, K], row-major, in the "
    "problem's dtype, and a library's matmul multiplies x by its transpose (and adds the bias). "
    "ptxtune.load goes that way for batches above half of measurement.m; the C header always "
    "launches the bucket's own kernel. Arguments are those of the other kernels: packed and y (the "
    "dense weight, 16-byte aligned) and ldy = K are read, m is not; launch grid(m) for m = K."
)


@dataclass(frozen=True, slots=True)
class Unpacking:
    """The bundle's dequantize kernel.

    Attributes:
        entry: name of its __global__ function.
        plan: launch plan; its grid is that of a batch of K.
        source_digest: KernelSource.digest of the source.
        files: relative names of the source ("cu"), the PTX ("ptx") and the cubin ("cubin").
    """

    entry: str
    plan: LaunchPlan
    source_digest: str
    files: dict[str, str]

    def to_dict(self, problem: Problem) -> dict[str, Any]:
        """JSON-friendly, with its use in words and its grid in numbers."""
        grid = list(self.plan.grid(problem.k))
        return {"words": WORDS, **asdict(self), "grid": grid}


def read_unpacking(fields: Fields, problem: Problem) -> Unpacking:
    """The part. Raises BundleError for a field that is missing, wrong or contradicts another."""
    files = fields.child("files").strings()
    if sorted(files) != sorted(FILES):
        raise BundleError(
            f"{fields.path}.files names {sorted(files)}, not {sorted(FILES)}. {REFUSED}"
        )
    return Unpacking(
        entry=fields.text("entry"),
        plan=read_plan(fields.child("plan"), problem),
        source_digest=fields.text("source_digest"),
        files=files,
    )
