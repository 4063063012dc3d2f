"""Model names and config.json files give the layers that serving engines run."""

import json

import pytest

from ptxgen.errors import ModelError, ProblemError
from ptxtune.model_table import MODELS
from ptxtune.models import model_layers


def shapes(name: str, tp: int = 1) -> dict[str, tuple[int, int]]:
    return {layer.name: (layer.n, layer.k) for layer in model_layers(name, tp).layers}


# Written by hand from the published checkpoints' tensor shapes, not from the code.
KNOWN = {
    ("llama-3.1-8b", 1): [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)],
    ("llama-3.1-70b", 1): [(10240, 8192), (8192, 8192), (57344, 8192), (8192, 28672)],
    ("llama-3.1-8b", 2): [(3072, 4096), (4096, 2048), (14336, 4096), (4096, 7168)],
    ("llama-3.1-70b", 8): [(1280, 8192), (8192, 1024), (7168, 8192), (8192, 3584)],
    ("llama-3.1-70b", 16): [(768, 8192), (8192, 512), (3584, 8192), (8192, 1792)],
    ("qwen2.5-7b", 1): [(4608, 3584), (3584, 3584), (37888, 3584), (3584, 18944)],
    ("qwen3-4b", 1): [(6144, 2560), (2560, 4096), (19456, 2560), (2560, 9728)],
    ("gemma-2-9b", 1): [(8192, 3584), (3584, 4096), (28672, 3584), (3584, 14336)],
    ("mistral-7b", 1): [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)],
    ("deepseek-coder-33b", 1): [(9216, 7168), (7168, 7168), (38400, 7168), (7168, 19200)],
}


@pytest.mark.parametrize(("key", "expected"), KNOWN.items(), ids=str)
def test_known_shapes(key: tuple[str, int], expected: list[tuple[int, int]]) -> None:
    assert list(shapes(*key).values()) == expected
    assert list(shapes(*key)) == ["qkv", "o", "gate_up", "down"]


@pytest.mark.parametrize("name", MODELS)
def test_every_known_model_gives_problems(name: str) -> None:
    for layer in model_layers(name).layers:
        problem = layer.problem(group_size=-1)
        assert (problem.n, problem.k, problem.num_groups) == (layer.n, layer.k, 1)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tp", [2, 4, 8])
def test_ranks_together_are_the_whole_layer(name: str, tp: int) -> None:
    whole, shape = shapes(name), MODELS[name]
    if shape.heads % tp or (shape.kv_heads % tp and tp % shape.kv_heads):
        with pytest.raises(ModelError, match="tp"):
            model_layers(name, tp)
        return
    part = shapes(name, tp)
    replicated = max(0, tp - shape.kv_heads) * 2 * shape.head_dim
    assert part["qkv"][0] * tp == whole["qkv"][0] + replicated
    assert part["o"][1] * tp == whole["o"][1]
    assert part["o"][0] == whole["o"][0]
    if not shape.moe:
        assert part["gate_up"][0] * tp == whole["gate_up"][0]
        assert part["down"][1] * tp == whole["down"][1]


def test_only_qwen2_has_a_qkv_bias() -> None:
    layers = {layer.name: layer.bias for layer in model_layers("qwen2.5-7b").layers}
    assert layers == {"qkv": True, "o": False, "gate_up": False, "down": False}
    qkv = model_layers("qwen2.5-7b").layers[0]
    assert qkv.problem().bias
    assert not qkv.problem(bias=False).bias
    assert not any(layer.bias for layer in model_layers("llama-3.1-8b").layers)


def test_mixture_of_experts_lists_dense_layers_and_says_so() -> None:
    model = model_layers("mixtral-8x7b")
    assert [layer.name for layer in model.layers] == ["qkv", "o"]
    assert "expert" in model.note
    assert model_layers("llama-3.1-8b").note == ""


def test_group_straddling_ranks_names_tensor_parallel() -> None:
    down = model_layers("qwen2.5-72b", 2).layers[-1]
    assert down.k == 14784
    with pytest.raises(ProblemError, match="tensor-parallel"):
        down.problem(128)
    assert down.problem(64).num_groups == 231


@pytest.mark.parametrize(
    ("name", "tp", "words"),
    [
        ("llama-3.1-9b", 1, ["llama-3.1-8b", "config.json"]),
        ("nonsense", 1, ["nonsense", "llama-3.1-8b", "config.json"]),
        ("llama-3.1-8b", 0, ["tp = 0"]),
        ("llama-3.1-8b", -2, ["tp = -2"]),
        ("llama-3.1-8b", 3, ["tp = 3", "32", "16"]),
        ("qwen2.5-7b", 8, ["tp = 8", "28"]),
        ("phi-4", 8, ["tp = 8", "10 key/value"]),
        ("/nowhere/config.json", 1, ["/nowhere/config.json"]),
    ],
)
def test_errors_name_value_and_way_out(name: str, tp: int, words: list[str]) -> None:
    with pytest.raises(ModelError) as caught:
        model_layers(name, tp)
    assert "\n" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
}


def written(tmp_path, config: object) -> str:
    path = tmp_path / "config.json"
    path.write_text(config if isinstance(config, str) else json.dumps(config))
    return str(path)


def test_config_json_gives_the_named_models_layers(tmp_path) -> None:
    assert shapes(written(tmp_path, LLAMA)) == shapes("llama-3.1-8b")
    assert shapes(str(tmp_path)) == shapes("llama-3.1-8b")


def test_config_json_of_a_multimodal_model_uses_its_decoder(tmp_path) -> None:
    config = {"model_type": "llava", "hidden_size": 1, "text_config": LLAMA}
    assert shapes(written(tmp_path, config)) == shapes("llama-3.1-8b")


def test_config_json_details(tmp_path) -> None:
    ungated = LLAMA | {"model_type": "starcoder2", "head_dim": 64, "attention_bias": True}
    layers = {layer.name: layer for layer in model_layers(written(tmp_path, ungated)).layers}
    assert layers["up"].n == 14336
    assert (layers["qkv"].n, layers["o"].k) == (48 * 64, 32 * 64)
    assert layers["qkv"].bias
    assert layers["o"].bias
    moe = model_layers(written(tmp_path, LLAMA | {"num_local_experts": 8}))
    assert [layer.name for layer in moe.layers] == ["qkv", "o"]
    qwen = model_layers(written(tmp_path, LLAMA | {"model_type": "qwen2"}))
    assert [layer.bias for layer in qwen.layers] == [True, False, False, False]


@pytest.mark.parametrize(
    ("config", "word"),
    [
        ("{", "not JSON"),
        ("[1]", "list"),
        ({}, "model_type"),
        ({"model_type": "llama", "hidden_size": None}, "hidden_size"),
        (LLAMA | {"hidden_size": "4096"}, "'4096'"),
        (LLAMA | {"intermediate_size": -1}, "-1"),
        (LLAMA | {"num_attention_heads": 0}, "num_attention_heads = 0"),
        (LLAMA | {"num_key_value_heads": True}, "True"),
        (LLAMA | {"kv_lora_rank": 512}, "latent"),
        (" " * (4 << 20) + "{}", "bytes"),
    ],
)
def test_bad_config_json(tmp_path, config: object, word: str) -> None:
    with pytest.raises(ModelError, match=word):
        model_layers(written(tmp_path, config))
