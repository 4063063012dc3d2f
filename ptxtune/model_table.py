"""Published shapes of known transformer models: numbers only, from their config.json files."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What the linear layers of a decoder follow from.

    Attributes:
        hidden: model width.
        intermediate: width of the MLP (of one expert where moe is set).
        heads: attention heads.
        kv_heads: key/value heads.
        head_dim: features of a head.
        num_layers: decoder layers; 0 where it is not known.
        qkv_bias: the qkv projection has a bias.
        o_bias: the output projection has a bias.
        mlp_bias: both MLP projections have a bias.
        gated: the MLP has a gate, fused with up.
        moe: the MLP is a mixture of experts, which a dense kernel does not serve.
        shared: width of the expert that every token goes through; 0 where there is none.
        dense: width of the MLP in those layers of a mixture that have no experts; 0: none have.
    """

    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    num_layers: int = 0
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    gated: bool = True
    moe: bool = False
    shared: int = 0
    dense: int = 0


def _qwen2(shape: ModelShape) -> ModelShape:
    """Qwen2 and 2.5 are the one family here whose qkv projection has a bias."""
    return replace(shape, qkv_bias=True)


MODELS: dict[str, ModelShape] = {
    "llama-2-7b": ModelShape(4096, 11008, 32, 32, 128, 32),
    "llama-2-13b": ModelShape(5120, 13824, 40, 40, 128, 40),
    "llama-2-70b": ModelShape(8192, 28672, 64, 8, 128, 80),
    "llama-3-8b": ModelShape(4096, 14336, 32, 8, 128, 32),
    "llama-3-70b": ModelShape(8192, 28672, 64, 8, 128, 80),
    "llama-3.1-8b": ModelShape(4096, 14336, 32, 8, 128, 32),
    "llama-3.1-70b": ModelShape(8192, 28672, 64, 8, 128, 80),
    "llama-3.1-405b": ModelShape(16384, 53248, 128, 8, 128, 126),
    "llama-3.2-1b": ModelShape(2048, 8192, 32, 8, 64, 16),
    "llama-3.2-3b": ModelShape(3072, 8192, 24, 8, 128, 28),
    "llama-3.3-70b": ModelShape(8192, 28672, 64, 8, 128, 80),
    "codellama-34b": ModelShape(8192, 22016, 64, 8, 128, 48),
    "tinyllama-1.1b": ModelShape(2048, 5632, 32, 4, 64, 22),
    "qwen2.5-0.5b": _qwen2(ModelShape(896, 4864, 14, 2, 64, 24)),
    "qwen2.5-1.5b": _qwen2(ModelShape(1536, 8960, 12, 2, 128, 28)),
    "qwen2.5-3b": _qwen2(ModelShape(2048, 11008, 16, 2, 128, 36)),
    "qwen2.5-7b": _qwen2(ModelShape(3584, 18944, 28, 4, 128, 28)),
    "qwen2.5-14b": _qwen2(ModelShape(5120, 13824, 40, 8, 128, 48)),
    "qwen2.5-32b": _qwen2(ModelShape(5120, 27648, 40, 8, 128, 64)),
    "qwen2.5-72b": _qwen2(ModelShape(8192, 29568, 64, 8, 128, 80)),
    "qwen3-0.6b": ModelShape(1024, 3072, 16, 8, 128, 28),
    "qwen3-1.7b": ModelShape(2048, 6144, 16, 8, 128, 28),
    "qwen3-4b": ModelShape(2560, 9728, 32, 8, 128, 36),
    "qwen3-8b": ModelShape(4096, 12288, 32, 8, 128, 36),
    "qwen3-14b": ModelShape(5120, 17408, 40, 8, 128, 40),
    "qwen3-32b": ModelShape(5120, 25600, 64, 8, 128, 64),
    "mistral-7b": ModelShape(4096, 14336, 32, 8, 128, 32),
    "mistral-nemo-12b": ModelShape(5120, 14336, 32, 8, 128, 40),
    "mistral-small-24b": ModelShape(5120, 32768, 32, 8, 128, 40),
    "mistral-large-123b": ModelShape(12288, 28672, 96, 8, 128, 88),
    "mixtral-8x7b": ModelShape(4096, 14336, 32, 8, 128, 32, moe=True),
    "mixtral-8x22b": ModelShape(6144, 16384, 48, 8, 128, 56, moe=True),
    "gemma-2-2b": ModelShape(2304, 9216, 8, 4, 256, 26),
    "gemma-2-9b": ModelShape(3584, 14336, 16, 8, 256, 42),
    "gemma-2-27b": ModelShape(4608, 36864, 32, 16, 128, 46),
    "gemma-3-12b": ModelShape(3840, 15360, 16, 8, 256, 48),
    "gemma-3-27b": ModelShape(5376, 21504, 32, 16, 128, 62),
    "phi-3-mini": ModelShape(3072, 8192, 32, 32, 96, 32),
    "phi-3-medium": ModelShape(5120, 17920, 40, 10, 128, 40),
    "phi-4": ModelShape(5120, 17920, 40, 10, 128, 40),
    "phi-4-mini": ModelShape(3072, 8192, 24, 8, 128, 32),
    "deepseek-coder-6.7b": ModelShape(4096, 11008, 32, 32, 128, 32),
    "deepseek-coder-33b": ModelShape(7168, 19200, 56, 8, 128, 62),
    "deepseek-llm-67b": ModelShape(8192, 22016, 64, 8, 128, 95),
    "yi-6b": ModelShape(4096, 11008, 32, 4, 128, 32),
    "yi-34b": ModelShape(7168, 20480, 56, 8, 128, 60),
    "internlm2.5-20b": ModelShape(6144, 16384, 48, 8, 128, 48),
    "smollm2-1.7b": ModelShape(2048, 8192, 32, 32, 64, 24),
}

HUB_NAMES: dict[str, str] = {
    "mistral-nemo": "mistral-nemo-12b",
    "mistral-large": "mistral-large-123b",
    "internlm2_5-20b": "internlm2.5-20b",
}
"""Models that hubs call otherwise, without the words that change no shape."""
