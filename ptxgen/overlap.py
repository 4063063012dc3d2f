"""Whether a contiguous tensor shares memory with another one, exactly for any strides of that."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ptxgen.errors import TensorError


def check_apart(out: Tensor, others: dict[str, Tensor | None]) -> None:
    """Raises TensorError where a contiguous output shares memory with an input.

    A kernel's CTAs run in no order: one writes where another has still to read.

    Args:
        out: contiguous.
        others: the inputs by name; None where there is none.
    """
    for name, other in others.items():
        if other is not None and shares_memory(other, out):
            raise TensorError(
                f"out overlaps {name} in memory ({out.numel() * out.element_size()} bytes at "
                f"{out.data_ptr():#x}), which the kernel still reads while it writes; give it "
                f"memory of its own, or leave it out."
            )


def shares_memory(strided: Tensor, contiguous: Tensor) -> bool:
    """Whether an element of the one lies in the bytes of the other.

    Args:
        strided: of any strides.
        contiguous: both are on one device.
    """
    if strided.numel() == 0 or contiguous.numel() == 0:
        return False
    size = strided.element_size()
    first = contiguous.data_ptr() - strided.data_ptr()
    last = first + contiguous.numel() * contiguous.element_size() - 1
    dims = [
        (count, stride * size)
        for count, stride in zip(strided.shape, strided.stride(), strict=True)
    ]
    dims.sort(key=lambda dim: -dim[1])
    return _reaches(first, last, [*dims, (size, 1)])


def _reaches(first: int, last: int, dims: Sequence[tuple[int, int]]) -> bool:
    """Whether a sum of index * stride, one of each (count, stride), lies in first..last.

    Args:
        first: bytes from the first element.
        last: bytes, inclusive.
        dims: counts of at least 1; strides of 0 or more, the largest first.
    """
    reach = sum((count - 1) * stride for count, stride in dims)
    if last < 0 or first > reach:
        return False
    if first <= 0 or last >= reach:
        return True  # one end of the sums is in it: 0 or the largest
    (count, stride), rest = dims[0], dims[1:]
    if stride == 0:
        return _reaches(first, last, rest)
    inner = reach - (count - 1) * stride
    lowest = max(0, -(-(first - inner) // stride))
    highest = min(count - 1, last // stride)
    # An index whose own sum is in it decides; below that only those whose rest may reach it remain.
    if lowest <= highest and highest * stride >= first:
        return True
    return any(
        _reaches(first - index * stride, last - index * stride, rest)
        for index in range(lowest, highest + 1)
    )
