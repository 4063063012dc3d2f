"""Query: every read of the database; answers are plain records, never table rows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import InstrumentedAttribute

from db.answer import choose
from db.damage import DamagedRowError
from db.devices import device_key
from db.models import ConfigRow, Device, ProblemRow, Run, Toolchain, Trial, Winner
from db.records import (
    PROTOCOL_VERSION,
    Answer,
    DeviceRecord,
    Protocol,
    RunRecord,
    ToolchainRecord,
    TrialRecord,
    WinnerRecord,
)
from db.rows import device_record, run_record, trial_record, winner_record
from db.serving import Model
from db.session import Database
from db.staleness import capability_text
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import StoreError
from ptxgen.outcome import Status
from ptxgen.problem import M_BUCKETS, Problem, check_m
from ptxgen.weights.layout import LAYOUT_VERSION

Row = TypeVar("Row")
Record = TypeVar("Record")

PTXTUNE = "ptxtune"
"""The contender that is ours; every other one is a baseline."""

LARGEST_ID = 2**63 - 1
"""No database counts its rows further; SQLite's driver fails on a larger number."""

DEADLY = (Status.CRASH, Status.HANG)


def trials(
    database: Database,
    *,
    run_id: int | None = None,
    device: DeviceRecord | None = None,
    problem: Problem | None = None,
    m: int | None = None,
    protocol: Protocol | None = None,
    contender: str | None = None,
    config: KernelConfig | None = None,
    statuses: Collection[Status] | None = None,
    limit: int | None = None,
    gpu: str | None = None,
) -> list[TrialRecord]:
    """Attempts in the order in which they began; a limit keeps the newest. None: do not filter.

    device keeps those of one device model, gpu those of every model of a name (canonical_name).
    """
    query = select(Trial)
    if device is not None:
        query = _of_model(query, device)
    if gpu is not None:
        query = query.join(Run, Run.id == Trial.run_id).join(Device, Device.id == Run.device_id)
        query = query.where(_is_called(Device.device_key, gpu))
    if problem is not None:
        query = query.join(Trial.problem).where(ProblemRow.key == problem.key())
    if config is not None:
        query = query.join(Trial.config).where(ConfigRow.key == config.key())
    if statuses is not None:
        query = query.where(Trial.status.in_([status.value for status in statuses]))
    plain: dict[Any, Any] = {
        Trial.run_id: run_id,
        Trial.m: m,
        Trial.protocol: protocol and protocol.value,
        Trial.contender: contender,
    }
    query = query.where(*(column == value for column, value in plain.items() if value is not None))
    with database.reading() as session:
        rows = session.scalars(query.order_by(Trial.id.desc()).limit(_within(limit))).all()
        return list(_records(database, reversed(rows), trial_record))


def trial(database: Database, trial_id: int) -> TrialRecord:
    """One attempt. Raises StoreError where there is none of that id."""
    with database.reading() as session:
        row = session.get(Trial, trial_id) if 0 <= trial_id <= LARGEST_ID else None
        if row is None:
            raise StoreError(_no_such("trial", trial_id, database))
        return trial_record(row)


def finished(
    database: Database,
    problem: Problem,
    device: DeviceRecord,
    m: int,
    protocol: Protocol,
    *,
    toolchain: ToolchainRecord | None = None,
    source_digests: Collection[str] | None = None,
    predicted: bool = False,
) -> list[TrialRecord]:
    """Ended attempts of our kernels that a run need not repeat, oldest first.

    Only those of this device model, protocol version and packed layout.

    Args:
        database: the database.
        problem: the problem.
        device: any card of the model.
        m: the M bucket.
        protocol: the protocol.
        toolchain: where given, only attempts under the same driver and NVRTC.
        source_digests: where given, only attempts with one of these sources.
        predicted: whether to return the predicted ones instead of those that ran or failed.
    """
    query = _of_model(select(Trial), device).join(Trial.problem)
    is_predicted = Trial.status == Status.PREDICTED.value
    query = query.where(
        ProblemRow.key == problem.key(),
        Trial.m == m,
        Trial.protocol == protocol.value,
        Trial.contender == PTXTUNE,
        Trial.protocol_version == PROTOCOL_VERSION,
        Trial.layout_version == LAYOUT_VERSION,
        Trial.status != Status.STARTED.value,
        is_predicted if predicted else ~is_predicted,
    )
    if toolchain is not None:
        query = query.join(Run.toolchain).where(
            Toolchain.driver == toolchain.driver, Toolchain.nvrtc == toolchain.nvrtc
        )
    with database.reading() as session:
        rows = session.scalars(query.order_by(Trial.id))
        records = list(_records(database, rows, trial_record))
    wanted = None if source_digests is None else frozenset(source_digests)
    return [item for item in records if wanted is None or item.source_digest in wanted]


def outcomes_by_status(database: Database, run_id: int) -> dict[Status, int]:
    """How many of a run's attempts ended how; statuses that did not occur are left out."""
    query = select(Trial.status, func.count()).where(Trial.run_id == run_id).group_by(Trial.status)
    with database.reading() as session:
        counts = {row[0]: row[1] for row in session.execute(query)}
    return {status: counts[status.value] for status in Status if status.value in counts}


def crash_count(
    database: Database, source_digest: str, device: DeviceRecord, driver: str | None = None
) -> int:
    """How often this source killed or hung a worker on this device model (and driver, if given)."""
    query = _of_model(select(func.count(Trial.id)), device).where(
        Trial.source_digest == source_digest,
        Trial.status.in_([status.value for status in DEADLY]),
    )
    if driver is not None:
        query = query.join(Run.toolchain).where(Toolchain.driver == driver)
    with database.reading() as session:
        return session.scalar(query) or 0


