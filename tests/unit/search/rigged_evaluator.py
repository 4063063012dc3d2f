"""An evaluator whose screening and finals say what a test wants; runs in a real worker process."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from search_fakes import FakeEvaluator, key_of, misbehave

from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.outcome import Outcome, Status
from search.evaluator import Contender, EvaluateRequest, FinalsRequest
from search.heats import ROUNDS


class Rigged(FakeEvaluator):
    """Reports true_us except where options say otherwise.

    Options: screen_us: config key -> time in the screening; final_us: config key -> time in the
    finals; rounds: factor of every contender's time in each round; fault: why the finals are NOISY;
    pids: other processes on the GPU; failed: config keys that end as WRONG; wrong_later: those
    that do in heats and finals; heats: how heats alone misbehave; heats_fault: why they are NOISY.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self._screen: dict[str, float] = options.get("screen_us", {})
        self._final: dict[str, float] = options.get("final_us", {})
        self._rounds: list[float] = options.get("rounds", [1.0, 1.0, 1.0])
        self._fault: str = options.get("fault", "")
        self._pids = tuple(options.get("pids", ()))
        self._failed: list[str] = options.get("failed", [])
        self._wrong_later: list[str] = options.get("wrong_later", [])
        self._heats: str = options.get("heats", "")
        self._heats_fault: str = options.get("heats_fault", "")

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        key = key_of(request.candidate)
        outcome = super().evaluate(request)
        if key in self._failed:
            return Outcome(Status.WRONG, "relative error 0.5", rel_err=0.5)
        time_us = self._screen.get(key, outcome.time_us)
        return replace(outcome, time_us=time_us, spread=0.0, evidence=self._evidence())

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        keys = [key_of(item) for item in request.candidates]
        heats = request.rounds == ROUNDS
        self._write(("heats " if heats else "finals ") + " | ".join(keys))
        if heats and self._heats:
            return [misbehave(self._heats)]
        fault = self._heats_fault if heats else self._fault
        return [self._finalist(item, fault) for item in request.candidates]

    def _finalist(self, contender: Contender, fault: str) -> Outcome:
        if key_of(contender) in self._wrong_later:
            return Outcome(Status.WRONG, "relative error 0.5", rel_err=0.5)
        time_us = self._final.get(key_of(contender), self._ok(contender).time_us)
        samples = tuple(time_us * factor for factor in self._rounds)
        outcome = Outcome(
            Status.OK,
            time_us=statistics.median(samples),
            spread=0.0,
            samples_us=samples,
            evidence=self._evidence(),
        )
        if fault:
            return replace(outcome, status=Status.NOISY, time_us=None, message=fault)
        return outcome

    def _evidence(self) -> Evidence:
        seen = GpuReading(1980, 3201, (), 50, 300.0, self._pids)
        return Evidence.of(seen, seen, GpuLimits(1980, 700))


def create(options: dict[str, Any]) -> Rigged:
    """The factory."""
    return Rigged(options)
