"""As vllm.model_executor.layers.quantization.utils."""


def replace_parameter(layer, name, new):
    delattr(layer, name)
    layer.register_parameter(name, new)
