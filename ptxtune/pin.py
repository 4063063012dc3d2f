"""PTXTUNE_PIN: a config that the user forces, before anything the database says."""

from __future__ import annotations

from itertools import product
from typing import get_args

from db.records import Answer, Level
from ptxgen import env
from ptxgen.arch import ARCHS, ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families import violations
from ptxgen.families.invariant import invariant_key, is_invariant
from ptxgen.problem import GROUP_SIZES, Dtype, Problem, Zero, check_m
from ptxtune.config_text import read_config

PROBE_N = (1 << 16, 4096, 64)
PROBE_K = (1 << 18, 8192, 512, 128)
"""Sizes that stand for all: large ones, which have room for every split, and single tiles."""


def checked_pin() -> KernelConfig | None:
    """The pinned config; None where nothing is pinned.

    Raises:
        ConfigError: PTXTUNE_PIN holds no config, or one that is legal for no problem on any arch.
    """
    text = env.pinned_config()
    if not text:
        return None
    try:
        config = read_config(text, env.PIN.name)
    except ConfigError as error:
        raise ConfigError(f"{env.PIN.name} pins no config: {error} Or unset it.") from None
    if reasons := _illegal_everywhere(config):
        raise ConfigError(
            f"{env.PIN.name} pins {config.key()}, which is legal for no layer on any GPU "
            f"({reasons[0]}); unset it, or pin a config as ptxtune best --json prints it."
        )
    return config


def _illegal_everywhere(config: KernelConfig) -> list[str]:
    """Why the config is illegal for the most permissive problem that there is; empty if for none.

    Powers of two are the sizes that rules on tiles, splits and clusters reject least.
    """
    fewest: list[str] | None = None
    for arch, n, k, dtype, zero in product(
        ARCHS.values(), PROBE_N, PROBE_K, get_args(Dtype), get_args(Zero)
    ):
        for group in (*GROUP_SIZES, k):
            found = violations(Problem(n, k, group, dtype, zero), config, arch)
            if not found:
                return []
            if fewest is None or len(found) < len(fewest):
                fewest = found
    return fewest or []


def pinned_answer(
    problem: Problem, m: int, arch: ArchSpec, *, batch_invariant: bool = False
) -> Answer | None:
    """The pinned config as an answer; None where nothing is pinned or it is illegal here.

    Raises:
        ConfigError: PTXTUNE_PIN holds no config or one that is legal nowhere, or, with
            batch_invariant, one of another order.
        ProblemError: m is not a batch size.
    """
    config = checked_pin()
    if config is None or violations(problem, config, arch):
        return None
    if batch_invariant and not is_invariant(problem, config):
        raise ConfigError(
            f"{env.PIN.name} pins {config.key()}, which does not add up in the order of "
            f"batch-invariant kernels ({invariant_key(problem)}); unset it, or leave "
            f"--batch-invariant out."
        )
    return Answer(
        level=Level.PINNED,
        problem=problem,
        m=check_m(m),
        config=config,
        winner=None,
        predicted=False,
        message=f"pinned by {env.PIN.name}; the database was not asked.",
    )


def unserved_pin(problem: Problem, arch: ArchSpec) -> str:
    """Why the pinned config does not answer for this problem; empty where it does or none is."""
    config = checked_pin()
    reasons = [] if config is None else violations(problem, config, arch)
    return f"{env.PIN.name} does not count here: {reasons[0]}." if reasons else ""
