"""How numbers, problems and configs are written in tables, legends and axes; pure text."""

from __future__ import annotations

from ptxgen.config import KernelConfig
from ptxgen.problem import Problem
from reports.table import Column

MISSING = "-"

SLOT_COLUMNS = (
    Column("layer", "N x K", numeric=False),
    Column("variant", numeric=False),
    Column("M"),
    Column("protocol", numeric=False),
)
"""What a row is about, in every table of winners."""


def time_text(time_us: float | None) -> str:
    """Microseconds with four significant digits, such as 9.872 or 1450."""
    if time_us is None:
        return MISSING
    digits = max(0, 3 - len(str(int(time_us))) + 1) if time_us >= 1 else 4
    return f"{time_us:.{digits}f}"


def ratio_text(ratio: float | None) -> str:
    """A speed-up, such as 2.81x."""
    return MISSING if ratio is None else f"{ratio:.2f}x"


def share_text(share: float | None) -> str:
    """A share of the physical floor, such as 87%."""
    return MISSING if share is None else f"{share:.0%}"


def variant_text(problem: Problem, batch_invariant: bool = False) -> str:
    """All of a problem but its size, such as "fp16 sym g128"; and whether the order of sums is one.

    Batch-invariant winners are of a variant of their own: they are never counted with the others.
    """
    group = "gK" if problem.whole_k else f"g{problem.group_size}"
    words = [problem.dtype, problem.zero, group]
    words += ["bias"] if problem.bias else []
    words += ["batch-invariant"] if batch_invariant else []
    return " ".join(words)


def variant_order(variant: str) -> tuple[bool, str]:
    """Sort key of variant texts: fp16 first."""
    return not variant.startswith("fp16"), variant


def size_text(problem: Problem) -> str:
    """A layer's size, N x K."""
    return f"{problem.n} x {problem.k}"


def slot_cells(
    layer: str, problem: Problem, m: int, protocol: str, batch_invariant: bool = False
) -> tuple[str, ...]:
    """Cells of SLOT_COLUMNS; layer is the layer's name and size."""
    return layer, variant_text(problem, batch_invariant), str(m), str(protocol)


def config_text(config: KernelConfig) -> str:
    """A config in one short line: family, then each knob's initials and value.

    Booleans show their initials where they are true; words are cut to three letters. The full
    form is config.key().
    """
    words = [config.family]
    for name, value in config.to_dict().items():
        if name == "family":
            continue
        initials = "".join(part[0] for part in name.split("_"))
        if isinstance(value, bool):
            words += [initials] if value else []
        elif isinstance(value, str):
            words.append(f"{initials}:{value[:3]}")
        else:
            words.append(f"{initials}{value}")
    return " ".join(words)
