"""As the module of the same name in vLLM."""

from dataclasses import dataclass

import torch


@dataclass
class MPLinearLayerConfig:
    full_weight_shape: tuple
    partition_weight_shape: tuple
    weight_type: str
    act_type: torch.dtype
    group_size: int
    zero_points: bool
    has_g_idx: bool = False
    out_type: torch.dtype | None = None


class MPLinearKernel:
    def __init__(
        self, c, w_q_param_name, w_s_param_name, w_zp_param_name=None, w_gidx_param_name=None
    ):
        self.config = c
        self.w_q_name, self.w_s_name = w_q_param_name, w_s_param_name
        self.w_zp_name, self.w_gidx_name = w_zp_param_name, w_gidx_param_name

    def _get_weight_params(self, layer):
        return getattr(layer, self.w_q_name), getattr(layer, self.w_s_name)
