"""Measurement: what a manifest says of how fast a bucket's kernel is, and how that is known."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.bundle.fields import REFUSED, Fields
from ptxgen.errors import BundleError
from ptxgen.proof import Proof


@dataclass(frozen=True, slots=True)
class Measurement:
    """How fast a bucket's kernel is, at batches of m, and how that is known.

    Attributes:
        m: batch that was timed.
        time_us: median microseconds per launch.
        predicted: time_us comes from the model; no GPU ran the kernel.
        protocol: plain or chained.
        spread: (p75 - p25) / median of the samples.
        rel_err: ||out - ref|| / ||ref|| of the check before timing; None where it never ran.
        floor_us, default_us, cublas_us: what it was compared with, where known.
        measured_at: ISO 8601 time.
        device: GPU that was timed, where it is not the bundle's own; "" where it is.
        state: cool or sustained; "" where it is not known.
        proof: what the finals showed, with intervals; None where there were none.
        dequantized_us: of dequantize + matmul, where it took part.
    """

    m: int
    time_us: float
    predicted: bool
    protocol: str
    spread: float | None = None
    rel_err: float | None = None
    floor_us: float | None = None
    default_us: float | None = None
    cublas_us: float | None = None
    measured_at: str = ""
    device: str = ""
    state: str = ""
    proof: Proof | None = None
    dequantized_us: float | None = None


def read_measurement(fields: Fields) -> Measurement:
    """The measurement. Raises BundleError for a field that is missing or wrong."""
    return Measurement(
        m=fields.integer("m"),
        time_us=fields.number("time_us"),
        predicted=fields.flag("predicted"),
        protocol=fields.text("protocol"),
        spread=fields.optional_number("spread"),
        rel_err=fields.optional_number("rel_err"),
        floor_us=fields.optional_number("floor_us"),
        default_us=fields.optional_number("default_us"),
        cublas_us=fields.optional_number("cublas_us"),
        measured_at=fields.text("measured_at"),
        device=fields.text("device"),
        state=fields.text("state"),
        proof=_proof(fields) if fields.data.get("proof") is not None else None,
        dequantized_us=(
            fields.optional_number("dequantized_us") if "dequantized_us" in fields.data else None
        ),
    )


def _proof(fields: Fields) -> Proof:
    child = fields.child("proof")
    try:
        return Proof.from_dict(child.data)
    except (TypeError, KeyError, ValueError) as error:
        raise BundleError(f"{child.path} is no proof: {error}. {REFUSED}") from None
