"""Reading: queries change nothing, make nothing, and work where nothing can be written."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from db_samples import H200, TOOLCHAIN

from db import query
from db.session import Database, open_database, open_for_reading
from db.store import Store
from ptxgen.errors import StoreError

GOLDEN = Path(__file__).parents[2] / "golden"


def written(path: Path, runs: int = 1) -> Path:
    """A database with some runs, closed in good order."""
    with open_database(path) as database:
        for _ in range(runs):
            Store(database).start_run(H200, TOOLCHAIN)
    return path


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Everything in a folder: content and date of change."""
    return {
        str(file.relative_to(folder)): (file.read_bytes(), file.stat().st_mtime_ns)
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def runs_of(target: object) -> int:
    with open_for_reading(target) as database:
        return len(query.runs(database))


def test_a_named_database_that_is_not_there_is_an_error_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"typo/dir/x\.db does not exist"):
        open_for_reading(tmp_path / "typo" / "dir" / "x.db")
    assert list(tmp_path.iterdir()) == []


def test_the_users_own_database_that_is_not_there_yet_reads_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PTXTUNE_DB", str(tmp_path / "new" / "x.db"))
    with open_for_reading() as database:
        assert database.missing
        assert query.runs(database) == query.winners(database) == []
        with pytest.raises(StoreError, match="opened for reading"):
            Store(database).start_run(H200, TOOLCHAIN)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("live", [False, True])
def test_a_query_leaves_the_folder_as_it_was(tmp_path: Path, live: bool) -> None:
    path = written(tmp_path / "tune.db")
    with open_database(path) as writer:
        Store(writer).start_run(H200, TOOLCHAIN)  # in the WAL, which the file does not hold yet
        if live:
            before = {name for name in state(tmp_path) if not name.endswith("-shm")}
            assert runs_of(path) == 2
            assert {name for name in state(tmp_path) if not name.endswith("-shm")} == before
    if not live:
        before_all = state(tmp_path)
        assert list(before_all) == ["tune.db"]
        assert runs_of(path) == 2
        assert state(tmp_path) == before_all


def test_a_wal_that_a_dead_writer_left_is_read_and_left(tmp_path: Path) -> None:
    path, copied = written(tmp_path / "tune.db"), tmp_path / "copied"
    copied.mkdir()
    with open_database(path) as writer:
        Store(writer).start_run(H200, TOOLCHAIN)
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", copied)
    before = state(copied)
    assert before["tune.db-wal"][0]
    assert runs_of(copied / "tune.db") == 2
    assert state(copied) == before


def test_a_file_that_changes_under_a_query_is_said(tmp_path: Path) -> None:
    path = written(tmp_path / "tune.db")

    def read(database: Database) -> None:
        with database.reading() as session:
            session.connection()
            written(path)

    with open_for_reading(path) as database:
        with pytest.raises(StoreError, match="changed while it was read"):
            read(database)
        assert len(query.runs(database)) == 2


@pytest.mark.parametrize("schema", ["schema_0001.db", "schema_0002.db"])
def test_an_older_schema_is_read_without_migrating_the_file(tmp_path: Path, schema: str) -> None:
    path = tmp_path / "old.db"
    shutil.copy(GOLDEN / schema, path)
    before = state(tmp_path)
    with open_for_reading(path) as database:
        read = query.winners(database), query.trials(database)
    assert state(tmp_path) == before
    with open_database(path) as database:  # the same as what migrating gives
        assert read == (query.winners(database), query.trials(database))
    assert read[1]


@pytest.fixture
def read_only_mount(tmp_path: Path) -> Iterator[Path]:
    """A database, and one that a killed run left with its WAL, in a folder mounted read-only."""
    source, mount = tmp_path / "source", tmp_path / "mount"
    source.mkdir()
    mount.mkdir()
    written(source / "whole.db")
    with open_database(written(source / "live.db")) as writer:
        Store(writer).start_run(H200, TOOLCHAIN)
        for end in ("", "-wal", "-shm"):
            shutil.copy(source / f"live.db{end}", source / f"killed.db{end}")
    steps = (["mount", "--bind", str(source), str(mount)],
             ["mount", "-o", "remount,ro,bind", str(mount)])  # fmt: skip
    try:
        for step in steps:
            subprocess.run(step, check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError) as error:
        subprocess.run(["umount", str(mount)], check=False, capture_output=True)
        pytest.skip(f"cannot mount a folder read-only: {getattr(error, 'stderr', error)}")
    yield mount
    subprocess.run(["umount", str(mount)], check=True)


