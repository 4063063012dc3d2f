"""ptxtune convert on tiny checkpoints of each format, and what is read back of the result."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from format_makers import (
    AWQ_CONFIG,
    GPTQ_CONFIG,
    HQQ_CONFIG,
    MARLIN_CONFIG,
    Values,
    awq_fast,
    awq_gemm,
    awq_gemv,
    compressed,
    compressed_config,
    gptq,
    hqq,
    marlin,
    named,
    random_values,
    with_group,
    write_checkpoint,
)
from safetensors import safe_open
from torch import Tensor

from ptxgen.checkpoint import convert as conversion
from ptxgen.checkpoint.convert import convert_checkpoint
from ptxgen.checkpoint.manifest import MANIFEST_NAME
from ptxgen.checkpoint.open import open_checkpoint
from ptxgen.checkpoint.packed import PackedCheckpoint
from ptxgen.checkpoint.publish import staged_folder
from ptxgen.errors import CheckpointError, UnsupportedFormatError
from ptxgen.weights.pack import unpack
from ptxgen.weights.quantize import dequantize
from ptxtune.cli import cli

ATTENTION = "model.layers.0.self_attn"
MLP = "model.layers.0.mlp"
GROUP = 64

Format = tuple[Callable[[Values], dict[str, Tensor]], dict[str, Any], bool]
AWQ_64 = with_group(AWQ_CONFIG, GROUP)
GPTQ_64 = with_group(GPTQ_CONFIG, GROUP)
FORMATS: dict[str, Format] = {
    "AWQ gemm": (awq_gemm, {**AWQ_64, "version": "gemm"}, False),
    "AWQ gemv": (awq_gemv, {**AWQ_64, "version": "gemv"}, False),
    "AWQ gemv_fast": (awq_fast, {**AWQ_64, "version": "gemv_fast"}, False),
    "GPTQ v1": (gptq, GPTQ_64, False),
    "GPTQ v1 sym": (gptq, {**GPTQ_64, "sym": True}, True),
    "GPTQ v2": (
        lambda values: gptq(values, 2),
        {**GPTQ_64, "checkpoint_format": "gptq_v2"},
        False,
    ),
    "GPTQ Marlin": (marlin, with_group(MARLIN_CONFIG, GROUP), True),
    "compressed-tensors": (compressed, compressed_config(group_size=GROUP), False),
    "compressed-tensors sym": (
        lambda values: compressed(values, ""),
        compressed_config(group_size=GROUP, symmetric=True),
        True,
    ),
}


def layers_of(seed: int = 0, bias: bool = True) -> dict[str, Values]:
    sizes = {
        f"{ATTENTION}.q_proj": (128, 128),
        f"{ATTENTION}.k_proj": (64, 128),
        f"{ATTENTION}.v_proj": (64, 128),
        f"{MLP}.down_proj": (128, 192),
    }
    return {
        name: random_values(n, k, GROUP, seed=seed + at, bias=bias and name.endswith("q_proj"))
        for at, (name, (n, k)) in enumerate(sizes.items())
    }


OTHERS = {
    "model.embed_tokens.weight": torch.randn(32, 128).to(torch.bfloat16),
    "model.norm.weight": torch.randn(128),
    "lm_head.weight": torch.randn(32, 128).to(torch.float16),
}


def source_of(folder: Path, form: str, **more: Any) -> dict[str, Values]:
    make, config, _ = FORMATS[form]
    layers = layers_of()
    tensors = {**named({name: make(values) for name, values in layers.items()}), **OTHERS}
    write_checkpoint(folder, tensors, config, config={"hidden_size": 128}, **more)
    (folder / "tokenizer.json").write_text('{"model": {}}')
    (folder / "README.md").write_text("a card")
    return layers


@pytest.mark.parametrize("form", FORMATS)
def test_convert_and_read_back_every_format(tmp_path: Path, form: str) -> None:
    layers = source_of(tmp_path / "source", form)
    done = convert_checkpoint(tmp_path / "source", tmp_path / "out")
    sym = FORMATS[form][2]
    with PackedCheckpoint(tmp_path / "out") as packed:
        assert packed.manifest.layers.keys() == layers.keys() == done.manifest.layers.keys()
        for name, values in layers.items():
            entry = packed.manifest.layers[name]
            weight, bias = packed.load(name, verify=True)
            result = dequantize(unpack(weight, entry.problem), entry.problem)
            assert torch.equal(result, values.weight(sym))
            assert (bias is None) is (values.bias is None)
            assert bias is None or torch.equal(bias, values.bias)
        for name, tensor in OTHERS.items():
            assert torch.equal(packed.files.read(name), tensor)
            assert packed.files.read(name).dtype == tensor.dtype
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["hidden_size"] == 128
    assert config["quantization_config"]["quant_method"] == "ptxtune"
    manifest = json.loads((tmp_path / "out" / MANIFEST_NAME).read_text())
    assert manifest["source_quantization"] == FORMATS[form][1]
    assert done.copied_files == ("README.md", "tokenizer.json")
    assert (tmp_path / "out" / "tokenizer.json").read_text() == '{"model": {}}'
    assert done.copied_tensors == len(OTHERS)
    leftovers = [path.name for path in tmp_path.iterdir() if path.name not in ("source", "out")]
    assert not leftovers


def test_only_what_belongs_to_the_new_checkpoint_is_in_its_files(tmp_path: Path) -> None:
    layers = source_of(tmp_path / "source", "GPTQ v1", shards=3)
    convert_checkpoint(tmp_path / "source", tmp_path / "out")
    names: set[str] = set()
    for file in (tmp_path / "out").glob("*.safetensors"):
        with safe_open(str(file), framework="pt") as handle:
            names |= set(handle.keys())
    biased = {f"{name}.bias" for name, values in layers.items() if values.bias is not None}
    assert names == {f"{name}.ptxtune_packed" for name in layers} | biased | OTHERS.keys()
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    assert index["weight_map"].keys() == names


def test_fused(tmp_path: Path) -> None:
    layers = source_of(tmp_path / "source", "AWQ gemm")
    convert_checkpoint(tmp_path / "source", tmp_path / "out", fused=True)
    parts = [f"{ATTENTION}.{name}_proj" for name in "qkv"]
    with PackedCheckpoint(tmp_path / "out") as packed:
        entry = packed.manifest.layers[f"{ATTENTION}.qkv_proj"]
        assert entry.members == tuple(parts)
        assert len(packed.manifest.layers) == 2
        weight, bias = packed.load(entry.name)
        result = dequantize(unpack(weight, entry.problem), entry.problem)
        assert torch.equal(result, torch.cat([layers[part].weight() for part in parts]))
        assert torch.equal(bias[:128], layers[parts[0]].bias)
        assert not bias[128:].any()


def test_loading_on_the_cpu_maps_the_file(tmp_path: Path) -> None:
    """The weight's address lies in a mapping of the file: neither copied nor repacked."""
    if not Path("/proc/self/maps").exists():
        pytest.skip("needs /proc to list mappings")
    source_of(tmp_path / "source", "AWQ gemm")
    convert_checkpoint(tmp_path / "source", tmp_path / "out")
    with PackedCheckpoint(tmp_path / "out") as packed:
        weight, _ = packed.load(f"{MLP}.down_proj")
        found = [
            line
            for line in Path("/proc/self/maps").read_text().splitlines()
            if _covers(line, weight.data_ptr())
        ]
    assert len(found) == 1
    assert found[0].endswith(".safetensors")


