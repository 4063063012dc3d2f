"""Every instruction is found by its device function's name, and a kernel's PTX by its calls."""

from __future__ import annotations

import pkgutil

import pytest
from test_ptx_vocabulary import VOCABULARY

import ptxgen.ptx
from ptxgen.arch import ARCHS
from ptxgen.errors import ConfigError
from ptxgen.ptx import registry
from ptxgen.ptx.instruction import Instruction
from ptxgen.ptx.registry import called_instructions, instruction_named

ARCH = ARCHS["sm_90a"]
NAMED = [item for item in VOCABULARY if item.name not in {"pick", "sub2", "mul2"}]
"""But for one of a name that no kernel uses, and those that depend on the arch."""


def test_every_module_of_the_package_is_looked_through() -> None:
    modules = {item.name for item in pkgutil.iter_modules(ptxgen.ptx.__path__)}
    known = {module.__name__.rpartition(".")[2] for module in registry.MODULES}
    assert modules - {"instruction", "registry"} == known


@pytest.mark.parametrize("instruction", NAMED, ids=lambda item: item.ptx[:40])
def test_an_instruction_is_found_by_its_name(instruction: Instruction) -> None:
    found = [instruction_named(instruction.name, dtype, ARCH) for dtype in ("fp16", "bf16")]
    assert instruction in found


def test_no_two_instructions_have_one_name() -> None:
    made = [maker for module in registry.MODULES for maker in registry.makers(module)]
    fixed, numbered = registry._entries()
    halves = sum("half" in registry._taken(maker) for maker in made)
    assert len(fixed) + len(numbered) == len(made) + halves


def test_dtype_and_arch_are_the_kernels() -> None:
    old = ARCHS["sm_80"]
    texts = {
        instruction_named("mul2", dtype, arch)
        for dtype in ("fp16", "bf16")
        for arch in (old, ARCH)  # type: ignore[arg-type]
    }
    assert len({item.ptx for item in texts if item}) == 3, "bf16 before sm_90 is an fma"


def test_numbers_are_read_from_names() -> None:
    wait = instruction_named("cp_async_wait_3", "fp16", ARCH)
    assert wait is not None
    assert wait.ptx == "cp.async.wait_group 3;"
    assert instruction_named("cp_async_wait_", "fp16", ARCH) is None
    with pytest.raises(ConfigError, match="25 registers"):
        instruction_named("set_registers_up_25", "fp16", ARCH)


def test_calls_are_found_in_order_once_and_not_in_comments() -> None:
    code = """\
      wgmma_fence();  // not wgmma_commit()
      x = shared_address(smem) + release(1);
      wgmma_fence();
      wgmma_m64n64k16_swizzled(acc, a, b); wgmma_m64n16k16(acc, a, b);
    """
    names = [item.name for item in called_instructions(code, "bf16", ARCH)]
    assert names == ["wgmma_fence", "shared_address", "wgmma_m64n64k16_swizzled", "wgmma_m64n16k16"]


def test_a_function_says_what_it_does_with_its_own_numbers() -> None:
    wait = instruction_named("wgmma_wait_1", "fp16", ARCH)
    assert wait is not None
    first, second, *_ = wait.render().splitlines()
    assert first == "// Waits until at most 1 of the latest groups are unfinished."
    assert second.startswith("// PTX ISA: ")
    fixed, _ = registry._entries()
    for name in fixed:
        made = instruction_named(name, "fp16", ARCH)
        assert made is not None
        assert made.about.endswith(".")
        assert "Raises" not in made.about
