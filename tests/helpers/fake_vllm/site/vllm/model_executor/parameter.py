"""As vllm.model_executor.parameter: a parameter that knows its axes."""

import torch


class AxisParameter(torch.nn.Parameter):
    """Has input_dim and output_dim, as vLLM's own parameters do."""

    def __new__(cls, data, input_dim, output_dim):
        made = super().__new__(cls, data, requires_grad=False)
        made.input_dim, made.output_dim = input_dim, output_dim
        return made


def permute_param_layout_(param, input_dim, output_dim, **_):
    if (param.input_dim, param.output_dim) != (input_dim, output_dim):
        param.data = param.data.t()
        param.input_dim, param.output_dim = input_dim, output_dim
    return param
