"""The header's own declarations of the CUDA driver API agree with NVIDIA's."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest
from bundle_helpers import compiled, run
from cuda.bindings import driver

HEADER = files("ptxgen.bundle").joinpath("runtime.h").read_text()

NUMBERS = {
    "PTXTUNE_CU_ATTRIBUTE_SMEM_OPTIN": (
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    ),
    "PTXTUNE_CU_ATTRIBUTE_CC_MAJOR": (
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    ),
    "PTXTUNE_CU_ATTRIBUTE_CC_MINOR": (
        driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
    ),
    "PTXTUNE_CU_FUNC_MAX_DYNAMIC_SMEM": (
        driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    ),
    "PTXTUNE_CU_FUNC_SMEM_CARVEOUT": (
        driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT
    ),
    "PTXTUNE_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION": (
        driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    ),
    "PTXTUNE_CU_TENSOR_MAP_UINT16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16,
    "PTXTUNE_CU_TENSOR_MAP_INTERLEAVE_NONE": (
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
    ),
    "PTXTUNE_CU_TENSOR_MAP_SWIZZLE_128B": driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
    "PTXTUNE_CU_TENSOR_MAP_L2_PROMOTION_256B": (
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    ),
    "PTXTUNE_CU_TENSOR_MAP_OOB_FILL_ZERO": (
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_enum_values(name: str) -> None:
    found = re.search(rf"#define {name} (\d+)\n", HEADER)
    assert found is not None
    assert int(found[1]) == NUMBERS[name].value


def test_every_enum_value_of_the_header_is_tested() -> None:
    assert set(re.findall(r"#define (PTXTUNE_CU_\w+)", HEADER)) == set(NUMBERS)


def test_structures_have_the_drivers_layout(tmp_path: Path) -> None:
    # cuda.h on 64-bit: CUlaunchAttribute is 72 bytes with its union at 8; CUlaunchConfig is 56
    # bytes with hStream at 32, attrs at 40 and numAttrs at 48.
    (tmp_path / "runtime.h").write_text(HEADER)
    source = tmp_path / "sizes.c"
    source.write_text(
        '#include "runtime.h"\n'
        "int main(void) {\n"
        "    return sizeof(ptxtune_launch_attribute) != 72 ||\n"
        "           offsetof(ptxtune_launch_attribute, value) != 8 ||\n"
        "           sizeof(ptxtune_launch_config) != 56 ||\n"
        "           offsetof(ptxtune_launch_config, stream) != 32 ||\n"
        "           offsetof(ptxtune_launch_config, attributes) != 40 ||\n"
        "           offsetof(ptxtune_launch_config, num_attributes) != 48;\n"
        "}\n"
    )
    assert run(compiled(source, tmp_path / "sizes", tmp_path), {}) == (0, "")
