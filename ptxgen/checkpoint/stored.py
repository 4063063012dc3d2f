"""The tensors of one layer under their short names, and what settings say of its groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.layer import ScaleDtype
from ptxgen.checkpoint.tensors import TensorFiles, TensorInfo
from ptxgen.errors import CheckpointError, UnsupportedFormatError
from ptxgen.problem import Dtype

SCALE_DTYPES: dict[str, ScaleDtype] = {"F16": "fp16", "BF16": "bf16", "F32": "fp32"}
INTEGERS = {"U8": 1, "I8": 1, "I16": 2, "I32": 4, "I64": 8}
WHOLE_K = -1


@dataclass(frozen=True, slots=True)
class StoredLayer:
    """A layer's tensors.

    Attributes:
        files: of the checkpoint.
        name: module name.
        tensors: what is stored, by the name's part after the module's.
    """

    files: TensorFiles
    name: str
    tensors: dict[str, TensorInfo]

    @classmethod
    def gather(cls, files: TensorFiles, name: str, suffixes: Iterable[str]) -> StoredLayer:
        """The tensors `name.suffix` that exist."""
        found = ((suffix, files.get(f"{name}.{suffix}")) for suffix in suffixes)
        return cls(files, name, {suffix: info for suffix, info in found if info is not None})

    def __contains__(self, suffix: str) -> bool:
        return suffix in self.tensors

    def shape(self, suffix: str) -> tuple[int, ...] | None:
        info = self.tensors.get(suffix)
        return info.shape if info else None

    def dtype(self, suffix: str) -> str:
        info = self.tensors.get(suffix)
        return info.dtype if info else ""

    def need(self, suffix: str, dimensions: int) -> TensorInfo:
        """A tensor of so many dimensions. Raises CheckpointError where it is not there."""
        info = self.tensors.get(suffix)
        if info is None:
            raise CheckpointError(
                f"layer {self.name} has no tensor {suffix}, only {self.words()}; the checkpoint "
                f"is incomplete or of another format than its config says."
            )
        if len(info.shape) != dimensions:
            raise UnsupportedFormatError(
                f"layer {self.name}: {info.words()} has {len(info.shape)} dimensions instead of "
                f"{dimensions}; stacked layers (experts of one tensor) are not read."
            )
        return info

    def read(self, suffix: str, device: str = "cpu") -> Tensor:
        return self.files.read(self.tensors[suffix].name, device)

    def read_bias(self, device: str, n: int) -> Tensor | None:
        """The bias [N], or None where there is none."""
        if "bias" not in self:
            return None
        if self.shape("bias") != (n,):
            raise CheckpointError(
                f"layer {self.name} has {n} output features and a bias of shape "
                f"{list(self.shape('bias') or ())}; the two belong to different layers."
            )
        return self.read("bias", device)

    def without_padding(self, values: Tensor, groups: int) -> Tensor:
        """The first columns of scales [N, padded groups], contiguous.

        Where a format pads, shapes do not tell the number of groups; what lies there does.

        Raises:
            CheckpointError: the padding is not 0, or a whole column of scales is.
        """
        real, padding = values[:, :groups].contiguous(), values[:, groups:]
        if bool((padding != 0).any()) or bool((real == 0).all(dim=0).any()):
            raise CheckpointError(
                f"layer {self.name} does not have {groups} groups: the scales after them are not "
                f"0, or a group has scales of 0 alone. The group size of the config is not that of "
                f"the file."
            )
        return real

    def words(self) -> str:
        """All tensors with dtype and shape, for messages."""
        return ", ".join(info.words() for info in self.tensors.values())

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(info.name for info in self.tensors.values())

    @property
    def num_bytes(self) -> int:
        return sum(info.num_bytes for info in self.tensors.values())

    def scale_dtype(self, suffix: str = "scales") -> ScaleDtype:
        """Raises CheckpointError where the scales are of a dtype that no format has."""
        found = SCALE_DTYPES.get(self.dtype(suffix))
        if found is None:
            raise CheckpointError(
                f"layer {self.name}: {suffix} has dtype {self.dtype(suffix)!r}; scales are "
                f"{', '.join(SCALE_DTYPES)}."
            )
        return found


def layer_names(files: TensorFiles, suffix: str) -> list[str]:
    """Names of the modules that have a tensor of this suffix, in the order of the files."""
    end = f".{suffix}"
    return [name.removesuffix(end) for name in files if name.endswith(end)]


def activation_dtype(scales: ScaleDtype, config: QuantizationConfig) -> Dtype:
    """The dtype that the scales convert to exactly; the config's where there is none."""
    return (config.dtype or "fp16") if scales == "fp32" else scales


def group_of(value: Any, where: str) -> int:
    """A group size from a config: WHOLE_K for -1, 0 and null. Raises CheckpointError otherwise."""
    if value is None or (value in (0, WHOLE_K) and not isinstance(value, bool)):
        return WHOLE_K
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise CheckpointError(f"{where}: group size {value!r} is no positive integer or -1.")
    return value


def check_bits(bits: Any, name: str) -> None:
    """Raises UnsupportedFormatError where a layer is not of 4 bits."""
    if bits != 4 or isinstance(bits, bool):
        raise UnsupportedFormatError(
            f"layer {name} has weights of {bits!r} bits; ptxtune's kernels take 4."
        )
