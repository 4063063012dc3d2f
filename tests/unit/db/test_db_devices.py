"""Devices: one model, one key, however it is spelled; different models, different keys."""

from __future__ import annotations

from dataclasses import replace

import pytest
from db_samples import H200

from db.devices import canonical_name, device_key
from ptxgen.arch import GPUS

DRIVER_NAMES = [
    "NVIDIA H200",
    "NVIDIA H200 NVL",
    "NVIDIA H200 MIG 1g.18gb",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H100 PCIe",
    "NVIDIA H100 NVL",
    "NVIDIA A100-SXM4-80GB",
    "NVIDIA A100-SXM4-40GB",
    "NVIDIA A100-PCIE-40GB",
    "NVIDIA A10",
    "NVIDIA A10G",
    "NVIDIA L4",
    "NVIDIA L40",
    "NVIDIA L40S",
    "NVIDIA GeForce RTX 3090",
    "NVIDIA GeForce RTX 3090 Ti",
    "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 4090 D",
    "Tesla T4",
]


def spellings(name: str) -> set[str]:
    bare = name.removeprefix("NVIDIA ")
    return {
        form(text)
        for text in (name, bare, bare.replace("GeForce ", ""))
        for form in (str, str.lower, lambda t: t.replace(" ", "_"), lambda t: t.replace(" ", "-"))
    }


@pytest.mark.parametrize("name", DRIVER_NAMES)
def test_every_spelling_of_a_name_is_the_same(name):
    assert {canonical_name(text) for text in spellings(name)} == {canonical_name(name)}


def test_different_models_stay_different():
    assert len({canonical_name(name) for name in DRIVER_NAMES}) == len(DRIVER_NAMES)


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.name)
def test_the_short_name_of_the_table_is_the_drivers_name(gpu):
    assert canonical_name(gpu.name) == canonical_name(gpu.device_name)


def test_the_key_parts_models_of_one_name_by_capability_and_size():
    assert device_key(H200) == "h200/9.0/132"
    assert device_key(replace(H200, num_sms=16)) != device_key(H200)
    assert device_key(replace(H200, capability="9.1")) != device_key(H200)
    same = replace(H200, name="H200", uuid="", memory_bytes=0, measured=False, power_limit_w=0)
    assert device_key(same) == device_key(H200)