def test_a_read_only_mount_is_read(read_only_mount: Path) -> None:
    assert runs_of(read_only_mount / "whole.db") == 1
    assert runs_of(read_only_mount / "killed.db") == 2
    with pytest.raises(StoreError, match="not writable"):
        written(read_only_mount / "whole.db")


READ = """
import sys
from db import query
from db.session import open_for_reading
from ptxgen.errors import PtxtuneError
try:
    with open_for_reading(sys.argv[1]) as database:
        print(len(query.runs(database)))
except PtxtuneError as error:
    print(error)
"""


def read_as_a_common_user(path: Path) -> str:
    """What READ says where permissions bind: root gives up its right to pass them by."""
    words = [sys.executable, "-c", READ, str(path)]
    if os.geteuid() == 0:
        if shutil.which("setpriv") is None:
            pytest.skip("permissions do not bind root, and there is no setpriv")
        words = ["setpriv", "--bounding-set=-all", "--inh-caps=-all", *words]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.strip()


def test_a_read_only_file_in_a_read_only_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    path = written(folder / "tune.db")
    path.chmod(0o444)
    folder.chmod(0o555)
    try:
        assert read_as_a_common_user(path) == "1"
    finally:
        folder.chmod(0o755)
    assert list(state(folder)) == ["tune.db"]


@pytest.mark.parametrize("closed", ["folder", "file"])
def test_what_may_not_be_opened_is_one_paragraph(tmp_path: Path, closed: str) -> None:
    folder = tmp_path / "closed"
    path = written(folder / "tune.db")
    shut = folder if closed == "folder" else path
    shut.chmod(0)
    try:
        said = read_as_a_common_user(path)
    finally:
        shut.chmod(0o755)
    assert "Permission denied" in said
    assert str(path) in said
    assert "--db or PTXTUNE_DB" in said


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("~nobody-of-that-name/x.db", "home directory"),
        ("postgresql://me:secret@host:abc/x", "a number as port"),
        ("a" * 300, "File name too long"),
        ("a\0b", "holds a NUL character"),
        ("sqlite:///x.db?mode=ro", "only in an SQLite URI"),
        ("sqlite://host/x.db", "cannot be opened"),
    ],
)
@pytest.mark.parametrize("opens", [open_database, open_for_reading])
def test_an_odd_name_is_one_paragraph_and_makes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: object, target: str, reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StoreError) as caught:
        opens(target)  # type: ignore[operator]
    assert reason in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_an_sqlite_uri_is_the_file_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a b.db"
    uri = f"sqlite:///file:{tmp_path}/a%20b.db"
    with open_database(f"{uri}?uri=true") as database:
        Store(database).start_run(H200, TOOLCHAIN)
        assert database.label == str(path)
    before = state(tmp_path)
    assert list(before) == ["a b.db"]
    for options in ("?uri=true", "?mode=ro&uri=true", "?immutable=1&uri=true"):
        assert runs_of(uri + options) == 1
    assert state(tmp_path) == before
    with pytest.raises(StoreError, match="says that it is only read"):
        open_database(f"{uri}?mode=ro&uri=true")
    with pytest.raises(StoreError, match="cannot be opened or created"):
        open_database(f"sqlite:///file:{tmp_path}/new/c.db?mode=rw&uri=true")
    assert state(tmp_path) == before


def test_numbers_beyond_the_database_are_no_traceback(database) -> None:
    for ask in (query.run, query.trial):
        with pytest.raises(StoreError, match=r"has no .* 9223372036854775808"):
            ask(database, 2**63)
    assert query.runs(database, limit=2**70) == []
    if database.engine.dialect.name == "sqlite":
        with pytest.raises(StoreError, match="cannot hold a number"):
            query.trials(database, run_id=2**63)


@pytest.mark.postgres
def test_a_server_is_read_in_transactions_that_cannot_write(postgres_schema) -> None:
    url, connection = postgres_schema
    with open_for_reading(url) as database:  # no tables yet: it reads as empty
        assert query.runs(database) == []
    tables = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
    assert connection.exec_driver_sql(tables).scalar_one() == 0
    with open_database(url) as database:
        Store(database).start_run(H200, TOOLCHAIN)
    with open_for_reading(url) as database:
        assert len(query.runs(database)) == 1
        with pytest.raises(StoreError, match="is read-only"), database.reading() as session:
            session.connection().exec_driver_sql("DELETE FROM run")
    connection.exec_driver_sql("UPDATE ptxtune_schema SET version_num = '0001'")
    with pytest.raises(StoreError, match=r"has schema 0001.*ptxtune db upgrade"):
        open_for_reading(url)
