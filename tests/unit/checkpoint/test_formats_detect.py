"""Detection: config against names and shapes; what contradicts itself is refused, not guessed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from format_makers import (
    AWQ_CONFIG,
    GPTQ_CONFIG,
    HQQ_CONFIG,
    MARLIN_CONFIG,
    TORCHAO_CONFIG,
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
    torchao_plain,
    with_group,
    write_checkpoint,
)
from torch import Tensor

from ptxgen.checkpoint.open import Checkpoint, open_checkpoint
from ptxgen.errors import CheckpointError, UnsupportedFormatError

NAME = "model.layers.0.self_attn.o_proj"
SQUARE = random_values(128, 128, 64)
AWQ_64 = with_group(AWQ_CONFIG, 64)
GPTQ_64 = with_group(GPTQ_CONFIG, 64)


def opened(folder: Path, tensors: dict[str, Tensor], quantization: Any, **more: Any) -> Checkpoint:
    write_checkpoint(folder, named({NAME: tensors}), quantization, **more)
    return open_checkpoint(folder)


def reason_of(folder: Path, tensors: dict[str, Tensor], quantization: Any, **more: Any) -> str:
    with opened(folder, tensors, quantization, **more) as checkpoint:
        assert not checkpoint.layers
        (refusal,) = checkpoint.refused
        assert refusal.name == NAME
        return refusal.reason


SQUARE_FORMATS = {
    "AWQ gemm": (awq_gemm(SQUARE), {**AWQ_64, "version": "gemm"}),
    "AWQ gemv": (awq_gemv(SQUARE), {**AWQ_64, "version": "GEMV"}),
    "AWQ gemv_fast": (awq_fast(SQUARE), {**AWQ_64, "version": "gemv_fast"}),
    "GPTQ": (gptq(SQUARE), GPTQ_64),
}


@pytest.mark.parametrize("config_of", SQUARE_FORMATS)
@pytest.mark.parametrize("tensors_of", SQUARE_FORMATS)
def test_square_layers_of_one_format_under_the_config_of_another(
    tmp_path: Path, tensors_of: str, config_of: str
) -> None:
    tensors, config = SQUARE_FORMATS[tensors_of][0], SQUARE_FORMATS[config_of][1]
    if tensors_of == config_of:
        with opened(tmp_path, tensors, config) as checkpoint:
            assert checkpoint.layers[0].format.startswith(config_of)
        return
    reason = reason_of(tmp_path, tensors, config)
    assert f"contradicts {tmp_path}/config.json" in reason
    assert f"have the layout of {tensors_of}" in reason


def test_square_gemm_and_gemv_have_the_same_qweight_shape() -> None:
    gemm, gemv = SQUARE_FORMATS["AWQ gemm"][0], SQUARE_FORMATS["AWQ gemv"][0]
    assert gemm["qweight"].shape == gemv["qweight"].shape


@pytest.mark.parametrize("tensors_of", ["AWQ gemm", "AWQ gemv", "AWQ gemv_fast"])
def test_awq_without_a_version_is_told_by_its_shapes(tmp_path: Path, tensors_of: str) -> None:
    with opened(tmp_path, SQUARE_FORMATS[tensors_of][0], AWQ_64) as checkpoint:
        assert checkpoint.layers[0].format == tensors_of


@pytest.mark.parametrize(
    ("tensors", "config"),
    [
        (awq_gemm(SQUARE), compressed_config(group_size=64)),
        (compressed(SQUARE), GPTQ_64),
        (marlin(SQUARE), GPTQ_64),
        (gptq(SQUARE), with_group(MARLIN_CONFIG, 64)),
        (hqq(SQUARE, SQUARE.scales), AWQ_64),
        ({"weight": torch.zeros(128, 128)}, GPTQ_64),
    ],
    ids=["awq as ct", "ct as gptq", "marlin as gptq", "gptq as marlin", "hqq as awq", "fp as gptq"],
)
def test_tensors_of_another_format_refuse_the_checkpoint(
    tmp_path: Path, tensors: dict[str, Tensor], config: dict[str, Any]
) -> None:
    with pytest.raises(CheckpointError, match="the tensors contradict each other"):
        opened(tmp_path, tensors, config)


@pytest.mark.parametrize("group", [32, 128, -1])
@pytest.mark.parametrize("tensors_of", SQUARE_FORMATS)
def test_another_group_size_than_the_scales_have(
    tmp_path: Path, tensors_of: str, group: int
) -> None:
    tensors, config = SQUARE_FORMATS[tensors_of]
    assert "contradicts" in reason_of(tmp_path, tensors, with_group(config, group))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"bits": 8}, "8 bits"),
        ({"bits": None}, "None bits"),
        ({"checkpoint_format": "bitblas"}, "'bitblas'"),
        ({"group_size": "many"}, "group size 'many'"),
        ({"dynamic": {r"-:.*o_proj": {}}}, "that it is not"),
        ({"dynamic": {r"+:.*o_proj": {"bits": 8}}}, "8 bits"),
        ({"dynamic": {r"(": {}}}, "no regular expression"),
    ],
)
def test_gptq_settings_that_are_refused(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    assert words in reason_of(tmp_path, gptq(SQUARE), {**GPTQ_64, **settings})


def test_gptq_dynamic_changes_the_group_of_a_layer(tmp_path: Path) -> None:
    config = {**with_group(GPTQ_CONFIG, 128), "dynamic": {r"\+?.*o_proj": {"group_size": 64}}}
    with opened(tmp_path, gptq(SQUARE), config) as checkpoint:
        assert checkpoint.layers[0].group_size == 64


def test_gptq_act_order_that_config_and_index_do_not_agree_on(tmp_path: Path) -> None:
    permuted = random_values(128, 128, 64, act_order=True)
    assert "nothing is permuted" in reason_of(tmp_path / "a", gptq(permuted), GPTQ_64)
    without = {name: part for name, part in gptq(SQUARE).items() if name != "g_idx"}
    ordered = {**GPTQ_64, "desc_act": True}
    assert "holds no g_idx" in reason_of(tmp_path / "b", without, ordered)


@pytest.mark.parametrize("index", ["absent", "empty", "zeros", "monotone"])
def test_gptq_indices_that_permute_nothing(tmp_path: Path, index: str) -> None:
    tensors = gptq(SQUARE)
    if index == "absent":
        del tensors["g_idx"]
    elif index == "empty":
        tensors["g_idx"] = torch.zeros(0, dtype=torch.int32)
    elif index == "zeros":
        tensors["g_idx"] = torch.zeros(128, dtype=torch.int32)
    config = {**GPTQ_64, "desc_act": index == "monotone"}
    with opened(tmp_path, tensors, config) as checkpoint:
        assert not checkpoint.layers[0].act_order


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ([0] * 63 + [1] * 65, "63 to 65 inputs"),
        ([0] * 64 + [2] * 64, "groups 0..2"),
        ([0] * 64 + [-1] * 64, "groups -1..0"),
    ],
)
def test_gptq_indices_that_cannot_be(tmp_path: Path, index: list[int], words: str) -> None:
    tensors = {**gptq(SQUARE), "g_idx": torch.tensor(index, dtype=torch.int32)}
    assert words in reason_of(tmp_path, tensors, {**GPTQ_64, "desc_act": True})


@pytest.mark.parametrize(
    ("weights", "group", "words"),
    [
        ({"num_bits": 8}, {}, "8 bits"),
        ({"type": "float"}, {}, "type 'float'"),
        ({"strategy": "tensor"}, {}, "group and channel"),
        ({"symmetric": False}, {"input_activations": {"num_bits": 8}}, "activations too"),
        ({}, {"format": "int-quantized"}, "'int-quantized'"),
        ({}, {"targets": ["re:.*q_proj"]}, "no config group"),
    ],
)
def test_compressed_tensors_settings_that_are_refused(
    tmp_path: Path, weights: dict[str, Any], group: dict[str, Any], words: str
) -> None:
    config = compressed_config(group_size=64, **weights)
    config["config_groups"]["group_0"].update(group)
    assert words in reason_of(tmp_path, compressed(SQUARE), config)


def test_compressed_tensors_groups_by_name_pattern_and_class(tmp_path: Path) -> None:
    """The most exact target wins: this layer's own group has 64 inputs, the others 32 and 128."""
    config = compressed_config(group_size=32)
    groups = config["config_groups"]
    for name, targets, size in (("a", [r"re:.*proj"], 128), ("b", [NAME], 64)):
        weights = {**groups["group_0"]["weights"], "group_size": size}
        groups[name] = {"targets": targets, "weights": weights}
    with opened(tmp_path, compressed(SQUARE), config) as checkpoint:
        assert checkpoint.layers[0].group_size == 64


