"""Serving: whether a stored winner may answer a question that is not the one it won.

A winner was the fastest for one M, one kind of launches and one GPU model. For anything else it
serves only where it beats what would be served without it: the built-in default. Measured where
both kernels do the very same work, else by the model, which lives above this package and is handed
in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from db.devices import device_key
from db.records import DeviceRecord, Protocol, WinnerRecord
from ptxgen.arch import ArchSpec
from ptxgen.config import KernelConfig
from ptxgen.families import default_config, family_named
from ptxgen.families.invariant import invariant_default
from ptxgen.outcome import Resources
from ptxgen.problem import Problem

Model = Callable[[KernelConfig, Resources | None, int, Protocol], float]
"""Predicted microseconds of a config for a batch of m on the device of the question; with the
compiler's registers, or, where None, a guess."""

GAIN = 0.95
"""Of the default's time is the most that a winner of another M, launch or GPU may take. The model
errs by some percent: of the ten fastest configs of every recorded M that it put below this share of
another M's default, none was measured 3 % slower than that (H200, 2026-11-29 and 30)."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked.

    Attributes:
        problem: the layer.
        m: tokens; 0 is answered like 1.
        bucket: of m.
        device: that the kernel is for.
        protocol: how launches follow each other.
        arch: of the device.
        num_sms: of the device, for its default.
        batch_invariant: whether only kernels of the one order of sums may answer.
        model: predicts; None where no model is at hand.
    """

    problem: Problem
    m: int
    bucket: int
    device: DeviceRecord
    protocol: Protocol
    arch: ArchSpec
    num_sms: int
    batch_invariant: bool
    model: Model | None

    @property
    def tokens(self) -> int:
        return max(self.m, 1)

    def default(self) -> KernelConfig:
        """What answers where nothing is stored. Raises ConfigError where no config is legal."""
        return self._default(self.tokens, self.num_sms, self.protocol)

    def default_of(self, winner: WinnerRecord) -> KernelConfig:
        """The default that the winner was compared with where it won."""
        sms = self.num_sms if self.is_here(winner) else winner.device.num_sms
        return self._default(winner.m, sms, winner.protocol)

    def _default(self, m: int, num_sms: int, protocol: Protocol) -> KernelConfig:
        if self.batch_invariant:
            config = invariant_default(self.problem, self.arch, m)
        else:
            config = default_config(self.problem, self.arch, m, num_sms)
        return config.chained() if protocol is Protocol.CHAINED else config

    def is_here(self, winner: WinnerRecord) -> bool:
        """Whether it won on this GPU model."""
        return device_key(winner.device) == device_key(self.device)

    def differs(self, winner: WinnerRecord) -> tuple[str, ...]:
        """In what the winner's own question was another one; empty where it was this one."""
        found = []
        if winner.m != self.m:
            found.append(f"M = {winner.m}, asked for {self.m}")
        if winner.protocol is not self.protocol:
            found.append(f"{winner.protocol.value} launches, asked for {self.protocol.value}")
        if not self.is_here(winner):
            found.append(f"{winner.device.name}, asked for {self.device.name}")
        return tuple(found)


def refusal(winner: WinnerRecord, question: Question) -> str:
    """Why a winner may not answer the question; empty where it may. Its config must be legal.

    Raises:
        ConfigError: the question has no default.
    """
    if not question.differs(winner):
        return ""
    tiles, known_tiles = (_tiles(question, winner.config, m) for m in (question.tokens, winner.m))
    if question.tokens > winner.m and tiles > known_tiles:
        return f"takes {tiles} tiles of tokens where it won with {known_tiles}"
    default = question.default()
    same_work = tiles == known_tiles and _same_default(winner, question, default)
    if same_work and _measured_here(winner, question):
        return ""
    if question.model is None:
        return "nothing says that it beats the default"
    share = _predicted_share(winner, default, question, question.model)
    needed = 1.0 if same_work and _beat_the_default(winner, question) else GAIN
    return "" if share <= needed else f"by the model {_against(share)} the default"


def _against(share: float) -> str:
    if share > 1.0:
        return f"{share - 1:.0%} slower than"
    return f"less than {1 - GAIN:.0%} faster than"


def _same_default(winner: WinnerRecord, question: Question, default: KernelConfig) -> bool:
    """Whether the kernel that the winner beat would do the same work here."""
    if question.default_of(winner) != default:
        return False
    tiles = (_tiles(question, default, m) for m in (question.tokens, winner.m))
    return len(set(tiles)) == 1


def _measured_here(winner: WinnerRecord, question: Question) -> bool:
    """Whether it was timed on this GPU model, in these launches, and not slower than the default.

    A default without a time failed where the winner did not.
    """
    if winner.predicted or winner.protocol is not question.protocol:
        return False
    if not question.is_here(winner):
        return False
    return winner.default_us is None or winner.time_us <= winner.default_us


def _beat_the_default(winner: WinnerRecord, question: Question) -> bool:
    """Whether it beat the same work's default where it won; elsewhere than here by GAIN."""
    if winner.default_us is None or winner.protocol is not question.protocol:
        return False
    needed = 1.0 if question.is_here(winner) else GAIN
    return winner.time_us <= needed * winner.default_us


def _predicted_share(
    winner: WinnerRecord, default: KernelConfig, question: Question, model: Model
) -> float:
    """The winner's predicted time over the default's.

    Registers of the default are a guess, so the winner has to win with a guess as well.
    """
    m, protocol = question.tokens, question.protocol
    ours = max(
        model(winner.config, resources, m, protocol) for resources in {winner.resources, None}
    )
    theirs = model(default, None, m, protocol)
    if ours == float("inf"):
        return ours
    return ours / theirs


def _tiles(question: Question, config: KernelConfig, m: int) -> int:
    """Tiles of tokens that a batch of m takes."""
    plan = family_named(config.family).plan(question.problem, config, question.arch)
    return plan.m_tiles(m)
