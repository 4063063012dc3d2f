"""Guard: emitted texts and launch plans of a fixed sample of kernels are what they were.

Where they change on purpose: PYTHONPATH=tests/helpers python -m emitted --record, in that commit.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import islice

import pytest
from emitted.record import block_line, kernel_line, recorded
from emitted.samples import AnyBlock, Block, blocks

from ptxgen.families import FAMILIES

BLOCKS = blocks()
FEWEST_KERNELS = 10_000


@pytest.mark.sampled(every=25)
@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_texts_and_plans_are_as_recorded(block: AnyBlock) -> None:
    assert block_line(block) == recorded()[block.name]


def test_the_list_is_of_this_sample() -> None:
    assert list(recorded()) == [block.name for block in BLOCKS]
    kernels = [int(line.split(": ")[1].split()[0]) for line in recorded().values()]
    assert sum(kernels) >= FEWEST_KERNELS


def test_a_line_tells_two_kernels_apart() -> None:
    lines = [kernel_line(*named) for named in islice(BLOCKS[0].kernels(), 8)]
    assert len({line.split(maxsplit=3)[-1] for line in lines}) == len(lines)


def test_every_choice_of_every_knob_is_in_the_sample() -> None:
    seen: dict[str, dict[str, set[object]]] = defaultdict(lambda: defaultdict(set))
    for block in BLOCKS:
        if isinstance(block, Block) and block.arch in {"sm_80", "sm_90a"}:
            for config in block.configs():
                for name, value in config.to_dict().items():
                    seen[block.family][name].add(value)
    for name, family in FAMILIES.items():
        missing = {
            knob: left
            for knob, choices in family.knobs().items()
            if (left := set(choices) - seen[name][knob])
        }
        assert not missing, name
