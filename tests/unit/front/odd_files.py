"""Files that odd inputs name: a folder with broken, strange and sound ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from db.session import open_database

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip

CONFIGS: dict[str, Any] = {
    "sound": LLAMA,
    "bf16": LLAMA | {"torch_dtype": "bfloat16"},
    "half-known": {"model_type": "llama", "hidden_size": None},
    "no-type": {"hidden_size": 4096},
    "strange-type": {"model_type": "quantum", "hidden_size": 4096},
    "experts-word": LLAMA | {"num_local_experts": "8"},
    "bias-word": LLAMA | {"attention_bias": "false"},
    "many-heads": LLAMA | {"num_attention_heads": 5000},
    "negative": LLAMA | {"intermediate_size": -1},
    "float": LLAMA | {"hidden_size": 4096.0},
    "huge": LLAMA | {"hidden_size": 1 << 30, "head_dim": 128},
    "latent": LLAMA | {"kv_lora_rank": 512},
    "bits-8": LLAMA | {"quantization_config": {"quant_method": "gptq", "bits": 8}},
    "act-order": LLAMA
    | {"quantization_config": {"quant_method": "gptq", "bits": 4, "desc_act": True}},
    "fp8": LLAMA | {"quantization_config": {"quant_method": "fp8"}},
    "strange-dtype": LLAMA | {"torch_dtype": "int3"},
    "list": [1, 2],
    "text-word": LLAMA | {"text_config": "no", "hidden_size": "\ud800"},
}

PIN = {
    "family": "mma", "block_m": 8, "warp_m": 8, "block_n": 16, "warp_n": 16, "block_k": 1024,
    "warps_k": 8, "num_stages": 3, "split_k": 1, "scale_on": "accumulators",
    "weights_first": False, "min_ctas": 1, "trigger": "start", "cluster": False, "dequant": "magic",
}  # fmt: skip

TEXTS: dict[str, bytes] = {
    "deep": b"[" * 200_000,
    "deep-object": b'{"a":' * 200_000,
    "digits": b'{"model_type": "llama", "hidden_size": ' + b"9" * 5000 + b"}",
    "binary": bytes(range(256)),
    "empty": b"",
    "cut": b'{"model_type": "lla',
    "nan": b'{"model_type": "llama", "hidden_size": NaN}',
    "nul": b'{"model_type": "lla\\u0000ma"}',
}

MANIFESTS: dict[str, bytes] = {
    name: TEXTS[name] for name in ("deep", "digits", "binary", "empty", "cut", "nan", "nul")
} | {"surrogate": b'{"schema": "\\ud800"}', "list": b"[1, 2]"}


def prepare(folder: Path) -> None:
    """Fills the folder; its database is made here so that questions to it write nothing."""
    for name, config in CONFIGS.items():
        _write(folder / "models" / name / "config.json", json.dumps(config).encode())
    for name, text in TEXTS.items():
        _write(folder / "models" / name / "config.json", text)
    for name, text in MANIFESTS.items():
        _write(folder / "bundles" / name / "manifest.json", text)
    (folder / "models" / "hollow").mkdir()
    _write(folder / "file.txt", b"text")
    _write(folder / "pin.json", json.dumps(PIN).encode())
    _write(folder / "web" / "index.html", b"page")
    open_database(str(folder / "known.db")).close()


def _write(file: Path, data: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(data)


def listing(folder: Path) -> dict[str, bytes]:
    """Every file with its content, but the database's, whose bytes are its own affair."""
    return {
        str(file.relative_to(folder)): b"" if file.name.startswith("known.db") else _content(file)
        for file in sorted(folder.rglob("*"))
    }


def _content(file: Path) -> bytes:
    return file.read_bytes() if file.is_file() else b""
