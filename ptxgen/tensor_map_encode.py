"""TensorMapRecipe -> the driver's 128 opaque bytes, by cuTensorMapEncodeTiled at a given address.

cuda-python's wrapper keeps the result in a Python object, which is only 16-byte aligned where the
driver asks for 64; so the bytes are made here, in aligned memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from ptxgen.errors import DriverError
from ptxgen.tensor_map import (
    DATA_TYPE_UINT16,
    INTERLEAVE_NONE,
    L2_PROMOTION_256B,
    MAP_ALIGN,
    MAP_BYTES,
    OOB_FILL_ZERO,
    SWIZZLE_128B,
    TensorMapRecipe,
)

RANK = 2

# CUresult cuTensorMapEncodeTiled(CUtensorMap*, CUtensorMapDataType, cuuint32_t rank, void* address,
#     const cuuint64_t* dims, const cuuint64_t* strides, const cuuint32_t* box,
#     const cuuint32_t* element_strides, interleave, swizzle, l2_promotion, oob_fill)
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_int,
    ctypes.c_uint32,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.POINTER(ctypes.c_uint32),
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
)


class EncodedTensorMap:
    """128 bytes at a 64-byte aligned address; a kernel takes them by value.

    cuda-python asks a kernel argument of type None for getPtr, hence the name.
    """

    def __init__(self) -> None:
        self._memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGN)
        self._address = -(-ctypes.addressof(self._memory) // MAP_ALIGN) * MAP_ALIGN

    def getPtr(self) -> int:  # noqa: N802
        """Address of the bytes on the host."""
        return self._address

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self._address, MAP_BYTES)


def encode(recipe: TensorMapRecipe, function: int) -> EncodedTensorMap:
    """The tensor map of a recipe.

    Args:
        recipe: what the map says.
        function: address of the driver's cuTensorMapEncodeTiled in this process.

    Raises:
        DriverError: the driver refused.
    """
    encoded = EncodedTensorMap()
    code = _ENCODE(function)(
        encoded.getPtr(),
        DATA_TYPE_UINT16,
        RANK,
        recipe.address,
        (ctypes.c_uint64 * RANK)(recipe.inputs, recipe.tokens),
        (ctypes.c_uint64 * (RANK - 1))(recipe.row_bytes),
        (ctypes.c_uint32 * RANK)(*recipe.box),
        (ctypes.c_uint32 * RANK)(1, 1),
        INTERLEAVE_NONE,
        SWIZZLE_128B,
        L2_PROMOTION_256B,
        OOB_FILL_ZERO,
    )
    if code:
        raise DriverError(f"encoding {recipe} failed with CUresult {code}.", code=code)
    return encoded


class LatestTensorMap:
    """The map of the latest recipe, so that repeated launches do not make it again.

    Encoded maps are never changed: a launch that holds one is safe from the next one's recipe.
    """

    def __init__(self, make: Callable[[TensorMapRecipe], EncodedTensorMap]) -> None:
        self._make = make
        self._latest: tuple[TensorMapRecipe, EncodedTensorMap] | None = None

    def of(self, recipe: TensorMapRecipe) -> EncodedTensorMap:
        """The recipe's map, made anew only where the recipe is another than before."""
        latest = self._latest
        if latest is None or latest[0] != recipe:
            latest = self._latest = (recipe, self._make(recipe))
        return latest[1]
