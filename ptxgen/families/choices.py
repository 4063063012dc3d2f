"""Rules that families share: knobs are of their choices, warpgroups share out the features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ptxgen.config import KernelConfig, Scalar


def choice_violations(config: KernelConfig, knobs: Mapping[str, Sequence[Scalar]]) -> Iterator[str]:
    """Every knob whose value is none of its choices."""
    for name, choices in knobs.items():
        value = getattr(config, name)
        if value not in choices:
            yield f"{name} = {value} is not one of {', '.join(map(str, choices))}"


def feature_share_violations(block_n: int, warpgroups: int) -> Iterator[str]:
    """A warpgroup multiplies one or two m64 operands."""
    if block_n not in (64 * warpgroups, 128 * warpgroups):
        yield (
            f"block_n = {block_n} does not give each of {warpgroups} warpgroups 64 or 128 features"
        )
