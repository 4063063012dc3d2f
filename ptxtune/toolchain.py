"""What results depend on besides the device: versions, and the commit of a source checkout."""

from __future__ import annotations

import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from db.records import ToolchainRecord
from ptxgen.compile import nvrtc_version
from ptxgen.env import named_commit
from ptxtune.version import VERSION

ROOT = Path(__file__).resolve().parent.parent
GIT_TIMEOUT_S = 5


def current_toolchain(driver: str = "") -> ToolchainRecord:
    """The toolchain of this process; driver is "" where no driver is involved.

    Raises:
        CompileError: NVRTC is missing.
    """
    return ToolchainRecord(
        driver=driver,
        nvrtc=nvrtc_version(),
        ptxtune=VERSION,
        torch=installed_version("torch"),
        commit=source_commit(),
    )


def installed_version(package: str) -> str:
    """The version of an installed package without importing it; "" where it is missing."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


@cache
def source_commit() -> str:
    """What PTXTUNE_COMMIT names, else the short commit of the checkout this code runs from.

    "-dirty" where files differ from it; "" where the code is in no git checkout of its own, or git
    does not work. The variable comes first: a copy of the code may carry the git folder of another
    commit, which only the one who copied it knows.
    """
    if named := named_commit():
        return named
    if not (ROOT / ".git").exists():  # an installed wheel may lie inside someone else's checkout
        return ""
    commit = _git("rev-parse", "--short=12", "HEAD")
    if not commit:
        return ""
    changed = _git("status", "--porcelain", "--untracked-files=no")
    return f"{commit}-dirty" if changed else commit


def _git(*words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(ROOT), *words],
            capture_output=True,
            text=True,
            timeout=GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
