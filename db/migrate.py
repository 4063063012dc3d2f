"""Migrate: recognises our database, refuses any other one, and brings its schema up to date.

Everything happens on the caller's connection, inside the caller's write transaction: a schema is
there in full or not at all.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, inspect, select, text

from db.faults import ELSEWHERE
from db.models import APPLICATION, Meta
from ptxgen.errors import StoreError

SCRIPTS = Path(__file__).parent / "migrations"
VERSION_TABLE = "ptxtune_schema"
APPLICATION_ID = 0x50545854
"""SQLite's PRAGMA application_id of our files: "PTXT"."""

_ADVISORY_LOCK = 0x7074787475_6E65
"""PostgreSQL advisory lock: one process at a time creates or migrates the schema."""


def known_revisions(scripts: Path = SCRIPTS) -> tuple[str, ...]:
    """Revisions of this version's schema steps, oldest first, from the names of their files."""
    return tuple(sorted(path.name[:4] for path in (scripts / "versions").glob("[0-9]*.py")))


def current_revision(connection: Connection, label: str, scripts: Path = SCRIPTS) -> str | None:
    """The database's revision; None for an empty database.

    Raises:
        StoreError: the database belongs to another application or to a newer ptxtune.
    """
    tables = set(inspect(connection).get_table_names())
    _check_identity(connection, label, tables)
    if VERSION_TABLE not in tables:
        return None
    row = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).first()  # noqa: S608 (constant)
    revision = str(row[0]) if row else None
    known = known_revisions(scripts)
    if revision is not None and revision not in known:
        raise StoreError(
            f"database {label} has schema {revision}, and this ptxtune knows schemas up to "
            f"{known[-1]}: it was written by a newer ptxtune. Upgrade ptxtune, {ELSEWHERE}."
        )
    return revision


def upgrade(connection: Connection, label: str, scripts: Path = SCRIPTS) -> None:
    """Creates or migrates the schema, unless another process did so in the meantime."""
    if connection.dialect.name == "postgresql":
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_ADVISORY_LOCK})"))
    if current_revision(connection, label, scripts) == known_revisions(scripts)[-1]:
        return
    config = Config()
    config.set_main_option("script_location", str(scripts).replace("%", "%%"))
    config.set_main_option("version_table", VERSION_TABLE)
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    if connection.dialect.name == "sqlite":
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")


def _check_identity(connection: Connection, label: str, tables: set[str]) -> None:
    if connection.dialect.name == "sqlite":
        stamp = connection.exec_driver_sql("PRAGMA application_id").scalar_one()
        if stamp not in (0, APPLICATION_ID) or (tables and stamp != APPLICATION_ID):
            raise StoreError(_foreign(label, f"application id {stamp:#x}", tables))
    if not tables:
        return
    mark = None
    if Meta.__tablename__ in tables:
        mark = connection.execute(select(Meta.value).where(Meta.key == "application")).scalar()
    if mark != APPLICATION:
        raise StoreError(_foreign(label, "no ptxtune mark", tables))


def _foreign(label: str, why: str, tables: set[str]) -> str:
    shown = ", ".join(sorted(tables)[:4]) or "none"
    return (
        f"database {label} belongs to another application ({why}, should be "
        f"{APPLICATION_ID:#x}; tables: {shown}). It was not touched. Check the path, {ELSEWHERE}; "
        f"a missing or empty one is created."
    )
