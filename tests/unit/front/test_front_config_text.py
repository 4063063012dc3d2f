"""Configs as users write them: every printed form reads back as the config that was printed."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from ptxgen.arch import ARCHS
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES, default_config
from ptxgen.problem import Problem
from ptxtune.config_text import read_config
from reports.words import config_text

PROBLEM = Problem(4096, 4096)


def configs() -> Iterator[KernelConfig]:
    """The default of every family, and random candidates at a small and a large batch."""
    for family in FAMILIES.values():
        yield family.default_config(PROBLEM, ARCHS["sm_90a"], 64, 132)
        for m in (8, 2048):
            found = list(family.candidates(PROBLEM, ARCHS["sm_90a"], m))
            rng = random.Random(m)  # noqa: S311 (no secret)
            yield from rng.sample(found, min(40, len(found)))


CONFIGS = list(configs())


def test_every_printed_form_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "config with (brackets).txt"
    assert {config.family for config in CONFIGS} == set(FAMILIES)
    for config in CONFIGS:
        forms = {
            json.dumps(config.to_dict()),
            json.dumps(config.to_dict(), indent=2) + "\n",
            config.key(),
            repr(config),
            config_text(config),
        }
        for form in forms:
            assert read_config(form, "--config") == config, form
            path.write_text(form)
            assert read_config(f"@{path}", "--config") == config, form


@pytest.mark.parametrize("name", ["c.json", "mma"])
def test_a_path_is_read_without_the_at_sign(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = default_config(PROBLEM, ARCHS["sm_80"], 8, 108)
    monkeypatch.chdir(tmp_path)
    Path(name).write_text(json.dumps(config.to_dict()))
    assert read_config(name, "--config") == config
    assert read_config(str(tmp_path / name), "--config") == config


BAD = [
    ("", "no config and no file"),
    ("fastest please", "no config and no file"),
    ("missing.json", "no config and no file"),
    ("@missing.json", "cannot be read"),
    ("@.", "cannot be read"),
    ("{", "not JSON"),
    ("[1]", "names no family"),
    ("[" * 100_000, "not JSON"),
    ('{"family": "mma", "block_m": ' + "9" * 5000 + "}", ""),
    ("cutlass(block_m=8)", "cutlass"),
    ("mma(block_m=8)", "lacks"),
    ("mma(block_m=8,block_m=16)", "twice"),
    ("mma(block_m)", "no knob=value"),
    ("mma(block_m=__import__('os'))", "no knob=value"),
    ("mma bm8 wm8", "knob block_n"),
    ("mma bm8 wm8 bn32 wn32 bk1024 wk8 ns3 sk1 so:acc mc1 t:xyz d:mag", "knob trigger"),
    ("mma bm8 wm8 bn32 wn32 bk1024 wk8 ns3 sk1 so:acc mc1 t:sta d:mag zz9", "after the last"),
    ("a\0b", "no config and no file"),
    ("~nouser/x.json", "no config and no file"),
]


@pytest.mark.parametrize(("text", "named"), BAD, ids=lambda value: str(value)[:30])
def test_what_is_no_config_is_one_paragraph(
    text: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        read_config(text, "--config")
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 6500
