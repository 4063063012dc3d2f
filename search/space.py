"""Space: all legal configs of one problem, arch and batch; looked up by key, drawn at random.

It also states the space in Optuna's terms: one categorical a knob, whose choices never depend on
the GPU (its limits act through the legal set), so that stored trials stay valid for a new study.
"""

from __future__ import annotations

import itertools
import math
import random
import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution

from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import ConfigError
from ptxgen.families import FAMILIES
from ptxgen.families.base import Family
from ptxgen.problem import Problem

SPACE_VERSION = 3
"""Raised with every change of the knobs' names or choices."""

FULL_PRODUCT = 5_000
"""Up to this many points rejections are counted one by one; above it on a sample of this size."""

FAMILY_PARAM = "family"


@dataclass(frozen=True, slots=True)
class Rejections:
    """Which rules make how many points of the knobs' product illegal.

    Attributes:
        product: points of the product over all families.
        examined: how many of them were looked at.
        legal: how many of those are legal.
        by_rule: rule (its reason without the numbers) -> points that break it.
    """

    product: int
    examined: int
    legal: int
    by_rule: dict[str, int]


class Space:
    """The legal configs of a problem.

    Args:
        problem: what is computed.
        arch: for which arch.
        m: batch size, or bucket.
        families: the kernel families; all registered ones by default.
        chained: False leaves out what only differs where launches depend on each other.

    Raises:
        ConfigError: no config is legal.
    """

    def __init__(
        self,
        problem: Problem,
        arch: ArchSpec,
        m: int,
        families: Mapping[str, Family] | None = None,
        *,
        chained: bool = True,
    ) -> None:
        self.problem, self.arch, self.m = problem, arch, m
        self._families = FAMILIES if families is None else families
        found = itertools.chain.from_iterable(
            family.candidates(problem, arch, m) for family in self._families.values()
        )
        self._configs = {
            config.key(): config for config in found if chained or config == config.plain()
        }
        if not self._configs:
            raise ConfigError(
                f"no config is legal for {problem.key()} at M = {m} on {arch.name}; "
                f"families: {', '.join(self._families)}."
            )
        self._matrix: NDArray[np.int16] | None = None
        self._keys = list(self._configs)

    def __len__(self) -> int:
        return len(self._configs)

    def __iter__(self) -> Iterator[KernelConfig]:
        return iter(self._configs.values())

    def __contains__(self, config: KernelConfig) -> bool:
        return config.key() in self._configs

    def __getitem__(self, key: str) -> KernelConfig:
        return self._configs[key]

    def get(self, key: str) -> KernelConfig | None:
        """The legal config of that key; None where there is none."""
        return self._configs.get(key)

    def add(self, config: KernelConfig) -> None:
        """Takes in a legal config that the families would not have offered, such as a default."""
        if config not in self:
            self._configs[config.key()] = config
            self._keys.append(config.key())
            self._matrix = None

    def shuffled(self, seed: int) -> list[KernelConfig]:
        """All legal configs in a random order that the seed fixes."""
        configs = list(self._configs.values())
        random.Random(seed).shuffle(configs)  # noqa: S311 (no secret)
        return configs

    def distributions(self) -> dict[str, CategoricalDistribution]:
        """Optuna's view: the family, and every knob of every family as "family.knob"."""
        found = {FAMILY_PARAM: CategoricalDistribution(tuple(self._families))}
        for name, family in self._families.items():
            for knob, choices in family.knobs().items():
                found[f"{name}.{knob}"] = CategoricalDistribution(choices)
        return found

    def params(self, config: KernelConfig) -> dict[str, Scalar]:
        """A config as Optuna parameters; knobs of the other families take their first choice."""
        values: dict[str, Scalar] = {FAMILY_PARAM: config.family}
        own = config.to_dict()
        for name, family in self._families.items():
            for knob, choices in family.knobs().items():
                values[f"{name}.{knob}"] = own[knob] if name == config.family else choices[0]
        return values

    def from_params(self, params: Mapping[str, Scalar]) -> KernelConfig | None:
        """The legal config of Optuna parameters; None where they are illegal."""
        return self.get(self._config_of(params).key())

    def nearest(self, params: Mapping[str, Scalar], allowed: Container[str]) -> KernelConfig | None:
        """The legal config closest to parameters, counting steps along every knob's choices.

        Args:
            params: Optuna parameters, legal or not.
            allowed: keys that may be returned.
        """
        if self._matrix is None:
            self._matrix = np.array([self._position(self.params(c)) for c in self], dtype=np.int16)
        steps = np.abs(self._matrix - np.array(self._position(params), dtype=np.int16)).sum(axis=1)
        for index in np.argsort(steps, kind="stable"):
            if self._keys[index] in allowed:
                return self._configs[self._keys[index]]
        return None

    def neighbours(self, config: KernelConfig) -> Iterator[KernelConfig]:
        """Legal configs that differ in one knob, by any amount."""
        knobs = self._families[config.family].knobs()
        own = {name: value for name, value in config.to_dict().items() if name != "family"}
        for name, choices in knobs.items():
            for choice in choices:
                found = self.get(type(config).from_knobs({**own, name: choice}).key())
                if found is not None and choice != own[name]:
                    yield found

    def rejections(self, seed: int = 0) -> Rejections:
        """Counts per rule over the knobs' product, or over a random sample where it is large."""
        counts: Counter[str] = Counter()
        product = examined = legal = 0
        for name, family in self._families.items():
            size = math.prod(len(choices) for choices in family.knobs().values())
            product += size
            for knobs in _points(family.knobs(), size, seed):
                config = self._families[name].config_type.from_knobs(knobs)
                reasons = family.violations(self.problem, config, self.arch)
                examined += 1
                legal += not reasons
                counts.update({_rule(reason) for reason in reasons})
        return Rejections(product, examined, legal, dict(counts.most_common()))

    def _config_of(self, params: Mapping[str, Scalar]) -> KernelConfig:
        name = str(params[FAMILY_PARAM])
        family = self._families[name]
        knobs = {knob: params[f"{name}.{knob}"] for knob in family.knobs()}
        return family.config_type.from_knobs(knobs)

    def _position(self, params: Mapping[str, Scalar]) -> list[int]:
        """Index of every parameter among its choices; another family is further than any knob."""
        found = [100 * list(self._families).index(str(params[FAMILY_PARAM]))]
        for name, family in self._families.items():
            for knob, choices in family.knobs().items():
                found.append(choices.index(params[f"{name}.{knob}"]))
        return found


def _points(
    knobs: Mapping[str, tuple[Scalar, ...]], size: int, seed: int
) -> Iterator[dict[str, Scalar]]:
    """Every point of a small product; a random sample of a large one."""
    if size <= FULL_PRODUCT:
        for values in itertools.product(*knobs.values()):
            yield dict(zip(knobs, values, strict=True))
        return
    rng = random.Random(seed)  # noqa: S311 (no secret)
    for _ in range(FULL_PRODUCT):
        yield {name: rng.choice(choices) for name, choices in knobs.items()}


def _rule(reason: str) -> str:
    """A reason without its numbers, so that equal rules count together."""
    return re.sub(r"\d+(\.\d+)?", "#", reason)