def test_compressed_tensors_symmetric_with_zero_points_of_its_own(tmp_path: Path) -> None:
    config = compressed_config(group_size=64, symmetric=True)
    with (
        opened(tmp_path, compressed(SQUARE), config) as checkpoint,
        pytest.raises(CheckpointError, match="symmetric by its config"),
    ):
        checkpoint.layers[0].load()


@pytest.mark.parametrize("make", [awq_gemv, awq_fast])
@pytest.mark.parametrize(("stored", "said"), [(128, 256), (256, 128)])
def test_padding_that_hides_the_number_of_groups(
    tmp_path: Path, make: Callable[[Values], dict[str, Tensor]], stored: int, said: int
) -> None:
    """Rows of 512 inputs have one word of zero points for groups of 128 and of 256 alike."""
    config = {
        **with_group(AWQ_CONFIG, said),
        "version": "gemv" if make is awq_gemv else "gemv_fast",
    }
    with (
        opened(tmp_path, make(random_values(8, 512, stored)), config) as checkpoint,
        pytest.raises(CheckpointError, match="does not have"),
    ):
        checkpoint.layers[0].load()


@pytest.mark.parametrize("missing", ["weight_zero_point", "weight_scale", "weight_shape"])
def test_compressed_tensors_incomplete(tmp_path: Path, missing: str) -> None:
    tensors = {name: part for name, part in compressed(SQUARE).items() if name != missing}
    assert missing in reason_of(tmp_path, tensors, compressed_config(group_size=64))


