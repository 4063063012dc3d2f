"""ReportData: everything a report shows, as plain records, and the ratios that follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from db.devices import device_key
from db.imported import IMPORTED
from db.records import RunRecord, TrialRecord, WinnerRecord
from ptxgen.problem import Problem
from ptxgen.roofline import Roofline
from reports.words import size_text, slot_cells, variant_order, variant_text

OURS = "ptxtune"
"""The contender that is ours; every other one is a baseline."""


@dataclass(frozen=True, slots=True)
class ReportData:
    """The input of every renderer.

    Attributes:
        winners: one a GPU model x problem x M x protocol, and batch-invariant ones beside them.
        trials: every attempt, in the order they were made; baselines included.
        runs: the runs that the trials belong to.
        generated_at: when the report was made.
        layer_names: (n, k) to a layer's name, where a model was named.
        pinned: the config that PTXTUNE_PIN forces over these winners, as text; empty where none.
        rooflines: where winners stand, by trial id.
    """

    winners: tuple[WinnerRecord, ...]
    trials: tuple[TrialRecord, ...]
    runs: tuple[RunRecord, ...]
    generated_at: datetime
    layer_names: Mapping[tuple[int, int], str] = field(default_factory=dict)
    pinned: str = ""
    rooflines: Mapping[int, Roofline] = field(default_factory=dict)

    def layer(self, problem: Problem) -> str:
        """The layer's name and size, such as "down, 4096 x 14336"."""
        name = self.layer_names.get((problem.n, problem.k))
        return f"{name}, {size_text(problem)}" if name else size_text(problem)

    def label(self, problem: Problem) -> str:
        """The layer and its variant."""
        return f"{self.layer(problem)}, {variant_text(problem)}"

    def problems(self) -> tuple[Problem, ...]:
        """Problems that have a winner, by variant, then in the order of first appearance."""
        found = list(dict.fromkeys(winner.problem for winner in self.winners))
        return tuple(sorted(found, key=lambda item: variant_order(variant_text(item))))

    def ordered_winners(self) -> list[WinnerRecord]:
        """Winners by variant, layer, protocol and M; batch-invariant ones at the end."""
        order = {problem: index for index, problem in enumerate(self.problems())}
        return sorted(
            self.winners, key=lambda w: (w.batch_invariant, order[w.problem], w.protocol, w.m)
        )

    def slot_cells(self, winner: WinnerRecord) -> tuple[str, ...]:
        """Cells of SLOT_COLUMNS of a winner."""
        problem = winner.problem
        layer = self.layer(problem)
        return slot_cells(layer, problem, winner.m, winner.protocol, winner.batch_invariant)

    def gpus(self) -> dict[str, ReportData]:
        """The part of each GPU model, by a name that tells them apart, in order of appearance.

        Nothing of two models is ever counted, averaged or drawn together.
        """
        found = [*(item.device for item in self.winners), *(run.device for run in self.runs)]
        devices = {device_key(device): device for device in found}
        names = Counter(device.name for device in devices.values())
        return {
            device.name if names[device.name] == 1 else f"{device.name}, {device.num_sms} SMs":
            self._of(key)
            for key, device in devices.items()
        }  # fmt: skip

    def _of(self, key: str) -> ReportData:
        runs = tuple(run for run in self.runs if device_key(run.device) == key)
        ids = {run.id for run in runs}
        return replace(
            self,
            winners=tuple(item for item in self.winners if device_key(item.device) == key),
            trials=tuple(trial for trial in self.trials if trial.run_id in ids),
            runs=runs,
        )

    @property
    def seeds(self) -> tuple[TrialRecord, ...]:
        """Trials of other machines, which a search here tries first."""
        return tuple(trial for trial in self.trials if trial.contender == IMPORTED)

    @property
    def attempts(self) -> tuple[TrialRecord, ...]:
        """The trials of our kernels, without the baselines."""
        return tuple(trial for trial in self.trials if trial.contender == OURS)

    @property
    def predicted(self) -> bool:
        """True where no winner was measured."""
        return bool(self.winners) and all(winner.predicted for winner in self.winners)


def speedup(winner: WinnerRecord) -> float | None:
    """cuBLAS' time over the winner's; None where either was not measured."""
    if winner.predicted or winner.cublas_us is None:
        return None
    return winner.cublas_us / winner.time_us


def default_gain(winner: WinnerRecord) -> float | None:
    """The default config's time over the winner's; None where the default was not timed."""
    return None if winner.default_us is None else winner.default_us / winner.time_us


def floor_share(winner: WinnerRecord) -> float | None:
    """The physical floor over the winner's time, 1 being the floor itself; None where unknown."""
    return winner.floor_us / winner.time_us if winner.floor_us else None