def _covers(line: str, address: int) -> bool:
    low, high = (int(part, 16) for part in re.match(r"(\w+)-(\w+) ", line).groups())
    return low <= address < high


def test_files_are_split_and_only_one_is_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source_of(tmp_path / "source", "GPTQ v1")
    held: list[int] = []
    save = conversion.save_file

    def counted(tensors: dict[str, Tensor], *rest: Any) -> None:
        held.append(sum(tensor.nbytes for tensor in tensors.values()))
        save(tensors, *rest)

    monkeypatch.setattr(conversion, "save_file", counted)
    limit = 24 << 10
    convert_checkpoint(tmp_path / "source", tmp_path / "out", shard_bytes=limit)
    assert len(held) > 2
    assert max(held) <= limit
    names = sorted(path.name for path in (tmp_path / "out").glob("*.safetensors"))
    assert names[0] == f"model-00001-of-{len(held):05}.safetensors"
    with PackedCheckpoint(tmp_path / "out") as packed:
        for name in packed.manifest.layers:
            packed.load(name, verify=True)


def mixed(folder: Path) -> None:
    """One layer that kernels can compute, and one of act-order."""
    able, not_able = random_values(64, 128, GROUP), random_values(64, 128, GROUP, act_order=True)
    tensors = named({f"{MLP}.up_proj": gptq(able), f"{MLP}.down_proj": gptq(not_able)})
    write_checkpoint(folder, tensors, {**GPTQ_64, "desc_act": True})


