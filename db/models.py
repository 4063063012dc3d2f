"""The tables, as SQLAlchemy 2 typed models; no reading or writing happens here."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    MetaData,
    String,
    Text,
    TypeDecorator,
    UniqueConstraint,
    false,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from db.damage import Unreadable
from ptxgen.outcome import Status

APPLICATION = "ptxtune"
"""Value of the meta row that marks a database as ours."""

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}

STATUSES = tuple(status.value for status in Status)
TIMED = (Status.OK.value, Status.PREDICTED.value)
"""Statuses whose trials have a time."""

JsonValue = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


class UtcDateTime(TypeDecorator[datetime]):
    """An aware datetime, stored in UTC (SQLite keeps no zone)."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        """Reads a value; a text that is no date becomes Unreadable, and its row alone suffers."""
        inner: Any = super().result_processor(dialect, coltype)

        def tolerant(value: Any) -> Any:
            try:
                return inner(value)
            except (ValueError, TypeError, OverflowError):
                return Unreadable(value)

        return tolerant

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return value if value is None else value.astimezone(UTC)

    def process_result_value(self, value: Any, dialect: Dialect) -> datetime | None:
        if not isinstance(value, datetime):
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Base(DeclarativeBase):
    """Base of all tables; constraint names are fixed so that migrations can name them."""

    metadata = MetaData(naming_convention=NAMING)
    type_annotation_map = {  # noqa: RUF012 (SQLAlchemy reads it from the class)
        datetime: UtcDateTime,
        float: Double,
        dict[str, Any]: JsonValue,
        list[float]: JsonValue,
        list[dict[str, Any]]: JsonValue,
    }


class Meta(Base):
    """What the database itself is: application = ptxtune."""

    __tablename__ = "ptxtune_meta"

    key: Mapped[str] = mapped_column(String(64), primary_key=True)
    value: Mapped[str] = mapped_column(Text)


class Device(Base):
    """One card (or one named GPU, where nothing was measured); device_key is its model."""

    __tablename__ = "device"
    __table_args__ = (UniqueConstraint("device_key", "uuid"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    device_key: Mapped[str] = mapped_column(String(200))
    name: Mapped[str] = mapped_column(String(200))
    capability: Mapped[str] = mapped_column(String(16), index=True)
    num_sms: Mapped[int]
    smem_optin_bytes: Mapped[int]
    l2_bytes: Mapped[int] = mapped_column(BigInteger)
    memory_bytes: Mapped[int] = mapped_column(BigInteger)
    uuid: Mapped[str] = mapped_column(String(64))
    power_limit_w: Mapped[int]
    read_gbps: Mapped[float]
    copy_gbps: Mapped[float]
    tensor_tflops: Mapped[float]
    launch_us: Mapped[float]
    measured: Mapped[bool]


class Toolchain(Base):
    """Versions that a result depends on; empty text where a part was not involved."""

    __tablename__ = "toolchain"
    __table_args__ = (UniqueConstraint("driver", "nvrtc", "ptxtune", "torch", "source_commit"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    driver: Mapped[str] = mapped_column(String(64))
    nvrtc: Mapped[str] = mapped_column(String(64))
    ptxtune: Mapped[str] = mapped_column(String(64))
    torch: Mapped[str] = mapped_column(String(64))
    source_commit: Mapped[str] = mapped_column(String(64))


class ProblemRow(Base):
    """A problem; key is Problem.key()."""

    __tablename__ = "problem"
    __table_args__ = (
        UniqueConstraint("key"),
        CheckConstraint("dtype IN ('fp16', 'bf16')", name="dtype"),
        CheckConstraint("zero IN ('sym', 'int')", name="zero"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(120))
    n: Mapped[int]
    k: Mapped[int]
    group_size: Mapped[int]
    dtype: Mapped[str] = mapped_column(String(8))
    zero: Mapped[str] = mapped_column(String(8))
    bias: Mapped[bool]


class ConfigRow(Base):
    """A config: its key, its family, and family and knobs as JSON (KernelConfig.to_dict())."""

    __tablename__ = "config"
    __table_args__ = (UniqueConstraint("key"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(String(1000))
    family: Mapped[str] = mapped_column(String(40))
    data: Mapped[dict[str, Any]]


class Run(Base):
    """One tuning session; owner names its process. ended_at stays NULL where it was interrupted."""

    __tablename__ = "run"

    id: Mapped[int] = mapped_column(primary_key=True)
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"), index=True)
    toolchain_id: Mapped[int] = mapped_column(ForeignKey("toolchain.id"))
    settings: Mapped[dict[str, Any]]
    owner: Mapped[str] = mapped_column(String(300))
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    device: Mapped[Device] = relationship(lazy="joined")
    toolchain: Mapped[Toolchain] = relationship(lazy="joined")


class Trial(Base):
    """One attempt: journalled as started before the launch, ended once."""

    __tablename__ = "trial"
    __table_args__ = (
        CheckConstraint(f"status IN ({', '.join(map(repr, STATUSES))})", name="status"),
        CheckConstraint("protocol IN ('plain', 'chained')", name="protocol"),
        CheckConstraint(
            f"(time_us IS NOT NULL) = (status IN ({', '.join(map(repr, TIMED))}))", name="time"
        ),
        CheckConstraint("(ended_at IS NULL) = (status = 'started')", name="ended"),
        CheckConstraint("contender <> 'ptxtune' OR config_id IS NOT NULL", name="config"),
        Index(None, "problem_id", "m", "protocol"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"), index=True)
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"))
    config_id: Mapped[int | None] = mapped_column(ForeignKey("config.id"))
    m: Mapped[int]
    protocol: Mapped[str] = mapped_column(String(16))
    protocol_version: Mapped[int]
    layout_version: Mapped[int]
    contender: Mapped[str] = mapped_column(String(40))
    source_digest: Mapped[str] = mapped_column(String(64), index=True)
    status: Mapped[str] = mapped_column(String(20), index=True)
    message: Mapped[str] = mapped_column(Text)
    time_us: Mapped[float | None]
    spread: Mapped[float | None]
    samples_us: Mapped[list[float]]
    rel_err: Mapped[float | None]
    floor_us: Mapped[float | None]
    clock_mhz: Mapped[int | None]
    evidence: Mapped[dict[str, Any] | None]
    registers: Mapped[int | None]
    spill_bytes: Mapped[int | None]
    smem_bytes: Mapped[int | None]
    compile_ms: Mapped[float | None]
    pid: Mapped[int]
    owner: Mapped[str] = mapped_column(String(300))
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]

    run: Mapped[Run] = relationship(lazy="joined")
    problem: Mapped[ProblemRow] = relationship(lazy="joined")
    config: Mapped[ConfigRow | None] = relationship(lazy="joined")


class Winner(Base):
    """The best trial of (device model, problem, M bucket, protocol, measured or predicted).

    Among all configs, or, where batch_invariant is set, among those of one order of sums.
    """

    __tablename__ = "winner"
    __table_args__ = (
        UniqueConstraint(
            "device_key",
            "problem_id",
            "m",
            "protocol",
            "predicted",
            "batch_invariant",
            name="uq_winner_cell",  # the usual name is too long for PostgreSQL
        ),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    device_key: Mapped[str] = mapped_column(String(200))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problem.id"), index=True)
    m: Mapped[int]
    protocol: Mapped[str] = mapped_column(String(16))
    predicted: Mapped[bool]
    batch_invariant: Mapped[bool] = mapped_column(server_default=false())
    trial_id: Mapped[int] = mapped_column(ForeignKey("trial.id"))
    default_us: Mapped[float | None]
    cublas_us: Mapped[float | None]
    dequantized_us: Mapped[float | None]
    ties: Mapped[list[dict[str, Any]]]
    proof: Mapped[dict[str, Any] | None]
    updated_at: Mapped[datetime]

    trial: Mapped[Trial] = relationship(lazy="joined")
