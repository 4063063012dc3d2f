"""Files that a user named: whole, with the user's modes, and never in place of another unasked."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from ptxgen import output_file as output_module
from ptxgen import publish as renaming
from ptxgen.arguments import path as as_path
from ptxgen.errors import FileError
from ptxgen.output_file import check_outputs, write_file


@pytest.fixture(params=["kernel", "links", "neither"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the kernel's rename with flags, by hard links, and on a file system with neither."""
    if request.param != "kernel":
        monkeypatch.setattr(renaming, "_kernel_rename", lambda: renaming._never)
    if request.param == "neither":

        def refuse(*_arguments: object, **_options: object) -> None:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))

        monkeypatch.setattr(os, "link", refuse)
    return str(request.param)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_mode_is_what_umask_leaves(tmp_path: Path, way: str, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        path = write_file(tmp_path / "new" / "file", b"x")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == mode
    assert os.listdir(path.parent) == ["file"]


def test_a_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(0o640)
    assert write_file(path, "new", replace=True).read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "folder"])
def test_what_is_there_is_refused_and_kept(tmp_path: Path, way: str, kind: str) -> None:
    path, other = tmp_path / "report", tmp_path / "other"
    if kind == "folder":
        path.mkdir()
    elif kind == "file":
        path.write_text("old")
    else:
        path.symlink_to(other)
        if kind == "link":
            other.write_text("old")
    before = sorted(os.listdir(tmp_path))
    for refused in (lambda: check_outputs([path], replace=False), lambda: write_file(path, "new")):
        with pytest.raises(FileError, match=r"exists already|is a folder"):
            refused()
    assert sorted(os.listdir(tmp_path)) == before
    assert not other.exists() or other.read_text() == "old"


def test_what_appears_between_the_check_and_the_name_is_kept(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "report"
    real = output_module.write_synced

    def slow(staging: Path, content: bytes, mode: int | None = None) -> None:
        real(staging, content, mode)
        path.write_text("theirs")

    monkeypatch.setattr(output_module, "write_synced", slow)
    with pytest.raises(FileError, match="exists already"):
        write_file(path, "ours")
    assert path.read_text() == "theirs"
    assert os.listdir(tmp_path) == ["report"]


def test_of_many_writers_to_one_name_one_succeeds(tmp_path: Path, way: str) -> None:
    barrier = threading.Barrier(8)
    won: list[str] = []

    def write(text: str) -> None:
        barrier.wait(60)
        try:
            write_file(tmp_path / "report", text)
            won.append(text)
        except FileError:
            pass

    threads = [threading.Thread(target=write, args=(str(number),)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [(tmp_path / "report").read_text()] == won
    assert os.listdir(tmp_path) == ["report"]


def test_a_link_is_followed_where_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    write_file(tmp_path / "link", "new", replace=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_pipe_is_written_to_and_stays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()))
    reader.start()
    write_file(pipe, "text")
    reader.join(60)
    assert received == ["text"]
    assert pipe.is_fifo()


def test_a_device_stays_and_a_full_one_is_said() -> None:
    if os.path.exists("/dev/full"):
        with pytest.raises(FileError, match="disk is full"):
            write_file(Path("/dev/full"), "x" * 100_000)
    write_file(Path(os.devnull), "x")
    assert Path(os.devnull).is_char_device()


def test_two_files_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="named for two files"):
        check_outputs([tmp_path / "a", None, tmp_path / "." / "a"], replace=True)
    check_outputs([tmp_path / "a", None, tmp_path / "b"], replace=False)
    assert os.listdir(tmp_path) == []


def test_a_file_below_a_file_is_refused_before_and_then(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for refused in (
        lambda: check_outputs([tmp_path / "file" / "a" / "b"], replace=False),
        lambda: write_file(tmp_path / "file" / "a" / "b", "x"),
    ):
        with pytest.raises(FileError, match=r"cannot be written \(Not a directory\)"):
            refused()


def test_folders_made_for_a_file_that_fails_go_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="disk is full"):
        write_file(tmp_path / "new" / "deep" / "file", "x")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("named", ["~nobody-of-this-name/x", "a\0b", "a\ud800b"])
def test_names_that_no_file_can_have(named: str) -> None:
    with pytest.raises(FileError, match="is no path") as caught:
        as_path(named, "--out", error=FileError)
    assert "\n" not in str(caught.value)
    with pytest.raises(FileError):
        write_file(Path(named), "x")


def test_a_long_name_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="shorter name"):
        write_file(tmp_path / ("ä" * 200), "x")
    write_file(tmp_path / ("ä" * 120), "x")  # 240 bytes of 255: the hidden name is no longer
