"""Tensor maps as the interpreter encodes them; the driver's encoding is its own secret.

128 bytes: 16 of _MAGIC, then little-endian address, inputs, tokens and row_bytes of 64 bits, the
box's inputs and tokens of 32 bits, then zeros.
"""

from __future__ import annotations

import struct

from ptxgen.errors import TensorMapError
from ptxgen.tensor_map import MAP_BYTES, TensorMapRecipe

_MAGIC = b"ptxtune map v1\0\0"
_FIELDS = struct.Struct("<QQQQII")


def encode_map(recipe: TensorMapRecipe) -> bytes:
    """What a Launch passes for the tensor map of a recipe."""
    fields = _FIELDS.pack(
        recipe.address, recipe.inputs, recipe.tokens, recipe.row_bytes, *recipe.box
    )
    return (_MAGIC + fields).ljust(MAP_BYTES, b"\0")


def decode_map(encoded: bytes) -> TensorMapRecipe:
    """The inverse. Raises TensorMapError where the bytes are no map."""
    if not encoded.startswith(_MAGIC) or encoded[len(_MAGIC) + _FIELDS.size :].strip(b"\0"):
        raise TensorMapError("the bytes at the address of a tensor map are no tensor map.")
    address, inputs, tokens, row_bytes, *box = _FIELDS.unpack_from(encoded, len(_MAGIC))
    return TensorMapRecipe(address, inputs, tokens, row_bytes, (box[0], box[1]))
