"""Session: what is created, what is refused, and that a refused file is left as it was."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from db_samples import H200, TOOLCHAIN
from sqlalchemy import inspect, text

from db import migrate, query
from db.models import Base
from db.session import open_database
from db.store import Store
from ptxgen.errors import StoreError

LATEST = migrate.known_revisions()[-1]
NEXT_LEVEL = f"""
import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "{LATEST}"


def upgrade() -> None:
    op.add_column("run", sa.Column("note", sa.Text(), nullable=False, server_default="old"))
"""


def pragma(database, name: str) -> object:
    with database.engine.connect() as connection:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()


def refusal(target: object, **options: int) -> str:
    with pytest.raises(StoreError) as caught:
        open_database(target, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert "--db or PTXTUNE_DB" in message or "SQLite file" in message
    return message


def test_a_missing_file_is_created_with_its_folders(tmp_path):
    path = tmp_path / "a" / "b c%d" / "tune.db"
    with open_database(path) as database:
        assert query.runs(database) == []
        assert database.label == str(path)
    assert path.read_bytes().startswith(b"SQLite format 3")


def test_every_connection_has_the_pragmas(tmp_path):
    with open_database(tmp_path / "tune.db") as database:
        for _ in range(2):
            assert pragma(database, "journal_mode") == "wal"
            assert pragma(database, "busy_timeout") == 30000
            assert pragma(database, "synchronous") == 1
            assert pragma(database, "foreign_keys") == 1
            assert pragma(database, "application_id") == migrate.APPLICATION_ID
            database.engine.dispose()


def test_the_schema_is_that_of_the_models(fresh_target):
    with open_database(fresh_target) as database, database.engine.connect() as connection:
        options = {"version_table": migrate.VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Base.metadata) == []
        assert set(Base.metadata.tables) < set(inspect(connection).get_table_names())


def test_a_database_is_found_again(fresh_target):
    with open_database(fresh_target) as database:
        run_id = Store(database).start_run(H200, TOOLCHAIN)
    with open_database(fresh_target) as database:
        assert query.run(database, run_id).device == H200


def test_the_environment_names_the_default(tmp_path, monkeypatch):
    monkeypatch.setenv("PTXTUNE_DB", str(tmp_path / "named.db"))
    with open_database() as database:
        assert database.label == str(tmp_path / "named.db")
    assert (tmp_path / "named.db").exists()


def test_a_sqlite_url_is_a_path_and_memory_works(tmp_path):
    with open_database(f"sqlite:///{tmp_path}/url.db") as database:
        assert database.label == str(tmp_path / "url.db")
    with open_database(":memory:") as database:
        run_id = Store(database).start_run(H200, TOOLCHAIN)
        assert query.run(database, run_id).toolchain == TOOLCHAIN


@pytest.mark.parametrize("stamp", [0, 0x1234])
@pytest.mark.parametrize("table", ["notes", "trial"])
def test_another_applications_file_is_refused_and_untouched(tmp_path, stamp, table):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"CREATE TABLE {table} (id INTEGER)")
        other.execute(f"PRAGMA application_id = {stamp}")
        other.commit()
    before = path.read_bytes()
    assert f"belongs to another application (application id {stamp:#x}" in refusal(path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["other.db"]


def test_an_empty_file_that_another_application_stamped_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA application_id = 4660")
        other.commit()
    assert "another application" in refusal(path)


def test_our_stamp_without_our_mark_is_refused(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE notes (id INTEGER)")
        other.execute(f"PRAGMA application_id = {migrate.APPLICATION_ID}")
        other.commit()
    assert "no ptxtune mark" in refusal(path)


def test_a_file_that_is_no_database_is_refused_and_untouched(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("not a database, but long enough to be read as one\n" * 40)
    before = path.read_bytes()
    assert "is not an SQLite database" in refusal(path)
    assert path.read_bytes() == before


def test_a_damaged_file_is_refused(tmp_path):
    path = tmp_path / "tune.db"
    open_database(path).close()
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))
    with pytest.raises(StoreError, match="damaged"), open_database(path) as database:
        query.runs(database)


@pytest.mark.postgres
def test_another_applications_schema_is_refused_and_untouched(postgres_schema):
    url, connection = postgres_schema
    connection.execute(text("CREATE TABLE notes (id INTEGER)"))
    assert "no ptxtune mark" in refusal(url)
    tables = text("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")
    assert connection.execute(tables).scalars().all() == ["notes"]


def test_a_newer_schema_is_refused(fresh_target):
    with open_database(fresh_target) as database, database.engine.begin() as connection:
        connection.execute(text("UPDATE ptxtune_schema SET version_num = '0999'"))
    message = refusal(fresh_target)
    assert "has schema 0999" in message
    assert f"up to {migrate.known_revisions()[-1]}" in message
    assert "Upgrade ptxtune" in message


def test_an_older_schema_is_migrated_and_keeps_its_rows(fresh_target, tmp_path):
    with open_database(fresh_target) as database:
        Store(database).start_run(H200, TOOLCHAIN)
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate.SCRIPTS, scripts)
    (scripts / "versions" / "9999_note.py").write_text(NEXT_LEVEL)
    with open_database(fresh_target) as database:
        with database.writing() as session:
            migrate.upgrade(session.connection(), "here", scripts)
        with database.engine.connect() as connection:
            assert connection.execute(text("SELECT note FROM run")).scalars().all() == ["old"]
            assert migrate.current_revision(connection, "here", scripts) == "9999"
    assert "has schema 9999" in refusal(fresh_target)


def test_a_failed_migration_leaves_nothing_behind(fresh_target, tmp_path):
    scripts = tmp_path / "migrations"
    shutil.copytree(migrate.SCRIPTS, scripts)
    broken = NEXT_LEVEL + '    op.drop_table("nowhere")\n'
    (scripts / "versions" / "9999_note.py").write_text(broken)
    with open_database(fresh_target) as database:
        with (
            pytest.raises(StoreError, match="refused the statement"),
            database.writing() as session,
        ):
            migrate.upgrade(session.connection(), "here", scripts)
        with database.engine.connect() as connection:
            columns = [column["name"] for column in inspect(connection).get_columns("run")]
            assert "note" not in columns
            assert migrate.current_revision(connection, "here", scripts) == LATEST


def test_a_locked_database_says_so(tmp_path):
    path = tmp_path / "tune.db"
    with open_database(path, busy_timeout_ms=50) as database:
        store = Store(database)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="is locked: another process"):
                store.start_run(H200, TOOLCHAIN)
            assert query.runs(database) == []
        assert store.start_run(H200, TOOLCHAIN) == 1


def test_a_fresh_file_that_is_locked_says_so(tmp_path):
    path = tmp_path / "tune.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        assert "is locked" in refusal(path, busy_timeout_ms=50)


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    assert "cannot be opened: Not a directory" in refusal(tmp_path / "file" / "tune.db")


def test_a_folder_is_refused(tmp_path):
    assert "is a folder" in refusal(tmp_path)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no /proc on this system")
@pytest.mark.parametrize("path", ["/proc/tune.db", "/proc/sub/tune.db"])
def test_a_place_that_nobody_can_write_is_refused(path):
    assert "cannot be" in refusal(path)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nonsense://host/name", "needs a driver that is not installed"),
        ("postgresql://nobody@127.0.0.1:1/none", "cannot be reached"),
        ("://", "cannot be read"),
    ],
)
def test_a_url_that_leads_nowhere_is_refused(url, reason):
    assert reason in refusal(url)


def test_a_password_is_never_shown():
    message = refusal("postgresql://me:secret@127.0.0.1:1/none")
    assert "me:***@" in message
    assert "secret" not in message
