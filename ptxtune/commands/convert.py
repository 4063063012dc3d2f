"""ptxtune convert: a quantized checkpoint with its weights packed for the kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import click
import torch

from ptxgen.checkpoint.convert import Conversion, convert_checkpoint
from ptxgen.checkpoint.gptq_zeros import ZeroReading
from ptxgen.problem import Dtype
from ptxtune.options import UserPath, json_option
from ptxtune.output import note, say, say_json


@click.command("convert")
@click.argument("directory", type=UserPath())
@click.argument("out", type=UserPath())
@click.option(
    "--dtype",
    type=click.Choice(get_args(Dtype)),
    help="Of the activations; without it, of each layer's scales, which then are not rounded.",
)
@click.option("--fused", is_flag=True, help="Write q, k, v as qkv and gate, up as gate_up.")
@click.option(
    "--keep-unsupported",
    is_flag=True,
    help="Copy layers that no kernel can compute in their own format.",
)
@click.option(
    "--gptq-zeros",
    type=click.Choice(get_args(ZeroReading)),
    default="auto",
    show_default=True,
    help="How GPTQ version 1 stored zero points less one: by word or by nibble.",
)
@click.option(
    "--on",
    "where",
    type=click.Choice(("cpu", "cuda")),
    default="cpu",
    show_default=True,
    help="Where layers are unpacked and packed.",
)
@click.option("--force", is_flag=True, help="Replace an older converted checkpoint.")
@json_option
def command(
    *,
    directory: Path,
    out: Path,
    dtype: Dtype | None,
    fused: bool,
    keep_unsupported: bool,
    gptq_zeros: ZeroReading,
    where: str,
    force: bool,
    as_json: bool,
) -> None:
    """Pack a quantized checkpoint once, for the kernels.

    Loading the result repacks nothing. Reads AWQ, GPTQ, compressed-tensors and GGUF checkpoints
    (docs/formats.md), layer by layer, and writes safetensors with a manifest; all other tensors and
    files are copied.

    \b
    Example:
      ptxtune convert Llama-3.1-8B-AWQ Llama-3.1-8B-ptxtune
    """
    if where == "cuda" and not torch.cuda.is_available():
        raise click.BadParameter("torch sees no CUDA device here; leave --on out.")
    done = convert_checkpoint(
        directory,
        out,
        dtype=dtype,
        fused=fused,
        keep_unsupported=keep_unsupported,
        gptq_zeros=gptq_zeros,
        device=where,
        force=force,
    )
    for text in done.notes:
        note(text)
    if as_json:
        say_json(conversion_document(done))
        return
    packed = sum(layer.num_bytes for layer in done.manifest.layers.values())
    say(
        f"{done.folder}: {len(done.manifest.layers)} layers packed ({packed / 1e6:,.1f} MB), "
        f"{done.copied_tensors} other tensors and {len(done.copied_files)} files copied"
    )


def conversion_document(done: Conversion) -> dict[str, Any]:
    """A conversion as the JSON that --json shows."""
    layers = done.manifest.layers.values()
    return {
        "checkpoint": str(done.folder),
        "layers": {layer.name: layer.problem.to_dict() for layer in layers},
        "packed_bytes": sum(layer.num_bytes for layer in layers),
        "unconverted": done.manifest.unconverted,
        "copied_tensors": done.copied_tensors,
        "copied_files": list(done.copied_files),
        "notes": list(done.notes),
    }
