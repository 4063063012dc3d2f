"""What each Hugging Face model type names its numbers, leaves out of config.json, and biases.

Facts from transformers' configuration and modeling files; a test holds them against the modules
that transformers builds, and against recorded shapes where it is not installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Flag:
    """A bias that config.json switches: the field, and what a file without it means."""

    name: str
    default: bool = False


Bias = bool | Flag


@dataclass(frozen=True, slots=True)
class Rule:
    """How the linear layers of a model type follow from its config.json.

    Attributes:
        hidden: model width where the file names none; so are the next five.
        intermediate: width of the MLP; None: four times the model's.
        heads: attention heads.
        kv_heads: key/value heads; None: as many as there are heads.
        head_dim: features of a head; None: hidden / heads.
        layers: decoder layers.
        qkv_bias: of the qkv projection.
        o_bias: of the output projection.
        mlp_bias: of both MLP projections.
        gated: the MLP has a gate.
        names: what the type calls a number, for those that it does not call as most do.
        experts: field that counts the experts of its MLP, and their number where it is left out.
        expert_width: field with the width of one expert; None: intermediate_size.
        shared: field with the width of a shared expert, or with the number of shared ones; here
            and below with the value where it is left out.
        dense: field with the width of the MLP in layers without experts.
    """

    hidden: int
    intermediate: int | None
    heads: int
    kv_heads: int | None
    head_dim: int | None
    layers: int
    qkv_bias: Bias = False
    o_bias: Bias = False
    mlp_bias: Bias = False
    gated: bool = True
    names: Mapping[str, str] = field(default_factory=dict)
    experts: tuple[str, int] | None = None
    expert_width: tuple[str, int] | None = None
    shared: tuple[str, int] | None = None
    dense: tuple[str, int] | None = None


ATTENTION = Flag("attention_bias")
MLP = Flag("mlp_bias")
GPT2_NAMES = {
    "hidden_size": "n_embd",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
    "intermediate_size": "n_inner",
}

_LLAMA = Rule(4096, 11008, 32, None, None, 32, ATTENTION, ATTENTION, MLP)
_PLAIN = Rule(4096, 11008, 32, None, None, 32)
_MISTRAL = Rule(4096, 14336, 32, 8, None, 32)
_QWEN2 = Rule(4096, 22016, 32, 32, None, 32, True)
_QWEN2_VL = Rule(8192, 29568, 64, 8, None, 80, True)
_QWEN3 = Rule(4096, 22016, 32, 32, 128, 32, ATTENTION, ATTENTION)
_GEMMA2 = Rule(2304, 9216, 8, 4, 256, 26, ATTENTION, ATTENTION)
_COHERE = Rule(8192, 22528, 64, None, None, 40, ATTENTION, ATTENTION)
_GLM = Rule(4096, 13696, 32, 2, 128, 40, Flag("attention_bias", True))
_GPT2 = Rule(768, None, 12, None, None, 12, True, True, True, False, GPT2_NAMES)
_OLMO = replace(_LLAMA, mlp_bias=False)

RULES: dict[str, Rule] = {
    "llama": _LLAMA,
    "mistral": _MISTRAL,
    "ministral": _MISTRAL,
    "ministral3": _MISTRAL,
    "mixtral": replace(_MISTRAL, experts=("num_local_experts", 8)),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2_VL,
    "qwen2_vl_text": _QWEN2_VL,
    "qwen2_5_vl": _QWEN2_VL,
    "qwen2_5_vl_text": _QWEN2_VL,
    "qwen2_moe": Rule(
        2048, 5632, 16, 16, None, 24, Flag("qkv_bias", True),
        experts=("num_experts", 60), expert_width=("moe_intermediate_size", 1408),
        shared=("shared_expert_intermediate_size", 5632), dense=("intermediate_size", 5632),
    ),
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "qwen3_moe": Rule(
        2048, 6144, 32, 4, None, 24, ATTENTION, ATTENTION,
        experts=("num_experts", 128), expert_width=("moe_intermediate_size", 768),
        dense=("intermediate_size", 6144),
    ),
    "gemma": Rule(3072, 24576, 16, 16, 256, 28, ATTENTION, ATTENTION),
    "gemma2": _GEMMA2,
    "gemma3_text": _GEMMA2,
    "phi": Rule(2048, 8192, 32, None, None, 24, True, True, True, gated=False),
    "phi3": Rule(3072, 8192, 32, None, None, 32),
    "phimoe": Rule(
        4096, 6400, 32, 8, None, 32, ATTENTION, ATTENTION, experts=("num_local_experts", 16)
    ),
    "gpt_neox": Rule(
        6144, 24576, 64, None, None, 44,
        Flag("attention_bias", True), Flag("attention_bias", True), True, gated=False,
    ),
    "gpt2": _GPT2,
    "gpt_bigcode": _GPT2,
    "gptj": Rule(4096, None, 16, None, None, 28, False, False, True, False, GPT2_NAMES),
    "codegen": Rule(4096, None, 16, None, None, 28, False, False, True, False, GPT2_NAMES),
    "opt": Rule(
        768, 3072, 12, None, None, 12,
        Flag("enable_bias", True), Flag("enable_bias", True), Flag("enable_bias", True), False,
        {"intermediate_size": "ffn_dim"},
    ),
    "bloom": Rule(
        64, None, 8, None, None, 2, True, True, True, False,
        {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    ),
    "falcon": Rule(
        4544, None, 71, None, None, 32, Flag("bias"), Flag("bias"), Flag("bias"), False,
        {"num_key_value_heads": "num_kv_heads", "intermediate_size": "ffn_hidden_size"},
    ),
    "starcoder2": Rule(
        3072, 12288, 24, 2, None, 30,
        Flag("use_bias", True), Flag("use_bias", True), Flag("use_bias", True), gated=False,
    ),
    "stablelm": Rule(2560, 6912, 32, 32, None, 32, Flag("use_qkv_bias")),
    "nemotron": Rule(6144, 24576, 48, None, None, 32, ATTENTION, ATTENTION, MLP, gated=False),
    "persimmon": Rule(4096, 16384, 64, None, None, 36, True, True, True, gated=False),
    "olmo": _OLMO,
    "olmo2": _OLMO,
    "olmo3": _OLMO,
    "olmoe": Rule(
        2048, 2048, 16, None, None, 16, ATTENTION, ATTENTION, experts=("num_experts", 64)
    ),
    "granite": _LLAMA,
    "granitemoe": replace(_OLMO, experts=("num_local_experts", 8)),
    "cohere": _COHERE,
    "cohere2": _COHERE,
    "llama4_text": Rule(
        5120, 8192, 40, 8, 128, 48, ATTENTION, ATTENTION,
        experts=("num_local_experts", 16), shared=("intermediate_size", 8192),
        dense=("intermediate_size_mlp", 16384),
    ),
    "glm": _GLM,
    "glm4": _GLM,
    "glm4_moe": Rule(
        4096, 10944, 96, 8, None, 46, ATTENTION,
        experts=("n_routed_experts", 128), expert_width=("moe_intermediate_size", 1408),
        shared=("n_shared_experts", 1), dense=("intermediate_size", 10944),
    ),
    "gpt_oss": Rule(
        2880, 2880, 64, 8, 64, 36,
        Flag("attention_bias", True), Flag("attention_bias", True),
        experts=("num_local_experts", 128),
    ),
    "smollm3": Rule(2048, 11008, 16, 4, None, 36, ATTENTION, ATTENTION, MLP),
    "exaone4": Rule(4096, 16384, 32, 32, None, 32),
    "seed_oss": Rule(
        4096, 27648, 80, 8, 128, 64,
        Flag("attention_bias", True), Flag("attention_out_bias"), MLP,
    ),
    "arcee": Rule(2560, 18432, 32, None, None, 32, ATTENTION, ATTENTION, MLP, gated=False),
    "apertus": Rule(4096, 14336, 32, None, None, 32, ATTENTION, ATTENTION, gated=False),
    "ernie4_5": Rule(
        1024, 3072, 16, 2, 128, 18, Flag("use_bias"), Flag("use_bias"), Flag("use_bias")
    ),
    "hunyuan_v1_dense": Rule(4096, 11008, 32, None, None, 32, ATTENTION, ATTENTION),
    "internlm2": replace(_PLAIN, qkv_bias=Flag("bias", True), o_bias=Flag("bias", True)),
}  # fmt: skip

DECODERS = {
    "gemma3": "gemma3_text",
    "llama4": "llama4_text",
    "llava": "llama",
    "llava_next": "llama",
    "mistral3": "mistral",
    "qwen2_vl": "qwen2_vl_text",
    "qwen2_5_vl": "qwen2_5_vl_text",
    "qwen3_vl": "qwen3_vl_text",
}
"""The type of a multimodal model's decoder, where its own config does not say it."""
