"""Tensor-map recipes: NVIDIA's numbers and limits, and what the encoder is called with."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from cuda.bindings import driver

from ptxgen import tensor_map
from ptxgen.errors import ConfigError, DriverError, TensorError
from ptxgen.tensor_map import TensorMapRecipe
from ptxgen.tensor_map_encode import EncodedTensorMap, LatestTensorMap, encode

RECIPE = TensorMapRecipe(0x7000_0000_0010, 4096, 33, 8208, (64, 128))
NUMBERS = {
    "DATA_TYPE_UINT16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16,
    "INTERLEAVE_NONE": driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
    "SWIZZLE_128B": driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
    "L2_PROMOTION_256B": driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    "OOB_FILL_ZERO": driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
}

U32 = ctypes.POINTER(ctypes.c_uint32)
U64 = ctypes.POINTER(ctypes.c_uint64)
ENCODER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint32, ctypes.c_uint64, U64, U64, U32,
    U32, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int,
)  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_nvidias(name: str) -> None:
    assert getattr(tensor_map, name) == NUMBERS[name].value


@pytest.mark.parametrize("inputs", [0, 32, 63, 64, 65, 128])
def test_boxes(inputs: int) -> None:
    for tokens in range(-1, 300):
        if inputs == 64 and tokens in range(1, 257):
            assert TensorMapRecipe(0x1000, 64, 1, 128, (inputs, tokens)).box == (64, tokens)
        else:
            with pytest.raises(ConfigError, match=f"box of {inputs} inputs x {tokens} tokens"):
                TensorMapRecipe(0x1000, 64, 1, 128, (inputs, tokens))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"address": 0x1008}, "x starts at 0x1008; .* multiple of 16"),
        ({"address": 0}, "x starts at 0x0"),
        ({"inputs": 0}, "K = 0 of a tensor map"),
        ({"tokens": 0}, "m = 0 of a tensor map"),
        ({"tokens": 2**32 + 1}, "m = 4294967297 of a tensor map"),
        ({"row_bytes": 136}, "136 bytes apart; .* multiple of 16 from 128"),
        ({"row_bytes": 112}, "112 bytes apart; .* from 128 .K = 64."),
        ({"row_bytes": 2**40}, "to below 1099511627776"),
    ],
)
def test_what_no_map_can_describe_is_refused(change: dict[str, Any], match: str) -> None:
    good = {"address": 0x1000, "inputs": 64, "tokens": 1, "row_bytes": 128, "box": (64, 8)}
    assert TensorMapRecipe(**good).tokens == 1  # type: ignore[arg-type]
    with pytest.raises(TensorError, match=match):
        TensorMapRecipe(**(good | change))  # type: ignore[arg-type]


def recording(code: int) -> tuple[list[tuple[Any, ...]], Any]:
    """A stand-in for the driver's encoder: what it was called with, and the function itself."""
    seen: list[tuple[Any, ...]] = []

    def encoder(to: int, *given: Any) -> int:
        kind, rank, address, dims, strides, box, steps, *modes = given
        arrays = [list(dims[:2]), list(strides[:1]), list(box[:2]), list(steps[:2])]
        seen.append((to, kind, rank, address, *arrays, *modes))
        ctypes.memmove(to, bytes(range(128)), 128)
        return code

    return seen, ENCODER(encoder)


def address_of(function: Any) -> int:
    found = ctypes.cast(function, ctypes.c_void_p).value
    assert found
    return found


def test_the_driver_is_told_the_recipe() -> None:
    seen, function = recording(0)
    encoded = encode(RECIPE, address_of(function))
    assert seen == [
        (encoded.getPtr(), 1, 2, RECIPE.address, [4096, 33], [8208], [64, 128], [1, 1], 0, 3, 3, 0)
    ]
    assert bytes(encoded) == bytes(range(128))


def test_a_map_is_aligned_wherever_python_puts_it() -> None:
    maps = [EncodedTensorMap() for _ in range(50)]
    assert all(item.getPtr() % 64 == 0 for item in maps)
    assert len({item.getPtr() for item in maps}) == 50


def test_a_refusal_is_an_error_with_the_recipe() -> None:
    _, function = recording(1)
    with pytest.raises(DriverError, match=r"TensorMapRecipe.*tokens=33.* CUresult 1") as caught:
        encode(RECIPE, address_of(function))
    assert caught.value.code == 1


def test_repeated_launches_share_a_map() -> None:
    made: list[TensorMapRecipe] = []

    def make(recipe: TensorMapRecipe) -> EncodedTensorMap:
        made.append(recipe)
        return EncodedTensorMap()

    other = TensorMapRecipe(RECIPE.address, 4096, 34, 8208, (64, 128))
    latest = LatestTensorMap(make)
    first = latest.of(RECIPE)
    equal = TensorMapRecipe(RECIPE.address, 4096, 33, 8208, (64, 128))
    assert latest.of(equal) is first
    assert latest.of(other) is not first
    assert latest.of(RECIPE) is not first
    assert made == [RECIPE, other, RECIPE]
