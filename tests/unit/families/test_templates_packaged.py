"""Every template is part of the package that a user installs, wherever its folder is."""

from __future__ import annotations

from pathlib import Path

import pytest
from setuptools import Distribution

ROOT = Path(__file__).parents[3]


def test_templates_are_package_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    distribution = Distribution()
    distribution.parse_config_files(["pyproject.toml"])
    distribution.set_defaults()
    command = distribution.get_command_obj("build_py")
    command.finalize_options()
    command.manifest_files = {}  # of a checkout's own files: looking for them writes an egg-info
    found = {
        Path(file)
        for package in distribution.packages
        for file in command.find_data_files(package, package.replace(".", "/"))
    }
    templates = {path.relative_to(ROOT) for path in ROOT.glob("ptxgen/**/*.jinja")}
    assert len(templates) > 15
    assert templates <= found
