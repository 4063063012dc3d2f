"""What a checkpoint's config says of its quantization; nothing here looks at tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ptxgen.errors import CheckpointError
from ptxgen.problem import Dtype

CONFIG_NAME = "config.json"
MAX_CONFIG_BYTES = 4 << 20
LEGACY_FILES = {"quantize_config.json": "gptq", "quant_config.json": "awq"}
"""Where GPTQ and AWQ tools wrote their settings before config.json had a place for them."""

DTYPES: dict[str, Dtype] = {
    "float16": "fp16",
    "torch.float16": "fp16",
    "bfloat16": "bf16",
    "torch.bfloat16": "bf16",
}


@dataclass(frozen=True, slots=True)
class QuantizationConfig:
    """The settings of a quantized checkpoint, as written.

    Attributes:
        method: quant_method in lower case, or that of the legacy file.
        settings: the JSON object that holds them.
        source: the file, for messages.
        dtype: what config.json names for activations; None where it names none we compute in.
        model_type: of config.json; empty where there is none.
    """

    method: str
    settings: dict[str, Any]
    source: str
    dtype: Dtype | None = None
    model_type: str = ""
    model: dict[str, Any] = field(default_factory=dict, repr=False)

    def first(self, *names: str) -> Any:
        """The first of these settings that is given and not null."""
        found = (self.settings.get(name) for name in names)
        return next((value for value in found if value is not None), None)

    def table(self, name: str) -> dict[str, Any]:
        """A setting that is a JSON object; empty where it is null or not given.

        Raises:
            CheckpointError: it is something else.
        """
        value = self.settings.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.source}: {name} is {value!r}, not a JSON object.")
        return value

    def text(self, *names: str) -> str:
        """The first of these settings as lower-case text; empty where none is given."""
        value = self.first(*names)
        return str(value).lower() if value is not None else ""


def read_quantization(folder: Path) -> QuantizationConfig:
    """The quantization settings of a checkpoint folder.

    Raises:
        CheckpointError: no settings, unreadable ones, or two that name different methods.
    """
    model = _load(folder / CONFIG_NAME) if (folder / CONFIG_NAME).exists() else {}
    dtype = DTYPES.get(str(model.get("torch_dtype") or model.get("dtype")))
    model_type = str(model.get("model_type") or "")
    own = model.get("quantization_config")
    if own is None:
        # compressed-tensors of 2024 wrote compression_config
        own = model.get("compression_config")
    if isinstance(own, dict) and own:
        method = str(own.get("quant_method") or own.get("method") or "").lower()
        _check_legacy(folder, method)
        return QuantizationConfig(method, own, str(folder / CONFIG_NAME), dtype, model_type, model)
    for name, method in LEGACY_FILES.items():
        path = folder / name
        if path.exists():
            return QuantizationConfig(method, _load(path), str(path), dtype, model_type, model)
    raise CheckpointError(
        f"{folder} says nothing of a quantization: config.json has no quantization_config, and "
        f"there is no {' or '.join(LEGACY_FILES)}. Name a checkpoint with 4-bit weights."
    )


def _check_legacy(folder: Path, method: str) -> None:
    """A legacy file of another method beside config.json is a leftover or a mix-up: ask, not guess.

    Files of the same method are copies and are not read.
    """
    for name, other in LEGACY_FILES.items():
        if (folder / name).exists() and method in LEGACY_FILES.values() and method != other:
            raise CheckpointError(
                f"{folder / CONFIG_NAME} says quant_method {method!r}, and {name} beside it "
                f"belongs to {other!r}; remove the file that does not describe these weights."
            )


def _load(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise CheckpointError(
                f"{path} has {path.stat().st_size} bytes; settings take at most {MAX_CONFIG_BYTES}."
            )
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is no readable JSON ({error}); download it again."
        ) from error
    if not isinstance(data, dict):
        raise CheckpointError(f"{path} holds a JSON {type(data).__name__}, not an object.")
    return data
