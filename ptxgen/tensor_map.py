"""TensorMapRecipe: what a launch's tensor map says, as plain data; no driver.

A tensor map describes the activations to the copy engine of Hopper (TMA). The driver encodes a
recipe into 128 opaque bytes (ptxgen.tensor_map_encode); the interpreter has an encoding of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.errors import ConfigError, TensorError

ELEMENT_BYTES = 2
"""FP16 and BF16 both travel as UINT16: the engine copies bits, and zero is zero in both."""
MAP_BYTES = 128
MAP_ALIGN = 64

# Values of cuda.h; a test compares them with NVIDIA's.
DATA_TYPE_UINT16 = 1
INTERLEAVE_NONE = 0
SWIZZLE_128B = 3
L2_PROMOTION_256B = 3
OOB_FILL_ZERO = 0

SWIZZLE_BYTES = 128
"""Bytes of a row of the box, which is also one row of the swizzle."""
MAX_BOX = 256
BASE_ALIGN = 16
STRIDE_MULTIPLE = 16
MAX_DIM = 1 << 32
MAX_STRIDE = 1 << 40


def check_box(box: tuple[int, int]) -> None:
    """Raises ConfigError where a box (inputs, tokens) is not one of 128-byte rows and 1 .. 256."""
    inputs, tokens = box
    if inputs * ELEMENT_BYTES != SWIZZLE_BYTES or not 1 <= tokens <= MAX_BOX:
        raise ConfigError(
            f"a box of {inputs} inputs x {tokens} tokens cannot be copied with the 128-byte "
            f"swizzle; choose {SWIZZLE_BYTES // ELEMENT_BYTES} inputs and 1 to {MAX_BOX} tokens."
        )


@dataclass(frozen=True, slots=True)
class TensorMapRecipe:
    """x [m, k] of 16-bit elements in device memory, copied in boxes with the 128-byte swizzle.

    Zeros stand for elements outside of the tensor.

    Attributes:
        address: of x[0][0] in device memory.
        inputs: k, the inner dimension.
        tokens: m, the outer dimension.
        row_bytes: from one token to the next.
        box: (inputs, tokens) of one copy.
    """

    address: int
    inputs: int
    tokens: int
    row_bytes: int
    box: tuple[int, int]

    def __post_init__(self) -> None:
        check_box(self.box)
        if self.address <= 0 or self.address % BASE_ALIGN:
            raise TensorError(
                f"x starts at {self.address:#x}; a tensor map needs a multiple of {BASE_ALIGN} "
                f"bytes. Copy x to an aligned tensor."
            )
        for name, value in (("K", self.inputs), ("m", self.tokens)):
            if not 1 <= value <= MAX_DIM:
                raise TensorError(f"{name} = {value} of a tensor map must be in 1 .. {MAX_DIM}.")
        if self.row_bytes % STRIDE_MULTIPLE or not self._row <= self.row_bytes < MAX_STRIDE:
            raise TensorError(
                f"rows of x are {self.row_bytes} bytes apart; a tensor map needs a multiple of "
                f"{STRIDE_MULTIPLE} from {self._row} (K = {self.inputs}) to below {MAX_STRIDE}. "
                f"Copy x to contiguous rows."
            )

    @property
    def _row(self) -> int:
        """Bytes of a row's elements."""
        return self.inputs * ELEMENT_BYTES
