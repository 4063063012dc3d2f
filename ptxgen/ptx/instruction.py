"""Instruction: one PTX instruction wrapped as a CUDA device function."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ptxgen.arch import ArchSpec
from ptxgen.errors import ArchError


@dataclass(frozen=True, slots=True)
class Instruction:
    """A device function that holds exactly one asm statement.

    Attributes:
        signature: C++ signature without qualifiers, such as "void cp_async_commit()".
        ptx: the PTX text with %0, %1, ... operands.
        outputs: asm output constraints, such as '"=r"(d)'.
        inputs: asm input constraints.
        section: section of the PTX ISA manual that defines it.
        min_capability: lowest compute capability that has it.
        volatile: has an effect besides its outputs, and must not be moved or dropped.
        memory: reads or writes memory that the compiler does not see.
        declares: C++ declaration of a result variable that the function returns.
        returns: expression to return.
        about: what it does, in a sentence or two for readers of the text.
    """

    signature: str
    ptx: str
    section: str
    outputs: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    min_capability: tuple[int, int] = (8, 0)
    volatile: bool = False
    memory: bool = False
    declares: str = ""
    returns: str = ""
    about: str = field(default="", compare=False)

    @property
    def name(self) -> str:
        """The device function's name."""
        return self.signature.split("(", maxsplit=1)[0].split()[-1]

    def render(self) -> str:
        """CUDA C++ of the device function."""
        asm = "asm volatile" if self.volatile else "asm"
        lines = [f"// {line}" for line in self.about.splitlines()]
        lines += [f"// PTX ISA: {self.section}", f"__device__ __forceinline__ {self.signature} {{"]
        if self.declares:
            lines.append(f"  {self.declares};")
        lines.append(f'  {asm}("{self.ptx}"')
        clobber = '"memory"' if self.memory else ""
        tail = [", ".join(self.outputs), ", ".join(self.inputs), clobber]
        while tail and not tail[-1]:
            tail.pop()
        lines.extend(f"      : {part}".rstrip() for part in tail)
        lines[-1] += ");"
        if self.returns:
            lines.append(f"  return {self.returns};")
        lines.append("}")
        return "\n".join(lines)


def effect(
    signature: str,
    ptx: str,
    section: str,
    inputs: tuple[str, ...] = (),
    *,
    min_capability: tuple[int, int] = (9, 0),
) -> Instruction:
    """An instruction without a result: it is there for what it does, and is never moved."""
    return Instruction(
        signature,
        ptx,
        section,
        inputs=inputs,
        min_capability=min_capability,
        volatile=True,
        memory=True,
    )


def render_all(instructions: Iterable[Instruction], arch: ArchSpec) -> str:
    """The device functions, each once, in the order given.

    Raises:
        ArchError: one of them does not exist on the arch.
    """
    unique = {instruction.name: instruction for instruction in instructions}
    for instruction in unique.values():
        if arch.capability < instruction.min_capability:
            major, minor = instruction.min_capability
            raise ArchError(
                f"{instruction.ptx.split()[0]} needs compute capability {major}.{minor}; "
                f"{arch.name} does not have it."
            )
    return "\n\n".join(instruction.render() for instruction in unique.values())
