"""torch.ops.ptxtune.w4a16_linear: our kernels as a PyTorch operator.

Its last argument is the problem's key: a string, so that torch.compile, torch.export and saved
graphs can carry it. The kernels of (problem, device) are prepared once, by prepare_operator or on
the first call; a compiled graph then only launches.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache

import torch
from torch import Tensor

from ptxgen.errors import TensorError
from ptxgen.problem import Problem
from ptxtune.layers.kernel_set import KernelSet
from ptxtune.layers.prepare import Prepared, prepare

SCHEMA = "w4a16_linear(Tensor x, Tensor packed, Tensor? bias, str problem) -> Tensor"

_library = torch.library.Library("ptxtune", "FRAGMENT")
_library.define(SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))

_ready: dict[tuple[str, int], KernelSet] = {}
_prepared: dict[tuple[str, int], Prepared] = {}
_lock = threading.Lock()
_forked: list[int] = []


def prepare_operator(problem: Problem, device: torch.device) -> Prepared:
    """Makes the operator ready for a problem on a device; done once for each of them.

    Not while a CUDA graph is captured: kernels are compiled and loaded, and workspaces made here.

    Raises:
        PtxtuneError: see ptxtune.layers.prepare.
    """
    index = torch.cuda.current_device() if device.index is None else device.index
    key = (problem.key(), index)
    with _lock:
        if key not in _prepared:
            _prepared[key] = prepare(problem, torch.device("cuda", index))
            _ready[key] = _prepared[key].kernels
        return _prepared[key]


def prepared(problem: Problem, device: torch.device) -> Prepared | None:
    """What prepare_operator made for a problem on a device; None where it has not been called."""
    return _prepared.get((problem.key(), device.index or 0))


def w4a16_linear(x: Tensor, packed: Tensor, bias: Tensor | None, problem: str) -> Tensor:
    """y[..., N] = x[..., K] @ W^T (+ bias); the CUDA kernel of the operator. See KernelSet."""
    kernels = _ready.get((problem, x.get_device()))
    if kernels is None:
        kernels = _late(problem, x)
    return kernels(x, packed, bias)


def _late(problem: str, x: Tensor) -> KernelSet:
    if _forked:
        raise TensorError(
            "kernels were loaded before this process was forked, and CUDA does not survive a fork; "
            "start worker processes by spawn, or load the model in them."
        )
    if torch.cuda.is_current_stream_capturing():
        raise TensorError(
            f"a CUDA graph is being captured, and the kernels of {problem} are not loaded; call "
            f"the layer once, or prepare_operator, before the capture."
        )
    return prepare_operator(_problem(problem), x.device).kernels


def _shape_only(x: Tensor, packed: Tensor, bias: Tensor | None, problem: str) -> Tensor:
    """What the output looks like, for tracing."""
    found = _problem(problem)
    if x.shape[-1] != found.k:
        raise TensorError(f"x has {x.shape[-1]} inputs; {problem} needs K = {found.k}.")
    return x.new_empty((*x.shape[:-1], found.n))


_problem = lru_cache(maxsize=1024)(Problem.from_key)

_library.impl("w4a16_linear", w4a16_linear, "CUDA")
torch.library.register_fake("ptxtune::w4a16_linear", _shape_only, lib=_library)


def _after_fork() -> None:
    """In the child: handles of the parent's kernels mean nothing there."""
    if _ready:
        _forked.append(1)
        _ready.clear()
        _prepared.clear()


os.register_at_fork(after_in_child=_after_fork)
