"""KernelSet: the kernels of one problem on one device, one for every M bucket, loaded and ready."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ptxgen.dequantize.product import multiply, write_dense
from ptxgen.device import LoadedKernel
from ptxgen.errors import TensorError
from ptxgen.launch import X_ALIGN, Y_ALIGN, WorkspacePool, aligned_rows
from ptxgen.problem import MAX_M, Problem, check_m
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.quantize import TORCH_DTYPES


@dataclass(frozen=True, slots=True)
class Served:
    """What computes batches up to m_max: a kernel, or dequantize + matmul.

    Attributes:
        m_max: the largest batch of its bucket; the last one also serves all larger batches.
        kernel: the bucket's kernel.
        dequantizer: writes the dense weight, where that and a matmul are faster; else None.
    """

    m_max: int
    kernel: LoadedKernel
    dequantizer: LoadedKernel | None = None


class KernelSet:
    """y = kernels(x, packed, bias) for any batch, on the current stream.

    Made to be called from an engine's hot path: what a call checks is what could make the kernel
    read or write outside of its tensors; all that depends on the batch alone is worked out once.

    Attributes:
        problem: what is computed.
        device: where its kernels are loaded.
    """

    def __init__(self, problem: Problem, device: torch.device, served: Sequence[Served]) -> None:
        """Takes kernels loaded on the device, by ascending m_max, and makes their workspaces.

        Nothing is allocated later but outputs, copies of unaligned inputs, and the dense weight
        where dequantize + matmul is faster.
        """
        self.problem = problem
        self.device = device
        self._index = device.index
        self._n, self._k = problem.n, problem.k
        self._served = tuple(served)
        self._bounds = [item.m_max for item in served]
        self._last = len(self._bounds) - 1
        self._dtype = TORCH_DTYPES[problem.dtype]
        self._packed_bytes = packed_layout(problem).total_bytes
        self._workspaces = WorkspacePool()
        for item in served:
            self._workspaces.reserve(item.kernel, item.m_max, device)

    def __call__(
        self, x: Tensor, packed: Tensor, bias: Tensor | None = None, *, chained: bool = False
    ) -> Tensor:
        """y[..., N] = x[..., K] @ W^T (+ bias).

        Args:
            x: [..., K] in the problem's dtype on the device, any strides and offset. The product
                of the leading dimensions is M; 0 gives an empty result.
            packed: the packed weight, uint8, from ptxgen.weights.pack.
            bias: [N] where the problem has one.
            chained: by programmatic dependent launch.

        Raises:
            TensorError: a tensor does not fit; nothing was launched.
        """
        self._check(x, packed, bias)
        flat = x.dim() == 2
        rows = x if flat else x.reshape(-1, self._k)
        m = rows.shape[0]
        if m > MAX_M:
            check_m(m)
        y = x.new_empty((m, self._n) if flat else (*x.shape[:-1], self._n))
        if m == 0:
            return y
        address = rows.data_ptr()
        stride = self._k
        if address % X_ALIGN or not rows.is_contiguous():  # is_contiguous first would be slower
            rows = aligned_rows(rows)
            address, stride = rows.data_ptr(), rows.stride(0)
        if self._index == torch._C._cuda_getDevice():
            self._run(rows, m, address, stride, packed, bias, y, chained)
        else:
            with torch.cuda.device(self.device):
                self._run(rows, m, address, stride, packed, bias, y, chained)
        return y

    def serves(self, m: int) -> Served:
        """What computes a batch of m."""
        return self._served[bisect_left(self._bounds, m, 0, self._last)]

    def _run(  # noqa: PLR0917
        self,
        rows: Tensor,
        m: int,
        address: int,
        stride: int,
        packed: Tensor,
        bias: Tensor | None,
        y: Tensor,
        chained: bool,
    ) -> None:
        """Launches on rows [m, K] at an address, rows a stride apart, on the current stream."""
        item = self.serves(m)
        if item.dequantizer is None:
            stream = torch._C._cuda_getCurrentRawStream(self._index)
            workspace = 0
            if item.kernel.plan.has_workspace:
                workspace = self._workspaces.pointer(item.kernel, m, self.device, stream)
            item.kernel.launch(
                address,
                packed.data_ptr(),
                0 if bias is None else bias.data_ptr(),
                y.data_ptr(),
                workspace,
                m,
                stride,
                self._n,
                stream,
                chained,
            )
            return
        # A fresh tensor a call: kept ones would be those of a graph's own memory after a capture.
        dense = torch.empty((self.problem.n, self.problem.k), dtype=y.dtype, device=y.device)
        write_dense(item.dequantizer, self.problem, packed, dense)
        multiply(rows, dense, bias, y.view(m, self._n))

    def _check(self, x: Tensor, packed: Tensor, bias: Tensor | None) -> None:
        problem = self.problem
        if x.dtype is not self._dtype or x.get_device() != self._index or x.dim() == 0:
            raise TensorError(
                f"x is {x.dtype} of {x.dim()} dimensions on {x.device}; {problem.key()} needs "
                f"{self._dtype} [..., {problem.k}] on {self.device}. Convert or move it."
            )
        if x.shape[-1] != problem.k:
            raise TensorError(
                f"x has shape {tuple(x.shape)}; its last dimension must be K = {problem.k}."
            )
        if (
            packed.numel() != self._packed_bytes
            or packed.dtype is not torch.uint8
            or packed.get_device() != self._index
            or packed.data_ptr() % X_ALIGN
            or not packed.is_contiguous()
        ):
            raise TensorError(
                f"packed is {packed.dtype} {tuple(packed.shape)} on {packed.device}; "
                f"{problem.key()} needs a contiguous, {X_ALIGN}-byte aligned uint8 tensor of "
                f"{self._packed_bytes} bytes from ptxtune.pack on {self.device}."
            )
        if (bias is not None) is not problem.bias or (
            bias is not None
            and (
                bias.dtype is not self._dtype
                or bias.get_device() != self._index
                or bias.shape != (problem.n,)
                or not bias.is_contiguous()
                or bias.data_ptr() % Y_ALIGN
            )
        ):
            raise TensorError(
                f"bias is {'missing' if bias is None else (bias.dtype, tuple(bias.shape))}; "
                f"{problem.key()} needs "
                + (
                    f"{problem.n} contiguous {self._dtype} values on {self.device}, at an 8-byte "
                    f"aligned address."
                    if problem.bias
                    else "none."
                )
            )
        if torch.is_grad_enabled() and x.requires_grad:
            raise TensorError(
                "x requires a gradient, and 4-bit weights have no backward pass; call the layer "
                "under torch.no_grad() or torch.inference_mode(), or detach x."
            )
