"""Fixtures of the database tests: the same tests run on SQLite and on PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from db_samples import H200, PROBLEM, SM90A, TOOLCHAIN, FakeConfig, FakeFamily
from sqlalchemy import create_engine, make_url, text

from db.records import DeviceRecord, Protocol
from db.session import Database, open_database
from db.store import Store
from ptxgen import env, families
from ptxgen.config import KernelConfig
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem


def _postgres_schema() -> Iterator[str]:
    server = env.TEST_POSTGRES.get()
    if not server:
        pytest.skip(f"{env.TEST_POSTGRES.name} names no PostgreSQL server")
    url = make_url(server).set(drivername="postgresql+psycopg")
    schema = f"ptxtune_{uuid.uuid4().hex}"
    admin = create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE SCHEMA {schema}"))
    scoped = url.update_query_dict({"options": f"-csearch_path={schema}"})
    yield scoped.render_as_string(hide_password=False)
    with admin.connect() as connection:
        connection.execute(text(f"DROP SCHEMA {schema} CASCADE"))
    admin.dispose()


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """What open_database takes: a path of no file yet, or the URL of an empty schema."""
    if request.param == "sqlite":
        yield str(tmp_path / "tune.db")
    else:
        yield from _postgres_schema()


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
    monkeypatch.setattr(families, "MMA", fake)
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
