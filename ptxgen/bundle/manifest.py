"""Manifest: everything a user of an exported bundle must know, as typed data and as JSON."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from ptxgen.bundle import words
from ptxgen.bundle.fields import REFUSED, Fields
from ptxgen.bundle.measurement import Measurement, read_measurement
from ptxgen.bundle.plan_fields import read_plan
from ptxgen.bundle.unpacking import Unpacking, read_unpacking
from ptxgen.config import Scalar
from ptxgen.errors import BundleError, NotABundleError
from ptxgen.json_text import json_value
from ptxgen.outcome import Resources
from ptxgen.problem import MAX_M, Problem, bucket_of
from ptxgen.source import ENTRY, LaunchPlan
from ptxgen.weights.layout import LAYOUT_VERSION, packed_layout
from ptxgen.weights.layout_text import layout_words

KIND = "ptxtune-w4a16-bundle"
SCHEMA = 1
MANIFEST_NAME = "manifest.json"
MAX_MANIFEST_BYTES = 16 << 20
"""A larger one is refused unread: ours have some 20 KB."""

FILE_KINDS = ("cu", "ptx", "cubin")


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """The GPU that the kernels were tuned on, or predicted for.

    Attributes:
        name: as the driver reports it.
        capability: compute capability, such as "9.0".
    """

    name: str
    capability: str


@dataclass(frozen=True, slots=True)
class ToolchainInfo:
    """What made the kernels and the measurement; driver is "" where no driver was involved."""

    ptxtune: str
    nvrtc: str
    driver: str = ""
    commit: str = ""


@dataclass(frozen=True, slots=True)
class Bucket:
    """One kernel of a bundle, and the batches it serves.

    Attributes:
        m_max: largest batch of the bucket.
        config: family and knobs.
        config_key: the config in one readable line.
        plan: launch plan.
        resources: registers, spills and shared memory.
        measurement: time and error, measured or predicted; None for a config nobody timed.
        files: relative names of the source ("cu"), the PTX ("ptx") and the cubin ("cubin").
        source_digest: KernelSource.digest of the source.
        self_test_m: batch of the self-test that goes through this kernel.
        dequantize_first: dequantize + matmul is the faster way at measurement.m; see unpacking.
    """

    m_max: int
    config: dict[str, Scalar]
    config_key: str
    plan: LaunchPlan
    resources: Resources
    measurement: Measurement | None
    files: dict[str, str]
    source_digest: str
    self_test_m: int
    dequantize_first: bool = False


@dataclass(frozen=True, slots=True)
class SelfTestInfo:
    """Where the expected outputs are, and how close an output must come.

    |y - expected| <= rel_tolerance * |expected| + abs_tolerance for each element.

    Attributes:
        file: relative name of the expected rows: FP32 little-endian [rows, N].
        rows: distinct activation rows; row i of any batch is row i % rows.
    """

    file: str
    rows: int
    rel_tolerance: float
    abs_tolerance: float


@dataclass(frozen=True, slots=True)
class Manifest:
    """A bundle's contents. Buckets are sorted by m_max; files maps other files to their sha256.

    unpacking is the dequantize kernel; None where no bucket goes that way first.
    """

    problem: Problem
    arch: str
    device: DeviceInfo
    toolchain: ToolchainInfo
    buckets: tuple[Bucket, ...]
    self_test: SelfTestInfo
    files: dict[str, str]
    created_at: str = ""
    entry: str = ENTRY
    unpacking: Unpacking | None = None

    @property
    def predicted(self) -> bool:
        """True where the time of any bucket comes from the model instead of a GPU."""
        return any(b.measurement is not None and b.measurement.predicted for b in self.buckets)

    @property
    def measured(self) -> bool:
        """True where every bucket was measured on the bundle's own GPU."""
        return all(
            b.measurement is not None
            and not b.measurement.predicted
            and b.measurement.device in ("", self.device.name)
            for b in self.buckets
        )

    @property
    def takes_tensor_map(self) -> bool:
        """True where the kernel of any bucket reads x by a tensor map."""
        return any(bucket.plan.x_box is not None for bucket in self.buckets)

    def bucket_for(self, m: int) -> Bucket:
        """The kernel of a batch: smallest m_max >= m, and the last one for anything above."""
        m_max = bucket_of(m, tuple(bucket.m_max for bucket in self.buckets))
        return next(bucket for bucket in self.buckets if bucket.m_max == m_max)

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly, with the rules in words for a reader who has no ptxtune."""
        body = {
            "kind": KIND,
            "schema": SCHEMA,
            "created_at": self.created_at,
            "predicted": self.predicted,
            "measured": self.measured,
            "problem": self.problem.to_dict(),
            "problem_key": self.problem.key(),
            "arch": self.arch,
            "device": asdict(self.device),
            "toolchain": asdict(self.toolchain),
            "entry": self.entry,
            "arguments": words.arguments(self.problem, self.takes_tensor_map),
            "dispatch": words.DISPATCH,
            "launch": words.LAUNCH,
            "workspace": words.WORKSPACE,
            **({"tensor_map": words.TENSOR_MAP} if self.takes_tensor_map else {}),
            "packed_layout": layout_words(self.problem),
            "self_test": {**asdict(self.self_test), **words.SELF_TEST},
            "buckets": [_bucket_dict(bucket) for bucket in self.buckets],
            **self._unpacking_dict(),
            "files": self.files,
        }
        return {**body, "digest": _digest(body)}

    def _unpacking_dict(self) -> dict[str, Any]:
        if self.unpacking is None:
            return {}
        return {"unpacking": self.unpacking.to_dict(self.problem)}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Parses and checks a manifest.

        Raises:
            BundleError: not a manifest, another schema, edited, or inconsistent; says which.
        """
        try:
            data = json_value(text)
        except ValueError as error:
            raise BundleError(f"{MANIFEST_NAME} is not JSON ({error}). {REFUSED}") from None
        fields = Fields(data)
        _check_identity(fields)
        problem = _problem(fields.child("problem"))
        buckets = tuple(_bucket(item, problem) for item in fields.children("buckets"))
        _check_buckets(buckets)
        unpacks = fields.data.get("unpacking") is not None
        unpacking = read_unpacking(fields.child("unpacking"), problem) if unpacks else None
        _check_ways(buckets, unpacking)
        layout = fields.child("packed_layout")
        _check_layout(layout.integer("version"), layout.integer("TOTAL_BYTES", most=2**63), problem)
        return cls(
            problem=problem,
            arch=fields.text("arch"),
            device=_device(fields.child("device")),
            toolchain=_toolchain(fields.child("toolchain")),
            buckets=buckets,
            self_test=_self_test(fields.child("self_test")),
            files=fields.child("files").strings(),
            created_at=fields.text("created_at"),
            entry=fields.text("entry"),
            unpacking=unpacking,
        )


