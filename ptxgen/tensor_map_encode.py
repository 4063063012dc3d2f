"""MapEncoder: the driver's 128 opaque bytes of a kernel's tensor map of x, encoded in place.

cuda-python's wrapper keeps the result in a Python object, which is only 16-byte aligned where the
driver asks for 64, and makes every argument anew; so cuTensorMapEncodeTiled is called at its
address here, on memory and arguments that are made once.
"""

from __future__ import annotations

import ctypes

from ptxgen.errors import DriverError
from ptxgen.tensor_map import (
    BASE_ALIGN,
    DATA_TYPE_UINT16,
    ELEMENT_BYTES,
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
ENCODE = ctypes.CFUNCTYPE(
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


class MapEncoder:
    """128 bytes at a 64-byte aligned address that describe the latest x; a kernel takes a copy.

    Attributes:
        address: of the bytes on the host.
    """

    def __init__(self, inputs: int, box: tuple[int, int], function: int) -> None:
        """Fills in what stays the same.

        Args:
            inputs: K, the inner dimension of x.
            box: (inputs, tokens) of one copy.
            function: address of the driver's cuTensorMapEncodeTiled in this process.
        """
        self._memory = ctypes.create_string_buffer(MAP_BYTES + MAP_ALIGN)
        self.address = -(-ctypes.addressof(self._memory) // MAP_ALIGN) * MAP_ALIGN
        self._inputs, self._box = inputs, box
        self._encode = ENCODE(function)
        self._dims = (ctypes.c_uint64 * RANK)(inputs, 0)
        self._strides = (ctypes.c_uint64 * (RANK - 1))()
        self._boxes = (ctypes.c_uint32 * RANK)(*box)
        self._steps = (ctypes.c_uint32 * RANK)(1, 1)
        self._latest: tuple[int, int, int] | None = None

    def __bytes__(self) -> bytes:
        return ctypes.string_at(self.address, MAP_BYTES)

    def point_to(self, x: int, m: int, ldx: int) -> None:
        """Makes the bytes describe x; encodes only where it is another than before.

        Args:
            x: device address of the activations.
            m: tokens, > 0.
            ldx: row stride of x in elements.

        Raises:
            TensorError: no map can describe such an x; names value, limit and way out.
            DriverError: the driver refused.
        """
        if self._latest == (x, m, ldx):
            return
        if x % BASE_ALIGN or self._latest is None or self._latest[1:] != (m, ldx):
            recipe = TensorMapRecipe(x, self._inputs, m, ldx * ELEMENT_BYTES, self._box)
            self._dims[1], self._strides[0] = m, recipe.row_bytes
        self._latest = None
        code = self._encode(
            self.address,
            DATA_TYPE_UINT16,
            RANK,
            x,
            self._dims,
            self._strides,
            self._boxes,
            self._steps,
            INTERLEAVE_NONE,
            SWIZZLE_128B,
            L2_PROMOTION_256B,
            OOB_FILL_ZERO,
        )
        if code:
            recipe = TensorMapRecipe(x, self._inputs, m, ldx * ELEMENT_BYTES, self._box)
            raise DriverError(f"encoding {recipe} failed with CUresult {code}.", code=code)
        self._latest = (x, m, ldx)
