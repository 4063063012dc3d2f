"""Test tiers: GPU tests skip, with the reason, where there is no device; samples are cut."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import HealthCheck, settings

# An example that takes long on a busy machine is no fault.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


@pytest.hookimpl(tryfirst=True)  # before -m chooses by marker
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    seen: Counter[str] = Counter()
    skip = pytest.mark.skip(reason="no CUDA device: torch.cuda.is_available() is False")
    for item in items:
        if item.get_closest_marker("gpu") and not torch.cuda.is_available():
            item.add_marker(skip)
        if sampled := item.get_closest_marker("sampled"):
            test = item.nodeid.split("[", maxsplit=1)[0]
            if seen[test] % sampled.kwargs.get("every", 2):
                item.add_marker(pytest.mark.deep)
            seen[test] += 1
