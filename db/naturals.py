"""Naturals: finds or adds the rows that have a natural key (device, toolchain, problem, config)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from db.devices import device_key
from db.models import Base, ConfigRow, Device, ProblemRow, Toolchain
from db.records import DeviceRecord, ToolchainRecord
from db.rows import toolchain_values
from ptxgen.config import KernelConfig
from ptxgen.problem import Problem

T = TypeVar("T", bound=Base)


def ensure_device(session: Session, record: DeviceRecord) -> Device:
    """The card's row. Measured ceilings replace a table's, never the other way round."""
    values = asdict(record)
    key = {"device_key": device_key(record), "uuid": values.pop("uuid")}
    row = _ensure(session, Device, key, values)
    if record.measured or not row.measured:
        for name, value in values.items():
            setattr(row, name, value)
    return row


def ensure_toolchain(session: Session, record: ToolchainRecord) -> Toolchain:
    return _ensure(session, Toolchain, toolchain_values(record), {})


def ensure_problem(session: Session, problem: Problem) -> ProblemRow:
    values = problem.to_dict()
    return _mended(_ensure(session, ProblemRow, {"key": problem.key()}, values), values)


def ensure_config(session: Session, config: KernelConfig) -> ConfigRow:
    values = {"family": config.family, "data": config.to_dict()}
    return _mended(_ensure(session, ConfigRow, {"key": config.key()}, values), values)


def _mended(row: T, values: dict[str, Any]) -> T:
    """The row with the values that its key stands for: no new trial may hang on a damaged one."""
    for name, value in values.items():
        if getattr(row, name) != value:
            setattr(row, name, value)
    return row


def _ensure(session: Session, table: type[T], key: dict[str, Any], rest: dict[str, Any]) -> T:
    query = select(table).filter_by(**key)
    found = session.scalars(query).first()
    if found is not None:
        return found
    try:
        with session.begin_nested():
            row = table(**key, **rest)
            session.add(row)
        return row
    except IntegrityError:  # another process added it between the two statements
        return session.scalars(query).one()
