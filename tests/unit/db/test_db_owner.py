"""Owner: living, dead and unknown processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from db import owner as owner_module
from db.owner import Owner, current_owner


def test_this_process_lives_and_its_text_is_read_back():
    owner = current_owner()
    assert owner.pid == os.getpid()
    assert owner.is_alive() is True
    assert Owner.decode(owner.encode()) == owner


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="start times need /proc")
def test_a_later_process_with_the_same_pid_is_another_one():
    assert replace(current_owner(), started="1").is_alive() is False


def test_a_process_that_ended_is_dead():
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert replace(current_owner(), pid=child.pid).is_alive() is False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="process states need /proc")
def test_a_process_that_ended_but_was_not_waited_for_is_dead():
    child = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    try:
        child.stdout.read()  # until it has closed its end
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        stat = Path(f"/proc/{child.pid}/stat").read_text()
        started = stat.rpartition(")")[2].split()[19]
        assert replace(current_owner(), pid=child.pid, started=started).is_alive() is False
    finally:
        child.communicate()


def test_without_proc_a_signal_tells_the_living_from_the_dead(tmp_path, monkeypatch):
    monkeypatch.setattr(owner_module, "PROC", tmp_path)
    owner = current_owner()
    assert (owner.started, owner.is_alive()) == ("", True)
    assert replace(owner, pid=1).is_alive() is True  # it may belong to somebody else
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    assert replace(owner, pid=child.pid).is_alive() is False


def test_a_process_of_another_host_is_unknown():
    assert replace(current_owner(), host="elsewhere").is_alive() is None


@pytest.mark.parametrize("text", ["", "x", "host|", "host|pid|7", "host|-1|7"])
def test_a_text_of_another_form_is_an_unknown_process(text):
    assert Owner.decode(text).is_alive() is None
