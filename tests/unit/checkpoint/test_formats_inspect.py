"""ptxtune inspect of a checkpoint: layers as engines fuse them, problems, memory, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from format_makers import (
    AWQ_CONFIG,
    GPTQ_CONFIG,
    HQQ_CONFIG,
    awq_gemm,
    gptq,
    hqq,
    named,
    random_values,
    with_group,
    write_checkpoint,
)

from ptxgen.errors import ProblemError
from ptxgen.problem import Problem
from ptxgen.weights.layout import packed_layout
from ptxtune.inspect_checkpoint import (
    inspect_checkpoint,
    inspection_document,
    inspection_text,
    pattern_of,
)

GROUP = 64


def llama_like(folder: Path, blocks: int = 2, config: dict[str, Any] | None = None) -> int:
    """An AWQ checkpoint of small decoder blocks; returns the bytes of its quantized tensors."""
    sizes = {
        "self_attn.q_proj": (256, 256, True),
        "self_attn.k_proj": (64, 256, True),
        "self_attn.v_proj": (64, 256, True),
        "self_attn.o_proj": (256, 256, False),
        "mlp.gate_proj": (512, 256, False),
        "mlp.up_proj": (512, 256, False),
        "mlp.down_proj": (256, 512, False),
    }
    made = {name: awq_gemm(random_values(n, k, GROUP, bias=b)) for name, (n, k, b) in sizes.items()}
    layers = {
        f"model.layers.{at}.{name}": part for at in range(blocks) for name, part in made.items()
    }
    tensors = named(layers)
    size = sum(tensor.nbytes for tensor in tensors.values())
    tensors["model.norm.weight"] = torch.ones(256)
    quantization = {**with_group(AWQ_CONFIG, GROUP), "version": "gemm"}
    # What config.json says of a bias is not asked: o_proj has none.
    write_checkpoint(
        folder,
        tensors,
        quantization,
        config={"attention_bias": True, "num_key_value_heads": 2, **(config or {})},
    )
    return size


def problem(n: int, k: int, bias: bool = False) -> Problem:
    return Problem(n, k, GROUP, "fp16", "int", bias)


def test_layers_come_from_the_tensors_as_engines_fuse_them(tmp_path: Path) -> None:
    stored = llama_like(tmp_path)
    found = inspect_checkpoint(tmp_path)
    assert [(group.name, len(group.layers), group.problem) for group in found.groups] == [
        ("model.layers.*.mlp.down_proj", 2, problem(256, 512)),
        ("model.layers.*.mlp.gate_up_proj", 2, problem(1024, 256)),
        ("model.layers.*.self_attn.qkv_proj", 2, problem(384, 256, bias=True)),
        ("model.layers.*.self_attn.o_proj", 2, problem(256, 256)),
    ]
    sizes = inspection_document(found)["bytes"]
    problems = [problem(256, 512), problem(1024, 256), problem(384, 256), problem(256, 256)]
    assert sizes["stored"] == stored
    assert sizes["packed"] == 2 * sum(packed_layout(p).total_bytes for p in problems)
    assert sizes["fp16"] == 2 * sum(2 * p.n * p.k for p in problems)
    assert (found.other_tensors, sizes["others"]) == (1, 1024)
    assert set(found.problems()) == {group.problem for group in found.groups}


def test_shares_of_a_rank(tmp_path: Path) -> None:
    """Two key/value heads of 32 on four ranks: each head lies on two of them."""
    llama_like(tmp_path, blocks=1)
    by_name = {
        group.name.rpartition(".")[2]: group.problem
        for group in inspect_checkpoint(tmp_path, tp=4).groups
    }
    assert by_name == {
        "qkv_proj": problem(64 + 32 + 32, 256, bias=True),
        "o_proj": problem(256, 64),
        "gate_up_proj": problem(256, 256),
        "down_proj": problem(256, 128),
    }
    with pytest.raises(ProblemError, match=r"o_proj with K = 256 and groups of 64 .* tp = 8"):
        inspect_checkpoint(tmp_path, tp=8)


def test_key_value_heads_that_ranks_cannot_share(tmp_path: Path) -> None:
    llama_like(tmp_path, blocks=1, config={"num_key_value_heads": 3})
    with pytest.raises(ProblemError, match="3 key/value heads"):
        inspect_checkpoint(tmp_path, tp=4)


def test_another_dtype_of_the_activations(tmp_path: Path) -> None:
    llama_like(tmp_path, blocks=1)
    found = inspect_checkpoint(tmp_path, dtype="bf16")
    assert {group.problem.dtype for group in found.groups if group.problem} == {"bf16"}


def test_activations_of_another_dtype_than_the_scales_are_noted(tmp_path: Path) -> None:
    llama_like(tmp_path, blocks=1, config={"torch_dtype": "bfloat16"})
    (note,) = inspect_checkpoint(tmp_path).notes
    assert "config.json names bf16 activations" in note
    assert not inspect_checkpoint(tmp_path, dtype="bf16").notes


def test_text_says_what_is_there(tmp_path: Path) -> None:
    llama_like(tmp_path)
    text = inspection_text(inspect_checkpoint(tmp_path))
    assert "AWQ gemm; 8 linear layers as engines fuse them" in text
    assert "model.layers.*.mlp.gate_up_proj" in text
    assert "1024 x 256" in text
    assert "times smaller than FP16" in text
    assert "1 other tensors" in text
    assert "unsupported" not in text
    assert "refused" not in text


def test_what_is_unsupported_refused_or_not_fused_is_named_with_its_reason(tmp_path: Path) -> None:
    gate = random_values(64, 128, GROUP, seed=1, act_order=True)
    up = random_values(64, 128, GROUP, seed=2, act_order=True)
    layers = {
        "model.layers.0.mlp.gate_proj": gptq(gate),
        "model.layers.0.mlp.up_proj": gptq(up),
        "model.layers.0.mlp.down_proj": gptq(random_values(64, 128, GROUP)),
        "model.layers.0.self_attn.o_proj": gptq(random_values(64, 128, 32)),
        "model.layers.1.self_attn.o_proj": gptq(random_values(64, 128, 32)),
    }
    config = {**with_group(GPTQ_CONFIG, GROUP), "desc_act": True}
    write_checkpoint(tmp_path, named(layers), config)
    found = inspect_checkpoint(tmp_path)
    document = inspection_document(found)
    assert [entry["layers"] for entry in document["not_fused"]] == [
        ["model.layers.0.mlp.gate_proj", "model.layers.0.mlp.up_proj"]
    ]
    missing = {entry["name"]: entry["missing"] for entry in document["layers"]}
    assert missing["model.layers.*.mlp.down_proj"] == []
    assert "act-order" in missing["model.layers.*.mlp.gate_proj"][0]
    assert [entry["layer"] for entry in document["refused"]] == [
        "model.layers.0.self_attn.o_proj",
        "model.layers.1.self_attn.o_proj",
    ]
    text = inspection_text(found)
    assert (
        "unsupported: model.layers.*.mlp.gate_proj (1), model.layers.*.mlp.up_proj (1): act" in text
    )
    assert text.count("refused: layer model.layers.0.self_attn.o_proj contradicts") == 1
    assert "(1 more layers alike)" in text
    assert "permute their inputs differently" in text


def test_float_zero_points_are_described_but_not_mapped(tmp_path: Path) -> None:
    values = random_values(64, 128, 32)
    write_checkpoint(
        tmp_path, named({"model.layers.0.mlp.up_proj": hqq(values, values.scales)}), HQQ_CONFIG
    )
    found = inspect_checkpoint(tmp_path)
    assert found.problems() == ()
    entry = inspection_document(found)["layers"][0]
    assert (entry["zero"], entry["problem"], entry["packed_bytes"]) == ("float", None, 0)
    assert "memory: no layer can be packed" in inspection_text(found)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("model.layers.12.mlp.w1", "model.layers.*.mlp.w1"),
        ("model.layers.3.experts.17.w2", "model.layers.*.experts.*.w2"),
        ("7", "*"),
        ("blk.0.ffn_gate", "blk.*.ffn_gate"),
        ("lm_head", "lm_head"),
    ],
)
def test_patterns_of_names(name: str, pattern: str) -> None:
    assert pattern_of(name) == pattern
