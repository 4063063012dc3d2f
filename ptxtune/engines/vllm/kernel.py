"""PtxtuneLinearKernel: vLLM's mixed-precision linear layer on our kernels. Imports vLLM.

One class serves GPTQ, AWQ and compressed-tensors: vLLM's own loaders bring them to one form.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import torch
from torch import Tensor
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import (
    MPLinearKernel,
    MPLinearLayerConfig,
)
from vllm.model_executor.layers.quantization.utils import replace_parameter
from vllm.model_executor.parameter import permute_param_layout_
from vllm.scalar_type import scalar_types

from ptxgen.arch import ARCHS
from ptxgen.checkpoint.nibbles import unpack_columns, unpack_rows
from ptxgen.errors import ProblemError
from ptxgen.problem import Dtype, Problem
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight
from ptxtune.layers.operator import prepare_operator

LOG = logging.getLogger("vllm.ptxtune")

DTYPES: dict[torch.dtype, Dtype] = {torch.float16: "fp16", torch.bfloat16: "bf16"}
WHOLE_K = -1

_told: set[str] = set()


class PtxtuneLinearKernel(MPLinearKernel):
    """y = x W^T for INT4 weights: vLLM chooses it for every layer that can_implement accepts."""

    @classmethod
    def get_min_capability(cls) -> int:
        return 80

    @classmethod
    def can_implement(cls, c: MPLinearLayerConfig) -> tuple[bool, str | None]:
        """Whether we have a kernel for a layer, and why not."""
        reason = _refusal(c)
        return reason is None, reason

    def process_weights_after_loading(self, layer: torch.nn.Module) -> None:
        """Packs the layer's weight and loads its kernels; before vLLM measures its memory."""
        problem = _problem(self.config)
        weights = self._get_weight_params(layer)
        permute_param_layout_(weights[0], input_dim=0, output_dim=1, packed_dim=0)
        permute_param_layout_(weights[1], input_dim=0, output_dim=1)
        q = unpack_rows(weights[0].data)
        self._order = self._activation_order(layer)
        if self._order is not None:
            q = q.index_select(0, self._order)
        weight = QuantizedWeight(
            q.t().contiguous(), weights[1].data.t().contiguous(), self._zeros(layer)
        )
        del q
        packed = pack(weight, problem)
        self._replace(layer, self.w_q_name, packed)
        for name in (self.w_s_name, self.w_zp_name, getattr(self, "w_gidx_name", None)):
            if name is not None and getattr(layer, name, None) is not None:
                self._replace(layer, name, packed.new_empty(0))
        self._prepare(layer, problem, packed.device)

    def apply_weights(
        self, layer: torch.nn.Module, x: Tensor, bias: Tensor | None = None
    ) -> Tensor:
        """y[..., N] of x[..., K]; vLLM adds a bias by itself where it wants one fused elsewhere."""
        if self._order is not None:
            x = x.index_select(-1, self._order)
        packed = getattr(layer, self.w_q_name)
        if bias is not None and self._biased:
            return torch.ops.ptxtune.w4a16_linear(x, packed, bias, self._biased)
        y = torch.ops.ptxtune.w4a16_linear(x, packed, None, self._plain)
        return y if bias is None else y.add_(bias)

    def _prepare(self, layer: torch.nn.Module, problem: Problem, device: torch.device) -> None:
        """Loads the kernels that calls will ask for, a bias fused where the layer has one."""
        has_bias = getattr(layer, "bias", None) is not None
        split_inputs = self.config.partition_weight_shape[0] != self.config.full_weight_shape[0]
        self._plain = problem.key()
        self._biased = replace(problem, bias=True).key() if has_bias else ""
        wanted = [replace(problem, bias=True)] if has_bias else []
        if not has_bias or split_inputs:  # the bias of split inputs is added on one rank alone
            wanted.append(problem)
        for item in wanted:
            prepared = prepare_operator(item, device)
            if item.key() not in _told:
                _told.add(item.key())
                LOG.info("ptxtune serves %s: %s", item.key(), prepared.summary())

    def _zeros(self, layer: torch.nn.Module) -> Tensor | None:
        """uint8 [N, groups] from words that hold eight features of a group."""
        if not self.config.zero_points:
            return None
        assert self.w_zp_name is not None  # noqa: S101  # vLLM's own check of its arguments
        zeros = getattr(layer, self.w_zp_name)
        permute_param_layout_(zeros, input_dim=0, output_dim=1, packed_dim=1)
        return unpack_columns(zeros.data).t().contiguous()

    def _activation_order(self, layer: torch.nn.Module) -> Tensor | None:
        """The inputs sorted by their group, where act-order mixed them; else None."""
        if not getattr(self.config, "has_g_idx", False):
            return None
        groups = getattr(layer, self.w_gidx_name or "").data
        order = torch.argsort(groups, stable=True)
        identity = torch.arange(len(order), device=order.device)
        return None if torch.equal(order, identity) else order.to(torch.int32)

    @staticmethod
    def _replace(layer: torch.nn.Module, name: str, value: Tensor) -> None:
        replace_parameter(layer, name, torch.nn.Parameter(value, requires_grad=False))


def _problem(c: MPLinearLayerConfig) -> Problem:
    """The problem of a layer without its bias. Raises ProblemError where it is none of ours."""
    k, n = c.partition_weight_shape
    group = k if c.group_size == WHOLE_K else c.group_size
    return Problem(n, k, group, DTYPES[c.act_type], "int" if c.zero_points else "sym")


def _refusal(c: MPLinearLayerConfig) -> str | None:
    """Why we have no kernel for a layer; None where we have one."""
    capability = torch.cuda.get_device_capability()
    wanted = scalar_types.uint4 if c.zero_points else scalar_types.uint4b8
    split = c.partition_weight_shape[0] != c.full_weight_shape[0]
    reasons = {
        f"ptxtune has no kernels for compute capability {'.'.join(map(str, capability))}": (
            capability not in {arch.capability for arch in ARCHS.values()}
        ),
        f"ptxtune has no kernels for weights of {c.weight_type}": c.weight_type != wanted,
        f"ptxtune has no kernels for activations of {c.act_type}": c.act_type not in DTYPES,
        f"ptxtune gives {c.act_type}, not {getattr(c, 'out_type', None)}": (
            getattr(c, "out_type", None) not in (None, c.act_type)
        ),
        "ptxtune cannot split the inputs of an act-order layer over ranks": (
            getattr(c, "has_g_idx", False) and split
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            return reason
    try:
        _problem(c)
    except ProblemError as error:
        return f"ptxtune: {error}"
    return None
