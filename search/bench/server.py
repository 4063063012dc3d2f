"""Inside a contender's process: packs, checks, captures and replays what the parent asks for.

All processes make the same layer from the same seed, so every contender packs the same integers.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from ptxgen.problem import Problem
from ptxgen.reference import random_quantized, reference_output, relative_error
from ptxgen.timing import Launch, copies_for
from ptxgen.weights.quantize import TORCH_DTYPES
from search.bench.base import Adapter, BenchLayer, Operand, UnsupportedError
from search.bench.variants import Prepared, Running, fastest
from search.child_main import resolve
from search.cuda_errors import typed_cuda_errors
from search.rounds import Timed

MAX_REL_ERR = 1e-2
"""Bound on the error of every contender against the FP32 product of the dequantized weights."""


class Kit(Protocol):
    """What the process does on its device; search.bench.gpu, or a fake."""

    device: torch.device
    l2_bytes: int

    def timed(self, launch: Launch, copies: int, floor_us: float) -> Timed:
        """Captures the launches."""
        ...

    def burn_in(self) -> None:
        """Brings the device to its working clock."""
        ...

    def synchronize(self) -> None:
        """Waits for everything queued."""
        ...

    def trim(self) -> None:
        """Gives cached memory back: other processes need it."""
        ...


class BenchServer:
    """Answers the parent's requests; keeps one layer and one batch at a time.

    Args:
        kit: the device.
        seed: of weights and activations.
    """

    def __init__(self, kit: Kit, seed: int) -> None:
        self._kit, self._seed = kit, seed
        self._adapters: dict[str, Adapter] = {}
        self._layer: BenchLayer | None = None
        self._copies: dict[str, list[Operand]] = {}
        self._inputs: tuple[int, Tensor, Tensor] | None = None
        self._running: dict[str, tuple[Running, Timed]] = {}

    def handle(self, message: dict[str, Any]) -> Any:
        """One request.

        Raises:
            UnsupportedError: the contender does not serve the problem.
            DriverError: sticky; the context is lost. Whatever else a package raises goes on too.
        """
        with typed_cuda_errors():
            return getattr(self, f"_on_{message['kind']}")(message)

    # ---- requests -------------------------------------------------------------------------------

    def _on_hello(self, _message: dict[str, Any]) -> str:
        return str(self._kit.device)

    def _on_prepare(self, message: dict[str, Any]) -> dict[str, Any]:
        """Packs, checks and captures; {"rel_err", "wrong", "variant"}, wrong "" where it is right.

        Of several variants the fastest right one is kept.
        """
        problem, m = Problem.from_dict(message["problem"]), int(message["m"])
        adapter = self._adapter(message["factory"])
        if reason := adapter.unsupported(problem, m):
            raise UnsupportedError(reason)
        copies = self._packed(message["factory"], adapter, problem, m)
        x, reference = self._data(m)

        def prepared(variant: str) -> Prepared:
            options = {**message["options"], "variant": variant}
            running = Running(adapter.bind(problem, x, options), copies)
            running.launch(0)
            found = {**self._error_of(running, reference), "variant": variant}
            if found["wrong"]:
                return Prepared(found, running, None)
            timed = self._kit.timed(running.launch, len(copies), message["floor_us"])
            return Prepared(found, running, timed)

        best = fastest(adapter.variants(problem), prepared)
        if best.timed is not None:
            self._running[message["key"]] = (best.running, best.timed)
        return best.found

    def _on_samples(self, message: dict[str, Any]) -> list[float]:
        _, timed = self._running[message["key"]]
        return timed.samples_us(message["count"], warmups=message["warmups"])

    def _on_keep_busy(self, message: dict[str, Any]) -> None:
        self._running[message["key"]][1].keep_busy()

    def _on_finish(self, _message: dict[str, Any]) -> None:
        self._kit.synchronize()

    def _on_burn_in(self, _message: dict[str, Any]) -> None:
        self._kit.burn_in()

    def _on_verify(self, message: dict[str, Any]) -> dict[str, Any]:
        """The error of what the timed launches leave behind, from an output filled with NaN."""
        running, timed = self._running[message["key"]]
        cast(Tensor, running.last).fill_(math.nan)
        timed.samples_us(1, warmups=0)
        _, _, reference = cast(tuple[int, Tensor, Tensor], self._inputs)
        return self._error_of(running, reference)

    def _on_release(self, _message: dict[str, Any]) -> None:
        """Forgets the batch; the packed layer stays for the next one."""
        self._kit.synchronize()
        self._running.clear()
        self._inputs = None
        self._free()

    # ---- tensors --------------------------------------------------------------------------------

    def _adapter(self, factory: str) -> Adapter:
        if factory not in self._adapters:
            make = cast(Callable[[], Adapter], resolve(factory))
            self._adapters[factory] = make()
        return self._adapters[factory]

    def _packed(self, factory: str, adapter: Adapter, problem: Problem, m: int) -> list[Operand]:
        """As many clones of the packed layer as keep the L2 cold for a batch of m."""
        layer = self._layer_of(problem)
        copies = self._copies.setdefault(factory, [])
        if not copies:
            copies.append(adapter.pack(layer))
        once = sum(tensor.numel() * tensor.element_size() for tensor in copies[0])
        moved = once + 2 * m * (problem.n + problem.k)
        count = copies_for(moved, self._kit.l2_bytes)
        while len(copies) < count:
            copies.append(tuple(tensor.clone() for tensor in copies[0]))
        return copies[:count]

    def _layer_of(self, problem: Problem) -> BenchLayer:
        if self._layer is None or self._layer.problem != problem:
            self._running.clear()
            self._copies.clear()
            self._layer = self._inputs = None
            self._free()
            weight = random_quantized(problem, self._generator(0))
            bias = self._randn(problem, 0, problem.n) if problem.bias else None
            self._layer = BenchLayer(problem, weight, bias)
        return self._layer

    def _data(self, m: int) -> tuple[Tensor, Tensor]:
        """Activations [m, K] and the FP32 reference [m, N] of the layer."""
        layer = cast(BenchLayer, self._layer)
        if self._inputs is None or self._inputs[0] != m:
            x = self._randn(layer.problem, m, m, layer.problem.k)
            reference = reference_output(
                x, layer.weight, layer.problem, layer.bias, dtype=torch.float32
            )
            self._inputs = (m, x, reference)
        return self._inputs[1], self._inputs[2]

    def _error_of(self, running: Running, reference: Tensor) -> dict[str, Any]:
        self._kit.synchronize()
        out = cast(Tensor, running.last)
        error = relative_error(out, reference)
        if error <= MAX_REL_ERR:
            return {"rel_err": error, "wrong": ""}
        if not math.isfinite(error):
            wrong = f"the output is NaN, infinite or of shape {tuple(out.shape)}"
            return {"rel_err": None, "wrong": wrong}
        return {
            "rel_err": error,
            "wrong": f"relative error {error:.3g} against FP32 is above {MAX_REL_ERR:g}",
        }

    def _randn(self, problem: Problem, stream: int, *shape: int) -> Tensor:
        values = torch.randn(shape, generator=self._generator(stream), device=self._kit.device)
        return values.to(TORCH_DTYPES[problem.dtype])

    def _generator(self, stream: int) -> torch.Generator:
        return torch.Generator(self._kit.device).manual_seed(self._seed * 1_000_003 + stream)

    def _free(self) -> None:
        gc.collect()  # a contender's closures may hold its tensors in cycles
        self._kit.trim()


def make_handler(options: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """The request handler of a contender's process.

    Args:
        options: "kit", a "module:function" that makes a Kit from these options, and "seed".
    """
    kit = cast(Callable[[dict[str, Any]], Kit], resolve(options["kit"]))(options)
    return BenchServer(kit, int(options.get("seed", 0))).handle
