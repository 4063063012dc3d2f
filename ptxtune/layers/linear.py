"""W4A16Linear: a torch.nn.Module in the place of nn.Linear, its weight packed for our kernels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ptxgen.errors import TensorError
from ptxgen.problem import Dtype, Problem, Zero
from ptxgen.weights.layout import LAYOUT_VERSION, packed_layout
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import TORCH_DTYPES, QuantizedWeight, quantize
from ptxtune.layers import operator
from ptxtune.layers.prepare import Prepared

DTYPE_WORDS: dict[torch.dtype, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16"}


class W4A16Linear(nn.Module):
    """y = x W^T (+ bias) with a 4-bit weight, for inference.

    Its kernels are chosen, compiled and loaded once: by prepare, or on the first call.

    Attributes:
        problem: what it computes.
        packed: the packed weight, uint8; the only copy of it.
        bias: [N] in the problem's dtype, or None.
    """

    packed: Tensor
    bias: Tensor | None

    def __init__(self, problem: Problem, packed: Tensor, bias: Tensor | None = None) -> None:
        """Takes a weight that ptxtune.pack has packed.

        Raises:
            TensorError: packed or bias does not fit the problem.
        """
        super().__init__()
        size = packed_layout(problem).total_bytes
        if packed.shape != (size,) or packed.dtype is not torch.uint8:
            raise TensorError(
                f"packed is {packed.dtype} {tuple(packed.shape)}; {problem.key()} needs {size} "
                f"bytes from ptxtune.pack."
            )
        if (bias is not None) is not problem.bias or (
            bias is not None and bias.shape != (problem.n,)
        ):
            raise TensorError(
                f"bias is {'missing' if bias is None else tuple(bias.shape)}; {problem.key()} "
                f"{f'needs ({problem.n},)' if problem.bias else 'has none'}."
            )
        self.problem = problem
        self._key = problem.key()
        self.register_buffer("packed", packed)
        self.register_buffer("bias", bias)

    @classmethod
    def from_quantized(
        cls, weight: QuantizedWeight, problem: Problem, bias: Tensor | None = None
    ) -> W4A16Linear:
        """Packs a quantized weight. Raises TensorError where it does not fit the problem."""
        return cls(problem, pack(weight, problem), bias)

    @classmethod
    def from_linear(cls, linear: nn.Linear, group: int = 128, zero: Zero = "sym") -> W4A16Linear:
        """Quantizes a float layer to the nearest 4-bit values, without calibration.

        Args:
            linear: fp16 or bf16, on any device; the result is on the same one.
            group: inputs that share a scale; -1 for the whole of K.
            zero: sym or int zero points.

        Raises:
            ProblemError: the layer has no such problem.
            TensorError: another dtype, or values that no scale can hold.
        """
        weight, bias = linear.weight.detach(), linear.bias
        if weight.dtype not in DTYPE_WORDS:
            raise TensorError(
                f"the layer's weight is {weight.dtype}; convert the layer to one of "
                f"{', '.join(map(str, DTYPE_WORDS))}, which its activations will have."
            )
        n, k = weight.shape
        dtype = DTYPE_WORDS[weight.dtype]
        problem = Problem(n, k, k if group == -1 else group, dtype, zero, bias is not None)
        given = None if bias is None else bias.detach().clone()
        return cls.from_quantized(quantize(weight, problem), problem, given)

    @classmethod
    def empty(cls, problem: Problem, device: torch.device | str | None = None) -> W4A16Linear:
        """A layer to load a state_dict into; on the meta device it takes no memory."""
        size = packed_layout(problem).total_bytes
        dtype = TORCH_DTYPES[problem.dtype]
        bias = torch.empty(problem.n, dtype=dtype, device=device) if problem.bias else None
        return cls(problem, torch.empty(size, dtype=torch.uint8, device=device), bias)

    def prepare(self) -> Prepared:
        """Loads the kernels now, on the weight's device; needed before a CUDA graph is captured.

        Raises:
            TensorError: the weight is on no CUDA device.
            PtxtuneError: see ptxtune.layers.prepare.
        """
        if not self.packed.is_cuda:
            raise TensorError(
                f"the packed weight is on {self.packed.device}; move the layer to a CUDA device."
            )
        return operator.prepare_operator(self.problem, self.packed.device)

    def forward(self, x: Tensor) -> Tensor:
        """y[..., N] of x[..., K] in the problem's dtype; under autocast of any float dtype."""
        if torch.is_autocast_enabled("cuda"):
            x = x.to(TORCH_DTYPES[self.problem.dtype])
        y: Tensor = torch.ops.ptxtune.w4a16_linear(x, self.packed, self.bias, self._key)
        return y

    def extra_repr(self) -> str:
        """The problem, and where its kernels are loaded, level and kernel by batch."""
        found = operator.prepared(self.problem, self.packed.device)
        return self._key if found is None else f"{self._key}, {found.summary()}"

    def get_extra_state(self) -> dict[str, Any]:
        """What the packed bytes are, so that a state_dict cannot be loaded as something else."""
        return {"problem": self.problem.to_dict(), "layout_version": LAYOUT_VERSION}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Raises TensorError where the state is of another problem or packed layout."""
        if state != self.get_extra_state():
            raise TensorError(
                f"the state holds {state}, and this layer is {self.get_extra_state()}; make the "
                f"layer for that problem, or pack the weight again."
            )
