"""The tuner of a lane of a soak, as a process of its own: python -m search.soak_run SPEC.json PID.

It may be killed at any moment, and ends with the process PID that started it. Whatever the database
has accepted is noted in a file right afterwards, by the id of the trial, so that the audit can ask
for it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from db.records import Protocol, ToolchainRecord
from db.session import Database, open_database
from db.store import Store
from ptxgen.arch import arch_named
from ptxgen.compile import nvrtc_version
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import PtxtuneError
from ptxgen.families import FAMILIES, config_from_dict
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from search.budget import Budget
from search.child_main import die_with_parent
from search.events import Event, FinalsStarted, RunStarted
from search.fake_parts import FaultLog, SoakFamily
from search.faults import PLANS, Fault, FaultPlan
from search.gpu_faults import BrokenFamily
from search.job import TuneJob
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
        compilers: compile processes.
        chosen: of real kernels, the knobs of every offered config.
        evaluator: of real kernels.
        device: of real kernels, the GPU's record with its ceilings: lanes that measured them at the
            same time would measure each other.
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
    compilers: int = 2
    chosen: tuple[dict[str, Scalar], ...] = ()
    evaluator: str = "search.soak_worker:create"
    device: dict[str, Any] | None = None

    @classmethod
    def load(cls, path: Path) -> SoakSpec:
        """The spec that save has written."""
        values = json.loads(path.read_text())
        return cls(**{**values, "chosen": tuple(values["chosen"])})

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
    """Notes in a file what the database has accepted: "started ID" and "ended ID STATUS".

    A real kernel cannot note its own fault, as the fakes do before theirs: it is noted here, once
    its trial has ended by it.
    """

    def __init__(
        self,
        database: Database,
        clock: JumpingClock,
        notes: FaultLog,
        log: FaultLog,
        spec: SoakSpec,
    ) -> None:
        super().__init__(database, clock)
        self._notes, self._log, self._spec = notes, log, spec
        self._faults: dict[int, Fault] = {}

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
        if self._spec.kind == "kernel" and config is not None:
            fault = self._spec.plan.fault_of(config, problem.key())
            if fault is not None:
                self._faults[trial_id] = fault
        return trial_id

    def end_trial(self, trial_id: int, outcome: Outcome) -> None:
        super().end_trial(trial_id, outcome)
        self._notes.add(f"ended {trial_id} {outcome.status.value}")
        fault = self._faults.pop(trial_id, None)
        if fault is not None and happened(fault, outcome.status):
            self._log.add(fault.name)


def happened(fault: Fault, status: Status) -> bool:
    """Whether a trial that ended so has met its kernel's fault: it was found, or it got through."""
    return status in fault.expected or status is Status.OK


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
        configs = [config_from_dict(item) for item in spec.chosen]
        return replace(
            job,
            evaluator=spec.evaluator,
            evaluator_options={"folder": spec.folder, "seed": spec.seed, "ceilings": spec.device},
            compile_workers=spec.compilers,
            limits=Limits(measure_s=8.0, shrunk_min_s=2.0, shrunk_factor=10.0),
            families={"mma": BrokenFamily(FAMILIES["mma"], spec.plan, configs)},
        )
    return replace(
        job,
        evaluator="search.fake_parts:create",
        evaluator_options={"folder": spec.folder, "share": spec.share, "seed": spec.seed},
        compile_handler="search.fake_parts:make_compiler",
        compile_workers=spec.compilers,
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
    die_with_parent(int(arguments[1]))
    spec = SoakSpec.load(Path(arguments[0]))
    log = FaultLog(Path(spec.folder) / "faults.log")
    notes = FaultLog(Path(spec.folder) / "notes.log")
    clock = JumpingClock(spec.clock_jumps, spec.seed + len(notes.lines()), log)
    try:
        with open_database(spec.database, busy_timeout_ms=spec.busy_timeout_ms) as database:
            run: list[int] = []
            store = NotingStore(database, clock, notes, log, spec)
            tune(job_of(spec), store, lambda event: _noted(event, run, notes))
    except PtxtuneError as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
