"""An evaluator that only checks, as the GPU's does with Effort.CHECK; runs in a real worker."""

from __future__ import annotations

from typing import Any

from search_fakes import FakeEvaluator, misbehave

from ptxgen.outcome import Outcome, Status
from search.evaluator import Effort, EvaluateRequest


class ShapeEvaluator(FakeEvaluator):
    """Logs problem, M and config of every request; right, without a time, unless told otherwise."""

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        if request.effort is not Effort.CHECK or request.candidate is None:
            raise ValueError(f"{request.effort} is not asked for in a soak of shapes")
        key = request.candidate.config.key()
        self._write(f"{request.problem.key()} {request.m} {key}")
        behaviour = self._behaviour.get(key, "")
        return misbehave(behaviour) if behaviour else Outcome(Status.OK, rel_err=1e-4)


def create(options: dict[str, Any]) -> ShapeEvaluator:
    """The factory."""
    return ShapeEvaluator(options)
