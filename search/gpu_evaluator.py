"""The evaluator of a real GPU: checks candidates, then times them. Lives in the worker process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from db.records import DeviceRecord, Protocol
from ptxgen.arch import arch_of_capability
from ptxgen.ceilings import measure_ceilings
from ptxgen.check import CheckResult, check
from ptxgen.dequantize.product import run_dequantized
from ptxgen.dequantize.rule import bytes_moved
from ptxgen.device import LoadedKernel, device_facts
from ptxgen.errors import DriverError
from ptxgen.launch import WorkspacePool, run
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.reference import relative_error
from ptxgen.timing import TimedGraph, Timing, burn_in, copies_for, sample_count
from search.clocks import Clocks
from search.cuda_errors import typed_cuda_errors
from search.evaluator import (
    Candidate,
    Contender,
    Dequantizer,
    Effort,
    EvaluateRequest,
    FinalsRequest,
)
from search.gpu_layer import GpuLayer
from search.model import floor_us, least_us
from search.rounds import time_in_turns
from search.steady import Steady
from search.timed import timed_outcome

SECONDS = {Effort.SCREEN: 0.006, Effort.FULL: 0.1}
"""Of samples. Screening only chooses whom to time again: with 0.02 s it took 37 ms a candidate, of
which an H200 looked at 17 a second (2026-11-30)."""
WARM_S = 0.05
"""Burn-in before a sample set is repeated."""

Launch = Callable[[int, Tensor], None]
"""Launches a contender on a copy of the weights and an output [m, N]."""


class GpuEvaluator:
    """See search.evaluator.Evaluator. Keeps one layer on the GPU at a time.

    Args:
        index: CUDA device.
        seed: of weights and activations.
        ceilings: the device as it was measured before; measured now where None.
        strict: whether another process that computes on the GPU makes every time NOISY.
    """

    def __init__(
        self, index: int, seed: int, ceilings: DeviceRecord | None, strict: bool = False
    ) -> None:
        self._clocks = Clocks.of_device(device_facts(index).uuid)
        pids_before = self._clocks.compute_pids()
        torch.cuda.set_device(index)
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.zeros(1, device="cuda")  # the context is there now, if it was not before
        self._clocks.learn_own(pids_before)
        self._max_sm_mhz = self._clocks.limits().max_sm_mhz
        self._steady = Steady(self._clocks, lambda: burn_in(WARM_S), strict=strict)
        torch.backends.cuda.matmul.allow_tf32 = False
        self._device = torch.device("cuda", index)
        self._seed = seed
        self._record = ceilings or _measure_device(index)
        self._layers: dict[Problem, GpuLayer] = {}
        self._kernels: OrderedDict[str, LoadedKernel] = OrderedDict()
        self._workspaces = WorkspacePool()
        burn_in()

    def device(self) -> DeviceRecord:
        return self._record

    def driver_version(self) -> str:
        return self._clocks.driver_version()

    # ---- one candidate --------------------------------------------------------------------------

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        """Checks, then times; every fault that leaves the context alive is an outcome.

        Raises:
            DriverError: sticky; the context is lost.
        """
        with typed_cuda_errors():
            return self._evaluate(request)

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        """Outcomes in the order of request.candidates, timed in turns in one window.

        Raises:
            DriverError: sticky; the context is lost.
        """
        with typed_cuda_errors():
            return self._finals(request)

    def _finish_work(self) -> None:
        """Waits for replays that were queued to keep the GPU busy while it was read.

        They use graphs, kernels, outputs and workspaces that may go once a request is answered.
        """
        torch.cuda.synchronize(self._device)

    def _evaluate(self, request: EvaluateRequest) -> Outcome:
        floor = self._floor_us(request.problem, request.m)
        base = Outcome(
            Status.OK,
            floor_us=floor,
            resources=request.candidate.resources if request.candidate else None,
        )
        try:
            result = self._check(request.problem, request.m, request.candidate)
        except DriverError as error:
            if error.sticky:
                raise
            return replace(base, status=Status.LOAD_ERROR, message=str(error))
        if not result.ok:
            return replace(
                base, status=Status.WRONG, message=result.message, rel_err=result.rel_err
            )
        checked = replace(base, rel_err=result.rel_err)
        if request.effort is Effort.CHECK:
            return checked
        out = self._layer(request.problem).output(request.m)
        graph = self._graph(request.problem, request.m, request.protocol, request.candidate, out)
        taken = self._steady.take(
            lambda: _screen(graph, SECONDS[request.effort], request.stop_above_us),
            graph.keep_busy,
        )
        self._finish_work()  # before the graph goes
        least = self._least_us(request.problem, request.m)
        return timed_outcome(checked, taken.value, taken.evidence, taken.fault, least)

    def _finals(self, request: FinalsRequest) -> list[Outcome]:
        # One output for all: they take turns, and with large batches it is a gigabyte.
        out = self._layer(request.problem).output(request.m)
        graphs = [
            self._graph(request.problem, request.m, request.protocol, candidate, out)
            for candidate in request.candidates
        ]
        window = time_in_turns(graphs, request.rounds, self._steady)
        self._finish_work()
        floor = self._floor_us(request.problem, request.m)
        least = self._least_us(request.problem, request.m)
        outcomes = []
        for candidate, timing in zip(request.candidates, window.timings, strict=True):
            checked = self._check(request.problem, request.m, candidate)
            base = Outcome(
                Status.OK if checked.ok else Status.WRONG,
                message=checked.message,
                rel_err=checked.rel_err,
                floor_us=floor,
                resources=candidate.resources if candidate else None,
            )
            outcomes.append(timed_outcome(base, timing, window.evidence, window.fault, least))
        return outcomes

    # ---- contenders -----------------------------------------------------------------------------

    def _check(self, problem: Problem, m: int, contender: Contender) -> CheckResult:
        layer = self._layer(problem)
        ref = layer.reference(m)
        if contender is None:
            out = layer.output(m)
            layer.dense_product(m, 0, out)
            return CheckResult(True, relative_error(out, ref))
        launch = self._launcher(layer, m, contender)
        return check(lambda y: launch(0, y), problem, ref)

    def _launcher(
        self, layer: GpuLayer, m: int, contender: Candidate | Dequantizer, chained: bool = False
    ) -> Launch:
        """Launches of one of our kernels."""
        kernel, problem, x, bias = self._kernel(contender), layer.problem, layer.x(m), layer.bias
        if isinstance(contender, Dequantizer):
            dense = layer.unpacked()

            def unpack_and_multiply(copy: int, out: Tensor) -> None:
                run_dequantized(kernel, problem, x, layer.packed[copy], bias, out, dense=dense)

            return unpack_and_multiply

        def launch(copy: int, out: Tensor) -> None:
            packed = layer.packed[copy]
            pool = self._workspaces
            run(kernel, problem, x, packed, bias, out, workspaces=pool, chained=chained)

        return launch

    def _graph(
        self, problem: Problem, m: int, protocol: Protocol, contender: Contender, out: Tensor
    ) -> TimedGraph:
        """A contender's launches, which write to out [m, N]: no memory of a graph's own pool."""
        layer = self._layer(problem)
        floor, l2_bytes = self._floor_us(problem, m), self._record.l2_bytes
        if contender is None:
            dense_bytes = 2 * (problem.n * problem.k + m * (problem.n + problem.k))
            copies = min(layer.dense_copies(), copies_for(dense_bytes, l2_bytes))
            return TimedGraph(lambda copy: layer.dense_product(m, copy, out), copies, floor)
        launch = self._launcher(layer, m, contender, protocol is Protocol.CHAINED)
        unpacks = isinstance(contender, Dequantizer)
        moved = bytes_moved(problem, m) if unpacks else problem.bytes_moved(m)
        copies = min(len(layer.packed), copies_for(moved, l2_bytes))
        return TimedGraph(lambda copy: launch(copy, out), copies, floor)

    def _kernel(self, candidate: Candidate | Dequantizer) -> LoadedKernel:
        """The candidate's kernel; the least recently used ones are unloaded."""
        key = candidate.source_digest
        if key not in self._kernels:
            cubin = Path(candidate.cubin_path).read_bytes()
            self._kernels[key] = LoadedKernel(cubin, candidate.entry, candidate.plan)
            while len(self._kernels) > 64:
                _, old = self._kernels.popitem(last=False)
                self._workspaces.forget(old)
                torch.cuda.synchronize()
                old.unload()
        self._kernels.move_to_end(key)
        return self._kernels[key]

    def _layer(self, problem: Problem) -> GpuLayer:
        if problem not in self._layers:
            self._layers.clear()
            torch.cuda.empty_cache()
            l2_bytes = self._record.l2_bytes
            self._layers[problem] = GpuLayer(problem, self._seed, self._device, l2_bytes)
        return self._layers[problem]

    def _floor_us(self, problem: Problem, m: int) -> float:
        return floor_us(problem, m, self._record.read_gbps, self._record.tensor_tflops)

    def _least_us(self, problem: Problem, m: int) -> float:
        return least_us(problem, m, self._record, self._max_sm_mhz)


