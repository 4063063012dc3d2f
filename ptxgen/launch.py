"""The launch contract on torch tensors: any M, any strides and offsets, the current stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ptxgen.device import LoadedKernel
from ptxgen.errors import TensorError
from ptxgen.overlap import check_apart
from ptxgen.problem import Problem, check_m
from ptxgen.source import LaunchPlan
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.quantize import TORCH_DTYPES

X_ALIGN = 16
Y_ALIGN = 8


@dataclass(frozen=True, slots=True)
class _Workspace:
    """Zeroed memory whose first head_bytes hold the tile counters, whatever the batch."""

    buffer: Tensor
    head_bytes: int

    def pointer(self, plan: LaunchPlan, m: int) -> int:
        return self.buffer.data_ptr() + self.head_bytes - plan.counter_bytes(m)


@dataclass(slots=True)
class WorkspacePool:
    """Workspaces for launches, one for each (kernel, device, stream): two streams never share one.

    A launch with another batch never meets partial sums where it expects counters, because the
    counters of every batch end at the same place (LaunchPlan.counter_bytes).

    While a CUDA graph is captured nothing can be allocated that is zero at the first replay. Such
    launches take the workspace of their stream, or the one that reserve made where an engine warmed
    up on another stream than it captures on. What a graph holds is never freed nor replaced; graphs
    that share a reserved workspace must be replayed one after the other.
    """

    _workspaces: dict[tuple[LoadedKernel, torch.device, int], _Workspace] = field(
        default_factory=dict
    )
    _reserved: dict[tuple[LoadedKernel, torch.device], _Workspace] = field(default_factory=dict)
    _held: dict[LoadedKernel, dict[int, _Workspace]] = field(default_factory=dict)

    def pointer(self, kernel: LoadedKernel, m: int, device: torch.device, stream: int) -> int:
        """Device pointer for a batch of m; 0 where none is needed. Allocates only to grow.

        Raises:
            TensorError: the stream is capturing, and nothing large enough was reserved.
        """
        plan = kernel.plan
        if not plan.workspace_bytes(m):
            return 0
        key = (kernel, device, stream)
        found = self._workspaces.get(key)
        if found is not None and not _fits(found, plan, m):
            found = None
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            found = found or self._reserved_for(kernel, m, device)
            self._held.setdefault(kernel, {})[id(found)] = found
        elif found is None:
            found = self._workspaces[key] = _zeroed(plan, m, device)
        return found.pointer(plan, m)

    def reserve(self, kernel: LoadedKernel, m: int, device: torch.device) -> None:
        """Makes the workspace that captured launches of up to m tokens use. Not while capturing."""
        if not kernel.plan.workspace_bytes(m):
            return
        found = self._reserved.get((kernel, device))
        if found is None or not _fits(found, kernel.plan, m):
            self._reserved[kernel, device] = _zeroed(kernel.plan, m, device)

    def _reserved_for(self, kernel: LoadedKernel, m: int, device: torch.device) -> _Workspace:
        found = self._reserved.get((kernel, device))
        if found is None or not _fits(found, kernel.plan, m):
            raise TensorError(
                f"a CUDA graph is being captured, and no workspace of "
                f"{kernel.plan.workspace_bytes(m)} bytes was made for M = {m} before; launch the "
                f"kernel once with this batch on this stream, or reserve({m}), before the capture."
            )
        return found

    def forget(self, kernel: LoadedKernel) -> None:
        """Frees the workspaces of a kernel that is not launched any more."""
        for key in [key for key in self._workspaces if key[0] is kernel]:
            del self._workspaces[key]
        for pair in [pair for pair in self._reserved if pair[0] is kernel]:
            del self._reserved[pair]
        self._held.pop(kernel, None)


def _zeroed(plan: LaunchPlan, m: int, device: torch.device) -> _Workspace:
    buffer = torch.zeros(plan.workspace_bytes(m), dtype=torch.uint8, device=device)
    return _Workspace(buffer, plan.counter_bytes(m))


def _fits(workspace: _Workspace, plan: LaunchPlan, m: int) -> bool:
    partials = plan.workspace_bytes(m) - plan.counter_bytes(m)
    room = workspace.buffer.numel() - workspace.head_bytes
    return plan.counter_bytes(m) <= workspace.head_bytes and partials <= room


def run(  # noqa: PLR0917
    kernel: LoadedKernel,
    problem: Problem,
    x: Tensor,
    packed: Tensor,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    *,
    workspaces: WorkspacePool,
    chained: bool = False,
) -> Tensor:
    """y[..., N] = x[..., K] @ W^T (+ bias) on x's device and its current stream.

    Args:
        kernel: loaded on x's device.
        x: [..., K] in the problem's dtype; any row stride and storage offset. M is the product of
            the leading dimensions; 0 gives an empty result.
        packed: the packed weights, uint8, from ptxgen.weights.pack.
        bias: [N] where the problem has one.
        out: [..., N] to write to, contiguous, in memory of its own; allocated where it is None.

    Raises:
        TensorError: a tensor does not fit; names value, limit and way out. Nothing was launched.
    """
    check_tensors(problem, x, packed, bias, out)
    rows = x.reshape(-1, problem.k)
    m = check_m(rows.shape[0])
    y = out if out is not None else x.new_empty((*x.shape[:-1], problem.n))
    if m == 0:
        return y
    rows = aligned_rows(rows)
    if x.get_device() == torch._C._cuda_getDevice():  # a device guard costs as much as a launch
        launch_rows(kernel, rows, packed, bias, y, workspaces, chained)
    else:
        with torch.cuda.device(x.device):
            launch_rows(kernel, rows, packed, bias, y, workspaces, chained)
    return y


def launch_rows(  # noqa: PLR0917
    kernel: LoadedKernel,
    rows: Tensor,
    packed: Tensor,
    bias: Tensor | None,
    y: Tensor,
    workspaces: WorkspacePool,
    chained: bool,
) -> None:
    """Launches on the current stream of rows' device, which is current; nothing is checked here.

    Args:
        kernel: loaded on that device.
        rows: [m, K] of aligned_rows, m > 0.
        packed: the packed weight.
        bias: [N] or None.
        y: [..., N], contiguous; written.
        workspaces: gives the kernel its workspace, where it needs one.
        chained: by programmatic dependent launch.
    """
    m, device = rows.shape[0], rows.get_device()
    stream = torch._C._cuda_getCurrentRawStream(device)
    kernel.launch(
        x=rows.data_ptr(),
        packed=packed.data_ptr(),
        bias=0 if bias is None else bias.data_ptr(),
        y=y.data_ptr(),
        workspace=(
            workspaces.pointer(kernel, m, rows.device, stream) if kernel.plan.has_workspace else 0
        ),
        m=m,
        ldx=rows.stride(0),
        ldy=y.shape[-1],
        stream=stream,
        chained=chained,
    )


def aligned_rows(rows: Tensor) -> Tensor:
    """The same values [m, K] with 16-byte aligned rows: the tensor itself, a view, or a copy."""
    m, k = rows.shape
    if m == 1 and rows.stride(1) == 1:
        rows = rows.as_strided((1, k), (k, 1))  # the stride of a single row means nothing
    unit, aligned = rows.stride(1) == 1, rows.data_ptr() % X_ALIGN == 0
    if unit and aligned and rows.stride(0) % 8 == 0 and rows.stride(0) >= k:
        return rows
    return torch.empty((m, k), dtype=rows.dtype, device=rows.device).copy_(rows)


def check_tensors(
    problem: Problem, x: Tensor, packed: Tensor, bias: Tensor | None, out: Tensor | None
) -> None:
    """Raises TensorError where the tensors of a launch do not fit; see run."""
    dtype = TORCH_DTYPES[problem.dtype]
    if not x.is_cuda:
        raise TensorError(f"x is on {x.device}; move it to the GPU that holds the packed weights.")
    if x.dim() == 0 or x.shape[-1] != problem.k:
        raise TensorError(
            f"x has shape {tuple(x.shape)}; its last dimension must be K = {problem.k}."
        )
    _check_like("x", x, dtype, x.device)
    total = packed_layout(problem).total_bytes
    _check_like("packed", packed, torch.uint8, x.device)
    if packed.shape != (total,) or not packed.is_contiguous() or packed.data_ptr() % X_ALIGN:
        raise TensorError(
            f"packed has shape {tuple(packed.shape)}; {problem.key()} needs a contiguous, 16-byte "
            f"aligned tensor of {total} bytes from ptxtune.pack."
        )
    if (bias is None) == problem.bias:
        raise TensorError(
            f"bias is {'missing' if bias is None else 'given'}, but {problem.key()} "
            f"{'has one' if problem.bias else 'has none'}."
        )
    if bias is not None:
        _check_like("bias", bias, dtype, x.device)
        if bias.shape != (problem.n,) or not bias.is_contiguous() or bias.data_ptr() % Y_ALIGN:
            raise TensorError(f"bias must be {problem.n} contiguous, 8-byte aligned values.")
    if out is not None:
        _check_like("out", out, dtype, x.device)
        if out.shape != (*x.shape[:-1], problem.n) or not out.is_contiguous():
            raise TensorError(
                f"out has shape {tuple(out.shape)}; it must be contiguous and "
                f"{(*x.shape[:-1], problem.n)}."
            )
        if out.data_ptr() % Y_ALIGN:
            raise TensorError("out must start at an 8-byte aligned address; allocate it afresh.")
        check_apart(out, {"x": x, "packed": packed, "bias": bias})


def _check_like(name: str, tensor: Tensor, dtype: torch.dtype, device: torch.device) -> None:
    if tensor.dtype != dtype:
        raise TensorError(f"{name} has dtype {tensor.dtype}; convert it to {dtype}.")
    if tensor.device != device:
        raise TensorError(f"{name} is on {tensor.device}, x on {device}; move one of them.")
