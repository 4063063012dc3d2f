"""Fixtures of the database tests: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from db_samples import H200, PROBLEM, SM90A, TOOLCHAIN, FakeConfig, FakeFamily
from sqlalchemy import Connection, Engine, create_engine, make_url, text

from db import serving
from db.models import Base, Meta
from db.records import DeviceRecord, Protocol
from db.session import Database, open_database
from db.store import Store
from ptxgen import env, families
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema and nothing else: copying it is cheaper than migrating again."""
    path = tmp_path_factory.mktemp("template") / "empty.db"
    open_database(path).close()
    return path


@pytest.fixture(scope="session")
def postgres_engine() -> Iterator[Engine]:
    """The server that PTXTUNE_TEST_POSTGRES names; skips where it names none."""
    server = env.TEST_POSTGRES.get()
    if not server:
        pytest.skip(f"{env.TEST_POSTGRES.name} names no PostgreSQL server")
    url = make_url(server).set(drivername="postgresql+psycopg")
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


@contextmanager
def _schema(engine: Engine) -> Iterator[str]:
    """URL of a new, empty schema of the server, dropped at the end."""
    name = f"ptxtune_{uuid.uuid4().hex}"
    with engine.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
        scoped = engine.url.update_query_dict({"options": f"-csearch_path={name}"})
        yield scoped.render_as_string(hide_password=False)
        connection.execute(text(f"DROP SCHEMA {name} CASCADE"))


@pytest.fixture(scope="session")
def postgres_url(postgres_engine: Engine) -> Iterator[str]:
    """One schema with our tables for all tests of the session; emptied after each."""
    with _schema(postgres_engine) as url:
        open_database(url).close()
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """What open_database takes: a database of ours without any rows."""
    if request.param == "sqlite":
        path = tmp_path / "tune.db"
        shutil.copy(request.getfixturevalue("sqlite_template"), path)
        yield str(path)
        return
    url = request.getfixturevalue("postgres_url")
    yield url
    tables = [name for name in Base.metadata.tables if name != Meta.__tablename__]
    with open_database(url) as opened, opened.engine.begin() as connection:
        connection.execute(text(f"TRUNCATE {', '.join(tables)} RESTART IDENTITY"))


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def fresh_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """What open_database takes: a path of no file yet, or the URL of an empty schema."""
    if request.param == "sqlite":
        yield str(tmp_path / "fresh.db")
        return
    with _schema(request.getfixturevalue("postgres_engine")) as url:
        yield url


@pytest.fixture
def postgres_schema(postgres_engine: Engine) -> Iterator[tuple[str, Connection]]:
    """An empty schema: its URL, and a connection inside it for another application's tables."""
    with _schema(postgres_engine) as url:
        engine = create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            yield url, connection
        engine.dispose()


@pytest.fixture
def database(target: str) -> Iterator[Database]:
    with open_database(target) as opened:
        yield opened


@pytest.fixture
def store(database: Database) -> Store:
    return Store(database)


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> FakeFamily:
    """Registers the fake family, and makes it the one that gives the default config."""
    fake = FakeFamily()
    monkeypatch.setitem(families.FAMILIES, fake.name, fake)
    monkeypatch.setattr(serving, "default_config", fake.default_config)
    return fake


class Writer:
    """Stores trials of the fake family in one line each."""

    def __init__(self, store: Store, family: FakeFamily) -> None:
        self.store = store
        self.family = family
        self.runs: dict[DeviceRecord, int] = {}

    def run(self, device: DeviceRecord = H200) -> int:
        if device not in self.runs:
            self.runs[device] = self.store.start_run(device, TOOLCHAIN, {"budget": "quick"})
        return self.runs[device]

    def trial(
        self,
        outcome: Outcome | None,
        *,
        m: int = 8,
        config: KernelConfig | None = None,
        device: DeviceRecord = H200,
        problem: Problem = PROBLEM,
        protocol: Protocol = Protocol.PLAIN,
    ) -> int:
        """An ended trial, or a started one where outcome is None."""
        config = config or FakeConfig(16, False)
        digest = self.family.emit(problem, config, SM90A).digest()
        trial_id = self.store.start_trial(
            self.run(device), problem, m, protocol, config=config, source_digest=digest
        )
        if outcome is not None:
            self.store.end_trial(trial_id, outcome)
        return trial_id

    def baseline(self, time_us: float, *, m: int = 8, protocol: Protocol = Protocol.PLAIN) -> int:
        trial_id = self.store.start_trial(self.run(), PROBLEM, m, protocol, contender="cublas")
        self.store.end_trial(trial_id, Outcome(Status.OK, time_us=time_us, spread=0.01))
        return trial_id


@pytest.fixture
def writer(store: Store, family: FakeFamily) -> Writer:
    return Writer(store, family)
