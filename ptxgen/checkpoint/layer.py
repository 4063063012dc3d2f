"""One quantized linear layer of a checkpoint: what it is, whether a kernel can compute it, values.

A layer is described from headers alone; its values are read when `load` is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from ptxgen.checkpoint.scales import Rounding, convert_scales
from ptxgen.errors import ProblemError, UnsupportedFormatError
from ptxgen.problem import SYMMETRIC_ZERO, Dtype, Problem
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight

ZeroKind = Literal["sym", "int", "float"]
ScaleDtype = Literal["fp16", "bf16", "fp32"]


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """The values of a layer, one 4-bit value a byte.

    Column j of q belongs to input permutation[j] (to input j where there is no permutation), and
    to group j // group_size. With s and the zero point z of a value's group the weight is
    (q - z) * s; where offsets are given it is q * s + offset.

    Attributes:
        q: uint8 [N, K], values 0..15.
        scales: [N, groups], in the checkpoint's own dtype.
        zeros: uint8 [N, groups], 0..15; None where every zero point is 8, or offsets are given.
        offsets: floating point [N, groups]; None unless the zero points are no integers.
        bias: [N], or None.
        permutation: int64 [K] (act-order: groups in the order of importance), or None.
        notes: what was done to the stored values, in words.
    """

    q: Tensor
    scales: Tensor
    zeros: Tensor | None = None
    offsets: Tensor | None = None
    bias: Tensor | None = None
    permutation: Tensor | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A 4-bit linear layer that a checkpoint holds.

    Attributes:
        name: module name, such as model.layers.0.self_attn.q_proj.
        n: output features.
        k: input features.
        group_size: inputs that share a scale; k where it is one group.
        dtype: of activations that the layer's scales convert to exactly where there is one; else
            the checkpoint's own dtype.
        scale_dtype: as stored.
        zero: "sym" (8 everywhere), "int" (0..15 a group) or "float" (w = q * scale + offset).
        bias: whether a bias is stored.
        format: the layout in words, such as "AWQ gemm".
        parts: names of all tensors that the layer consists of.
        stored_bytes: of these tensors.
        permutation: int64 [K] of an act-order layer, see LayerWeights; None otherwise.
        notes: what is worth knowing, in words.
        loader: reads the values onto a device.
        fused_from: names of the layers that it was fused of, in their order.
    """

    name: str
    n: int
    k: int
    group_size: int
    dtype: Dtype
    scale_dtype: ScaleDtype
    zero: ZeroKind
    bias: bool
    format: str
    parts: tuple[str, ...]
    stored_bytes: int
    loader: Callable[[str], LayerWeights] = field(repr=False, compare=False)
    permutation: Tensor | None = field(default=None, repr=False, compare=False)
    notes: tuple[str, ...] = ()
    fused_from: tuple[str, ...] = ()

    @property
    def num_groups(self) -> int:
        return -(-self.k // self.group_size)

    @property
    def act_order(self) -> bool:
        return self.permutation is not None

    def missing(self) -> tuple[str, ...]:
        """What the kernels lack to compute this layer, in words; empty where they can."""
        lacks = []
        if self.zero == "float":
            lacks.append(
                "floating-point zero points (w = q * scale + offset); kernels take a zero point "
                "of 8 or an integer 0..15 a group"
            )
        if self.act_order:
            lacks.append(
                "act-order (groups over permuted inputs); kernels read inputs in their own order"
            )
        if self.k % self.group_size:
            lacks.append(
                f"a short last group ({self.k} inputs are {self.k / self.group_size:g} groups of "
                f"{self.group_size}); kernels take whole groups"
            )
        elif not lacks:
            try:
                self._problem(self.dtype)
            except ProblemError as error:
                lacks.append(f"a problem of this shape: {error}")
        return tuple(lacks)

    def problem(self, dtype: Dtype | None = None) -> Problem:
        """The problem that computes this layer.

        Args:
            dtype: of the activations; None is the layer's own.

        Raises:
            UnsupportedFormatError: no kernel can compute it; the message names what is missing.
        """
        lacks = self.missing()
        if lacks:
            raise UnsupportedFormatError(
                f"layer {self.name} ({self.format}, {self.n} x {self.k}) needs what no kernel has "
                f"yet: {'; and '.join(lacks)}. Requantize the layer without it, or keep it in "
                f"another engine."
            )
        return self._problem(self.dtype if dtype is None else dtype)

    def load(self, device: str = "cpu") -> LayerWeights:
        """The values, read now.

        Raises:
            CheckpointError: tensors are damaged, or their values contradict the description.
            UnsupportedFormatError: the values hold what cannot be expressed exactly.
        """
        return self.loader(device)

    def quantized(
        self, dtype: Dtype | None = None, device: str = "cpu"
    ) -> tuple[QuantizedWeight, Problem, Rounding]:
        """The weight as `ptxgen.weights.pack.pack` takes it, its problem, and what rounding cost.

        Args:
            dtype: of activations and scales; None is the layer's own, to which scales of 16 bits
                convert exactly.
            device: where the tensors go.

        Raises:
            UnsupportedFormatError: no kernel can compute the layer, see problem().
            TensorError: a scale is beyond the dtype, or not finite.
        """
        self.problem(dtype)  # before anything is read
        return self.quantized_from(self.load(device), dtype)

    def quantized_from(
        self, weights: LayerWeights, dtype: Dtype | None = None
    ) -> tuple[QuantizedWeight, Problem, Rounding]:
        """As quantized, of values that load returned."""
        problem = self.problem(dtype)
        scales, rounding = convert_scales(weights.scales, TORCH_DTYPES[problem.dtype], self.name)
        zeros = weights.zeros
        return QuantizedWeight(weights.q.contiguous(), scales, zeros), problem, rounding

    @property
    def members(self) -> tuple[str, ...]:
        """The layers that this one was fused of; itself where it was not."""
        return self.fused_from or (self.name,)

    def _problem(self, dtype: Dtype) -> Problem:
        return Problem(
            self.n,
            self.k,
            self.group_size,
            dtype,
            "int" if self.zero == "int" else "sym",
            self.bias,
        )


def dequantize_layer(weights: LayerWeights, group_size: int) -> Tensor:
    """The FP32 weight [N, K] of loaded values, inputs in their own order.

    Of scales of 16 bits the result is exact without offsets, and rounded once with them.

    Args:
        weights: as LinearLayer.load returns them.
        group_size: inputs that share a scale; the last group may be shorter.
    """
    k = weights.q.shape[1]
    # One group over all of K: take no more than K of its values.
    spread = min(group_size, k)
    q = weights.q.float()
    scales = weights.scales.float().repeat_interleave(spread, dim=1)[:, :k]
    if weights.offsets is not None:
        q = q * scales + weights.offsets.float().repeat_interleave(spread, dim=1)[:, :k]
    elif weights.zeros is not None:
        q = (q - weights.zeros.float().repeat_interleave(spread, dim=1)[:, :k]) * scales
    else:
        q = (q - SYMMETRIC_ZERO) * scales
    if weights.permutation is None:
        return q
    original = torch.empty_like(q)
    original[:, weights.permutation] = q
    return original
