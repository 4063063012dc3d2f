"""One name per GPU model, however the driver, the user or another tool spells it."""

from __future__ import annotations

import re
from functools import lru_cache

from db.records import DeviceRecord
from ptxgen.arch import GPUS

_VENDOR_WORDS = re.compile(r"\b(nvidia|tesla|geforce|quadro)\b")
_NOT_ALPHANUMERIC = re.compile(r"[^a-z0-9]+")


def _squash(name: str) -> str:
    words = re.sub(r"[_\-/]+", " ", name.lower())
    return _NOT_ALPHANUMERIC.sub("", _VENDOR_WORDS.sub(" ", words))


# Spellings that other tools use for the GPUs of the table; the table's own names come for free.
_SPELLINGS = {
    "h100sxm": "h100",
    "h100sxm5": "h100",
    "h100hbm3": "h100",
    "h100sxm580gb": "h100",
    "h200sxm": "h200",
    "h200141gbhbm3e": "h200",
    "a100sxm80gb": "a100",
}
_ALIASES = {
    **_SPELLINGS,
    **{_squash(gpu.device_name): _squash(gpu.name) for gpu in GPUS.values()},
}


@lru_cache(maxsize=1024)
def canonical_name(name: str) -> str:
    """The model's name without vendor words: "NVIDIA H200" and "NVIDIA_H200" are both "h200".

    Names that differ in memory or form factor (A100 40GB, H100 PCIe, MIG slices) stay different.
    """
    squashed = _squash(name)
    return _ALIASES.get(squashed, squashed)


def device_key(device: DeviceRecord) -> str:
    """What makes two devices the same model for the winners: name, compute capability, SMs."""
    return f"{canonical_name(device.name)}/{device.capability}/{device.num_sms}"
