"""Store: the only writer of the database. Every method is one transaction."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import CursorResult, select, update
from sqlalchemy.orm import Session

from db.devices import device_key
from db.models import ProblemRow, Run, Trial, Winner
from db.naturals import ensure_config, ensure_device, ensure_problem, ensure_toolchain
from db.orphans import ORPHAN_AGE_S, ORPHAN_MESSAGE, dead_trials
from db.owner import Owner, current_owner
from db.records import PROTOCOL_VERSION, DeviceRecord, Protocol, ToolchainRecord
from db.rows import device_record, outcome_fault, outcome_values
from db.session import Database
from db.winning import WINNING, keeps
from ptxgen.config import KernelConfig
from ptxgen.errors import StoreError
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof
from ptxgen.weights.layout import LAYOUT_VERSION


class Store:
    """Writes runs, trials and winners.

    Args:
        database: an open database.
        clock: says what time it is; it may jump, since nothing but the rows' dates depends on it.
    """

    def __init__(self, database: Database, clock: Callable[[], datetime] | None = None) -> None:
        self.database = database
        self._now = clock or _now
        self._owner = current_owner().encode()

    def start_run(
        self,
        device: DeviceRecord,
        toolchain: ToolchainRecord,
        settings: Mapping[str, Any] | None = None,
    ) -> int:
        """Begins a tuning session and returns its id.

        Raises:
            StoreError: settings holds something that JSON cannot.
        """
        checked = _check_settings(settings or {})
        with self.database.writing() as session:
            run = Run(
                device_id=_key_of(session, ensure_device(session, device)),
                toolchain_id=_key_of(session, ensure_toolchain(session, toolchain)),
                settings=checked,
                owner=self._owner,
                started_at=self._now(),
            )
            return _key_of(session, run)

    def end_run(self, run_id: int) -> None:
        """Marks a run as ended in good order. Raises StoreError for an unknown run."""
        with self.database.writing() as session:
            self._run(session, run_id).ended_at = self._now()

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
        """Journals an attempt, committed before this returns, so that a crash leaves a trace.

        Args:
            run_id: the run.
            problem: the problem.
            m: the M bucket.
            protocol: the protocol.
            contender: "ptxtune", or a baseline such as "cublas".
            config: None only for a baseline.
            source_digest: KernelSource.digest(); empty where nothing was emitted.

        Returns:
            The trial's id, for end_trial.

        Raises:
            StoreError: the run is unknown, or a ptxtune trial has no config.
        """
        if contender == "ptxtune" and config is None:
            raise StoreError(
                f"a trial of {problem.key()} at M = {m} has no config; only a baseline may have "
                f"none. Pass its config, or name the baseline as contender."
            )
        with self.database.writing() as session:
            trial = self._new_trial(session, run_id, problem, m, protocol)
            trial.contender = contender
            if config is not None:
                trial.config_id = _key_of(session, ensure_config(session, config))
            trial.source_digest = source_digest
            return _key_of(session, trial)

    def end_trial(self, trial_id: int, outcome: Outcome) -> None:
        """Stores how a trial ended.

        Raises:
            StoreError: the outcome cannot be stored (no or no positive time, status started), the
                trial is unknown, or it ended before.
        """
        _check_outcome(str(trial_id), outcome)
        ending = (
            update(Trial)
            .where(Trial.id == trial_id, Trial.status == Status.STARTED.value)
            .values(**outcome_values(outcome), ended_at=self._now())
        )
        with self.database.writing() as session:
            if _changed(session.execute(ending)) == 1:
                return
            row = session.get(Trial, trial_id)
            state = "is unknown" if row is None else f"has already ended as {row.status}"
            raise StoreError(
                f"trial {trial_id} {state} in database {self.database.label}; its outcome "
                f"{outcome.status.value} was not stored. Start another trial for another attempt."
            )

    def add_predicted(
        self,
        run_id: int,
        problem: Problem,
        m: int,
        protocol: Protocol,
        *,
        config: KernelConfig,
        source_digest: str,
        outcome: Outcome,
    ) -> int:
        """Stores a candidate that was judged without running it, begun and ended at once.

        Also for one that failed on the way (invalid, compile_error, spilled). Returns its id.
        """
        _check_outcome(f"of {problem.key()} at M = {m}", outcome)
        with self.database.writing() as session:
            trial = self._new_trial(session, run_id, problem, m, protocol)
            trial.config_id = _key_of(session, ensure_config(session, config))
            trial.source_digest = source_digest
            for name, value in outcome_values(outcome).items():
                setattr(trial, name, value)
            trial.ended_at = trial.started_at
            return _key_of(session, trial)

    def set_winner(
        self,
        trial_id: int,
        *,
        default_us: float | None = None,
        cublas_us: float | None = None,
        dequantized_us: float | None = None,
        ties: Sequence[KernelConfig] = (),
        proof: Proof | None = None,
        refresh: bool = False,
        batch_invariant: bool = False,
    ) -> bool:
        """Makes a trial the winner of its device model, problem, M and protocol.

        Measured and predicted winners are kept side by side, so neither replaces the other; and
        so are ordinary and batch-invariant ones. A
        faster stored winner stays, unless refresh is set or it can no longer be served (another
        source, layout, NVRTC major or protocol version).

        Args:
            trial_id: an ok or predicted trial of ours.
            default_us: time of the default config in the same run.
            cublas_us: time of cuBLAS in the same run.
            dequantized_us: time of dequantize + matmul in the same run.
            ties: configs that are as fast within the noise.
            proof: what the finals showed; None where there were none.
            refresh: replace a faster stored winner as well.
            batch_invariant: it won among the configs that keep one order of sums for every M.

        Returns:
            Whether the trial is the winner now.

        Raises:
            StoreError: the trial is unknown, or its outcome cannot win.
        """
        with self.database.writing() as session:
            trial = self._winning_trial(session, trial_id)
            key = {
                "device_key": device_key(device_record(trial.run.device)),
                "problem_id": trial.problem_id,
                "m": trial.m,
                "protocol": trial.protocol,
                "predicted": WINNING[Status(trial.status)],
                "batch_invariant": batch_invariant,
            }
            # Writers of one problem's winners take turns (SQLite's write lock does that by itself).
            session.get_one(ProblemRow, trial.problem_id, with_for_update=True)
            stored = session.scalars(select(Winner).filter_by(**key)).first()
            if stored is not None and not refresh and keeps(stored, trial):
                return False
            winner = stored or Winner(**key)
            winner.trial_id = trial_id
            winner.default_us = default_us
            winner.cublas_us = cublas_us
            winner.dequantized_us = dequantized_us
            winner.ties = [config.to_dict() for config in ties]
            winner.proof = proof.to_dict() if proof else None
            winner.updated_at = self._now()
            session.add(winner)
            return True

    def recover_orphans(self, *, max_age_s: float = ORPHAN_AGE_S) -> int:
        """Turns started trials of dead processes into crashes. Returns how many.

        Those of another host (or pid namespace) count as dead once their trial is max_age_s old.
        """
        with self.database.reading() as session:
            dead = dead_trials(session, self._now() - timedelta(seconds=max_age_s))
        if not dead:
            return 0
        crash = outcome_values(Outcome(Status.CRASH, ORPHAN_MESSAGE))
        ending = (
            update(Trial)
            .where(Trial.id.in_(dead), Trial.status == Status.STARTED.value)
            .values(**crash, ended_at=self._now())
        )
        with self.database.writing() as session:
            return _changed(session.execute(ending))

    def _new_trial(
        self, session: Session, run_id: int, problem: Problem, m: int, protocol: Protocol
    ) -> Trial:
        """A started trial of ours, not yet added: the caller names its config first."""
        self._run(session, run_id)
        return Trial(
            run_id=run_id,
            problem_id=_key_of(session, ensure_problem(session, problem)),
            m=m,
            protocol=protocol.value,
            protocol_version=PROTOCOL_VERSION,
            layout_version=LAYOUT_VERSION,
            contender="ptxtune",
            pid=Owner.decode(self._owner).pid,
            owner=self._owner,
            started_at=self._now(),
            **outcome_values(Outcome(Status.STARTED)),
        )

    def _run(self, session: Session, run_id: int) -> Run:
        run = session.get(Run, run_id)
        if run is None:
            raise StoreError(
                f"run {run_id} is unknown in database {self.database.label}. Start a run first."
            )
        return run

    def _winning_trial(self, session: Session, trial_id: int) -> Trial:
        trial = session.get(Trial, trial_id)
        state = "unknown" if trial is None else f"{trial.status} of {trial.contender}"
        if trial is None or trial.config_id is None or Status(trial.status) not in WINNING:
            raise StoreError(
                f"trial {trial_id} ({state}) in database {self.database.label} cannot be a winner. "
                f"Name an ok or predicted trial that has a config."
            )
        return trial


def _check_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    try:
        json.dumps(dict(settings), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise StoreError(
            f"the run's settings cannot be stored: {error}. Pass only text, finite numbers, true, "
            f"false, null, lists and objects."
        ) from error
    return dict(settings)


def _check_outcome(trial: str, outcome: Outcome) -> None:
    fault = outcome_fault(outcome)
    if fault:
        raise StoreError(
            f"the outcome of trial {trial} cannot be stored: {fault}. Give it another status "
            f"(noisy, wrong) with the reason."
        )


def _changed(result: Any) -> int:
    """Rows that an update changed."""
    return result.rowcount if isinstance(result, CursorResult) else 0


def _key_of(session: Session, row: Any) -> int:
    """The row's id, written first where it is new."""
    session.add(row)
    session.flush()
    return int(row.id)


def _now() -> datetime:
    return datetime.now(UTC)
