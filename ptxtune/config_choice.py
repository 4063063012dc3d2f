"""Which config a command is about: the one written out, the stored one, or the built-in default."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from db.records import Protocol
from ptxgen.arch import ArchSpec, arch_named
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.problem import Problem
from ptxtune.answers import best_answers
from ptxtune.config_text import read_config
from ptxtune.output import note
from ptxtune.target import Target

Command = TypeVar("Command", bound=Callable[..., Any])


def config_options(command: Command) -> Command:
    """--config and --best, of which one at most may be given."""
    command = click.option(
        "--best",
        is_flag=True,
        help="The config that ptxtune best answers for this layer, M and protocol.",
    )(command)
    return click.option(
        "--config",
        help="A config: JSON, a file with it (a path, or @path), or as ptxtune prints it, such as "
        "mma(block_m=8,...) (default: the built-in one for the M).",
    )(command)


def arch_of(arch: str | None, target: Target, *, best: bool) -> ArchSpec:
    """The arch named by --arch, else the target's.

    Raises:
        ConfigError: --best, which answers for a GPU, with the arch of another one.
    """
    if arch is None:
        return target.arch
    found = arch_named(arch)
    if best and found != target.arch:
        raise ConfigError(
            f"--best answers for {target.device.name}, whose arch is {target.arch.name}, and "
            f"--arch is {arch}; name the GPU by --gpu and leave --arch out."
        )
    return found


def chosen_config(
    problem: Problem,
    m: int,
    *,
    config: str | None,
    best: bool,
    target: Target,
    protocol: Protocol,
    db: str | None,
) -> KernelConfig | None:
    """The config of --config or --best; None where neither is given: the built-in default.

    Raises:
        ConfigError: both are given, or the text of --config is no config.
        StoreError: the database cannot be opened.
    """
    if config is not None and best:
        raise ConfigError("--config and --best exclude each other; give one of the two.")
    if config is not None:
        return read_config(config, "--config")
    if not best:
        return None
    (answer,) = best_answers([problem], [m], target=target, protocol=protocol, db=db)
    note(f"M = {m}: {answer.message}")
    return answer.config
