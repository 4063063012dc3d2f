"""Which importer reads a checkpoint, by its config; the tensors must bear it out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType

from ptxgen.checkpoint import awq, compressed_tensors, gptq, hqq, marlin, torchao
from ptxgen.checkpoint.config import QuantizationConfig
from ptxgen.checkpoint.gptq_zeros import ZeroReading
from ptxgen.checkpoint.layer import LinearLayer
from ptxgen.checkpoint.stored import StoredLayer
from ptxgen.errors import CheckpointError, UnsupportedFormatError

OWN_METHOD = "ptxtune"
MARKERS = {
    module.MARKER: name
    for name, module in {
        "AWQ or GPTQ": gptq,
        "GPTQ in the Marlin format": marlin,
        "compressed-tensors": compressed_tensors,
        "HQQ": hqq,
        "torchao": torchao,
    }.items()
}
"""The tensor that every layer of a format has, and the format."""


@dataclass(frozen=True, slots=True)
class Importer:
    """Reads the layers of one format.

    Attributes:
        marker: the tensor that every one of its layers has.
        suffixes: all tensors that a layer may have.
        describe: makes a layer's description.
    """

    marker: str
    suffixes: tuple[str, ...]
    describe: Callable[[StoredLayer, QuantizationConfig], LinearLayer]


def importer_of(config: QuantizationConfig, gptq_zeros: ZeroReading = "auto") -> Importer:
    """The importer that a config asks for.

    Raises:
        UnsupportedFormatError: a method or packing that is not read.
        CheckpointError: the settings contradict themselves.
    """
    method = config.method
    if method in ("auto-round", "intel/auto-round"):
        return _auto_round(config, gptq_zeros)
    if method in ("gptq", "marlin", "gptq_marlin"):
        return _of(marlin) if marlin.is_marlin(config) else _gptq(gptq_zeros)
    module = {
        "awq": awq,
        "compressed-tensors": compressed_tensors,
        "hqq": hqq,
        "torchao": torchao,
    }.get(method)
    if module is not None:
        return _of(module)
    if method == OWN_METHOD:
        raise UnsupportedFormatError(
            f"{config.source} is of a checkpoint that ptxtune convert wrote: its weights are "
            f"packed for the kernels, not to be imported again. Name the checkpoint it came from."
        )
    raise UnsupportedFormatError(
        f"{config.source} says quant_method {method or 'nothing'!r}; awq, gptq, auto-round, "
        f"compressed-tensors, hqq and torchao are read, and GGUF files."
    )


def check_markers(found: Mapping[str, int], importer: Importer, source: str) -> None:
    """Raises CheckpointError where no tensor bears out what the config says.

    Args:
        found: how many layers have each marker.
        importer: by the config.
        source: the config file.
    """
    if found.get(importer.marker):
        return
    others = [MARKERS[marker] for marker, count in found.items() if count]
    seen = f"they are those of {' and '.join(others)}" if others else "no layer is quantized"
    raise CheckpointError(
        f"{source} and the tensors contradict each other: by the config every quantized layer has "
        f"a tensor {importer.marker}, and none is there; {seen}. Correct the config, or download "
        f"the checkpoint again."
    )


def _of(module: ModuleType) -> Importer:
    return Importer(module.MARKER, module.SUFFIXES, module.describe)


def _gptq(zeros: ZeroReading) -> Importer:
    return Importer(
        gptq.MARKER,
        gptq.SUFFIXES,
        lambda stored, config: gptq.describe(stored, config, zeros),
    )


def _auto_round(config: QuantizationConfig, zeros: ZeroReading) -> Importer:
    packing = config.text("packing_format").rpartition(":")[2]
    if packing in ("auto_awq", "awq"):
        return _of(awq)
    if packing in ("auto_gptq", "gptq", "auto_round"):
        if config.first("sym") is not True:
            raise UnsupportedFormatError(
                f"{config.source} is AutoRound's GPTQ packing with zero points, whose versions "
                f"stored them less one or not without saying which; export it again as auto_awq, "
                f"or as auto_gptq with sym."
            )
        return _gptq(zeros)
    raise UnsupportedFormatError(
        f"{config.source} says AutoRound packing {packing!r}; auto_round:auto_gptq and "
        f"auto_round:auto_awq are read."
    )
