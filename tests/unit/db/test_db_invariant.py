"""Batch-invariant winners: kept beside the ordinary ones, served only where asked for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from db_samples import H200, SM90A, TOOLCHAIN, ok

from db import query
from db.records import Answer, Level, Protocol
from db.session import Database
from db.store import Store
from ptxgen.families import emit
from ptxgen.families.invariant import INVARIANT, invariant_default, is_invariant
from ptxgen.families.mma.config import MmaConfig
from ptxgen.problem import Problem

PROBLEM = Problem(4096, 4096)
ORDINARY = replace(INVARIANT, warps_k=8, block_k=1024)


def won(
    store: Store, config: MmaConfig, time_us: float, *, batch_invariant: bool, m: int = 8
) -> bool:
    run_id = store.start_run(H200, TOOLCHAIN, {})
    digest = emit(PROBLEM, config, SM90A).digest()
    trial_id = store.start_trial(
        run_id, PROBLEM, m, Protocol.PLAIN, config=config, source_digest=digest
    )
    store.end_trial(trial_id, ok(time_us))
    return store.set_winner(trial_id, batch_invariant=batch_invariant)


def ask(database: Database, m: int = 8, *, batch_invariant: bool) -> Answer:
    return query.best(
        database,
        PROBLEM,
        m,
        H200,
        Protocol.PLAIN,
        toolchain=TOOLCHAIN,
        arch=SM90A,
        batch_invariant=batch_invariant,
    )


def test_both_kinds_stand_side_by_side(store, database):
    assert won(store, ORDINARY, 5.0, batch_invariant=False)
    assert won(store, INVARIANT, 6.0, batch_invariant=True)
    assert not won(store, replace(INVARIANT, num_stages=2), 7.0, batch_invariant=True)
    times = {kind: ask(database, batch_invariant=kind).winner.time_us for kind in (False, True)}
    assert times == {False: 5.0, True: 6.0}
    assert [item.time_us for item in query.winners(database)] == [5.0]
    assert [item.time_us for item in query.winners(database, batch_invariant=True)] == [6.0]
    assert [
        (item.time_us, item.batch_invariant)
        for item in query.winners(database, batch_invariant=None)
    ] == [(5.0, False), (6.0, True)]


def test_an_ordinary_winner_is_no_answer_to_the_other_question(store, database):
    won(store, INVARIANT, 5.0, batch_invariant=False)
    for m in (0, 1, 8, 300):
        answer = ask(database, m, batch_invariant=True)
        assert answer.level is Level.DEFAULT
        assert answer.config == invariant_default(PROBLEM, SM90A, max(m, 1))
        assert "nothing batch-invariant is stored" in answer.message


@pytest.mark.parametrize("m", [0, 1, 2, 8, 9, 64, 65, 4096])
def test_every_answer_adds_up_in_the_one_order(store, database, m):
    won(store, INVARIANT, 6.0, batch_invariant=True, m=8)
    won(store, replace(INVARIANT, block_m=64, warp_m=32), 9.0, batch_invariant=True, m=64)
    answer = ask(database, m, batch_invariant=True)
    assert (answer.level is Level.DEFAULT) == (m not in {8, 64})
    assert is_invariant(PROBLEM, answer.config)


def test_a_winner_of_another_order_is_not_served_and_does_not_stay(store, database):
    won(store, ORDINARY, 5.0, batch_invariant=True)  # as a version with another order stored it
    answer = ask(database, batch_invariant=True)
    assert answer.level is Level.DEFAULT
    assert "sums have another order" in answer.message
    assert won(store, INVARIANT, 6.0, batch_invariant=True)  # slower, and yet it replaces that one
    assert ask(database, batch_invariant=True).config == INVARIANT
