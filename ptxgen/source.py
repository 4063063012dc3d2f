"""KernelSource and LaunchPlan: what an emitter returns. Data only; JSON-friendly."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import MISSING, asdict, dataclass, fields
from typing import Any

from ptxgen.errors import ConfigError
from ptxgen.tensor_map import ELEMENT_BYTES, TensorMapRecipe, check_box

ENTRY = "ptxtune_w4a16"
"""Entry name of every kernel. Its arguments, in order:

const void* x, const void* packed, const void* bias, void* y, void* workspace,
int m, long long ldx, long long ldy  (row strides in elements), and, where the launch plan has an
x_box, const __grid_constant__ TensorMap x_map  (128 bytes by value, 64-byte aligned).
"""

COUNTER_ALIGN = 256

_COMMENT = re.compile(r"//.*")


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """How to launch a kernel; everything a launcher in any language needs.

    Grid of a batch of m > 0: x = ceil(m / block_m), y = n_tiles, z = split_k. A persistent kernel
    (max_ctas > 0) has x = min(ceil(m / block_m) * n_tiles, max(max_ctas / split_k, 1)), y = 1,
    z = split_k instead: its CTAs walk the tiles from blockIdx.x on in steps of gridDim.x. With
    stream_k all max_ctas of them are launched, and the tiles that do not fill a last round are cut
    along K, so that every CTA gets an equal share of their stages.
    A kernel with cluster_k > 1 states its cluster of (1, 1, cluster_k) CTAs itself: launch it
    without a cluster attribute.
    Workspace, only where split_k > 1 and cluster_k == 1, or with stream_k: first one uint32 counter
    a tile (ceil(m / block_m) * n_tiles of them, padded to COUNTER_ALIGN bytes), then FP32 partial
    tiles of block_m * block_n: split_k for each tile, or with stream_k two for each CTA. The
    counters must be zero before the first launch; every launch leaves them zero.
    Pointers: x and packed 16-byte aligned, y and bias 8-byte aligned, workspace 16-byte aligned;
    ldx a multiple of 8 and ldy a multiple of 4.

    Attributes:
        threads: of a CTA.
        smem_bytes: dynamic shared memory of a CTA.
        block_m: tokens of a CTA's tile.
        block_n: output features of a CTA's tile.
        n_tiles: ceil(n / block_n).
        split_k: CTAs that share one tile along K.
        pdl: the kernel has griddepcontrol and may be launched by programmatic stream serialization.
        cluster_k: CTAs of a cluster along z; those that split K, where they reduce in one another's
            shared memory instead of a workspace.
        max_ctas: most CTAs of a persistent kernel's grid; 0 where each tile has CTAs of its own.
        k: inputs, for the tensor map of x; 0 where the kernel takes none.
        x_box: (inputs, tokens) that one copy by the tensor map of x brings; None where the kernel
            takes no map.
        stream_k: the CTAs of a persistent kernel share the last tiles along K.

    Raises:
        ConfigError: max_ctas or k is negative, or x_box is no legal box.
    """

    threads: int
    smem_bytes: int
    block_m: int
    block_n: int
    n_tiles: int
    split_k: int
    pdl: bool
    cluster_k: int = 1
    max_ctas: int = 0
    k: int = 0
    x_box: tuple[int, int] | None = None
    stream_k: bool = False

    def __post_init__(self) -> None:
        for name, value in (("max_ctas", self.max_ctas), ("k", self.k)):
            if value < 0:
                raise ConfigError(f"{name} = {value} of a launch plan must be at least 0.")
        if self.x_box is not None:
            check_box(self.x_box)
            if not self.k:
                raise ConfigError("a launch plan with x_box must say k, the inputs of the map.")
        if self.stream_k and (not self.max_ctas or self.split_k > 1):
            raise ConfigError(
                f"a launch plan with stream_k needs max_ctas > 0 and split_k = 1, not "
                f"{self.max_ctas} and {self.split_k}."
            )

    @property
    def has_workspace(self) -> bool:
        """Partial sums of split K go through a workspace."""
        return self.stream_k or (self.split_k > 1 and self.cluster_k == 1)

    def m_tiles(self, m: int) -> int:
        return -(-m // self.block_m)

    def grid(self, m: int) -> tuple[int, int, int]:
        """Grid dimensions in CTAs for a batch of m > 0."""
        if not self.max_ctas:
            return (self.m_tiles(m), self.n_tiles, self.split_k)
        if self.stream_k:
            return (self.max_ctas, 1, 1)
        tiles = self.m_tiles(m) * self.n_tiles
        return (min(tiles, max(self.max_ctas // self.split_k, 1)), 1, self.split_k)

    def x_map(self, x: int, m: int, ldx: int) -> TensorMapRecipe | None:
        """The tensor map of a launch on x at a device address; None where the kernel takes none.

        Args:
            x: device address of the activations.
            m: tokens, > 0.
            ldx: row stride of x in elements.

        Raises:
            TensorError: no map can describe such an x; names value, limit and way out.
        """
        if self.x_box is None:
            return None
        return TensorMapRecipe(x, self.k, m, ldx * ELEMENT_BYTES, self.x_box)

    def counter_bytes(self, m: int) -> int:
        """Bytes of the counters in front of the partials; 0 where no workspace is needed.

        They grow with m. A workspace that serves several m (or several plans) must therefore keep
        one fixed region for counters, of the largest counter_bytes, and pass the kernel
        workspace + largest - counter_bytes(m): then counters always lie inside that region and
        partials always behind it. Passed at offset 0, the partials of one launch would be read as
        the counters of a later, larger one.
        """
        if not self.has_workspace or m == 0:
            return 0
        tiles = self.m_tiles(m) * self.n_tiles
        return -(-tiles * 4 // COUNTER_ALIGN) * COUNTER_ALIGN

    def workspace_bytes(self, m: int) -> int:
        """Bytes of workspace for a batch of m; 0 where none is needed."""
        if not self.has_workspace or m == 0:
            return 0
        tiles = self.m_tiles(m) * self.n_tiles
        partials = 2 * self.max_ctas if self.stream_k else tiles * self.split_k
        return self.counter_bytes(m) + partials * self.block_m * self.block_n * 4

    def to_dict(self) -> dict[str, Any]:
        """JSON-friendly; a box is a list."""
        return {**asdict(self), "x_box": None if self.x_box is None else list(self.x_box)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LaunchPlan:
        """The inverse of to_dict; a field with a default may be missing, as in older bundles."""
        optional = {item.name for item in fields(cls) if item.default is not MISSING}
        names = [name for name in cls.__slots__ if name in data or name not in optional]
        values = {name: data[name] for name in names}
        if values.get("x_box") is not None:
            inputs, tokens = values["x_box"]
            values["x_box"] = (inputs, tokens)
        return cls(**values)


@dataclass(frozen=True, slots=True)
class KernelSource:
    """Emitted CUDA C++: its text, its target and its launch plan.

    Attributes:
        text: the whole translation unit, without any #include.
        arch: NVRTC target name.
        plan: launch plan.
        entry: name of the __global__ function.
    """

    text: str
    arch: str
    plan: LaunchPlan
    entry: str = ENTRY

    def digest(self) -> str:
        """sha256 of arch, code and launch plan: equal digests are equal kernels, launched alike.

        Comments, blank lines and the plan's defaults do not count: a text that is explained better
        is the kernel that was measured.
        """
        plan = {
            item.name: value
            for item in fields(self.plan)
            if (value := getattr(self.plan, item.name)) != item.default
        }
        lines = (line.rstrip() for line in _COMMENT.sub("", self.text).splitlines())
        code = "\n".join(line for line in lines if line)
        told = f"{self.arch}\n{json.dumps(plan, sort_keys=True)}\n{code}"
        return hashlib.sha256(told.encode()).hexdigest()
