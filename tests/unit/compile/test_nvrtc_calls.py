"""What becomes of NVRTC calls that fail: a missing library, and a status that is not success."""

from __future__ import annotations

from typing import Any

import pytest
from cuda.bindings import nvrtc

from ptxgen import compile as compile_module
from ptxgen.errors import CompileError


def test_a_missing_library_says_how_to_get_it() -> None:
    def missing() -> Any:
        raise RuntimeError("libnvrtc.so was not found")

    with pytest.raises(CompileError, match=r"libnvrtc.so was not found.*nvidia-cuda-nvrtc"):
        compile_module._loaded(missing)


def test_a_failed_call_is_named_with_its_status() -> None:
    def refusing(size: int) -> Any:
        return (nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY, size)

    with pytest.raises(CompileError, match=r"refusing failed with NVRTC_ERROR_OUT_OF_MEMORY"):
        compile_module._loaded(refusing, 1)


def test_bytes_of_every_size_arrive_whole() -> None:
    """NVRTC writes into the object it is given, so it must not be a shared one-byte object."""

    def filler(data: bytes) -> Any:
        def fill(program: Any, buffer: bytes) -> Any:
            assert len(buffer) >= max(2, len(data))
            return (nvrtc.nvrtcResult.NVRTC_SUCCESS,)

        return fill

    for size in range(5):
        data = b"x" * size
        sizer = lambda program, size=size: (nvrtc.nvrtcResult.NVRTC_SUCCESS, size)
        assert len(compile_module._bytes(sizer, filler(data), None)) == size
