"""The linear layers of Hugging Face models, read off the modules that transformers builds.

python tests/helpers/hf_layers.py writes tests/data/hf_layers.json, what CI compares with where
transformers is not installed. Nothing here uses ptxtune's own rules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

TABLE = Path(__file__).parents[1] / "data" / "hf_layers.json"

PARTS = {
    "qkv": {"q_proj", "k_proj", "v_proj", "qkv_proj", "query_key_value", "c_attn"},
    "o": {"o_proj", "out_proj", "dense"},
    "gate": {"gate_proj"},
    "gate_up": {"gate_up_proj"},
    "up": {"up_proj", "fc1", "fc_in", "c_fc", "dense_h_to_4h"},
    "down": {"down_proj", "fc2", "fc_out", "dense_4h_to_h"},
}
ROUTERS = {"gate", "router", "shared_expert_gate"}
DEFAULTS = [
    "llama",
    "mistral",
    "mixtral",
    "qwen2",
    "qwen2_moe",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
    "phi",
    "phi3",
    "phimoe",
    "gpt_neox",
    "gpt2",
    "gpt_bigcode",
    "gptj",
    "codegen",
    "opt",
    "bloom",
    "falcon",
    "starcoder2",
    "stablelm",
    "persimmon",
    "olmo",
    "olmo2",
    "olmo3",
    "olmoe",
    "granite",
    "granitemoe",
    "cohere",
    "cohere2",
    "llama4_text",
    "glm",
    "glm4",
    "gpt_oss",
    "smollm3",
    "exaone4",
    "seed_oss",
    "arcee",
    "apertus",
    "ernie4_5",
    "ministral3",
    "qwen2_vl_text",
    "qwen2_5_vl_text",
    "qwen3_vl_text",
]
"""Types whose config.json may leave everything out."""

SWITCHES = {
    "attention_bias": "llama qwen3 gemma gemma2 gemma3_text olmo olmo2 olmo3 granite cohere "
    "cohere2 gpt_oss glm glm4 smollm3 seed_oss arcee apertus gpt_neox phimoe qwen3_moe olmoe "
    "granitemoe llama4_text",
    "mlp_bias": "llama granite smollm3 seed_oss arcee",
    "attention_out_bias": "seed_oss",
    "use_bias": "starcoder2 ernie4_5",
    "use_qkv_bias": "stablelm",
    "qkv_bias": "qwen2_moe",
    "enable_bias": "opt",
    "bias": "falcon",
    "multi_query": "falcon gpt_bigcode",
}
"""Types by the switch that the modules of theirs follow; both its values are tried."""

# As published in the models' config.json files, which leave out what these leave out.
NAMED: dict[str, dict[str, Any]] = {
    "gemma-3-4b": {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240},
    "phi-2": {"model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240,
              "num_attention_heads": 32, "num_key_value_heads": 32},
    "pythia-6.9b": {"model_type": "gpt_neox", "hidden_size": 4096, "intermediate_size": 16384,
                    "num_attention_heads": 32},
    "starcoder2-7b": {"model_type": "starcoder2", "hidden_size": 4608, "intermediate_size": 18432,
                      "num_attention_heads": 36, "num_key_value_heads": 4, "use_bias": True},
    "opt-6.7b": {"model_type": "opt", "hidden_size": 4096, "ffn_dim": 16384,
                 "num_attention_heads": 32, "word_embed_proj_dim": 4096},
    "gpt2-xl": {"model_type": "gpt2", "n_embd": 1600, "n_head": 25},
    "gpt-j-6b": {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_inner": None},
    "falcon-7b": {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71,
                  "multi_query": True, "new_decoder_architecture": False, "bias": False},
    "falcon-40b": {"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128,
                   "num_kv_heads": 8, "new_decoder_architecture": True, "bias": False},
    "falcon-rw-1b": {"model_type": "falcon", "hidden_size": 2048, "num_attention_heads": 32,
                     "multi_query": False, "alibi": True, "bias": True},
    "starcoder": {"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_inner": 24576,
                  "multi_query": True},
    "nemotron-4-340b": {"model_type": "nemotron", "hidden_size": 18432, "intermediate_size": 73728,
                        "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 192},
    "llama-4-scout": {"model_type": "llama4_text", "interleave_moe_layer_step": 1},
    "llama-4-maverick": {"model_type": "llama4_text", "interleave_moe_layer_step": 2},
    "glm-4.5-air": {"model_type": "glm4_moe", "hidden_size": 4096, "intermediate_size": 10944,
                    "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
                    "attention_bias": True, "first_k_dense_replace": 1, "n_shared_experts": 1},
    "qwen3-moe-mixed": {"model_type": "qwen3_moe", "mlp_only_layers": [1], "head_dim": 128},
    "hunyuan-7b": {"model_type": "hunyuan_v1_dense", "hidden_size": 4096, "head_dim": 128,
                   "intermediate_size": 14336, "num_attention_heads": 32,
                   "num_key_value_heads": 8},
    "ministral": {"model_type": "ministral", "hidden_size": 4096, "head_dim": 128},
}  # fmt: skip


def cases() -> dict[str, dict[str, Any]]:
    """Every config to compare, by name."""
    found = {f"{name}-defaults": {"model_type": name} for name in DEFAULTS}
    for switch, types in SWITCHES.items():
        for name in types.split():
            for value in (False, True):
                found[f"{name}-{switch}-{value}".lower()] = {"model_type": name, switch: value}
    return {**found, **NAMED}


def layers_of(config: dict[str, Any]) -> list[list[Any]]:
    """[name, n, k, bias] of the fused layers, sorted; two decoder layers are built, without data.

    Needs transformers.
    """
    import transformers

    transformers.logging.set_verbosity_error()
    fields = {name: value for name, value in config.items() if name != "model_type"}
    depth = "n_layer" if "n_embd" in config else "num_hidden_layers"
    filled = transformers.AutoConfig.for_model(config["model_type"], **{depth: 2}, **fields)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(filled)
    found: dict[tuple[str, str], list[Any]] = {}
    for name, module in model.named_modules():
        sizes = _sizes(module)
        parts = name.split(".")
        layer = next((part for part in parts if part.isdecimal()), None)
        if sizes is None or layer is None or parts[-1] in ROUTERS or "experts" in parts:
            continue
        shared = "shared_" if any("shared" in part for part in parts) else ""
        role = _role(parts)
        entry = found.setdefault((layer, shared + role), [shared + role, 0, *sizes[1:]])
        assert entry[2:] == list(sizes[1:]), (name, entry, sizes)
        entry[1] += sizes[0]
    return sorted({json.dumps(entry): entry for entry in _fused(found)}.values())


def _fused(found: dict[tuple[str, str], list[Any]]) -> list[list[Any]]:
    """Gate and up as one layer, as engines run them."""
    for layer, role in list(found):
        if role.endswith("gate"):
            gate = found.pop((layer, role))
            up = found.pop((layer, role.removesuffix("gate") + "up"))
            name = role.removesuffix("gate") + "gate_up"
            found[layer, name] = [name, gate[1] + up[1], *up[2:]]
    return list(found.values())


def _sizes(module: torch.nn.Module) -> tuple[int, int, bool] | None:
    if isinstance(module, torch.nn.Linear):
        return module.out_features, module.in_features, module.bias is not None
    if type(module).__name__ == "Conv1D":  # GPT-2's, stored as [K, N]
        k, n = module.weight.shape
        return n, k, module.bias is not None
    return None


def _role(parts: list[str]) -> str:
    leaf = parts[-1]
    if leaf == "c_proj":
        return "o" if "attn" in parts[-2] else "down"
    return next(role for role, leaves in PARTS.items() if leaf in leaves)


if __name__ == "__main__":
    import transformers

    document = {
        "transformers": transformers.__version__,
        "layers": {
            name: {"config": config, "layers": layers_of(config)}
            for name, config in cases().items()
        },
    }
    lines = [f'    {json.dumps(name)}: {json.dumps(entry)}' for name, entry in
             document["layers"].items()]  # fmt: skip
    TABLE.write_text(
        f'{{\n  "transformers": "{document["transformers"]}",\n  "layers": {{\n'
        + ",\n".join(lines) + "\n  }\n}\n"
    )  # fmt: skip
