"""Sharing: a round trip keeps all trials, damage is refused, an import is all or nothing."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from db_samples import H100, H200, PROBLEM, SM90A, TOOLCHAIN, FakeConfig, ok

from db import query
from db.imported import IMPORTED, import_trials
from db.records import Level, Protocol
from db.session import open_database
from db.sharing import shared_trials, shared_winners
from db.store import Store
from db.trial_file import Environment, TrialFile, read_trials, row_check, write_trials
from db.trial_rows import SharedTrial
from ptxgen.errors import FileError, StoreError, TrialFileError
from ptxgen.outcome import Outcome, Status
from ptxgen.problem import Problem

ENVIRONMENTS = (Environment(H200, TOOLCHAIN), Environment(H100, replace(TOOLCHAIN, driver="570")))


def trial(tile: int, time_us: float | None, **changes) -> SharedTrial:
    values = {
        "problem": PROBLEM,
        "m": 8,
        "protocol": Protocol.PLAIN,
        "config": FakeConfig(tile, False),
        "status": Status.OK if time_us else Status.WRONG,
        "time_us": time_us,
        **changes,
    }
    return SharedTrial(**values)


TRIALS = (
    trial(1, 5.25, spread=0.01, rel_err=0.0, floor_us=2.5, won=True, source_digest="ab"),
    trial(2, 1 / 3, m=1, protocol=Protocol.CHAINED, environment=1, measured_at="2026-11-29"),
    trial(3, None, problem=Problem(8192, 4096, 64, "bf16", "int", True)),
)
CONTENT = TrialFile(ENVIRONMENTS, TRIALS, "2026-11-29T00:00:00+00:00", "a note")


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_a_file_reads_back_as_it_was_written(tmp_path: Path, family, name: str) -> None:
    write_trials(tmp_path / name, CONTENT)
    assert read_trials(tmp_path / name) == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == [name]  # no temporary file is left


def test_equal_trials_give_equal_bytes(tmp_path: Path, family) -> None:
    for name in ("a.gz", "b.gz"):
        write_trials(tmp_path / name, CONTENT)
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def lines_of(tmp_path: Path) -> list[str]:
    write_trials(tmp_path / "good.jsonl", CONTENT, replace=True)
    return (tmp_path / "good.jsonl").read_text().splitlines()


@pytest.mark.parametrize(
    ("line", "old", "new", "message"),
    [
        (1, "ptxtune-trials", "other-trials", "line 1: this is no file of ptxtune-trials"),
        (1, '"version": 1', '"version": 2', "line 1: format version 2, and this ptxtune knows 1"),
        (1, '"rows": 3', '"rows": 4', "line 4: the file ends here after 3 trials"),
        (1, '"num_sms"', '"sms"', "line 1: an environment cannot be read"),
        (2, "5.25", "4.25", "line 2: its check is"),
        (3, '"m": 1', '"m": 2', "line 3: its check is"),
        (4, "{", "[", "line 4: not JSON"),
    ],
)
def test_any_change_is_refused_with_its_line(
    tmp_path: Path, family, *, line: int, old: str, new: str, message: str
) -> None:
    lines = lines_of(tmp_path)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new, 1)
    bad = tmp_path / "bad.jsonl"
    bad.write_text("\n".join(lines) + "\n")
    with pytest.raises(TrialFileError, match=message):
        read_trials(bad)


def test_every_single_flipped_bit_of_a_row_is_noticed(tmp_path: Path, family) -> None:
    lines = lines_of(tmp_path)
    bad = tmp_path / "bad.jsonl"
    row = lines[1].encode()
    for position in range(len(row)):
        broken = row[:position] + bytes([row[position] ^ 1]) + row[position + 1 :]
        if json.loads(row) == _json_or_none(broken):
            continue  # white space
        bad.write_bytes(b"\n".join([lines[0].encode(), broken, *map(str.encode, lines[2:])]))
        with pytest.raises(TrialFileError, match=r"line [23]|damaged"):
            read_trials(bad)


def _json_or_none(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None


@pytest.mark.parametrize("cut", [1, 40, -1])
def test_a_cut_off_compressed_file_is_refused(tmp_path: Path, family, cut: int) -> None:
    write_trials(tmp_path / "t.gz", CONTENT)
    data = (tmp_path / "t.gz").read_bytes()
    (tmp_path / "t.gz").write_bytes(data[: cut if cut > 1 else len(data) // 2])
    with pytest.raises(TrialFileError, match=r"cut off|not JSON"):
        read_trials(tmp_path / "t.gz")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"time_us": -1.0}, "not a number >= 0"),
        ({"time_us": "fast"}, "time_us is no number"),
        ({"m": -3}, "M = -3 is not a batch size"),
        ({"status": "splendid"}, "splendid"),
        ({"environment": 7}, "environment 7 of 2"),
        ({"config": {"family": "fake", "tile": 1}}, r"lacks \['split'\]"),
        ({"config": {"family": "nobody"}}, "'nobody' is not known"),
        ({"surprise": 1}, "unknown keys surprise"),
    ],
)
def test_a_row_that_is_no_trial_is_refused_although_its_check_fits(
    tmp_path: Path, family, row: dict, message: str
) -> None:
    lines = lines_of(tmp_path)
    forged = {**json.loads(lines[1]), **row}
    forged.pop("check")
    lines[1] = json.dumps({**forged, "check": row_check(forged)})
    (tmp_path / "bad.jsonl").write_text("\n".join(lines))
    with pytest.raises(TrialFileError, match=f"line 2: .*{message}"):
        read_trials(tmp_path / "bad.jsonl")


def test_what_cannot_be_read_or_written_is_said(tmp_path: Path, family) -> None:
    with pytest.raises(TrialFileError, match="cannot be read: No such file"):
        read_trials(tmp_path / "none.jsonl")
    (tmp_path / "file").write_text("")
    with pytest.raises(FileError, match=r"cannot be written \(Not a directory\)"):
        write_trials(tmp_path / "file" / "t.jsonl", CONTENT)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(TrialFileError, match="damaged"):
        read_trials(tmp_path / "binary")
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"\n" * 3))
    with pytest.raises(TrialFileError, match="line 1: not JSON"):
        read_trials(tmp_path / "bomb.gz")


def test_winners_go_round_and_come_back_as_seeds_only(
    tmp_path: Path, writer, store, database, family
) -> None:
    trial_id = writer.trial(ok(5.0, spread=0.02, floor_us=2.5), config=FakeConfig(16, True))
    store.set_winner(trial_id)
    writer.trial(Outcome(Status.WRONG, "bad", rel_err=0.5), config=FakeConfig(17, True))
    write_trials(tmp_path / "w.jsonl", shared_winners(database))
    content = read_trials(tmp_path / "w.jsonl")
    (shared,) = content.trials
    assert (shared.config, shared.time_us, shared.won) == (FakeConfig(16, True), 5.0, True)
    assert content.environments[shared.environment].device == H200
    assert len(shared_trials(database).trials) == 2

    with open_database(tmp_path / "other.db") as other:
        done = import_trials(other, content, "w.jsonl")
        assert (done.added, done.known, done.left_out) == (1, 0, 0)
        (seed,) = query.trials(other)
        assert (seed.contender, seed.config) == (IMPORTED, FakeConfig(16, True))
        assert query.run(other, seed.run_id).settings["imported"]["origin"] == "w.jsonl"
        # It is no winner, no finished trial, and no answer's ground.
        assert query.winners(other) == []
        assert query.finished(other, PROBLEM, H200, 8, Protocol.PLAIN) == []
        answer = query.best(
            other, PROBLEM, 8, H200, Protocol.PLAIN, toolchain=TOOLCHAIN, arch=SM90A
        )
        assert (answer.level, answer.winner) == (Level.DEFAULT, None)
        assert shared_winners(other).trials == ()  # and it is not passed on as ours
        assert shared_trials(other).trials == ()
        # No ceilings of the other machine's card pass for those of a card here.
        assert H200.uuid not in {device.uuid for device in query.devices(other)}
        again = import_trials(other, content, "w.jsonl")
        assert (again.added, again.known) == (0, 1)
        assert len(query.trials(other)) == 1
        assert len(query.runs(other)) == 1


def test_only_the_fastest_ok_trials_are_taken_in(tmp_path: Path, family) -> None:
    trials = [trial(tile, 100.0 - tile) for tile in range(1, 30)]
    trials += [trial(40, None), trial(50, 500.0, won=True)]
    with open_database(tmp_path / "t.db") as database:
        done = import_trials(database, TrialFile(ENVIRONMENTS, tuple(trials)), "x")
        assert (done.added, done.left_out) == (8, 31 - 8)
        tiles = {item.config.tile for item in query.trials(database)}
    assert tiles == {50, *range(23, 30)}  # the winner there, then the fastest


def test_nothing_is_half_imported(tmp_path: Path, family) -> None:
    broken = (*TRIALS[:2], replace(TRIALS[0], config=FakeConfig(9, True), source_digest="x" * 10))
    with open_database(tmp_path / "t.db") as database:
        with database.engine.connect() as connection:  # the last row hits a trigger
            connection.exec_driver_sql(
                "CREATE TRIGGER refuse BEFORE INSERT ON trial WHEN NEW.source_digest = "
                "'xxxxxxxxxx' BEGIN SELECT RAISE(ABORT, 'refused'); END"
            )
            connection.commit()
        with pytest.raises(StoreError, match="refused"):
            import_trials(database, TrialFile(ENVIRONMENTS, broken), "x")
        assert query.trials(database) == []
        assert query.runs(database) == []
        assert query.devices(database) == []
        Store(database).recover_orphans()
