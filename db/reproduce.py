"""Reproduce: which failed trial is the worst of its class, and the command that runs it alone."""

from __future__ import annotations

import json
import math
import shlex

from db.records import Protocol
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem

GOOD = frozenset({Status.OK, Status.PREDICTED, Status.STARTED})
"""Statuses that are no failure."""


def reproduce_command(
    problem: Problem,
    m: int,
    protocol: Protocol,
    config: KernelConfig | None,
    *,
    predicted_for: str = "",
) -> str:
    """The command line that runs one candidate alone, quoted for a POSIX shell.

    Where a run predicted for a GPU that is not here, predicted_for names the GPU, and the command
    compiles the candidate for it, which is all that such a run does.
    """
    words = [
        "ptxtune",
        "emit" if predicted_for else "one",
        "--n",
        str(problem.n),
        "--k",
        str(problem.k),
    ]
    words += ["--group", str(-1 if problem.whole_k else problem.group_size)]
    words += ["--dtype", problem.dtype, "--zero", problem.zero]
    words += ["--bias"] if problem.bias else []
    words += ["--m", str(m), "--protocol", protocol.value]
    if config is not None:
        words += ["--config", json.dumps(config.to_dict())]
    words += ["--gpu", predicted_for, "--compile"] if predicted_for else []
    return shlex.join(words)


def badness(outcome: Outcome) -> float:
    """What makes an offender the worst of its class; 0 where its class has no measure."""
    if outcome.status is Status.WRONG and outcome.rel_err is not None:
        return float("inf") if math.isnan(outcome.rel_err) else outcome.rel_err
    if outcome.status is Status.SPILLED and outcome.resources is not None:
        return float(outcome.resources.spill_bytes)
    return 0.0
