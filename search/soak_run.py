"""The tuner of a soak, as a process of its own: python -m search.soak_run SPEC.json.

It may be killed at any moment. Whatever the database has accepted is noted in a file right
afterwards, by the id of the trial, so that the audit can ask for it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from db.records import Protocol, ToolchainRecord
from db.session import Database, open_database
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.compile import nvrtc_version
from ptxgen.config import KernelConfig
from ptxgen.errors import PtxtuneError
from ptxgen.families import FAMILIES
from ptxgen.outcome import Outcome
from ptxgen.problem import Problem
from search.budget import Budget
from search.events import Event, FinalsStarted, RunStarted
from search.fake_parts import FaultLog, SoakFamily
from search.faults import PLANS, FaultPlan
from search.gpu_faults import BrokenFamily
from search.job import TuneJob
from search.space import Space
from search.tune import tune
from search.worker import Limits

BUCKET = 8
FAILED = 4
"""Exit code where an error ended the run, such as a locked database."""


@dataclass(frozen=True, slots=True)
class SoakSpec:
    """One soak.

    Attributes:
        folder: everything of the soak lies here.
        kind: "process" (fakes, no GPU) or "kernel" (real kernels on a GPU).
        seed: of every random choice.
        cases: problems that are tuned, one after the other.
        configs: offered for each of them.
        share: of the configs that get a fault.
        busy_timeout_ms: how long a write waits for a locked database.
        clock_jumps: share of the looks at the clock before which it jumps.
        arch: target of the real kernels.
    """

    folder: str
    kind: str = "process"
    seed: int = 0
    cases: int = 1
    configs: int = 360
    share: float = 0.6
    busy_timeout_ms: int = 1000
    clock_jumps: float = 0.02
    arch: str = "sm_90a"

    @classmethod
    def load(cls, path: Path) -> SoakSpec:
        """The spec that save has written."""
        return cls(**json.loads(path.read_text()))

    def save(self) -> Path:
        """Writes the spec into its folder; returns the path."""
        path = Path(self.folder) / "spec.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    @property
    def database(self) -> Path:
        return Path(self.folder) / "soak.db"

    @property
    def plan(self) -> FaultPlan:
        return FaultPlan(PLANS[self.kind], self.share, self.seed)

    def problems(self) -> tuple[Problem, ...]:
        """One for each case."""
        return tuple(Problem(2048 + 128 * case, 2048) for case in range(self.cases))


class JumpingClock:
    """A clock that jumps by up to a day, back as well as forth; every jump is noted."""

    def __init__(self, share: float, seed: int, log: FaultLog) -> None:
        self._share, self._log = share, log
        self._random = random.Random(seed)  # noqa: S311 (no secret)
        self._offset = timedelta()

    def __call__(self) -> datetime:
        if self._random.random() < self._share:
            self._offset = timedelta(seconds=self._random.uniform(-86_400, 86_400))
            self._log.add("clock jumps")
        return datetime.now(UTC) + self._offset


class NotingStore(Store):
    """Notes in a file what the database has accepted: "started ID" and "ended ID STATUS"."""

    def __init__(self, database: Database, clock: JumpingClock, notes: FaultLog) -> None:
        super().__init__(database, clock)
        self._notes = notes

    def start_trial(
        self,
        run_id: int,
        problem: Problem,
        m: int,
        protocol: Protocol,
        *,
        contender: str = "ptxtune",
        config: KernelConfig | None = None,
        source_digest: str = "",
    ) -> int:
        trial_id = super().start_trial(
            run_id,
            problem,
            m,
            protocol,
            contender=contender,
            config=config,
            source_digest=source_digest,
        )
        self._notes.add(f"started {trial_id}")
        return trial_id

    def end_trial(self, trial_id: int, outcome: Outcome) -> None:
        super().end_trial(trial_id, outcome)
        self._notes.add(f"ended {trial_id} {outcome.status.value}")


def offered(spec: SoakSpec, problem: Problem) -> list[KernelConfig]:
    """The configs of one case."""
    family = job_of(spec).kernel_families()["mma"]
    return list(family.candidates(problem, arch_named(spec.arch), BUCKET))


def job_of(spec: SoakSpec) -> TuneJob:
    """The tuning job: every offered config of every case."""
    folder = Path(spec.folder)
    job = TuneJob(
        problems=spec.problems(),
        buckets=(BUCKET,),
        toolchain=ToolchainRecord("", nvrtc_version(), "soak", ""),
        budget=Budget(),
        sampler="exhaustive",
        baseline=False,
        cache_root=folder / "cache",
        lock_folder=folder,
        seed=spec.seed,
    )
    if spec.kind == "kernel":
        mma = {"mma": FAMILIES["mma"]}
        space = Space(spec.problems()[0], arch_named(spec.arch), BUCKET, mma)
        configs = space.shuffled(spec.seed)[: spec.configs]
        return replace(
            job,
            limits=Limits(measure_s=8.0, shrunk_min_s=2.0, shrunk_factor=20.0),
            families={"mma": BrokenFamily(FAMILIES["mma"], spec.plan, configs)},
        )
    return replace(
        job,
        evaluator="search.fake_parts:create",
        evaluator_options={"folder": spec.folder, "share": spec.share, "seed": spec.seed},
        compile_handler="search.fake_parts:make_compiler",
        compile_workers=2,
        compile_timeout_s=1.5,
        limits=Limits(start_s=60, measure_s=2.5, shrunk_min_s=1.0, shrunk_factor=50, final_s=1.0),
        families={"mma": SoakFamily(spec.plan, spec.configs)},
    )


def _noted(event: Event, run: list[int], notes: FaultLog) -> None:
    """Notes when the finals of a problem begin: its later rows of this run are the finalists'."""
    if isinstance(event, RunStarted):
        run.append(event.run_id)
    elif isinstance(event, FinalsStarted):
        notes.add(f"finals {run[-1]} {event.task.problem.key()}")


def main(arguments: Sequence[str]) -> int:
    """Tunes until everything offered was tried. Exit code 4 where an error ended it before."""
    spec = SoakSpec.load(Path(arguments[0]))
    log = FaultLog(Path(spec.folder) / "faults.log")
    notes = FaultLog(Path(spec.folder) / "notes.log")
    clock = JumpingClock(spec.clock_jumps, spec.seed + len(notes.lines()), log)
    try:
        with open_database(spec.database, busy_timeout_ms=spec.busy_timeout_ms) as database:
            run: list[int] = []
            store = NotingStore(database, clock, notes)
            tune(job_of(spec), store, lambda event: _noted(event, run, notes))
    except PtxtuneError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