def _digest(body: dict[str, Any]) -> str:
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _check_identity(fields: Fields) -> None:
    if (kind := fields.text("kind")) != KIND:
        raise NotABundleError(
            f"{MANIFEST_NAME} is of kind {kind!r:.60}, not {KIND!r}; not a bundle."
        )
    if (schema := fields.integer("schema")) != SCHEMA:
        raise NotABundleError(
            f"the bundle has schema {schema}; this ptxtune reads schema {SCHEMA}. "
            f"Install the ptxtune that wrote it, or export the bundle again with this one."
        )
    body = {name: value for name, value in fields.data.items() if name != "digest"}
    if fields.text("digest") != _digest(body):
        raise BundleError(f"{MANIFEST_NAME} does not match its own digest. {REFUSED}")


def _check_layout(version: int, total_bytes: int, problem: Problem) -> None:
    expected = packed_layout(problem).total_bytes
    if (version, total_bytes) != (LAYOUT_VERSION, expected):
        raise BundleError(
            f"the bundle reads packed layout version {version} of {total_bytes} bytes; "
            f"this ptxtune packs version {LAYOUT_VERSION} of {expected} bytes. "
            f"Export the bundle again."
        )


def _check_buckets(buckets: tuple[Bucket, ...]) -> None:
    sizes = [bucket.m_max for bucket in buckets]
    if not sizes or sizes != sorted(set(sizes)):
        raise BundleError(f"bucket sizes {sizes} must rise and not be empty. {REFUSED}")


def _check_ways(buckets: tuple[Bucket, ...], unpacking: Unpacking | None) -> None:
    """A bucket that goes by way of the dense weight needs its kernel, and the M it was timed at."""
    for bucket in buckets:
        if bucket.dequantize_first and (unpacking is None or bucket.measurement is None):
            missing = "unpacking" if unpacking is None else "its measurement"
            raise BundleError(
                f"the bucket of {bucket.m_max} has dequantize_first, and the manifest lacks "
                f"{missing}. {REFUSED}"
            )


def _bucket_dict(bucket: Bucket) -> dict[str, Any]:
    m = bucket.self_test_m
    example = {
        "m": m,
        "grid": list(bucket.plan.grid(m)),
        "counter_bytes": bucket.plan.counter_bytes(m),
        "workspace_bytes": bucket.plan.workspace_bytes(m),
    }
    return {**asdict(bucket), "example": example}


def _problem(fields: Fields) -> Problem:
    problem: Problem = fields.rebuilt(Problem.from_dict, "problem")
    return problem


def _bucket(fields: Fields, problem: Problem) -> Bucket:
    files = fields.child("files").strings()
    if sorted(files) != sorted(FILE_KINDS):
        raise BundleError(f"{fields.path}.files names {sorted(files)}, not {FILE_KINDS}. {REFUSED}")
    measured = fields.data.get("measurement") is not None
    resources = fields.child("resources")
    return Bucket(
        m_max=fields.integer("m_max", least=1, most=MAX_M),
        config=dict(fields.child("config").data),
        config_key=fields.text("config_key"),
        plan=read_plan(fields.child("plan"), problem),
        resources=Resources(
            registers=resources.integer("registers"),
            spill_bytes=resources.integer("spill_bytes"),
            smem_bytes=resources.integer("smem_bytes"),
            compile_ms=resources.number("compile_ms"),
        ),
        measurement=read_measurement(fields.child("measurement")) if measured else None,
        files=files,
        source_digest=fields.text("source_digest"),
        self_test_m=fields.integer("self_test_m", least=1, most=MAX_M),
        # Younger than the first bundles, as is dequantized_us.
        dequantize_first="dequantize_first" in fields.data and fields.flag("dequantize_first"),
    )


def _device(fields: Fields) -> DeviceInfo:
    return DeviceInfo(name=fields.text("name"), capability=fields.text("capability"))


def _toolchain(fields: Fields) -> ToolchainInfo:
    return ToolchainInfo(
        ptxtune=fields.text("ptxtune"),
        nvrtc=fields.text("nvrtc"),
        driver=fields.text("driver"),
        commit=fields.text("commit"),
    )


def _self_test(fields: Fields) -> SelfTestInfo:
    return SelfTestInfo(
        file=fields.text("file"),
        rows=fields.integer("rows", least=1),
        rel_tolerance=fields.number("rel_tolerance"),
        abs_tolerance=fields.number("abs_tolerance"),
    )
