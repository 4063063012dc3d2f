"""Programmatic dependent launch (PTX ISA, "griddepcontrol"), sm_90 and up."""

from __future__ import annotations

from ptxgen.ptx.instruction import Instruction, effect

_SECTION = "Parallel Synchronization and Communication Instructions: griddepcontrol"


def launch_dependents() -> Instruction:
    """Lets the next kernel of the stream start its prologue as soon as there is room."""
    return effect(
        "void launch_dependents()",
        "griddepcontrol.launch_dependents;",
        _SECTION,
    )


def wait_for_previous() -> Instruction:
    """Waits until the previous kernel has ended and its writes are visible."""
    return effect(
        "void wait_for_previous()",
        "griddepcontrol.wait;",
        _SECTION,
    )
