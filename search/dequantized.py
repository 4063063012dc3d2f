"""Whether the contender "dequantized" (our dequantize kernel, torch's matmul) takes part."""

from __future__ import annotations

from db import query
from ptxgen.dequantize.emit import emit_dequantize
from ptxgen.dequantize.rule import DEQUANTIZED, takes_part
from ptxgen.outcome import Status
from search.context import MAX_KILLS, RunContext
from search.evaluator import Dequantizer, EvaluateRequest
from search.events import Note, Task

SOUND = frozenset({Status.OK, Status.NOISY})


def may_take_part(context: RunContext, task: Task) -> bool:
    """Whether a search is to be compared with it: with cuBLAS, from its least batch on.

    Not where the result must not depend on M: nothing says so of torch's matmul.
    """
    return context.job.baseline and not task.batch_invariant and takes_part(task.m)


def dequantizer(context: RunContext, task: Task) -> Dequantizer | None:
    """The contender, ready for the finals; None where it takes no part.

    A run measures it once for each problem by itself first, journalled and checked as every
    finalist was: where that went wrong it must not spoil the finals.
    """
    if not may_take_part(context, task):
        return None
    source = emit_dequantize(task.problem, context.arch)
    digest = source.digest()
    if context.kills(digest) >= MAX_KILLS:
        return None
    compiled = context.pool.submit(source).result()
    if compiled.failure is not None or compiled.resources is None:
        reason = compiled.failure.message if compiled.failure else "no cubin"
        context.on_event(Note(f"the dequantize kernel did not compile: {reason}"))
        return None
    made = Dequantizer(source.plan, source.entry, compiled.cubin_path, compiled.resources, digest)
    return made if _is_sound(context, task, made) else None


def _is_sound(context: RunContext, task: Task, made: Dequantizer) -> bool:
    """Whether all its trials of this run and problem ended well; the first one is made here."""
    tried = query.trials(
        context.store.database,
        run_id=context.run_id,
        problem=task.problem,
        contender=DEQUANTIZED,
    )
    if tried:
        return all(trial.outcome.status in SOUND for trial in tried)
    _, outcome = context.measure(task, EvaluateRequest(task.problem, task.m, task.protocol, made))
    return outcome.status in SOUND
