"""The layers: imports go one way, one module owns each library, and importing wakes no driver."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

MAY_IMPORT = {
    "ptxgen": set(),
    "db": {"ptxgen"},
    "search": {"ptxgen", "db"},
    "reports": {"ptxgen", "db"},
    "ptxtune": {"ptxgen", "db", "search", "reports"},
}

OWNERS = {
    "cuda.bindings.driver": "ptxgen/device.py",
    "cuda.bindings.nvrtc": "ptxgen/compile.py",
}

FORBIDDEN = {
    "pickle",  # reads code from data
    "cuda.bindings.runtime",  # its primary context would stand beside the driver's
    "cuda.core",
}


def sources() -> list[Path]:
    return sorted(path for package in MAY_IMPORT for path in (ROOT / package).rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path) -> Iterator[str]:
    """Full dotted names of everything a file imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_part_of(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def test_there_is_something_to_look_at() -> None:
    names = {name_of(path) for path in sources()}
    assert {"ptxgen/compile.py", "db/records.py", "search/evaluator.py"} <= names
    assert "cuda.bindings.nvrtc" in set(imported(ROOT / "ptxgen/compile.py"))


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_imports_go_one_way(path: Path) -> None:
    package = path.relative_to(ROOT).parts[0]
    own = {name.split(".")[0] for name in imported(path)} & MAY_IMPORT.keys()
    assert own - {package} <= MAY_IMPORT[package]


@pytest.mark.parametrize("library", OWNERS)
def test_one_module_owns_a_library(library: str) -> None:
    users = {
        name_of(path)
        for path in sources()
        if any(is_part_of(name, library) for name in imported(path))
    }
    assert users <= {OWNERS[library]}


@pytest.mark.parametrize("path", sources(), ids=name_of)
def test_no_forbidden_import(path: Path) -> None:
    found = [name for name in imported(path) for bad in FORBIDDEN if is_part_of(name, bad)]
    assert not found


NEED_AN_ENGINE = {"ptxtune/engines/vllm/kernel.py"}
"""Imported by a plugin alone, inside its engine."""

CHILD = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
torch = sys.modules.get("torch")
assert torch is None or not torch.cuda.is_initialized(), "a CUDA context was made"
# libcuda.so is the driver; names of Python extension modules do not end so
maps = open("/proc/self/maps").read().split()
loaded = sorted({item for item in maps if item.startswith("/") and "/libcuda.so" in item})
assert not loaded, loaded
"""


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc to list libraries")
def test_importing_everything_loads_no_driver() -> None:
    # Alembic runs its scripts itself, in a context that an import does not have.
    scripts = ROOT / "db" / "migrations"
    modules = [
        module_of(path)
        for path in sources()
        if path.name != "__main__.py"
        and not path.is_relative_to(scripts)
        and name_of(path) not in NEED_AN_ENGINE
    ]
    done = subprocess.run(
        [sys.executable, "-c", CHILD, *modules],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_engines_are_imported_where_a_plugin_needs_them_alone() -> None:
    users = {
        name_of(path)
        for path in sources()
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm"
    }
    assert users == NEED_AN_ENGINE
