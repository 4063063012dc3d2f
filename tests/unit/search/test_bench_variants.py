"""Of a package's ways to run a layer the fastest right one is taken, whatever the others do."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch

from ptxgen.problem import Problem
from search.bench.adapters.cublas import CublasAdapter
from search.bench.adapters.machete import MacheteAdapter
from search.bench.adapters.vllm_ops import UINT4_BIAS_8_ID, UINT4_ID
from search.bench.variants import Prepared, Running, fastest


class Fixed:
    """Every sample is the same."""

    def __init__(self, time_us: float) -> None:
        self._time_us = time_us

    def samples_us(self, count: int, warmups: int = 2) -> list[float]:
        return [self._time_us] * count

    def keep_busy(self) -> None:
        pass


def preparing(outcomes: dict[str, float | RuntimeError]) -> Callable[[str], Prepared]:
    """Times by variant; a negative one is of a wrong variant, an error is raised."""

    def prepare(name: str) -> Prepared:
        outcome = outcomes[name]
        if isinstance(outcome, RuntimeError):
            raise outcome
        running = Running(lambda operand: operand[0], [])
        wrong = "relative error" if outcome < 0 else ""
        found = {"rel_err": 0.1, "wrong": wrong, "variant": name}
        return Prepared(found, running, None if wrong else Fixed(outcome))

    return prepare


REFUSED = RuntimeError("machete: invalid schedule for this shape")


@pytest.mark.parametrize(
    ("outcomes", "winner"),
    [
        ({"": 5.0}, ""),
        ({"": 5.0, "a": 4.0, "b": 6.0}, "a"),
        ({"": -1.0, "a": 9.0}, "a"),
        ({"": 5.0, "a": REFUSED, "b": 4.5}, "b"),
        ({"": REFUSED, "a": 7.0}, "a"),
    ],
)
def test_the_fastest_right_variant(outcomes: dict[str, float], winner: str) -> None:
    found = fastest(list(outcomes), preparing(outcomes))  # type: ignore[arg-type]
    assert found.found["variant"] == winner
    assert found.timed is not None


def test_where_none_is_right_the_error_is_kept() -> None:
    found = fastest(["", "a"], preparing({"": -1.0, "a": -1.0}))
    assert found.found["wrong"]
    assert found.timed is None


def test_where_all_are_refused_the_package_s_reason_is_raised() -> None:
    with pytest.raises(RuntimeError, match="invalid schedule"):
        fastest(["", "a"], preparing({"": REFUSED, "a": REFUSED}))


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("CUDA error: an illegal memory access was encountered"),
        torch.OutOfMemoryError("CUDA out of memory"),
    ],
)
def test_a_lost_context_or_no_memory_ends_the_choice(error: RuntimeError) -> None:
    with pytest.raises(type(error), match=str(error)):
        fastest(["", "a"], preparing({"": 5.0, "a": error}))


@pytest.mark.parametrize("zero", ["sym", "int"])
def test_machete_s_schedules_are_asked_for_by_dtype_and_used_by_name(zero: str) -> None:
    asked: list[tuple[object, ...]] = []
    used: list[object] = []
    operators = SimpleNamespace(
        machete_supported_schedules=lambda *types: asked.append(types) or ["128x16", "256x32"],
        machete_mm=lambda *arguments: used.append(arguments[-1]) or arguments[0],
    )
    adapter = MacheteAdapter(operators, (9, 0))
    problem = Problem(128, 256, dtype="bf16", zero=zero)  # type: ignore[arg-type]
    assert adapter.variants(problem) == ("", "128x16", "256x32")
    bf16 = torch.bfloat16
    kind, shift = (UINT4_ID, bf16) if zero == "int" else (UINT4_BIAS_8_ID, None)
    assert asked == [(bf16, kind, bf16, shift, None, None, None)]
    x = torch.zeros(2, 256, dtype=bf16)
    for variant in ("", "128x16"):
        adapter.bind(problem, x, {"variant": variant})((x, x))
    assert used == [None, "128x16"]


def test_other_packages_choose_by_themselves() -> None:
    assert CublasAdapter().variants(Problem(64, 128)) == ("",)
