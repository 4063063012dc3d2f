"""The recorded list: a line a block, its name, its number of kernels, and a digest of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from emitted.samples import AnyBlock
from ptxgen.source import KernelSource

RECORDED = Path(__file__).parents[2] / "data" / "emitted-texts.txt"
DIGITS = 16


def kernel_line(name: str, source: KernelSource) -> str:
    """All that the guard keeps of a kernel: text, entry and launch plan, in one line."""
    text = hashlib.sha256(f"{source.arch}\n{source.entry}\n{source.text}".encode()).hexdigest()
    return f"{name} {text} {json.dumps(source.plan.to_dict(), sort_keys=True)}"


def block_line(block: AnyBlock) -> str:
    """What the list holds of a block."""
    lines = [kernel_line(name, source) for name, source in block.kernels()]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    return f"{block.name}: {len(lines)} {digest[:DIGITS]}"


def recorded() -> dict[str, str]:
    """The list's lines, by block name."""
    lines = RECORDED.read_text().splitlines()
    return {line.partition(": ")[0]: line for line in lines}


def changed(blocks: Iterable[AnyBlock], known: Mapping[str, str]) -> list[str]:
    """Lines of blocks that are not as recorded, as they are now."""
    return [line for line in map(block_line, blocks) if known.get(line.partition(": ")[0]) != line]
