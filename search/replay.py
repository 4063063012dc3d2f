"""Replay: recorded trials in place of a GPU, so that searches are run and compared offline.

`simulate` drives a sampler alone, in milliseconds a trial; `create` makes an evaluator for
GpuWorker, so that the whole tuner runs on recorded trials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from db.records import DeviceRecord
from db.trial_file import Environment, TrialFile, read_trials
from db.trial_rows import SharedTrial
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.errors import TrialFileError
from ptxgen.families import FAMILIES, default_config
from ptxgen.families.base import Family
from ptxgen.families.view import FamilyView
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem
from search.evaluator import Candidate, Contender, EvaluateRequest, FinalsRequest, name_of
from search.events import Task
from search.ranking import Ranker, gpu_spec_of
from search.samplers import Sampler, SamplerName
from search.space import Space


class LimitedFamily(FamilyView):
    """A family of which only some configs are offered: a space small enough to exhaust.

    Args:
        base: the family.
        configs: what is offered, by (problem key, M); the default of another pair is the base's.
    """

    def __init__(
        self, base: Family, configs: Mapping[tuple[str, int], Sequence[KernelConfig]]
    ) -> None:
        super().__init__(base)
        self._configs = configs

    def candidates(self, problem: Problem, arch: ArchSpec, m: int) -> Iterator[KernelConfig]:
        for config in self._offered(problem, m):
            if not self._base.violations(problem, config, arch):
                yield config

    def default_config(
        self, problem: Problem, arch: ArchSpec, m: int, num_sms: int
    ) -> KernelConfig:
        """The base's default, or what is offered and differs from it in the fewest knobs."""
        wanted = self._base.default_config(problem, arch, m, num_sms)
        offered = list(self.candidates(problem, arch, m))
        return min(
            offered or [wanted], key=lambda config: (_differing(config, wanted), config.key())
        )

    def _offered(self, problem: Problem, m: int) -> Sequence[KernelConfig]:
        found = self._configs.get((problem.key(), m), ())
        return [config for config in found if config.family == self.name]


@dataclass(frozen=True, slots=True)
class Recording:
    """The trials of one environment, by task.

    Attributes:
        environment: device and toolchain.
        tasks: task -> config key -> its trial.
    """

    environment: Environment
    tasks: dict[Task, dict[str, SharedTrial]]

    @property
    def device(self) -> DeviceRecord:
        return self.environment.device

    @property
    def arch(self) -> ArchSpec:
        return self.device.arch

    def families(self) -> dict[str, Family]:
        """Families that offer the recorded configs and no others."""
        offered: dict[tuple[str, int], dict[str, KernelConfig]] = {}
        for task, trials in self.tasks.items():
            mine = offered.setdefault((task.problem.key(), task.m), {})
            mine.update((key, trial.config) for key, trial in trials.items())
        configs = {key: list(found.values()) for key, found in offered.items()}
        used = {config.family for found in configs.values() for config in found}
        return {
            name: LimitedFamily(base, configs) for name, base in FAMILIES.items() if name in used
        }

    def outcome(self, task: Task, config: KernelConfig) -> Outcome:
        """How a config ended; one that was not recorded is invalid."""
        trial = self.tasks.get(task, {}).get(config.key())
        if trial is None:
            return Outcome(Status.INVALID, "not among the recorded trials")
        return Outcome(
            trial.status,
            "" if trial.status is Status.OK else f"recorded as {trial.status.value}",
            time_us=trial.time_us,
            spread=trial.spread,
            rel_err=trial.rel_err,
            floor_us=trial.floor_us,
        )

    def best_us(self, task: Task) -> float:
        """The fastest recorded time of a task; infinite where none is ok."""
        times = (trial.time_us for trial in self.tasks[task].values())
        return min((time_us for time_us in times if time_us is not None), default=float("inf"))


def load_recording(path: Path) -> Recording:
    """The recording in a trial file.

    Raises:
        TrialFileError: a bad file, or one with no trials or several environments.
    """
    return recording_of(read_trials(path), str(path))


def recording_of(content: TrialFile, name: str) -> Recording:
    """The recording of a trial file's content; `name` is for messages."""
    if len(content.environments) != 1 or not content.trials:
        raise TrialFileError(
            f"{name} holds {len(content.trials)} trials of {len(content.environments)} "
            f"environments; a recording is of one. Record one with ptxtune selfcheck --record."
        )
    tasks: dict[Task, dict[str, SharedTrial]] = {}
    for trial in content.trials:
        task = Task(trial.problem, trial.m, trial.protocol)
        found = tasks.setdefault(task, {})
        known = found.get(trial.config.key())
        # A finalist stands twice in a database, the second time at the clock of sustained work,
        # which would set it behind the others, whose time is that of their screening.
        if known is None or _as_screened(trial) < _as_screened(known):
            found[trial.config.key()] = trial
    return Recording(content.environments[0], tasks)


