"""Bank conflicts: hand-computed patterns, and the emitter's swizzle against all others."""

from __future__ import annotations

import itertools

import pytest

from ptxgen.interp.api import SharedAccess
from ptxgen.sass.banks import (
    bank_reports,
    fragment_conflicts,
    least_wavefronts,
    wavefronts,
)


@pytest.mark.parametrize(
    ("stride", "lane_bytes", "expected"),
    [
        (4, 4, 1),  # neighbours
        (0, 4, 1),  # broadcast
        (8, 4, 2),
        (128, 4, 32),  # all in one bank
        (1, 1, 1),  # four lanes a word
        (16, 16, 4),  # four phases of eight lanes
        (128, 16, 32),
        (8, 8, 2),
        (36 * 4, 16, 4),  # rows of 32 + 4 floats, the epilogue's padding
    ],
)
def test_strided(stride: int, lane_bytes: int, expected: int) -> None:
    addresses = [lane * stride for lane in range(32)]
    assert wavefronts(addresses, lane_bytes) == expected


def test_padded_fragment_stores_are_conflict_free() -> None:
    """The epilogue: lane holds token 2 (lane % 4), feature lane / 4; rows of 32 + 4 floats."""

    def store(row_floats: int) -> list[int]:
        return [4 * (lane % 4 * 2 * row_floats + lane // 4) for lane in range(32)]

    assert wavefronts(store(36), 4) == 1
    assert wavefronts(store(32), 4) == 4


def test_only_a_swizzle_by_the_row_is_conflict_free() -> None:
    """Rows of 128 bytes: eight rows of one chunk; every xor mask of the row bits is tried."""

    def rows(mask: int) -> list[int]:
        return [row * 128 + ((3 ^ (row & mask)) * 16) for row in range(8)]

    assert wavefronts(rows(7), 16) == 1
    for mask in range(7):
        assert wavefronts(rows(mask), 16) == 8 // 2 ** mask.bit_count()


@pytest.mark.parametrize(("count", "lane_bytes", "least"), [(32, 4, 1), (32, 16, 4), (8, 16, 1)])
def test_the_least_is_the_bytes(count: int, lane_bytes: int, least: int) -> None:
    addresses = [lane * lane_bytes for lane in range(count)]
    assert least_wavefronts(addresses, lane_bytes) == least
    assert wavefronts(addresses, lane_bytes) == least


def access(opcode: str, line: int, stride: int, lane_bytes: int) -> SharedAccess:
    return SharedAccess(opcode, line, 0, 0, lane_bytes, tuple(i * stride for i in range(32)))


def test_reports_sum_executions_and_name_conflicting_fragments() -> None:
    ldmatrix = "ldmatrix.sync.aligned.m8n8.x4.shared.b16"
    weights = "ld.shared.v4.b32"
    reports = bank_reports(
        itertools.chain(
            [access(ldmatrix, 7, 16, 16)] * 3,
            [access(weights, 5, 16, 16), access(weights, 5, 32, 16)],
            [access("ld.shared.v4.f32", 9, 128, 16)],
            [access("st.shared.f32", 8, 128, 4)],
        )
    )
    assert [(r.ptx_line, r.executions, r.wavefronts, r.least) for r in reports] == [
        (5, 2, 12, 8),
        (7, 3, 12, 12),
        (8, 1, 32, 1),
        (9, 1, 32, 4),
    ]
    assert [r.ptx_line for r in fragment_conflicts(reports)] == [5]
    assert "12 wavefronts where 8 would do" in str(reports[0])
