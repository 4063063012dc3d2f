"""An evaluator whose screening and finals say what a test wants; runs in a real worker process."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from search_fakes import FakeEvaluator, key_of

from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Status
from search.evaluator import Contender, EvaluateRequest, FinalsRequest


class Rigged(FakeEvaluator):
    """Reports true_us except where options say otherwise.

    Options: screen_us: config key -> time in the screening; final_us: config key -> time in the
    finals; rounds: factor of every contender's time in each round; fault: why the finals are NOISY;
    pids: other processes on the GPU; failed: config keys that end as WRONG.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._screen: dict[str, float] = options.get("screen_us", {})
        self._final: dict[str, float] = options.get("final_us", {})
        self._rounds: list[float] = options.get("rounds", [1.0, 1.0, 1.0])
        self._fault: str = options.get("fault", "")
        self._pids = tuple(options.get("pids", ()))
        self._failed: list[str] = options.get("failed", [])

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        key = key_of(request.candidate)
        outcome = super().evaluate(request)
        if key in self._failed:
            return Outcome(Status.WRONG, "relative error 0.5", rel_err=0.5)
        time_us = self._screen.get(key, outcome.time_us)
        return replace(outcome, time_us=time_us, spread=0.0, evidence=self._evidence())

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        keys = [key_of(item) for item in request.candidates]
        self._write("finals " + " | ".join(keys))
        return [self._finalist(item) for item in request.candidates]

    def _finalist(self, contender: Contender) -> Outcome:
        time_us = self._final.get(key_of(contender), self._ok(contender).time_us)
        samples = tuple(time_us * factor for factor in self._rounds)
        outcome = Outcome(
            Status.OK,
            time_us=statistics.median(samples),
            spread=0.0,
            samples_us=samples,
            evidence=self._evidence(),
        )
        if self._fault:
            return replace(outcome, status=Status.NOISY, time_us=None, message=self._fault)
        return outcome

    def _evidence(self) -> Evidence:
        seen = GpuReading(1980, 3201, (), 50, 300.0, self._pids)
        return Evidence.of(seen, seen, GpuLimits(1980, 700))


def create(options: dict[str, Any]) -> Rigged:
    """The factory."""
    return Rigged(options)
