"""AutoAWQ: versions gemm and gemv (integer zero points), and which version a config names."""

from __future__ import annotations

from torch import Tensor

from ptxgen.checkpoint import awq_fast
from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.checkpoint.layouts import Shape, check_layout, fitting_layouts
from ptxgen.checkpoint.nibbles import unpack_awq, unpack_columns
from ptxgen.checkpoint.stored import StoredLayer, activation_dtype, check_bits, group_of
from ptxgen.errors import CheckpointError, UnsupportedFormatError

MARKER = "qweight"
SUFFIXES = ("qweight", "qzeros", "scaled_zeros", "scales", "bias")
VERSIONS = {
    "gemm": "AWQ gemm",
    "gemv": "AWQ gemv",
    "gemv_fast": "AWQ gemv_fast",
    "llm-awq": "AWQ gemv_fast",
}


def describe(stored: StoredLayer, config: QuantizationConfig) -> LinearLayer:
    """One layer of an AWQ checkpoint.

    Raises:
        CheckpointError: config and tensors contradict each other.
        UnsupportedFormatError: another number of bits, or a version that no importer reads.
    """
    check_bits(config.first("bits", "w_bit"), stored.name)
    if not {"group_size", "q_group_size"} & config.settings.keys():
        raise CheckpointError(f"{config.source} names no group_size; an AWQ config has one.")
    group = group_of(config.first("group_size", "q_group_size"), config.source)
    layout = _layout(stored, config, group)
    shape = check_layout(stored, group, layout, config.source)
    has_zeros = "qzeros" in stored or "scaled_zeros" in stored
    if has_zeros and config.first("zero_point") is False:
        raise CheckpointError(
            f"layer {stored.name} has zero points, and {config.source} says zero_point: false; "
            f"which of them holds cannot be told."
        )
    if not has_zeros and config.first("zero_point"):
        raise CheckpointError(
            f"layer {stored.name} has no qzeros, and {config.source} says zero_point: true; the "
            f"checkpoint is incomplete."
        )
    scale_dtype = stored.scale_dtype()
    return LinearLayer(
        name=stored.name,
        n=shape.n,
        k=shape.k,
        group_size=shape.group_size,
        dtype=activation_dtype(scale_dtype, config),
        scale_dtype=scale_dtype,
        zero="int" if has_zeros else "sym",
        bias="bias" in stored,
        format=layout,
        parts=stored.names,
        stored_bytes=stored.num_bytes,
        loader=lambda device: _LOADERS[layout](stored, shape, device),
        notes=awq_fast.NOTES if layout == "AWQ gemv_fast" else (),
    )


def _layout(stored: StoredLayer, config: QuantizationConfig, group: int) -> str:
    version = config.text("version")
    if not version:
        # Written by tools before there were versions: the shapes must leave one answer.
        fitting = [name for name in fitting_layouts(stored, group) if name.startswith("AWQ")]
        if len(fitting) != 1:
            raise CheckpointError(
                f"{config.source} names no AWQ version, and the tensors of {stored.name} "
                f"({stored.words()}) fit {' or '.join(fitting) or 'none'}; add the version."
            )
        return fitting[0]
    layout = VERSIONS.get(version)
    if layout is None:
        raise UnsupportedFormatError(
            f"{config.source} says AWQ version {version!r}; {', '.join(VERSIONS)} are read. "
            f"Convert the checkpoint to gemm with the tool that wrote it."
        )
    return layout


def _load_gemm(stored: StoredLayer, shape: Shape, device: str) -> LayerWeights:
    zeros: Tensor | None = None
    if "qzeros" in stored:
        zeros = unpack_awq(stored.read("qzeros", device)).t().contiguous()
    return LayerWeights(
        q=unpack_awq(stored.read("qweight", device)).t().contiguous(),
        scales=stored.read("scales", device).t().contiguous(),
        zeros=zeros,
        bias=stored.read_bias(device, shape.n),
    )


def _load_gemv(stored: StoredLayer, shape: Shape, device: str) -> LayerWeights:
    groups = shape.k // shape.group_size
    zeros: Tensor | None = None
    if "qzeros" in stored:
        zeros = unpack_columns(stored.read("qzeros", device), groups)
    return LayerWeights(
        q=unpack_columns(stored.read("qweight", device)),
        scales=stored.without_padding(stored.read("scales", device), groups),
        zeros=zeros,
        bias=stored.read_bias(device, shape.n),
    )


_LOADERS = {
    "AWQ gemm": _load_gemm,
    "AWQ gemv": _load_gemv,
    "AWQ gemv_fast": awq_fast.load,
}
