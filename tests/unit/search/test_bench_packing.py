"""The adapters' packing, unpacked again by hand and compared with the dequantized weight."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from ptxgen.problem import Problem
from ptxgen.reference import random_problem_data, reference_output, relative_error
from ptxgen.weights.quantize import dequantize
from search.bench.adapters.gemlite import GemliteAdapter
from search.bench.adapters.humming import HummingAdapter, plain_tensors, weight_config
from search.bench.adapters.machete import MacheteAdapter, machete_zeros
from search.bench.adapters.marlin import MarlinAdapter, marlin_scales, marlin_zeros
from search.bench.adapters.tinygemm import TinygemmAdapter, inner_k_tiles, scales_and_zeros
from search.bench.adapters.vllm_ops import UINT4_BIAS_8_ID, UINT4_ID, load_operators
from search.bench.base import BenchLayer
from search.bench.nibbles import pack_columns, pack_rows
from search.bench.registry import CONTENDERS, ContenderError, contenders_named


def layer_of(problem: Problem, seed: int = 0) -> BenchLayer:
    data = random_problem_data(problem, 1, seed)
    return BenchLayer(problem, data.weight, data.bias)


def nibble(words: Tensor, row: int, column: int, index: int) -> int:
    return int(words[row, column].item()) >> (4 * index) & 15


def test_nibbles_lie_lowest_first_also_with_the_sign_bit_set() -> None:
    values = torch.randint(0, 16, (16, 24), generator=torch.Generator().manual_seed(1))
    values[0, 7] = values[7, 0] = 15
    values = values.to(torch.uint8)
    columns, rows = pack_columns(values), pack_rows(values)
    assert (columns.shape, rows.shape) == ((16, 3), (2, 24))
    assert columns.dtype == rows.dtype == torch.int32
    assert rows.is_contiguous()
    for r, c in itertools.product(range(16), range(24)):
        assert nibble(columns, r, c // 8, c % 8) == values[r, c]
        assert nibble(rows, r // 8, c, r % 8) == values[r, c]


@pytest.mark.parametrize("zero", ["sym", "int"])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("k", [128, 384, 2048])
def test_tinygemm_multiplies_what_was_packed(zero: str, group: int, k: int) -> None:
    problem = Problem(64, k, group, "bf16", zero)  # type: ignore[arg-type]
    data = random_problem_data(problem, 5, seed=3)
    adapter = TinygemmAdapter()
    operand = adapter.pack(BenchLayer(problem, data.weight, None))
    out = adapter.bind(problem, data.x, {})(operand)
    assert relative_error(out, reference_output(data.x, data.weight, problem)) < 1e-2


def test_tinygemm_scales_and_zeros_are_those_of_its_formula() -> None:
    layer = layer_of(Problem(64, 256, 64, "bf16", "int"))
    both = scales_and_zeros(layer).float()
    assert both.shape == (4, 64, 2)
    shifted = layer.weight.q.float() - 8
    by_input = both.repeat_interleave(64, dim=0)  # [K, N, 2]
    weight = shifted.t() * by_input[..., 0] + by_input[..., 1]
    assert relative_error(weight.t(), dequantize(layer.weight, layer.problem)) < 1e-2


@pytest.mark.parametrize(("k", "tiles"), [(32, 2), (64, 4), (96, 2), (128, 8), (2880, 4)])
def test_tinygemm_takes_the_widest_tiles_that_divide_k(k: int, tiles: int) -> None:
    assert inner_k_tiles(k) == tiles


def test_marlin_scales_are_transposed_blocks_of_64() -> None:
    problem = Problem(128, 256, 128)
    scales = torch.arange(128 * 2).view(128, 2)
    ordered = marlin_scales(scales, problem)
    assert ordered.shape == (2, 128)
    for group, block, i, j in itertools.product(range(2), range(2), range(8), range(8)):
        assert ordered[group, 64 * block + 8 * i + j] == scales[64 * block + i + 8 * j, group]


def test_marlin_scales_of_the_whole_of_k_go_by_pairs_of_four_octets() -> None:
    problem = Problem(64, 1024, 1024)
    ordered = marlin_scales(torch.arange(64).view(64, 1), problem)[0]
    # Lane i of four holds two neighbours of each of the four octets of 32 features.
    expected = [
        32 * block + 2 * lane + 8 * octet + pair
        for block, lane, octet, pair in itertools.product(range(2), range(4), range(4), range(2))
    ]
    assert ordered.tolist() == expected


def test_marlin_zeros_follow_the_scales_then_interleave() -> None:
    zeros = torch.randint(0, 16, (128, 3), generator=torch.Generator().manual_seed(2))
    words = marlin_zeros(zeros.to(torch.uint8))
    assert words.shape == (3, 16)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    for group, word, place in itertools.product(range(3), range(16), range(8)):
        block, i = divmod(word, 8)
        feature = 64 * block + i + 8 * order[place]
        assert nibble(words, group, word, place) == zeros[feature, group]


def test_machete_zeros_complete_the_scaled_weight() -> None:
    layer = layer_of(Problem(128, 256, 64, "fp16", "int"))
    assert layer.weight.zeros is not None
    scales = layer.weight.scales.t().contiguous()
    shift = machete_zeros(scales, layer.weight.zeros).float().repeat_interleave(64, dim=0)
    weight = layer.weight.q.t().float() * scales.float().repeat_interleave(64, dim=0) + shift
    assert relative_error(weight.t(), dequantize(layer.weight, layer.problem)) < 5e-3


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_gptq_words_of_marlin_and_machete_hold_eight_inputs(zero: str) -> None:
    """Its operators are replaced by ones that keep what they are given."""
    seen: dict[str, tuple[object, ...]] = {}

    def keep(name: str) -> object:
        def operator(*arguments: object) -> object:
            seen[name] = arguments
            return arguments[0]

        return operator

    operators = SimpleNamespace(
        gptq_marlin_repack=keep("marlin"), machete_prepack_B=keep("machete")
    )
    layer = layer_of(Problem(128, 256, 128, "fp16", zero))  # type: ignore[arg-type]
    q = layer.weight.q
    MarlinAdapter(operators).pack(layer)
    MacheteAdapter(operators, (9, 0)).pack(layer)
    words, empty, k, n, bits, _ = seen["marlin"]
    columns, *kinds = seen["machete"]
    assert isinstance(words, Tensor)
    assert isinstance(columns, Tensor)
    assert isinstance(empty, Tensor)
    assert (empty.numel(), k, n, bits) == (0, 256, 128, 4)
    assert words.shape == (32, 128)
    assert torch.equal(columns, words)
    assert columns.stride() == (1, 32)
    assert kinds[1] == (UINT4_BIAS_8_ID if zero == "sym" else UINT4_ID)
    for r, c in itertools.product(range(0, 256, 7), range(0, 128, 5)):
        assert nibble(words, r // 8, c, r % 8) == q[c, r]


def test_type_words_of_vllm() -> None:
    """The words that vLLM 0.26.0's scalar_types give for uint4 and uint4b8."""
    assert (UINT4_ID, UINT4_BIAS_8_ID) == (1125899906843648, 1125899907892224)


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_humming_words_give_the_weight_back(zero: str) -> None:
    layer = layer_of(Problem(64, 256, 64, "bf16", zero, bias=True))  # type: ignore[arg-type]
    tensors = plain_tensors(layer)
    config = weight_config(layer.problem)
    assert config == {"dtype": "uint4", "group_size": 64, "has_zero_point": zero == "int"}
    assert tensors["weight"].shape == (64, 32)
    weight = torch.empty(64, 256)
    for r, c in itertools.product(range(64), range(256)):
        zero_point = nibble(tensors["zero_point"], r // 8, c // 64, r % 8) if zero == "int" else 8
        step = nibble(tensors["weight"], r, c // 8, c % 8) - zero_point
        weight[r, c] = step * float(tensors["weight_scale"][r, c // 64])
    assert torch.equal(weight, dequantize(layer.weight, layer.problem))
    assert tensors["bias"] is layer.bias
    assert weight_config(Problem(64, 256, 256))["group_size"] == 0


NOTHING = SimpleNamespace()

REFUSALS = [
    (TinygemmAdapter(), Problem(64, 128, dtype="fp16"), "bf16"),
    (TinygemmAdapter(), Problem(64, 512, 512, "bf16"), "groups of 512"),
    (TinygemmAdapter(), Problem(64, 128, dtype="bf16", bias=True), "bias"),
    (GemliteAdapter(NOTHING), Problem(64, 512, 512), "groups"),
    (MarlinAdapter(NOTHING), Problem(64, 64, 64), "tiles"),
    (MarlinAdapter(NOTHING), Problem(96, 128), "tiles"),
    (MarlinAdapter(NOTHING), Problem(64, 128, bias=True), "bias"),
    (HummingAdapter(NOTHING, NOTHING), Problem(96, 128), "N % 64"),
    (HummingAdapter(NOTHING, NOTHING), Problem(64, 96, 32), "K % 64"),
    (MacheteAdapter(NOTHING, (8, 0)), Problem(128, 128), "9.0"),
    (MacheteAdapter(NOTHING, (9, 0)), Problem(64, 128), "N % 128"),
    (MacheteAdapter(NOTHING, (9, 0)), Problem(128, 128, 32), "groups of 32"),
    (MacheteAdapter(NOTHING, (9, 0)), Problem(128, 128, bias=True), "bias"),
]


@pytest.mark.parametrize(("adapter", "problem", "reason"), REFUSALS)
def test_what_an_adapter_does_not_serve(adapter: object, problem: Problem, reason: str) -> None:
    assert reason in adapter.unsupported(problem, 1)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("adapter", "problem"),
    [
        (TinygemmAdapter(), Problem(64, 128, dtype="bf16", zero="int")),
        (GemliteAdapter(NOTHING), Problem(64, 256, 64, bias=True)),
        (HummingAdapter(NOTHING, NOTHING), Problem(64, 512, 512, bias=True)),
        (MarlinAdapter(NOTHING), Problem(64, 128)),
        (MarlinAdapter(NOTHING), Problem(128, 64, 64)),
        (MacheteAdapter(NOTHING, (9, 0)), Problem(128, 192, 64, zero="int")),
        (MacheteAdapter(NOTHING, (9, 0)), Problem(128, 512, 512)),
    ],
)
def test_what_an_adapter_serves(adapter: object, problem: Problem) -> None:
    assert adapter.unsupported(problem, 1) == ""  # type: ignore[attr-defined]


def test_contenders_by_name_keep_the_registry_s_order() -> None:
    assert [item.name for item in contenders_named(["marlin", "cublas"])] == ["cublas", "marlin"]
    assert [item.name for item in contenders_named([])] == list(CONTENDERS)
    with pytest.raises(ContenderError, match=r"'marlon' is not known; choose from ptxtune, "):
        contenders_named(["marlon"])


def test_installed_contenders_know_their_version() -> None:
    assert CONTENDERS["tinygemm"].missing() == ""
    assert CONTENDERS["tinygemm"].version().startswith(f"torch {torch.__version__.split('+')[0]}")


def test_vllm_without_its_library_says_what_was_looked_for(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "vllm").mkdir()  # type: ignore[operator]
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"marlin_gemm in .*vllm; looked for _C_stable"):
        load_operators("marlin_gemm")
