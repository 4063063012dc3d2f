"""TypedBytes: a byte array read and written by lanes as words and vectors of words."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ptxgen.interp.registers import DTYPES, Lanes

_WORDS = {1: np.uint8, 2: DTYPES[16], 4: DTYPES[32], 8: DTYPES[64]}


class TypedBytes:
    """Bytes with one view for every word size and vector length; offsets must be aligned."""

    def __init__(self, nbytes: int) -> None:
        self.bytes: NDArray[np.uint8] = np.zeros(-(-nbytes // 16) * 16, dtype=np.uint8)
        self._views = {
            (size, count): self.bytes.view(dtype).reshape(-1, count)
            for size, dtype in _WORDS.items()
            for count in (1, 2, 4, 8, 16)
            if size * count <= 16
        }

    def read(self, offsets: Lanes, size: int, count: int = 1) -> Lanes:
        """[lanes, count] words of `size` bytes."""
        found: Lanes = self._views[size, count][offsets // (size * count)]
        return found

    def write(self, offsets: Lanes, values: Lanes, size: int) -> None:
        """Writes [lanes, count] words; of lanes with equal offsets the last one wins."""
        count = values.shape[1]
        self._views[size, count][offsets // (size * count)] = values


def misaligned(addresses: Lanes, nbytes: int) -> bool:
    """Whether an address is no multiple of a power of two."""
    return bool(np.bitwise_or.reduce(addresses) & addresses.dtype.type(nbytes - 1))