def _as_screened(trial: SharedTrial) -> float:
    """The time; infinite where it did not end well."""
    return float("inf") if trial.status is not Status.OK or trial.time_us is None else trial.time_us


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulated search found.

    Attributes:
        config: the fastest one; None where nothing was ok.
        regret: its time over the best recorded one, minus 1; infinite where nothing was ok.
        regrets: what the regret was after each trial; its length is the number of trials.
    """

    config: KernelConfig | None
    regret: float
    regrets: tuple[float, ...]

    @property
    def trials(self) -> int:
        """Outcomes that were looked up."""
        return len(self.regrets)

    def regret_after(self, trials: int) -> float:
        """The regret had it ended after so many trials; one that ended before keeps its last."""
        found = self.regrets[:trials]
        return found[-1] if found else float("inf")


FirstConfigs = Callable[[Recording, Task, Space, int], list[KernelConfig]]
"""What a search tries first, from a recording, one of its tasks, its space and a seed."""


def model_first(recording: Recording, task: Task, space: Space, seed: int) -> list[KernelConfig]:
    """The default and the model's seeds, as a real run tries them first."""
    families = recording.families()
    ranker = Ranker(task, recording.arch, gpu_spec_of(recording.device), families)
    default = default_config(
        task.problem, recording.arch, task.m, recording.device.num_sms, families
    )
    return [default, *ranker.seeds(space, seed)]


def simulate(
    recording: Recording,
    task: Task,
    sampler: SamplerName,
    trials: int,
    *,
    seed: int = 0,
    first: FirstConfigs | None = model_first,
) -> Simulated:
    """Searches the recorded configs of one task.

    Args:
        recording: the trials.
        task: one of its tasks.
        sampler: by name.
        trials: most outcomes to look up.
        seed: of every random choice.
        first: what is tried before the sampler chooses; None for nothing.
    """
    space = Space(task.problem, recording.arch, task.m, recording.families())
    asker = Sampler(space, sampler, seed)
    if first is not None:
        asker.enqueue(first(recording, task, space, seed))
    best_us, best, regrets = float("inf"), None, list[float]()
    while len(regrets) < trials and (suggestion := asker.ask()) is not None:
        outcome = recording.outcome(task, suggestion.config)
        asker.tell(suggestion, outcome)
        if outcome.time_us is not None and outcome.time_us < best_us:
            best_us, best = outcome.time_us, suggestion.config
        if outcome.status is not Status.INVALID:
            regrets.append(best_us / recording.best_us(task) - 1)
    return Simulated(best, best_us / recording.best_us(task) - 1, tuple(regrets))


class ReplayEvaluator:
    """See search.evaluator.Evaluator; needs no GPU."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording

    def device(self) -> DeviceRecord:
        return self._recording.device

    def driver_version(self) -> str:
        return self._recording.environment.toolchain.driver

    def evaluate(self, request: EvaluateRequest) -> Outcome:
        return self._outcome(request, request.candidate)

    def finals(self, request: FinalsRequest) -> list[Outcome]:
        return [self._outcome(request, candidate) for candidate in request.candidates]

    def _outcome(self, request: EvaluateRequest | FinalsRequest, candidate: Contender) -> Outcome:
        if not isinstance(candidate, Candidate):
            reason = f"{name_of(candidate)} is not among the recorded trials"
            return Outcome(Status.LOAD_ERROR, reason)
        task = Task(request.problem, request.m, request.protocol)
        found = self._recording.outcome(task, candidate.config)
        samples = () if found.time_us is None else (found.time_us,) * 3
        return replace(
            found, samples_us=samples, spread=found.spread or 0.0, resources=candidate.resources
        )


def create(options: dict[str, Any]) -> ReplayEvaluator:
    """Factory for search.worker: option "path" names the recording."""
    return ReplayEvaluator(load_recording(Path(options["path"])))


def _differing(config: KernelConfig, wanted: KernelConfig) -> int:
    if config.family != wanted.family:
        return 1000
    other = wanted.to_dict()
    return sum(value != other[name] for name, value in config.to_dict().items())
