"""How many compile processes a host gets."""

from __future__ import annotations

import pytest

from search.compile_pool import MAX_WORKERS, default_workers


@pytest.mark.parametrize(
    ("count", "workers"),
    [(1, 1), (2, 2), (8, 8), (9, 8), (10, 8), (12, 10), (16, 14), (18, 16), (128, 16)],
)
def test_large_hosts_keep_cores_for_tuner_and_worker(count: int, workers: int) -> None:
    assert default_workers(count) == workers <= min(count, MAX_WORKERS)


def test_more_cores_never_get_fewer_processes() -> None:
    given = [default_workers(count) for count in range(1, 200)]
    assert given == sorted(given)