def _screen(graph: TimedGraph, seconds: float, stop_above_us: float | None) -> Timing:
    estimate = graph.sample_us()
    count = sample_count(estimate, graph.launches, seconds)
    return Timing.of(graph.samples_us(count, warmups=1, stop_above_us=stop_above_us))


def _measure_device(index: int) -> DeviceRecord:
    facts = device_facts(index)
    ceilings = measure_ceilings(arch_of_capability(*facts.capability), facts.num_sms)
    return DeviceRecord(
        name=facts.name,
        capability=f"{facts.capability[0]}.{facts.capability[1]}",
        num_sms=facts.num_sms,
        smem_optin_bytes=facts.smem_optin_bytes,
        l2_bytes=facts.l2_bytes,
        memory_bytes=facts.memory_bytes,
        uuid=facts.uuid,
        power_limit_w=Clocks.of_device(facts.uuid).power_limit_w(),
        measured=True,
        **asdict(ceilings),
    )


def create(options: dict[str, Any]) -> GpuEvaluator:
    """Factory for search.worker: options "index", "seed", "strict", and "ceilings" where known."""
    stored = options.get("ceilings")
    ceilings = DeviceRecord(**stored) if stored else None
    return GpuEvaluator(
        int(options.get("index", 0)),
        int(options.get("seed", 0)),
        ceilings,
        strict=bool(options.get("strict", False)),
    )
