"""The manifest of a converted checkpoint: which tensor is the packed weight of which problem."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ptxgen.errors import CheckpointError, PtxtuneError
from ptxgen.problem import Problem
from ptxgen.weights.layout import LAYOUT_VERSION, packed_layout

MANIFEST_NAME = "ptxtune.json"
MANIFEST_VERSION = 1
METHOD = "ptxtune"
PACKED_SUFFIX = "ptxtune_packed"
BIAS_SUFFIX = "bias"
MAX_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PackedLayer:
    """A layer of a converted checkpoint.

    Attributes:
        name: module name.
        problem: that its packed weight belongs to.
        members: names of the layers that were fused into it; its own name where none were.
        sha256: of the packed weight.
        format: that it was converted from.
        notes: what was done to the stored values, in words.
    """

    name: str
    problem: Problem
    members: tuple[str, ...]
    sha256: str
    format: str
    notes: tuple[str, ...] = ()

    @property
    def tensor(self) -> str:
        """Name of the uint8 tensor."""
        return f"{self.name}.{PACKED_SUFFIX}"

    @property
    def bias_tensor(self) -> str:
        return f"{self.name}.{BIAS_SUFFIX}"

    @property
    def num_bytes(self) -> int:
        return packed_layout(self.problem).total_bytes


@dataclass(frozen=True, slots=True)
class ConvertedManifest:
    """Everything that a converted checkpoint says of itself.

    Attributes:
        layers: converted layers by name.
        unconverted: quantized layers that were kept in their own format, with the reason.
        source_quantization: quantization_config of the checkpoint that was converted; None where
            it had none (GGUF).
    """

    layers: dict[str, PackedLayer]
    unconverted: dict[str, str]
    source_quantization: dict[str, Any] | None = None

    def to_text(self) -> str:
        layers = {
            name: {key: value for key, value in asdict(layer).items() if key != "name"}
            for name, layer in self.layers.items()
        }
        document = {
            "version": MANIFEST_VERSION,
            "layout_version": LAYOUT_VERSION,
            "layers": layers,
            "unconverted": self.unconverted,
            "source_quantization": self.source_quantization,
        }
        return json.dumps(document, indent=1) + "\n"


def quantization_config(manifest: ConvertedManifest) -> dict[str, Any]:
    """What config.json says of a converted checkpoint."""
    return {
        "quant_method": METHOD,
        "bits": 4,
        "manifest": MANIFEST_NAME,
        "layout_version": LAYOUT_VERSION,
        "modules_to_not_convert": sorted(manifest.unconverted),
    }


def read_manifest(folder: Path) -> ConvertedManifest:
    """The manifest of a converted checkpoint.

    Raises:
        CheckpointError: missing, damaged, or of another version or layout.
    """
    path = folder / MANIFEST_NAME
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CheckpointError(f"{path} is larger than a manifest can be ({MAX_BYTES} bytes).")
        document = json.loads(path.read_text(encoding="utf-8"))
        versions = (document["version"], document["layout_version"])
        if versions != (MANIFEST_VERSION, LAYOUT_VERSION):
            raise CheckpointError(
                f"{path} has version {versions[0]} and weights of layout {versions[1]}; this "
                f"ptxtune reads version {MANIFEST_VERSION} and layout {LAYOUT_VERSION}. Convert "
                f"the original checkpoint again."
            )
        layers = {name: _layer(name, entry) for name, entry in document["layers"].items()}
        unconverted = {str(name): str(why) for name, why in document["unconverted"].items()}
        return ConvertedManifest(layers, unconverted, document.get("source_quantization"))
    except OSError as error:
        raise CheckpointError(
            f"{path} cannot be read ({error.strerror}); name a folder that ptxtune convert wrote."
        ) from error
    except CheckpointError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, PtxtuneError) as error:
        raise CheckpointError(
            f"{path} is no manifest of a converted checkpoint ({error!r}); convert it again."
        ) from error


def _layer(name: str, entry: dict[str, Any]) -> PackedLayer:
    return PackedLayer(
        name,
        Problem.from_dict(entry["problem"]),
        tuple(entry["members"]),
        str(entry["sha256"]),
        str(entry["format"]),
        tuple(entry["notes"]),
    )
