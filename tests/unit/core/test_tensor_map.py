"""Tensor-map recipes: NVIDIA's numbers and limits, and what the encoder is called with."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from cuda.bindings import driver

from ptxgen import tensor_map
from ptxgen.errors import ConfigError, DriverError, TensorError
from ptxgen.tensor_map import TensorMapRecipe
from ptxgen.tensor_map_encode import MapEncoder

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


def encoder(function: Any) -> MapEncoder:
    return MapEncoder(RECIPE.inputs, RECIPE.box, address_of(function))


def test_the_driver_is_told_the_recipe() -> None:
    seen, function = recording(0)
    made = encoder(function)
    made.point_to(RECIPE.address, 33, 4104)
    assert seen == [
        (made.address, 1, 2, RECIPE.address, [4096, 33], [8208], [64, 128], [1, 1], 0, 3, 3, 0)
    ]
    assert bytes(made) == bytes(range(128))


def test_a_map_is_aligned_wherever_python_puts_it() -> None:
    _, function = recording(0)
    maps = [encoder(function) for _ in range(50)]
    assert all(item.address % 64 == 0 for item in maps)
    assert len({item.address for item in maps}) == 50


def test_a_refusal_is_an_error_with_the_recipe() -> None:
    seen, function = recording(1)
    made = encoder(function)
    for _ in range(2):  # a refused map is asked for anew
        with pytest.raises(DriverError, match=r"TensorMapRecipe.*tokens=33.* CUresult 1") as caught:
            made.point_to(RECIPE.address, 33, 4104)
        assert caught.value.code == 1
    assert len(seen) == 2


def test_the_driver_is_asked_only_for_what_changed() -> None:
    seen, function = recording(0)
    made = encoder(function)
    calls = [(0x1000, 33, 4096), (0x1000, 33, 4096), (0x1010, 33, 4096), (0x1010, 34, 4096)]
    for call in (*calls, (0x1010, 34, 4104), (0x1000, 33, 4096)):
        made.point_to(*call)
    told = [(address, dims[1], strides[0]) for _, _, _, address, dims, strides, *_ in seen]
    assert told == [
        (0x1000, 33, 8192),
        (0x1010, 33, 8192),
        (0x1010, 34, 8192),
        (0x1010, 34, 8208),
        (0x1000, 33, 8192),
    ]


@pytest.mark.parametrize("call", [(0x1008, 33, 4096), (0x1000, 0, 4096), (0x1000, 33, 4090)])
def test_what_no_map_can_describe_never_reaches_the_driver(call: tuple[int, int, int]) -> None:
    seen, function = recording(0)
    made = encoder(function)
    made.point_to(0x1000, 33, 4096)
    with pytest.raises(TensorError):
        made.point_to(*call)
    made.point_to(0x1000, 33, 4096)
    assert all(entry[3] == 0x1000 and entry[4] == [4096, 33] for entry in seen)
