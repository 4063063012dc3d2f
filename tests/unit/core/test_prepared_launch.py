"""Prepared launches: what the driver reads from the structures, against NVIDIA's own layout."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
from cuda.bindings import driver

from ptxgen.prepared_launch import (
    ATTRIBUTE,
    CONFIG,
    KEPT_GRIDS,
    PROGRAMMATIC_STREAM_SERIALIZATION,
    PreparedLaunch,
)
from ptxgen.source import LaunchPlan

FUNCTION = 0x1234
PLAN = LaunchPlan(256, 4096, 16, 64, n_tiles=5, split_k=2, pdl=True, cluster_k=2)
TMA = LaunchPlan(
    384, 8192, 64, 128, n_tiles=5, split_k=1, pdl=True, max_ctas=132, k=4096, x_box=(64, 64)
)
CALL = {
    "x": 0x10, "packed": 0x20, "bias": 0x30, "y": 0x40, "workspace": 0x50,
    "m": 17, "ldx": 1 << 33, "ldy": 1 << 34, "stream": 0x77, "chained": False,
}  # fmt: skip


class Config(ctypes.Structure):
    """CUlaunchConfig as cuda.h writes it."""

    _fields_ = (
        *((f"grid_{axis}", ctypes.c_uint) for axis in "xyz"),
        *((f"block_{axis}", ctypes.c_uint) for axis in "xyz"),
        ("smem", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("count", ctypes.c_uint),
    )


class Attribute(ctypes.Structure):
    """CUlaunchAttribute: id, padding to 8 bytes, a value of 64."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("pad", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("rest", ctypes.c_char * 60),
    )


class Driver:
    """Stands in for cuLaunchKernelEx: reads what a launch points to, as the driver does."""

    def __init__(self, code: int = 0) -> None:
        self.seen: list[dict[str, Any]] = []
        self._code = code
        kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
        self._launch = kind(self._read)
        map_kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, *[ctypes.c_void_p] * 11)
        self._encode = map_kind(lambda to, *_: ctypes.memmove(to, b"m" * 128, 128) and 0)

    @property
    def launcher(self) -> int:
        return ctypes.cast(self._launch, ctypes.c_void_p).value or 0

    @property
    def encoder(self) -> int:
        return ctypes.cast(self._encode, ctypes.c_void_p).value or 0

    def _read(self, config: int, function: int, parameters: int, extra: int | None) -> int:
        read = Config.from_address(config)
        types = (*[ctypes.c_uint64] * 5, ctypes.c_int, *[ctypes.c_longlong] * 2)
        at = (ctypes.c_void_p * 9).from_address(parameters)
        seen: dict[str, Any] = {
            "arguments": [kind.from_address(at[i] or 0).value for i, kind in enumerate(types)],
            "grid": (read.grid_x, read.grid_y, read.grid_z),
            "block": (read.block_x, read.block_y, read.block_z),
            "smem": read.smem,
            "stream": read.stream,
            "function": function,
            "extra": extra,
            "chained": False,
        }
        if read.count:
            attribute = Attribute.from_address(read.attributes or 0)
            seen["chained"] = (attribute.id, attribute.value, read.count) == (
                driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.value,
                1,
                1,
            )
        self.seen.append(seen)
        return self._code


def launch(made: PreparedLaunch, **changes: Any) -> int:
    return made(**{**CALL, **changes})


def prepared(plan: LaunchPlan, code: int = 0) -> tuple[Driver, PreparedLaunch]:
    fake = Driver(code)
    return fake, PreparedLaunch(plan, FUNCTION, fake.launcher, fake.encoder)


def test_structures_have_nvidias_sizes() -> None:
    assert ctypes.sizeof(Config) == CONFIG.size
    assert ctypes.sizeof(Attribute) == ATTRIBUTE.size
    kind = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    assert kind.value == PROGRAMMATIC_STREAM_SERIALIZATION


def test_the_driver_reads_what_was_given() -> None:
    fake, made = prepared(PLAN)
    assert launch(made) == 0
    assert fake.seen == [
        {
            "arguments": [0x10, 0x20, 0x30, 0x40, 0x50, 17, 1 << 33, 1 << 34],
            "grid": PLAN.grid(17),
            "block": (256, 1, 1),
            "smem": 4096,
            "stream": 0x77,
            "function": FUNCTION,
            "extra": None,
            "chained": False,
        }
    ]


def test_every_call_is_its_own() -> None:
    """Batches, streams, chains and pointers change in any order; each launch has its own values."""
    fake, made = prepared(PLAN)
    calls = [
        {"m": m, "stream": stream, "chained": chained, "y": y}
        for m in (1, 16, 17, 200)
        for stream in (0, 5)
        for chained in (False, True)
        for y in (64, 128)
    ]
    for call in (*calls, *reversed(calls)):
        launch(made, **call)
    for call, seen in zip((*calls, *reversed(calls)), fake.seen, strict=True):
        assert seen["grid"] == PLAN.grid(call["m"])
        assert seen["arguments"][5] == call["m"]
        assert seen["arguments"][3] == call["y"]
        assert (seen["stream"] or 0) == call["stream"]
        assert seen["chained"] is call["chained"]


def test_a_kernel_without_dependent_launch_is_never_chained() -> None:
    plan = LaunchPlan(128, 0, 8, 64, 3, 1, pdl=False)
    fake, made = prepared(plan)
    launch(made, chained=True)
    assert fake.seen[0]["chained"] is False


def test_a_tensor_map_is_the_ninth_argument() -> None:
    _, made = prepared(TMA)
    launch(made, x=0x1000, ldx=4096)
    assert made._x_map is not None
    at = (ctypes.c_void_p * 9).from_address(ctypes.addressof(made._parameters))
    assert at[8] == made._x_map.address
    assert bytes(made._x_map) == b"m" * 128


def test_a_refused_launch_says_so() -> None:
    _, made = prepared(PLAN, code=719)
    assert launch(made) == 719


def test_the_memory_of_grids_is_bounded() -> None:
    fake, made = prepared(PLAN)
    for m in range(1, KEPT_GRIDS + 50):
        launch(made, m=m)
    assert fake.seen[-1]["grid"] == PLAN.grid(KEPT_GRIDS + 49)
    assert len(made._grids) <= KEPT_GRIDS


@pytest.mark.parametrize("threads", [4])
def test_threads_never_mix_their_launches(threads: int) -> None:
    fake, made = prepared(PLAN)

    def work(number: int) -> None:
        for step in range(200):
            launch(made, y=number * 1000 + step, m=number + 1, stream=number)

    running = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert len(fake.seen) == threads * 200
    for seen in fake.seen:
        number = seen["arguments"][3] // 1000
        assert seen["arguments"][5] == number + 1
        assert (seen["stream"] or 0) == number
        assert seen["grid"] == PLAN.grid(number + 1)
