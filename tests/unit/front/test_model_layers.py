"""What --model makes of a config.json, against the modules that transformers builds from it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from hf_layers import TABLE, cases, layers_of

from ptxgen.errors import ModelError
from ptxtune import hf_modules
from ptxtune.hf_rules import RULES
from ptxtune.models import model_layers
from ptxtune.selection import select_problems

RECORDED = json.loads(TABLE.read_text())["layers"]


def derived(folder: Path, config: dict[str, Any]) -> list[list[Any]]:
    (folder / "config.json").write_text(json.dumps(config))
    layers = model_layers(folder).layers
    return sorted([layer.name, layer.n, layer.k, layer.bias] for layer in layers)


@pytest.mark.parametrize("name", RECORDED)
def test_layers_are_those_of_the_recorded_modules(name: str, tmp_path: Path) -> None:
    entry = RECORDED[name]
    assert derived(tmp_path, entry["config"]) == sorted(entry["layers"])


def test_the_record_holds_every_case_and_nearly_every_type() -> None:
    assert {name: entry["config"] for name, entry in RECORDED.items()} == cases()
    types = {entry["config"]["model_type"] for entry in RECORDED.values()}
    # A type of remote code alone, and the outer types of two multimodal models.
    assert RULES.keys() - types == {"internlm2", "qwen2_vl", "qwen2_5_vl"}


needs_transformers = pytest.mark.skipif(
    importlib.util.find_spec("transformers") is None,
    reason="transformers (the extra of that name) is not installed",
)


@needs_transformers
def test_transformers_still_builds_what_is_recorded() -> None:
    for name, config in cases().items():
        assert sorted(layers_of(config)) == sorted(RECORDED[name]["layers"]), name


@needs_transformers
def test_a_type_that_only_transformers_knows_is_read_off_its_modules(tmp_path: Path) -> None:
    config = {"model_type": "helium", "hidden_size": 2560, "num_attention_heads": 20,
              "num_key_value_heads": 4, "head_dim": 128, "intermediate_size": 7040,
              "num_hidden_layers": 2}  # fmt: skip
    assert derived(tmp_path, config) == [
        ["down", 2560, 7040, False],
        ["gate_up", 14080, 2560, False],
        ["o", 2560, 2560, False],
        ["qkv", 28 * 128, 2560, False],
    ]
    with pytest.raises(ModelError, match=r"not those of one kind of decoder layer.*in_proj"):
        derived(tmp_path, {"model_type": "mamba", "num_hidden_layers": 2})
    with pytest.raises(ModelError, match=r"transformers .* cannot build"):
        derived(tmp_path, {"model_type": "nonesuch"})


def test_without_transformers_an_unknown_type_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "transformers", None)  # as if not installed
    with pytest.raises(ModelError, match=r"'lama'.*did you mean llama.*ptxtune\[transformers\]"):
        derived(tmp_path, {"model_type": "lama", "hidden_size": 4096})


def linear(role: str, n: int, k: int, bias: bool = False) -> hf_modules.Linear:
    return hf_modules.Linear(role, n, k, bias)


def test_modules_of_two_sizes_are_no_one_shape() -> None:
    class Config:
        num_attention_heads = 4

    one = [linear("qkv_proj", 96, 64), linear("o_proj", 64, 64), linear("up_proj", 256, 64),
           linear("down_proj", 64, 256)]  # fmt: skip
    shape = hf_modules.shape_of(one, Config(), "x")
    assert (shape.heads, shape.kv_heads, shape.head_dim, shape.gated) == (4, 1, 16, False)
    with pytest.raises(ModelError, match="up_proj 512 x 64"):
        hf_modules.shape_of([*one, linear("up_proj", 512, 64)], Config(), "x")
    with pytest.raises(ModelError, match="conv 8 x 64"):
        hf_modules.shape_of([*one, linear("?conv", 8, 64)], Config(), "x")


HUB = {
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3-8B": "llama-3-8b",
    "meta-llama/Llama-2-7b-chat-hf": "llama-2-7b",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama-34b",
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": "tinyllama-1.1b",
    "Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "Qwen/Qwen3-8B": "qwen3-8b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b",
    "mistralai/Mistral-Nemo-Instruct-2407": "mistral-nemo-12b",
    "mistralai/Mixtral-8x7B-Instruct-v0.1": "mixtral-8x7b",
    "google/gemma-2-9b-it": "gemma-2-9b",
    "google/gemma-3-27b-it": "gemma-3-27b",
    "microsoft/Phi-3-mini-4k-instruct": "phi-3-mini",
    "microsoft/phi-4": "phi-4",
    "internlm/internlm2_5-20b-chat": "internlm2.5-20b",
    "llama-3.1-8b-instruct": "llama-3.1-8b",
}


@pytest.mark.parametrize(("name", "known"), HUB.items())
def test_names_of_hubs_are_the_tables_models(name: str, known: str) -> None:
    assert model_layers(name).layers == model_layers(known).layers


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("llama3-8b", "did you mean llama-3-8b"),
        ("Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b"),  # zero points: not the table's model
        ("meta-llama/Llama-9", "config.json"),
        ("a/b/c", "a/b/c"),
    ],
)
def test_names_that_are_no_model_hint_at_one(name: str, hint: str) -> None:
    with pytest.raises(ModelError) as caught:
        model_layers(name)
    assert hint in str(caught.value)


def test_a_folder_goes_before_a_hub_name_and_a_path_is_never_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match="cannot be read"):
        model_layers(Path("llama-3.1-8b"))
    folder = tmp_path / "meta-llama" / "Llama-3.1-8B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "gpt2"}')
    assert model_layers("meta-llama/Llama-3.1-8B").layers[0].k == 768
    assert model_layers("Llama-3.1-8B").layers[0].k == 4096


def test_what_a_file_leaves_out_is_said(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        '{"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", '
        '"hidden_size": 2560, "intermediate_size": 10240}}'
    )
    model = model_layers(path)
    # Gemma 3 4B's published tensors: q 2048, k and v 1024 each.
    assert [(layer.n, layer.k) for layer in model.layers] == [
        (4096, 2560), (2560, 2048), (20480, 2560), (2560, 10240)
    ]  # fmt: skip
    assert "num_attention_heads = 8" in model.note
    assert "gemma3_text" in model.note


LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attention_bias": "false"}, "attention_bias = 'false' must be true or false"),
        ({"mlp_bias": 1}, "mlp_bias = 1 must be true or false"),
        ({"num_local_experts": "8"}, "num_local_experts = '8' must be an integer"),
        ({"num_experts": 2.0}, "num_experts = 2.0 must be an integer"),
        ({"num_attention_heads": 5000}, "config.json: hidden_size = 4096 is no multiple of"),
        ({"num_attention_heads": 33}, "config.json: hidden_size = 4096 is no multiple of"),
        ({"head_dim": 0}, "head_dim = 0 must be a positive integer"),
        ({"hidden_size": 4096.0}, "hidden_size = 4096.0 must be a positive integer"),
        ({"model_type": 7}, "lacks 'model_type'"),
    ],
)
def test_fields_of_another_type_are_refused(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ModelError) as caught:
        derived(tmp_path, LLAMA | change)
    assert words in str(caught.value)
    assert "config.json" in str(caught.value)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 64, "sym": True}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}


def packed(weights: dict[str, Any], **more: Any) -> dict[str, Any]:
    group = {"weights": {"num_bits": 4, "type": "int", "symmetric": True, **weights}, **more}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


STATED = [
    ({}, ("bf16", 128, "sym")),
    ({"torch_dtype": "float16"}, ("fp16", 128, "sym")),
    ({"torch_dtype": None, "dtype": "bfloat16"}, ("bf16", 128, "sym")),
    ({"torch_dtype": "float32"}, ("fp16", 128, "sym")),
    ({"quantization_config": GPTQ}, ("bf16", 64, "sym")),
    ({"quantization_config": GPTQ | {"sym": False}}, ("bf16", 64, "int")),
    ({"quantization_config": AWQ}, ("bf16", 64, "int")),
    ({"quantization_config": {"quant_method": "awq"}}, ("bf16", 128, "int")),
    ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, ("bf16", 128, "sym")),
    ({"quantization_config": packed({"group_size": 32})}, ("bf16", 32, "sym")),
    ({"quantization_config": packed({"strategy": "channel"})}, ("bf16", "k", "sym")),
    ({"quantization_config": GPTQ | {"group_size": -1, "desc_act": True}}, ("bf16", "k", "sym")),
    (
        {"quantization_config": packed({"group_size": 64, "actorder": "static"})},
        ("bf16", 64, "sym"),
    ),
]


@pytest.mark.parametrize(("change", "stated"), STATED)
def test_dtype_and_quantization_are_those_of_the_file(
    change: dict[str, Any], stated: tuple[str, Any, str], tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"torch_dtype": "bfloat16"} | change))
    for problem in select_problems(n=None, k=None, model=str(tmp_path)).problems:
        dtype, group, zero = stated
        assert problem.dtype == dtype
        assert problem.group_size == (problem.k if group == "k" else group)
        assert problem.zero == zero


def test_options_go_before_the_file_and_say_so(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(LLAMA | {"torch_dtype": "bfloat16", "quantization_config": AWQ})
    )
    found = select_problems(n=None, k=None, model=tmp_path, group=128, dtype="fp16")
    assert {(p.dtype, p.group_size, p.zero) for p in found.problems} == {("fp16", 128, "int")}
    assert "stores groups of 64" in found.note
    same = select_problems(n=None, k=None, model=tmp_path, group=64, dtype="both")
    assert same.note == ""
    assert {problem.dtype for problem in same.problems} == {"fp16", "bf16"}


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        (GPTQ | {"bits": 8}, "weights of 8 bits"),
        (GPTQ | {"bits": True}, "weights of True bits"),
        (GPTQ | {"desc_act": True}, "desc_act"),
        (GPTQ | {"desc_act": "no"}, "desc_act = 'no' must be true or false"),
        (GPTQ | {"group_size": 0}, "group_size = 0"),
        (AWQ | {"zero_point": 1}, "zero_point = 1 must be true or false"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "'bitsandbytes'"),
        ({"quant_method": "mxfp4"}, "'mxfp4'"),
        ({"quant_method": "hqq", "bits": 4}, "kind 'hqq'"),
        (packed({"type": "float"}), "kind 'float'"),
        (packed({"group_size": 64, "actorder": "group"}), "actorder"),
        (packed({"group_size": 64}, input_activations={"num_bits": 8}), "activations"),
        (packed({}) | {"config_groups": {}}, "config_groups"),
        ("awq", "must be an object"),
    ],
)
def test_what_no_kernel_serves_is_refused_unless_shapes_alone_are_asked(
    quantization: Any, words: str, tmp_path: Path
) -> None:
    config = LLAMA | {"torch_dtype": "bfloat16", "quantization_config": quantization}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as caught:
        select_problems(n=None, k=None, model=tmp_path)
    assert words in str(caught.value)
    alone = select_problems(n=None, k=None, model=tmp_path, group=128, zero="sym").problems
    assert {(p.dtype, p.group_size, p.zero) for p in alone} == {("bf16", 128, "sym")}


def test_a_dtype_that_no_kernel_takes_needs_the_option(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"torch_dtype": "float8_e4m3fn"}))
    with pytest.raises(ModelError, match=r"float8_e4m3fn.*--dtype"):
        select_problems(n=None, k=None, model=tmp_path)
    found = select_problems(n=None, k=None, model=tmp_path, dtype="bf16").problems
    assert {problem.dtype for problem in found} == {"bf16"}
