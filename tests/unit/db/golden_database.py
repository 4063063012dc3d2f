"""Writes a small database of the current schema: python tests/unit/db/golden_database.py FILE.

Run once for each schema revision, before its release; the file is then kept as
tests/golden/schema_<revision>.db and never written again.
"""

from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from db_samples import H200, TOOLCHAIN

from db.records import Protocol
from db.session import open_database
from db.store import Store
from ptxgen.bootstrap import Interval
from ptxgen.evidence import Evidence, GpuLimits, GpuReading
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem
from ptxgen.proof import Proof

CONFIG = MmaConfig.from_knobs({name: choices[0] for name, choices in KNOBS.items()})
PROBLEM = Problem(4096, 4096, group_size=64, dtype="bf16", zero="int", bias=True)
STARTED_AT = "2025-01-02 03:04:05.000000"
EVIDENCE = Evidence.of(
    GpuReading(1980, 3201, ("gpu_idle",), 41, 120.5, ()),
    GpuReading(1830, 3201, ("sw_power_cap",), 55, 690.25, (4711,)),
    GpuLimits(1980, 700),
    dropped=("the GPU was throttled (hw_slowdown)",),
)
PROOF = Proof(
    11,
    Interval(5.25, 5.125, 5.5, 11),
    default_us=6.5,
    cublas_us=9.25,
    previous_us=5.5,
    over_default=Interval(1.25, 1.1875, 1.3125, 11),
    over_cublas=Interval(1.75, 1.6875, 1.8125, 11),
    over_previous=Interval(1.0625, 1.03125, 1.125, 11),
)
DEQUANTIZED_US = 11.5
PROOF_0003 = replace(
    PROOF, dequantized_us=DEQUANTIZED_US, over_dequantized=Interval(2.25, 2.125, 2.375, 11)
)
"""What schema 0003 brought: the time of dequantize + matmul."""
OK = Outcome(
    Status.OK,
    time_us=5.25,
    spread=0.0125,
    samples_us=(5.0, 5.25, 5.5),
    rel_err=3.5e-4,
    resources=Resources(64, 0, 98304, 71.5),
    floor_us=2.5,
    clock_mhz=1830,
    evidence=EVIDENCE,
)
BASELINE = Outcome(Status.OK, time_us=9.25)
PREDICTED = Outcome(Status.PREDICTED, time_us=3.0, resources=Resources(64, 0, 98304))


def write(path: Path) -> None:
    """One run with a trial of every outcome class, a baseline, two winners."""
    with open_database(path) as database:
        store = Store(database)
        run_id = store.start_run(H200, TOOLCHAIN, {"budget": "quick", "m": [8]})
        where = (run_id, PROBLEM, 8, Protocol.CHAINED)

        def trial(outcome: Outcome) -> int:
            trial_id = store.start_trial(*where, config=CONFIG, source_digest="ab" * 32)
            store.end_trial(trial_id, outcome)
            return trial_id

        best = trial(OK)
        predicted = trial(PREDICTED)
        baseline = store.start_trial(*where, contender="cublas")
        store.end_trial(baseline, BASELINE)
        for status in Status:
            if status not in (Status.STARTED, Status.OK, Status.PREDICTED):
                trial(Outcome(status, f"why {status.value}"))
        store.start_trial(*where, config=CONFIG, source_digest="cd" * 32)
        times = {"default_us": 6.5, "cublas_us": 9.25, "dequantized_us": DEQUANTIZED_US}
        store.set_winner(best, **times, ties=(CONFIG,), proof=PROOF_0003)
        store.set_winner(predicted)
        store.end_run(run_id)
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for table in ("run", "trial"):  # of a process that is long gone, wherever this runs
            connection.execute(f"UPDATE {table} SET owner = 'host/0/pid:[1]|1|1'")  # noqa: S608
            connection.execute(f"UPDATE {table} SET started_at = '{STARTED_AT}'")  # noqa: S608
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("VACUUM")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