def test_unsupported_layers_are_refused_or_kept(tmp_path: Path) -> None:
    mixed(tmp_path / "source")
    with pytest.raises(UnsupportedFormatError, match=r"down_proj: act-order .*--keep-unsupported"):
        convert_checkpoint(tmp_path / "source", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    done = convert_checkpoint(tmp_path / "source", tmp_path / "out", keep_unsupported=True)
    assert "act-order" in done.manifest.unconverted[f"{MLP}.down_proj"]
    with (
        PackedCheckpoint(tmp_path / "out") as packed,
        open_checkpoint(tmp_path / "source") as source,
    ):
        assert list(packed.manifest.layers) == [f"{MLP}.up_proj"]
        for part in ("qweight", "qzeros", "scales", "g_idx"):
            name = f"{MLP}.down_proj.{part}"
            assert torch.equal(packed.files.read(name), source.read(name))


def test_a_checkpoint_without_any_supported_layer(tmp_path: Path) -> None:
    values = random_values(64, 128, 32)
    write_checkpoint(tmp_path / "source", named({MLP: hqq(values, values.scales)}), HQQ_CONFIG)
    for keep in (False, True):
        with pytest.raises(UnsupportedFormatError, match="floating-point zero points"):
            convert_checkpoint(tmp_path / "source", tmp_path / "out", keep_unsupported=keep)
    assert not (tmp_path / "out").exists()


def test_a_damaged_source_leaves_nothing(tmp_path: Path) -> None:
    """Old AutoGPTQ's destroyed words are met while layers are being written."""
    layers = layers_of()
    tensors = named({name: gptq(values) for name, values in layers.items()})
    tensors[f"{MLP}.down_proj.qzeros"][0, 0] = -1
    write_checkpoint(tmp_path / "source", tensors, GPTQ_64)
    with pytest.raises(CheckpointError, match="all bits set"):
        convert_checkpoint(tmp_path / "source", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    convert_checkpoint(tmp_path / "source", tmp_path / "out", gptq_zeros="word")


def test_a_folder_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def write() -> None:
        with staged_folder(out, "marker", 0) as staging:
            (staging / "new").write_text("")
            out.mkdir()
            (out / "theirs").write_text("kept")

    with pytest.raises(CheckpointError, match="cannot write"):
        write()
    assert [(path.name, path.read_text()) for path in out.iterdir()] == [("theirs", "kept")]
    assert list(tmp_path.iterdir()) == [out]


def test_existing_folders_are_replaced_only_by_force_and_only_our_own(tmp_path: Path) -> None:
    source_of(tmp_path / "source", "AWQ gemm")
    out = tmp_path / "out"
    convert_checkpoint(tmp_path / "source", out)
    with pytest.raises(CheckpointError, match="exists already"):
        convert_checkpoint(tmp_path / "source", out)
    (out / "old").write_text("")
    convert_checkpoint(tmp_path / "source", out, force=True)
    assert not (out / "old").exists()
    with pytest.raises(CheckpointError, match="not written by ptxtune convert"):
        convert_checkpoint(tmp_path / "source", tmp_path / "source", force=True)
    assert (tmp_path / "source" / "tokenizer.json").exists()
    with pytest.raises(UnsupportedFormatError, match="Name the checkpoint it came from"):
        convert_checkpoint(out, tmp_path / "again")


def test_a_disk_without_room_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source_of(tmp_path / "source", "AWQ gemm")
    usage = os.statvfs(tmp_path)
    assert usage.f_bavail > 0
    from ptxgen.checkpoint import publish

    monkeypatch.setattr(publish, "SPARE_BYTES", usage.f_bavail * usage.f_frsize * 2)
    with pytest.raises(CheckpointError, match="GB free"):
        convert_checkpoint(tmp_path / "source", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_rounded_scales_are_reported(tmp_path: Path) -> None:
    source_of(tmp_path / "source", "AWQ gemm")
    done = convert_checkpoint(tmp_path / "source", tmp_path / "out", dtype="bf16")
    assert any("scales of 4 layers were rounded" in note for note in done.notes)
    with PackedCheckpoint(tmp_path / "out") as packed:
        entry = packed.manifest.layers[f"{ATTENTION}.q_proj"]
        assert entry.problem.dtype == "bf16"
        assert "scales were rounded" in entry.notes[-1]
        assert packed.load(entry.name)[1].dtype == torch.bfloat16


@pytest.mark.parametrize("damage", ["weight", "manifest", "size", "layout", "missing", "problem"])
def test_damaged_converted_checkpoints(tmp_path: Path, damage: str) -> None:
    source_of(tmp_path / "source", "AWQ gemm")
    out = tmp_path / "out"
    convert_checkpoint(tmp_path / "source", out)
    manifest = json.loads((out / MANIFEST_NAME).read_text())
    name = f"{MLP}.down_proj"
    words = {
        "weight": "not what was written",
        "manifest": "no manifest",
        "size": "should be U8",
        "layout": "Convert the original",
        "missing": "cannot be read",
        "problem": "no manifest",
    }[damage]
    if damage == "weight":
        (file,) = out.glob("*.safetensors")
        data = bytearray(file.read_bytes())
        with PackedCheckpoint(out) as packed:
            at = data.find(packed.load(name)[0].numpy().tobytes())
        data[at + 5] ^= 1
        file.write_bytes(data)
    elif damage == "manifest":
        manifest.pop("layers")
    elif damage == "size":
        manifest["layers"][name]["problem"]["n"] += 64
    elif damage == "layout":
        manifest["layout_version"] += 1
    elif damage == "problem":
        manifest["layers"][name]["problem"]["k"] = 33
    (out / MANIFEST_NAME).write_text(json.dumps(manifest))
    if damage == "missing":
        (out / MANIFEST_NAME).unlink()
    with pytest.raises(CheckpointError, match=words), PackedCheckpoint(out) as packed:
        packed.load(name, verify=True)


def test_an_unknown_layer_of_a_converted_checkpoint(tmp_path: Path) -> None:
    source_of(tmp_path / "source", "AWQ gemm")
    convert_checkpoint(tmp_path / "source", tmp_path / "out")
    with (
        PackedCheckpoint(tmp_path / "out") as packed,
        pytest.raises(CheckpointError, match="has no packed layer 'x'"),
    ):
        packed.load("x")


def test_gguf(tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="GGUF files need the package gguf")
    import numpy as np
    from test_formats_packages import gguf_writer

    random = np.random.default_rng(3)
    tensors = {
        "token_embd.weight": ("Q4_0", random.normal(size=(32, 64))),
        "blk.0.ffn_down.weight": ("Q4_0", random.normal(size=(64, 64))),
        "output_norm.weight": ("F32", random.normal(size=64)),
    }
    path = gguf_writer(tmp_path / "tiny.gguf", tensors)
    done = convert_checkpoint(path, tmp_path / "out")
    assert "1 other quantized tensors of the GGUF file were written as FP16" in done.notes[-1]
    with PackedCheckpoint(tmp_path / "out") as packed, open_checkpoint(path) as source:
        (entry,) = packed.manifest.layers.values()
        weight = dequantize(unpack(packed.load(entry.name)[0], entry.problem), entry.problem)
        assert torch.equal(weight, source.read("blk.0.ffn_down.weight"))
        embedding = packed.files.read("token_embd.weight")
        assert torch.equal(embedding, source.read("token_embd.weight").to(torch.float16))
        norm = packed.files.read("output_norm.weight")
        assert torch.equal(norm, source.read("output_norm.weight"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_the_command_without_a_gpu(tmp_path: Path) -> None:
    words = ["convert", str(tmp_path), str(tmp_path / "out"), "--on", "cuda"]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 2
    assert "torch sees no CUDA device" in shown.output


def test_the_command(tmp_path: Path) -> None:
    source_of(tmp_path / "source", "compressed-tensors")
    words = ["convert", str(tmp_path / "source"), str(tmp_path / "out")]
    shown = CliRunner().invoke(cli, words)
    assert shown.exit_code == 0, shown.output
    assert "4 layers packed" in shown.output
    again = CliRunner().invoke(cli, words)
    assert again.exit_code == 2
    assert "exists already" in again.output
    document = CliRunner().invoke(cli, [*words, "--force", "--fused", "--json"])
    assert document.exit_code == 0, document.output
    layers = json.loads(document.stdout)["layers"]
    assert layers.keys() == {f"{ATTENTION}.qkv_proj", f"{MLP}.down_proj"}
