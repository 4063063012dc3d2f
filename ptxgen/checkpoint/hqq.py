"""HQQ with 4 bits: values in halves of a byte, floating-point zero points, settings as tensors."""

from __future__ import annotations

import torch
from torch import Tensor

from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.layer import LayerWeights, LinearLayer
from ptxgen.checkpoint.stored import StoredLayer, activation_dtype, check_bits
from ptxgen.errors import CheckpointError, UnsupportedFormatError

MARKER = "W_q"
SETTINGS = ("nbits", "group_size", "shape", "axis", "packing", "view_as_float")
UNREAD = (
    "unpack_view_dtype",
    "quant_scale",
    "quant_zero",
    "compute_dtype",
    "offload_meta",
    "encoded_state_dict",
    "stores_quant_config",
    "channel_wise",
    "optimize",
    "round_zero",
)
SUFFIXES = ("W_q", "scale", "zero", "bias", *SETTINGS, *UNREAD)
PACKING = "4bit_u8"
MAX_SETTING = 64


def describe(stored: StoredLayer, config: QuantizationConfig) -> LinearLayer:
    """One layer of an HQQ checkpoint.

    Raises:
        CheckpointError: its tensors contradict each other, or the config.
        UnsupportedFormatError: another number of bits or packing, groups along N (axis 0), or
            scales that are quantized themselves.
    """
    name = stored.name
    check_bits(_integer(stored, "nbits"), name)
    _check_supported(stored)
    said = tuple(int(value) for value in _setting(stored, "shape"))
    if len(said) != 2:
        raise UnsupportedFormatError(f"layer {name} has the shape {list(said)}; [N, K] is read.")
    n, k = said
    group = _integer(stored, "group_size") if "group_size" in stored else k
    _check_config(config, group, name)
    scale_dtype = stored.scale_dtype("scale")
    rows = n * k // group if group > 0 and k % group == 0 else 0
    values = stored.need(MARKER, 2)
    fits = (
        rows > 0
        and rows % 2 == 0
        and values.num_bytes == n * k // 2
        and values.shape[0] == rows // 2
        and stored.shape("scale") == stored.shape("zero") == (rows, 1)
        and stored.dtype("zero") == stored.dtype("scale")
    )
    if not fits:
        raise CheckpointError(
            f"layer {name} contradicts itself: its shape is {list(said)} and its group size "
            f"{group}, so W_q holds {n * k // 2} bytes in N K / {group} / 2 rows and scale and "
            f"zero are [N K / {group}, 1]; the tensors are {stored.words()}."
        )
    return LinearLayer(
        name=name,
        n=n,
        k=k,
        group_size=group,
        dtype=activation_dtype(scale_dtype, config),
        scale_dtype=scale_dtype,
        zero="float",
        bias="bias" in stored,
        format="HQQ",
        parts=stored.names,
        stored_bytes=stored.num_bytes,
        loader=lambda device: _load(stored, n, k, device),
        notes=("offset = -zero * scale, kept in FP32, where 16-bit factors give it exactly",),
    )


def unpack_hqq(values: Tensor, n: int, k: int) -> Tensor:
    """Bytes [rows / 2, group] to uint8 [N, K]: the first half of the rows is in high nibbles."""
    data = values.contiguous().view(torch.uint8).view(values.shape[0], -1)
    return torch.cat((data >> 4, data & 15)).view(n, k)


def _load(stored: StoredLayer, n: int, k: int, device: str) -> LayerWeights:
    scales = stored.read("scale", device).view(n, -1)
    zero = stored.read("zero", device).view(n, -1)
    return LayerWeights(
        q=unpack_hqq(stored.read(MARKER, device), n, k),
        scales=scales,
        offsets=-(zero.float() * scales.float()),
        bias=stored.read_bias(device, n),
    )


def _check_supported(stored: StoredLayer) -> None:
    letters = _setting(stored, "packing")
    packing = (
        bytes(letters.tolist()).decode("ascii", "replace") if letters.dtype == torch.uint8 else ""
    )
    if packing != PACKING:
        raise UnsupportedFormatError(
            f"layer {stored.name} is packed as {packing!r}; {PACKING} is read."
        )
    if _integer(stored, "axis") != 1:
        raise UnsupportedFormatError(
            f"layer {stored.name} has groups along N (axis 0): its scales differ between inputs, "
            f"and no order of inputs makes groups of them. Quantize it again with axis=1."
        )
    for flag in ("quant_scale", "quant_zero"):
        if flag in stored and _integer(stored, flag):
            raise UnsupportedFormatError(
                f"layer {stored.name} has quantized scales or zero points ({flag}); quantize it "
                f"again without."
            )


def _check_config(config: QuantizationConfig, group: int, name: str) -> None:
    """The config repeats the settings; where it does, it must say the same."""
    inner = config.settings.get("quant_config")
    weights = inner.get("weight_quant_params") if isinstance(inner, dict) else None
    if not isinstance(weights, dict):
        return
    said = {"nbits": 4, "axis": 1, "group_size": group}
    for setting, value in said.items():
        other = weights.get(setting)
        if other is not None and other != value:
            raise CheckpointError(
                f"layer {name} has {setting} {value} by its tensors, and {config.source} says "
                f"{other!r}; one of them is wrong."
            )


def _setting(stored: StoredLayer, suffix: str) -> Tensor:
    info = stored.tensors.get(suffix)
    if info is None or info.num_bytes > 8 * MAX_SETTING:
        raise CheckpointError(
            f"layer {stored.name} has no setting {suffix}, only {stored.words()}; save the model "
            f"with HQQ's encoded state dict."
        )
    return stored.read(suffix).flatten()


def _integer(stored: StoredLayer, suffix: str) -> int:
    values = _setting(stored, suffix)
    if values.numel() != 1 or values.is_floating_point():
        raise CheckpointError(f"layer {stored.name}: {suffix} is no integer.")
    return int(values)
