"""Events of a tuning run, for whoever shows its progress. Data only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from db.records import DeviceRecord, Protocol
from ptxgen.config import KernelConfig
from ptxgen.evidence import Evidence
from ptxgen.outcome import Outcome
from ptxgen.problem import Problem
from ptxgen.proof import Proof
from search.budget import Budget


@dataclass(frozen=True, slots=True)
class Task:
    """One problem x M bucket x protocol; batch_invariant: over the configs of one order of sums."""

    problem: Problem
    m: int
    protocol: Protocol
    batch_invariant: bool = False

    @property
    def chained(self) -> bool:
        """Launches depend on each other."""
        return self.protocol is Protocol.CHAINED

    def title(self) -> str:
        """How the task is called on screen."""
        kind = " batch-invariant" if self.batch_invariant else ""
        return f"{self.problem.key()} M={self.m} {self.protocol.value}{kind}"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The run is in the database; `tasks` will follow."""

    run_id: int
    device: DeviceRecord
    tasks: int
    predicted: bool = False


@dataclass(frozen=True, slots=True)
class TaskStarted:
    """A search begins.

    Attributes:
        task: what is searched.
        index: of the task, from 0.
        space_size: legal configs.
        known: finished trials of earlier runs that are not repeated.
        floor_us: the physical floor.
        budget: limits of this search.
    """

    task: Task
    index: int
    space_size: int
    known: int
    floor_us: float
    budget: Budget


@dataclass(frozen=True, slots=True)
class TrialEnded:
    """One candidate ended, well or not.

    Attributes:
        task: the search it belongs to.
        config: the candidate; None for cuBLAS.
        outcome: how it ended.
        best_us: best time so far, this trial included.
        measured: candidates of this search that were measured so far.
    """

    task: Task
    config: KernelConfig | None
    outcome: Outcome
    best_us: float | None
    measured: int


@dataclass(frozen=True, slots=True)
class FinalsStarted:
    """The best ones are about to be timed in turns."""

    task: Task
    contenders: int


@dataclass(frozen=True, slots=True)
class TaskEnded:
    """A search is over.

    Attributes:
        task: the search.
        config: its winner; None where nothing won.
        time_us: of the winner.
        default_us: of the built-in default, in the same window.
        cublas_us: of cuBLAS, in the same window.
        floor_us: the physical floor.
        message: why there is no winner; empty where there is one.
        proof: what the finals showed; None where there were none.
        evidence: what the GPU said during the finals.
        ties: configs that cannot be told from the fastest one, the winner included.
        dequantized_us: of dequantize + matmul, in the same window; None where it took no part.
    """

    task: Task
    config: KernelConfig | None
    time_us: float | None
    default_us: float | None
    cublas_us: float | None
    floor_us: float
    message: str = ""
    proof: Proof | None = None
    evidence: Evidence | None = None
    ties: tuple[KernelConfig, ...] = ()
    dequantized_us: float | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """Something the user should read: a restart, a quarantine, a wait."""

    text: str


Event = RunStarted | TaskStarted | TrialEnded | FinalsStarted | TaskEnded | Note
OnEvent = Callable[[Event], None]
