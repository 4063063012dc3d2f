"""PTXTUNE_PIN: a config that the user forces, before anything the database says."""

from __future__ import annotations

import json

from db.records import Answer, Level
from ptxgen import env
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import ConfigError
from ptxgen.families import config_from_dict, violations
from ptxgen.families.invariant import invariant_key, is_invariant
from ptxgen.problem import Problem, check_m


def parse_config(text: str, where: str) -> KernelConfig:
    """A config from its JSON text; `where` names the source in errors.

    Raises:
        ConfigError: the text is no JSON, or no config of a known family.
    """
    try:
        data = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(
            f"{where} is not JSON ({error}); write a config as ptxtune best --json prints it."
        ) from error
    return config_from_dict(data)


def pinned_answer(
    problem: Problem, m: int, arch: ArchSpec, *, batch_invariant: bool = False
) -> Answer | None:
    """The pinned config as an answer; None where nothing is pinned or it is illegal here.

    Raises:
        ConfigError: PTXTUNE_PIN holds no config, or, with batch_invariant, one of another order.
        ProblemError: m is not a batch size.
    """
    text = env.pinned_config()
    if not text:
        return None
    config = parse_config(text, env.PIN.name)
    if violations(problem, config, arch):
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