def runs(
    database: Database, *, limit: int | None = None, gpu: str | None = None
) -> list[RunRecord]:
    """Runs in the order in which they began; a limit keeps the newest, gpu those of a name."""
    query = select(Run)
    if gpu is not None:
        query = query.join(Run.device).where(_is_called(Device.device_key, gpu))
    with database.reading() as session:
        rows = session.scalars(query.order_by(Run.id.desc()).limit(_within(limit))).all()
        return list(_records(database, reversed(rows), run_record))


def run(database: Database, run_id: int) -> RunRecord:
    """One run. Raises StoreError where there is none of that id."""
    with database.reading() as session:
        row = session.get(Run, run_id) if 0 <= run_id <= LARGEST_ID else None
        if row is None:
            raise StoreError(_no_such("run", run_id, database))
        return run_record(row)


def devices(database: Database, *, name_like: DeviceRecord | None = None) -> list[DeviceRecord]:
    """Every stored card with its ceilings, oldest first; name_like keeps those of one model."""
    query = select(Device).order_by(Device.id)
    if name_like is not None:
        query = query.where(Device.device_key == device_key(name_like))
    with database.reading() as session:
        return list(_records(database, session.scalars(query), device_record))


def winners(
    database: Database,
    *,
    device: DeviceRecord | None = None,
    capability: str | None = None,
    problem: Problem | None = None,
    m: int | None = None,
    protocol: Protocol | None = None,
    predicted: bool | None = None,
    batch_invariant: bool | None = False,
    gpu: str | None = None,
) -> list[WinnerRecord]:
    """Winners by device, problem, M, protocol, measured before predicted. None: do not filter.

    device keeps those of one device model, gpu those of every model of a name (canonical_name).
    Batch-invariant winners only where they are asked for: elsewhere they would be second ones.
    """
    query = (
        select(Winner)
        .join(Winner.trial)
        .join(Trial.run)
        .join(Run.device)
        .join(ProblemRow, ProblemRow.id == Winner.problem_id)
    )
    filters: dict[Any, Any] = {
        Winner.device_key: device and device_key(device),
        Device.capability: capability,
        ProblemRow.key: problem and problem.key(),
        Winner.m: m,
        Winner.protocol: protocol and protocol.value,
        Winner.predicted: predicted,
        Winner.batch_invariant: batch_invariant,
    }
    query = query.where(
        *(column == value for column, value in filters.items() if value is not None)
    )
    if gpu is not None:
        query = query.where(_is_called(Winner.device_key, gpu))
    order = (Winner.device_key, ProblemRow.n, ProblemRow.k, ProblemRow.key, Winner.m)
    with database.reading() as session:
        last = (Winner.protocol, Winner.predicted, Winner.batch_invariant)
        rows = session.scalars(query.order_by(*order, *last))
        records = list(_records(database, rows, winner_record))
    return [record for record in records if record is not None]


def best(
    database: Database,
    problem: Problem,
    m: int,
    device: DeviceRecord,
    protocol: Protocol,
    *,
    toolchain: ToolchainRecord,
    arch: ArchSpec,
    num_sms: int | None = None,
    allow_predicted: bool = True,
    batch_invariant: bool = False,
    buckets: tuple[int, ...] = M_BUCKETS,
    model: Model | None = None,
) -> Answer:
    """The best config for a batch of m, and how good that answer is.

    Args:
        database: the database.
        problem: the problem.
        m: tokens, >= 0.
        device: the device the kernel is for.
        protocol: the protocol the answer is wanted for; a winner of the other one serves where it
            beats this one's default, and differs says so.
        toolchain: what would compile and run the kernel now; empty fields are not compared.
        arch: the target.
        num_sms: for the built-in default; device.num_sms where None.
        allow_predicted: whether a predicted winner may be served where no measured one exists.
        batch_invariant: serve only kernels of the problem's one order of sums, so that a row's
            result is the same bits for every m.
        buckets: the M buckets.
        model: predicts times on the device; see db.serving. Without one a winner of another M,
            launch or device serves only where it was measured at the same work.

    Raises:
        ProblemError: m is not a batch size.
        StoreError: the database cannot be read.
    """
    check_m(m)
    stored = winners(
        database,
        problem=problem,
        capability=capability_text(arch),
        predicted=None if allow_predicted else False,
        batch_invariant=batch_invariant,
    )
    answer = choose(
        stored,
        problem=problem,
        m=m,
        device=device,
        protocol=protocol,
        toolchain=toolchain,
        arch=arch,
        num_sms=device.num_sms if num_sms is None else num_sms,
        batch_invariant=batch_invariant,
        buckets=buckets,
        model=model,
    )
    if not database.missing:
        return answer
    return replace(answer, message=f"{answer.message} Database {database.label} does not exist.")


def _records(
    database: Database, rows: Iterable[Row], convert: Callable[[Row], Record]
) -> Iterator[Record]:
    """The rows as records; the database warns of damaged ones, which are left out."""
    for row in rows:
        try:
            yield convert(row)
        except DamagedRowError as damage:
            database.leave_out(damage)


def _of_model(query: Select[Any], device: DeviceRecord) -> Select[Any]:
    joined = query.join(Run, Run.id == Trial.run_id).join(Device, Device.id == Run.device_id)
    return joined.where(Device.device_key == device_key(device))


def _is_called(column: InstrumentedAttribute[str], gpu: str) -> ColumnElement[bool]:
    """Whether a device key is of a GPU of that canonical name."""
    return column.startswith(f"{gpu}/", autoescape=True)


def _within(limit: int | None) -> int | None:
    return None if limit is None else min(limit, LARGEST_ID)


def _no_such(what: str, key: int, database: Database) -> str:
    return f"database {database.label} has no {what} {key}. List them with ptxtune list {what}s."
