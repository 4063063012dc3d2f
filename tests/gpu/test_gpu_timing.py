"""TimedGraph on a real GPU: its launches are ordered behind what was queued before."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

from ptxgen.timing import TimedGraph

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def test_queued_work_comes_before_the_first_launch() -> None:
    """Seen on an H200: a warm-up wrote into memory that a queued reference product still read."""
    value, seen = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)
    value.fill_(1)
    TimedGraph(lambda copy: seen.copy_(value), copies=1)
    assert seen.item() == 1


def test_a_graph_keeps_the_memory_that_its_launches_write() -> None:
    out = torch.zeros(1, device="cuda")
    alive = weakref.ref(out)
    graph = TimedGraph(lambda copy, y=out: y.fill_(1), copies=1)
    del out
    gc.collect()
    assert graph.sample_us() > 0
    assert alive() is not None, "freed memory would be written by every replay"
