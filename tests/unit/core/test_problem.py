"""Problem: what it accepts, what it refuses and how, its key, and what it counts."""

from __future__ import annotations

import json
from itertools import product

import pytest

from ptxgen.errors import ProblemError
from ptxgen.problem import M_BUCKETS, MAX_DIMENSION, MAX_M, Problem, bucket_of, check_m


@pytest.mark.parametrize("n", [0, -8, MAX_DIMENSION + 8, 8.0, True, "8", None])
def test_what_is_no_dimension_is_refused(n: object) -> None:
    with pytest.raises(ProblemError, match=f"n = {n!r}.*{MAX_DIMENSION}"):
        Problem(n, 128)  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=f"k = {n!r}.*{MAX_DIMENSION}"):
        Problem(128, n)  # type: ignore[arg-type]


@pytest.mark.parametrize("value", range(1, 130))
def test_only_multiples_can_be_packed_and_the_next_is_named(value: int) -> None:
    if value % 8 == 0:
        assert Problem(value, 128).n == value
    else:
        with pytest.raises(
            ProblemError, match=f"n = {value} .*Pad the weight to {-(-value // 8) * 8}"
        ):
            Problem(value, 128)
    if value % 32 == 0:
        assert Problem(128, value, 32).k == value
    else:
        with pytest.raises(
            ProblemError, match=f"k = {value} .*Pad the weight to {-(-value // 32) * 32}"
        ):
            Problem(128, value, 32)


@pytest.mark.parametrize("k", range(32, 1025, 32))
def test_every_group_size_either_divides_or_is_refused(k: int) -> None:
    for group in (*range(-1, 1100, 16), 32, 64, 128, k):
        if group == k or (group in (32, 64, 128) and k % group == 0):
            problem = Problem(64, k, group)
            assert problem.num_groups * group == k
            assert problem.whole_k == (group not in (32, 64, 128))
        else:
            with pytest.raises(ProblemError, match=f"group size {group} "):
                Problem(64, k, group)


def test_unknown_dtype_and_zero_are_refused_with_the_choices() -> None:
    with pytest.raises(ProblemError, match=r"'fp32'.*fp16 or bf16"):
        Problem(64, 128, dtype="fp32")  # type: ignore[arg-type]
    with pytest.raises(ProblemError, match=r"'float'.*sym.*int"):
        Problem(64, 128, zero="float")  # type: ignore[arg-type]


def problems() -> list[Problem]:
    kinds = product((64, 72), (256, 384), (32, 64, 128, None), ("fp16", "bf16"), ("sym", "int"))
    return [
        Problem(n, k, group or k, dtype, zero, bias)  # type: ignore[arg-type]
        for n, k, group, dtype, zero in kinds
        for bias in (False, True)
    ]


def test_keys_tell_problems_apart_and_dicts_bring_them_back() -> None:
    everything = problems()
    assert len({problem.key() for problem in everything}) == len(everything)
    for problem in everything:
        assert Problem.from_dict(json.loads(json.dumps(problem.to_dict()))) == problem
        assert repr(problem).startswith("Problem(")


def test_key_is_as_documented() -> None:
    assert Problem(4096, 4096).key() == "n4096-k4096-g128-fp16-sym"
    assert Problem(64, 96, 96, "bf16", "int", True).key() == "n64-k96-gk-bf16-int-bias"


def test_bytes_and_flops_by_hand() -> None:
    problem = Problem(64, 256, 128, "fp16", "int", bias=True)
    # weights 64*256/2, 128 scales of 2, 128 nibbles, bias 64*2, x 3*256*2, y 3*64*2
    assert problem.bytes_moved(3) == 8192 + 256 + 64 + 128 + 1536 + 384
    assert problem.flops(3) == 2 * 3 * 64 * 256
    symmetric = Problem(64, 256, 128)
    assert symmetric.bytes_moved(0) == 8192 + 256


@pytest.mark.parametrize("m", [-1, MAX_M + 1, 1.0, True, "1", None])
def test_what_is_no_batch_is_refused(m: object) -> None:
    with pytest.raises(ProblemError, match=f"M = {m!r}"):
        check_m(m)  # type: ignore[arg-type]


def test_batches_from_nothing_on_are_taken() -> None:
    assert [check_m(m) for m in (0, 1, MAX_M)] == [0, 1, MAX_M]


def test_bucket_is_the_next_one_up() -> None:
    for m in range(9000):
        above = [bucket for bucket in M_BUCKETS if bucket >= m]
        assert bucket_of(m) == (min(above) if above else M_BUCKETS[-1])
    assert bucket_of(5, (16, 4)) == 16
