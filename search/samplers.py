"""Samplers by name: which config to try next. One study a problem, bucket and protocol, in memory.

The stored trials are the truth; the Optuna study is rebuilt from them (`remember`) on resume.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import optuna
from optuna.distributions import BaseDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from ptxgen.config import KernelConfig, Scalar
from ptxgen.errors import ConfigError
from ptxgen.outcome import Outcome, Status
from search.space import Space

SamplerName = Literal["tpe", "random", "exhaustive"]

EXHAUSTIVE_UP_TO = 500
"""A legal set up to this size is measured whole, in random order, unless a sampler is asked for."""

MAX_REDRAWS = 20
"""Duplicate draws in a row before a random unseen legal config is taken."""

_OPTUNA_5 = hasattr(Trial, "set_constraint")
"""Optuna 5 has set_constraint and deprecates constraints_func; 4.9 knows only the latter."""

_CONSTRAINT = "ptxtune_infeasible"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A config to try, and the handle with which its outcome is told."""

    config: KernelConfig
    trial: Trial | None = None


def choose_sampler(name: str | None, space: Space) -> SamplerName:
    """The sampler of that name; exhaustive for a small space and tpe otherwise where it is None.

    Raises:
        ConfigError: the name is not known.
    """
    if name is None:
        return "exhaustive" if len(space) <= EXHAUSTIVE_UP_TO else "tpe"
    return check_sampler(name)


def check_sampler(name: str) -> SamplerName:
    """The name as a sampler's. Raises ConfigError where it is none."""
    if name in get_args(SamplerName):
        return cast(SamplerName, name)
    known_names = ", ".join(get_args(SamplerName))
    raise ConfigError(f"sampler {name!r} is not known; choose one of {known_names}.")


class Sampler:
    """Asks for configs that were not asked for before, seeds first.

    Args:
        space: the legal configs.
        name: tpe, random or exhaustive.
        seed: of every random choice.
    """

    def __init__(self, space: Space, name: SamplerName, seed: int = 0) -> None:
        self._space = space
        self._queue: list[KernelConfig] = []
        self._unseen = dict.fromkeys(config.key() for config in space.shuffled(seed))
        self._distributions: dict[str, BaseDistribution] = dict(space.distributions())
        self._startup = startup_trials(len(space))
        self._study = _new_study(self._startup, seed) if name == "tpe" else None

    @property
    def remaining(self) -> int:
        """Legal configs that were neither asked for nor remembered."""
        return len(self._unseen)

    def enqueue(self, configs: list[KernelConfig]) -> None:
        """Seeds: asked before anything else, in this order; illegal and known ones are left out."""
        self._queue.extend(config for config in configs if config in self._space)

    @property
    def has_seeds(self) -> bool:
        """Whether the next config is a seed."""
        return any(config.key() in self._unseen for config in self._queue)

    def remember(self, config: KernelConfig, outcome: Outcome) -> None:
        """Takes in a finished trial of an earlier run: never asked again, and learned from."""
        self._unseen.pop(config.key(), None)
        if self._study is not None and config in self._space:
            self._study.add_trial(
                _finished(self._space.params(config), self._distributions, _value(outcome))
            )

    def ask(self) -> Suggestion | None:
        """The next config; None where every legal config was asked for."""
        while self._queue:
            config = self._queue.pop(0)
            if config.key() in self._unseen:
                return self._take(config)
        if not self._unseen:
            return None
        if self._study is None or len(self._space) - len(self._unseen) < self._startup:
            return self._take(self._first_unseen())
        return self._draw(self._study)

    def tell(self, suggestion: Suggestion, outcome: Outcome) -> None:
        """Reports how a suggestion ended. A bad config is pruned and infeasible, never failed."""
        if self._study is None or suggestion.trial is None:
            return
        value = _value(outcome)
        _set_infeasible(suggestion.trial, 1.0 if value is None else -1.0)
        if value is None:
            self._study.tell(suggestion.trial, state=TrialState.PRUNED)
        else:
            self._study.tell(suggestion.trial, value)

    def _draw(self, study: optuna.Study) -> Suggestion:
        """Draws of TPE until one is new. An illegal one, as most points of the product are, moves
        to the nearest unseen legal config; after MAX_REDRAWS duplicates a random one is taken.

        A draw that leads to no measurement is told as failed, which TPE leaves out of its model.
        """
        for _ in range(MAX_REDRAWS):
            trial = study.ask(dict(self._distributions))
            config = self._space.from_params(trial.params)
            if config is not None and config.key() in self._unseen:
                self._unseen.pop(config.key())
                return Suggestion(config, trial)
            study.tell(trial, state=TrialState.FAIL)
            if config is None:
                near = self._space.nearest(trial.params, self._unseen)
                return self._take(near or self._first_unseen())
        return self._take(self._first_unseen())

    def _take(self, config: KernelConfig) -> Suggestion:
        """A suggestion that did not come from the study; the study learns that it is running."""
        self._unseen.pop(config.key())
        if self._study is None:
            return Suggestion(config)
        self._study.enqueue_trial(self._space.params(config))
        return Suggestion(config, self._study.ask(dict(self._distributions)))

    def _first_unseen(self) -> KernelConfig:
        """The first unseen config; they are in random order already."""
        return self._space[next(iter(self._unseen))]


def startup_trials(size: int) -> int:
    """Random trials before TPE's model is used: 5 % of the legal set, 20 to 50."""
    return max(20, min(50, size // 20))


def _new_study(startup: int, seed: int) -> optuna.Study:
    """TPE with every argument that matters written out: the defaults changed in Optuna 5."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    compatible: dict[str, Any] = {} if _OPTUNA_5 else {"constraints_func": _constraints}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            multivariate=True,
            constant_liar=True,
            n_startup_trials=startup,
            seed=seed,
            **compatible,
        )
    return optuna.create_study(sampler=sampler, direction="minimize")


def _value(outcome: Outcome) -> float | None:
    """What the study minimises; None for a config that must not be chosen."""
    return outcome.time_us if outcome.status is Status.OK else None


def _set_infeasible(trial: Trial, score: float) -> None:
    if _OPTUNA_5:
        trial.set_constraint(_CONSTRAINT, score)
    else:
        trial.set_user_attr(_CONSTRAINT, score)


def _constraints(trial: FrozenTrial) -> tuple[float, ...]:
    """Optuna 4.9's way to read what _set_infeasible wrote."""
    return (float(trial.user_attrs.get(_CONSTRAINT, -1.0)),)


def _finished(
    params: dict[str, Scalar],
    distributions: Mapping[str, BaseDistribution],
    value: float | None,
) -> FrozenTrial:
    """A finished trial of an earlier run, as the study takes it in."""
    score = 1.0 if value is None else -1.0
    state = TrialState.PRUNED if value is None else TrialState.COMPLETE
    # Optuna 4.9 stores constraints under this system attribute and has no argument for them.
    extra: dict[str, Any] = (
        {"constraints": {_CONSTRAINT: score}}
        if _OPTUNA_5
        else {"system_attrs": {"constraints": [score]}}
    )
    return create_trial(
        state=state, value=value, params=params, distributions=dict(distributions), **extra
    )
