"""A tuning run as a program, for tests that interrupt or kill it.

Arguments: a folder, and how many candidates are evaluated before the next one waits until the file
"release" is in that folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

import search_fakes

from db.session import open_database
from db.store import Store
from search.budget import Budget
from search.events import Event, Note, TaskEnded, TrialEnded
from search.job import TuneJob
from search.tune import tune


def show(event: Event) -> None:
    """One line an event, for the test to wait for."""
    if isinstance(event, TrialEnded):
        print(f"trial {event.measured}", flush=True)
    elif isinstance(event, Note):
        print(f"note {event.text}", flush=True)
    elif isinstance(event, TaskEnded):
        print("task ended", flush=True)


def main(folder: Path, free: int) -> None:
    """Tunes the small fake space."""
    options = {
        "log": str(folder / "evaluated.log"),
        "hold_after": free,
        "release": str(folder / "release"),
    }
    job = TuneJob(
        problems=(search_fakes.PROBLEM,),
        buckets=(8,),
        toolchain=search_fakes.TOOLCHAIN,
        budget=Budget(trials=100),
        evaluator="search_fakes:create_exact",
        evaluator_options=options,
        limits=search_fakes.PATIENT,
        cache_root=folder / "cache",
        compile_workers=1,
        compile_handler="search_fakes:make_compiler",
        families=search_fakes.families(),
        lock_folder=folder,
    )
    with open_database(folder / "tune.db") as database:
        summary = tune(job, Store(database), show)
    print(f"interrupted {summary.interrupted} tasks {len(summary.tasks)}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
