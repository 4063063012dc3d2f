"""Every environment variable and default path, in one place; nothing here creates a file."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from ptxgen.arguments import path
from ptxgen.errors import CacheError

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
    "PTXTUNE_PIN",
    "config (as --config takes it) that wins over the database, for every problem it is legal for",
)
COMMIT = EnvVar("PTXTUNE_COMMIT", "commit to record with results, in place of the git checkout's")
VLLM = EnvVar("PTXTUNE_VLLM", "0 leaves vLLM its own kernels (default: ours, where there is one)")
TEST_POSTGRES = EnvVar("PTXTUNE_TEST_POSTGRES", "URL of a PostgreSQL server for the tests")

ENV_VARS: tuple[EnvVar, ...] = (CACHE_DIR, DB, PIN, COMMIT, VLLM, TEST_POSTGRES)


def cache_dir() -> Path:
    """Folder of the compile cache: PTXTUNE_CACHE_DIR, else the user's cache folder.

    Raises:
        CacheError: the variable holds no usable path.
    """
    value = CACHE_DIR.get()
    if value:
        return path(value, CACHE_DIR.name, error=CacheError)
    return Path(platformdirs.user_cache_dir(APP_NAME))


def cache_folder(given: object) -> Path:
    """The compile cache that an argument (--cache-dir) names; the user's where it is None or "".

    Raises:
        CacheError: it is no usable path.
    """
    if given is None or given == "":
        return cache_dir()
    return path(given, "cache folder", error=CacheError)


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


def vllm_wanted() -> bool:
    """Whether our kernels may replace vLLM's: PTXTUNE_VLLM is not 0, off, no or false."""
    return VLLM.get().lower() not in ("0", "off", "no", "false")
