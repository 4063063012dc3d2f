"""The arch and GPU tables: consistent in themselves, and findable under every name."""

from __future__ import annotations

import pytest

from ptxgen.arch import (
    ARCHS,
    GPUS,
    RESERVED_SMEM_BYTES,
    arch_named,
    arch_of_capability,
    gpu_named,
)
from ptxgen.errors import ArchError


@pytest.mark.parametrize("name", ARCHS)
def test_an_arch_is_consistent(name: str) -> None:
    spec = arch_named(name)
    major, minor = spec.capability
    assert name.rstrip("a") == f"sm_{major}{minor}"
    assert spec.smem_per_cta + RESERVED_SMEM_BYTES == spec.smem_per_sm
    assert spec.has_pdl == (spec.capability >= (9, 0))
    assert spec.has_wgmma == name.endswith("a")
    assert spec.max_warps_per_sm % 4 == 0


@pytest.mark.parametrize("name", GPUS)
def test_a_gpu_is_found_under_both_names(name: str) -> None:
    gpu = GPUS[name]
    assert gpu_named(name) is gpu_named(name.upper()) is gpu_named(gpu.device_name) is gpu
    assert gpu.spec is ARCHS[gpu.arch]
    assert gpu.num_sms > 0
    assert gpu.read_gbps > 0
    assert gpu.tensor_tflops > 0


def test_a_capability_gets_its_best_arch() -> None:
    assert arch_of_capability(9, 0).name == "sm_90a"
    assert arch_of_capability(8, 6).name == "sm_86"


def test_unknown_names_are_refused_with_the_known_ones() -> None:
    with pytest.raises(ArchError, match=r"'sm_70'.*sm_80.*sm_90a"):
        arch_named("sm_70")
    with pytest.raises(ArchError, match=r"'voodoo'.*h200.*rtx4090"):
        gpu_named("voodoo")
    with pytest.raises(ArchError, match=r"7\.5.*8\.0.*9\.0"):
        arch_of_capability(7, 5)
