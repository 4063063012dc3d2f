"""On a device: random shapes for some seconds, and the kinds of make sanitize without a tool."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_kernels import arch
from sanitize.kinds import kinds_for
from sanitize.prepare import prepare
from sanitize.table import PLAIN, column_of
from sanitize.tool import run_plain

from ptxgen.outcome import Status
from search.shape_soak import ShapeJob, soak_shapes

pytestmark = pytest.mark.gpu


def test_random_shapes_are_right(tmp_path: Path) -> None:
    report = soak_shapes(ShapeJob(tmp_path, 15.0, seed=1))
    assert [failure.reproduce for failure in report.failures] == []
    assert report.stopped == ""
    assert {status for _, status in report.checks} == {Status.OK}
    assert report.total > 50


def test_every_kind_is_right_twice_in_a_row(tmp_path: Path) -> None:
    jobs = prepare(kinds_for(arch()), arch(), tmp_path)
    column = column_of(PLAIN, run_plain(tmp_path, 60.0), jobs, tmp_path)
    assert column.complaint == ""
    assert column.failures == {}