def test_implied_group_of_a_wrongly_split_scale(tmp_path: Path) -> None:
    """K / g must equal the scales' own number of groups."""
    tensors = compressed(SQUARE)
    tensors["weight_scale"] = tensors["weight_scale"].repeat(1, 2)
    assert "contradicts" in reason_of(tmp_path, tensors, compressed_config(group_size=64))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"axis": torch.tensor(0, dtype=torch.int32)}, "axis 0"),
        ({"nbits": torch.tensor(8, dtype=torch.int32)}, "8 bits"),
        ({"packing": torch.tensor(list(b"3bit_32"), dtype=torch.uint8)}, "'3bit_32'"),
        ({"quant_scale": torch.tensor(1, dtype=torch.uint8)}, "quantized scales"),
        ({"group_size": torch.tensor(32, dtype=torch.int32)}, "config.json says 64"),
        ({"shape": torch.tensor([128, 64])}, "contradicts itself"),
    ],
)
def test_hqq_settings_that_are_refused(
    tmp_path: Path, changes: dict[str, Tensor], words: str
) -> None:
    config = json.loads(json.dumps(HQQ_CONFIG))
    config["quant_config"]["weight_quant_params"]["group_size"] = 64
    assert words in reason_of(tmp_path, {**hqq(SQUARE, SQUARE.scales), **changes}, config)


def test_torchao_without_metadata_is_refused(tmp_path: Path) -> None:
    tensors = torchao_plain(SQUARE, SQUARE.scales)
    assert "metadata has no entry" in reason_of(tmp_path, tensors, TORCHAO_CONFIG)


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ({"quant_method": "bitsandbytes"}, "'bitsandbytes'"),
        ({"quant_method": "ptxtune"}, "ptxtune convert wrote"),
        ({"bits": 4}, "'nothing'"),
        ({"quant_method": "auto-round", "packing_format": "auto_round:gptq"}, "AutoRound's GPTQ"),
        ({"quant_method": "auto-round", "packing_format": "x"}, "packing 'x'"),
    ],
)
def test_methods_that_are_not_read(
    tmp_path: Path, quantization: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnsupportedFormatError, match=words):
        opened(tmp_path, gptq(SQUARE), quantization)


