"""dequantize + matmul on torch tensors: our kernel writes the dense weight, torch multiplies it."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ptxgen.device import LoadedKernel
from ptxgen.launch import check_tensors
from ptxgen.problem import Problem, check_m
from ptxgen.weights.quantize import TORCH_DTYPES


@dataclass(slots=True)
class DenseWeights:
    """Memory for dense weights, one for each (problem, device, stream): streams never share one.

    A problem's takes 2 N K bytes, four times its packed weight. Allocates on first use only: launch
    once before a CUDA graph is captured.
    """

    _made: dict[tuple[Problem, torch.device, int], Tensor] = field(default_factory=dict)

    def of(self, problem: Problem, device: torch.device, stream: int) -> Tensor:
        """[N, K] in the problem's dtype; its contents are what the last launch left there."""
        key = (problem, device, stream)
        if key not in self._made:
            shape, dtype = (problem.n, problem.k), TORCH_DTYPES[problem.dtype]
            self._made[key] = torch.empty(shape, dtype=dtype, device=device)
        return self._made[key]


def write_dense(kernel: LoadedKernel, problem: Problem, packed: Tensor, dense: Tensor) -> None:
    """Launches the dequantize kernel on the current stream of the packed weight's device.

    Args:
        kernel: of ptxgen.dequantize.emit, loaded on that device.
        problem: the problem.
        packed: the packed weight, uint8, checked by the caller.
        dense: [N, K] in the problem's dtype, contiguous and 16-byte aligned; written.
    """
    with torch.cuda.device(packed.device):
        kernel.launch(
            x=0,
            packed=packed.data_ptr(),
            bias=0,
            y=dense.data_ptr(),
            workspace=0,
            m=problem.k,
            ldx=0,
            ldy=problem.k,
            stream=torch.cuda.current_stream(packed.device).cuda_stream,
        )


def run_dequantized(  # noqa: PLR0917
    kernel: LoadedKernel,
    problem: Problem,
    x: Tensor,
    packed: Tensor,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    *,
    dense: Tensor,
) -> Tensor:
    """y[..., N] = x[..., K] @ W^T (+ bias), as ptxgen.launch.run, by way of the dense weight.

    Args:
        kernel: of ptxgen.dequantize.emit, loaded on x's device.
        x: [..., K] in the problem's dtype; the leading dimensions' product is M, 0 gives an empty
            result.
        packed: the packed weights, uint8, from ptxgen.weights.pack.
        bias: [N] where the problem has one.
        out: [..., N] to write to, contiguous; allocated where it is None.
        dense: memory for the dense weight, such as DenseWeights gives; see write_dense. Of this
            stream's launches alone.

    Raises:
        TensorError: a tensor does not fit; names value, limit and way out. Nothing was launched.
    """
    check_tensors(problem, x, packed, bias, out)
    rows = x.reshape(-1, problem.k)
    m = check_m(rows.shape[0])
    y = out if out is not None else x.new_empty((*x.shape[:-1], problem.n))
    if m == 0:
        return y
    write_dense(kernel, problem, packed, dense)
    multiply(rows, dense, bias, y.view(m, problem.n))
    return y


def multiply(rows: Tensor, dense: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """out[M, N] = rows[M, K] @ dense[N, K]^T (+ bias) by torch, which calls cuBLAS."""
    if bias is None:
        torch.mm(rows, dense.t(), out=out)
    else:
        torch.addmm(bias, rows, dense.t(), out=out)
