"""Fixtures of the search tests: an empty store and a job over the fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import search_fakes

from db.session import open_database
from db.store import Store
from search.budget import Budget
from search.job import TuneJob


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_database(tmp_path / "tune.db") as database:
        yield Store(database)


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., TuneJob]:
    """A job over the small fake space; fields replace the job's, options the evaluator's."""

    def make(options: dict[str, Any] | None = None, **fields: Any) -> TuneJob:
        log = str(tmp_path / "evaluated.log")
        return TuneJob(
            **{
                "problems": (search_fakes.PROBLEM,),
                "buckets": (8,),
                "toolchain": search_fakes.TOOLCHAIN,
                "budget": Budget(trials=100),
                "evaluator": "search_fakes:create_exact",
                "evaluator_options": {"log": log, **(options or {})},
                "limits": search_fakes.PATIENT,
                "cache_root": tmp_path / "cache",
                "compile_workers": 1,
                "compile_timeout_s": 250.0,
                "compile_handler": "search_fakes:make_compiler",
                "families": search_fakes.families(),
                "lock_folder": tmp_path,
                **fields,
            }
        )

    return make


@pytest.fixture
def evaluated(tmp_path: Path) -> Callable[[], list[str]]:
    """Lines that the fake evaluator logged."""

    def read() -> list[str]:
        path = tmp_path / "evaluated.log"
        return path.read_text().splitlines() if path.exists() else []

    return read