def test_auto_round_packings(tmp_path: Path) -> None:
    base = {"quant_method": "auto-round", "bits": 4, "group_size": 64, "sym": True}
    awq_like = {**base, "packing_format": "auto_round:auto_awq", "sym": False}
    with opened(tmp_path / "a", awq_gemm(SQUARE), awq_like) as checkpoint:
        assert checkpoint.layers[0].format == "AWQ gemm"
    with opened(
        tmp_path / "b", gptq(SQUARE), {**base, "packing_format": "auto_round:auto_gptq"}
    ) as checkpoint:
        assert checkpoint.layers[0].zero == "sym"


@pytest.mark.parametrize(
    ("file", "settings", "tensors"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 64, "sym": False}, gptq(SQUARE)),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 64}, awq_gemm(SQUARE)),
    ],
)
def test_settings_in_a_file_of_their_own(
    tmp_path: Path, file: str, settings: dict[str, Any], tensors: dict[str, Tensor]
) -> None:
    (tmp_path / file).write_text(json.dumps(settings))
    with opened(tmp_path, tensors, None) as checkpoint:
        assert checkpoint.layers[0].group_size == 64


def test_a_leftover_file_of_another_method_is_refused(tmp_path: Path) -> None:
    (tmp_path / "quant_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="belongs to 'awq'"):
        opened(tmp_path, gptq(SQUARE), GPTQ_64)


def test_shards_are_read_by_the_index_alone(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, named({NAME: gptq(SQUARE)}), GPTQ_64, shards=2)
    (tmp_path / "consolidated.safetensors").write_bytes(b"not read")
    with open_checkpoint(tmp_path) as checkpoint:
        assert torch.equal(checkpoint.layers[0].load().scales, SQUARE.scales.t())


def test_files_that_are_missing_damaged_or_pickles(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is no folder"):
        open_checkpoint(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match=r"holds no \*.safetensors"):
        open_checkpoint(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(CheckpointError, match="pickles"):
        open_checkpoint(tmp_path)
    write_checkpoint(tmp_path, named({NAME: gptq(SQUARE)}), GPTQ_64)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="no whole safetensors file"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "gone.safetensors"])
def test_an_index_that_names_other_files(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path, named({NAME: gptq(SQUARE)}), GPTQ_64)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": name}}))
    with pytest.raises(CheckpointError, match=r"of its own folder|which is missing"):
        open_checkpoint(tmp_path)


def test_a_tensor_in_two_files(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, named({NAME: gptq(SQUARE)}), GPTQ_64)
    (tmp_path / "again.safetensors").write_bytes((tmp_path / "model.safetensors").read_bytes())
    with pytest.raises(CheckpointError, match="stands in both"):
        open_checkpoint(tmp_path)


def test_no_quantization_at_all(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="says nothing of a quantization"):
        opened(tmp_path, gptq(SQUARE), None)


def test_an_unknown_reading_of_zero_points(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no reading"):
        open_checkpoint(tmp_path, gptq_zeros="byte")  # type: ignore[arg-type]


def test_layers_after_close_say_so(tmp_path: Path) -> None:
    with opened(tmp_path, gptq(SQUARE), GPTQ_64) as checkpoint:
        layer = checkpoint.layers[0]
    with pytest.raises(CheckpointError, match="was closed"):
        layer.load()


def test_other_tensors_and_a_second_format_are_listed(tmp_path: Path) -> None:
    tensors = named({NAME: gptq(SQUARE), "model.layers.1.mlp.up_proj": compressed(SQUARE)})
    tensors["model.norm.weight"] = torch.ones(128)
    write_checkpoint(tmp_path, tensors, GPTQ_64)
    with open_checkpoint(tmp_path) as checkpoint:
        assert [layer.name for layer in checkpoint.layers] == [NAME]
        assert "checkpoint of two formats" in checkpoint.refused[0].reason
        assert "model.norm.weight" in {other.name for other in checkpoint.others}
