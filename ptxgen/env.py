"""Every environment variable and default path, in one place; nothing here creates a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ptxgen.paths import user_path

APP_NAME = "ptxtune"


@dataclass(frozen=True, slots=True)
class EnvVar:
    """An environment variable that ptxtune reads, and what it does, as doctor shows it."""

    name: str
    meaning: str

    def get(self) -> str:
        """The value, stripped; empty where it is not set."""
        return os.environ.get(self.name, "").strip()


CACHE_DIR = EnvVar(
    "PTXTUNE_CACHE_DIR", "folder of compiled kernels (default: the user cache folder)"
)
DB = EnvVar(
    "PTXTUNE_DB", "database path or SQLAlchemy URL (default: a file in the user data folder)"
)
PIN = EnvVar(
    "PTXTUNE_PIN", "config (JSON) that wins over the database, for every problem it is legal for"
)
COMMIT = EnvVar("PTXTUNE_COMMIT", "commit to record with results, in place of the git checkout's")
TEST_POSTGRES = EnvVar("PTXTUNE_TEST_POSTGRES", "URL of a PostgreSQL server for the tests")

ENV_VARS: tuple[EnvVar, ...] = (CACHE_DIR, DB, PIN, COMMIT, TEST_POSTGRES)


def cache_dir() -> Path:
    """Folder of the compile cache: PTXTUNE_CACHE_DIR, else the user's cache folder."""
    value = CACHE_DIR.get()
    return (
        user_path(value, CACHE_DIR.name) if value else Path(platformdirs.user_cache_dir(APP_NAME))
    )


def data_dir() -> Path:
    """The user's data folder, home of the default database."""
    return Path(platformdirs.user_data_dir(APP_NAME))


def database() -> str:
    """The database as the user names it, a path or a URL: PTXTUNE_DB, else a file in data_dir()."""
    return DB.get() or str(data_dir() / "ptxtune.db")


def named_commit() -> str:
    """The commit that PTXTUNE_COMMIT names; empty where it is not set."""
    return COMMIT.get()


def pinned_config() -> str:
    """The text of PTXTUNE_PIN; empty where nothing is pinned."""
    return PIN.get()
