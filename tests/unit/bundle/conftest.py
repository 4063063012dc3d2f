"""The fake driver, built once a session."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from bundle_helpers import FakeDriver

SOURCE = Path(__file__).parents[2] / "helpers" / "fake_cuda" / "fake_cuda.c"


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("cc") is None:
        pytest.skip("no C compiler (cc) on this machine")
    folder = tmp_path_factory.mktemp("fake_cuda")
    library = folder / "libcuda.so.1"
    flags = ("-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC")
    subprocess.run(["cc", *flags, str(SOURCE), "-o", str(library), "-lm"], check=True, timeout=120)
    return folder


@pytest.fixture
def fake_driver(fake_library: Path, tmp_path: Path) -> FakeDriver:
    return FakeDriver(fake_library, tmp_path / "calls.log")
