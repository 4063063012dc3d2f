"""torch's CUDA errors become sticky driver errors; anything else stays what it is."""

from __future__ import annotations

import pytest
import torch

from ptxgen.errors import DriverError, TensorError
from search.cuda_errors import typed_cuda_errors

TEXT = "CUDA error: an illegal memory access was encountered\nSearch for `cudaErrorIllegalAddress'"


@pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
def test_a_cuda_error_is_sticky_and_short(kind: type[RuntimeError]) -> None:
    with pytest.raises(DriverError) as caught, typed_cuda_errors():
        raise kind(TEXT)
    assert caught.value.sticky
    assert str(caught.value) == "an illegal memory access was encountered"


def test_the_code_is_kept() -> None:
    error = torch.AcceleratorError(TEXT)
    error.error_code = 700  # type: ignore[attr-defined]
    with pytest.raises(DriverError) as caught, typed_cuda_errors():
        raise error
    assert caught.value.code == 700


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("shape mismatch"),
        TensorError("x"),
        DriverError("launch refused", 701),
        KeyError("m"),
    ],
)
def test_other_errors_pass_through(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, typed_cuda_errors():
        raise error
    assert caught.value is error
