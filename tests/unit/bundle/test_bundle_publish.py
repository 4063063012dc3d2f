"""Publishing a bundle: nothing that is not ours is ever replaced, and no older bundle is lost."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from bundle_helpers import bucket, plan, small_bundle, spec

from ptxgen import publish as renaming
from ptxgen.bundle import publish as publish_module
from ptxgen.bundle import write as write_module
from ptxgen.bundle.verify import verify
from ptxgen.bundle.write import write_bundle
from ptxgen.errors import BundleError
from ptxgen.problem import Problem

PROBLEM = Problem(n=64, k=128)
SPEC = spec(PROBLEM, [bucket(PROBLEM, 4, plan(PROBLEM, 8, 32, 2))])


@pytest.fixture(params=["kernel", "fallback"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """By the kernel's rename with flags, and as where there is none."""
    if request.param == "fallback":
        monkeypatch.setattr(renaming, "_kernel_rename", lambda: renaming._never)
    return request.param


def everything(folder: Path) -> dict[str, bytes | str]:
    """Relative name -> content of a file, target of a link, or "/" for a folder."""
    found: dict[str, bytes | str] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = "/" if path.is_dir() else path.read_bytes()
    return found


def extra_file(target: Path) -> str:
    (target / "m1" / "notes.txt").write_text("mine")
    return "m1/notes.txt"


def extra_folder(target: Path) -> str:
    (target / "src").mkdir()
    return "src"


def link_of_a_listed_name(target: Path) -> str:
    (target / "example.c").rename(target.parent / "example.c")
    (target / "example.c").symlink_to(target.parent / "example.c")
    return "example.c"


def folder_of_a_listed_name(target: Path) -> str:
    (target / "README.md").unlink()
    (target / "README.md").mkdir()
    return "README.md"


FOREIGN = (extra_file, extra_folder, link_of_a_listed_name, folder_of_a_listed_name)


@pytest.mark.parametrize("change", FOREIGN)
def test_force_names_what_is_not_of_the_bundle_and_keeps_all(
    tmp_path: Path, change: Callable[[Path], str]
) -> None:
    target = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    foreign = change(target)
    before = everything(tmp_path)
    with pytest.raises(BundleError, match=f"'{foreign}' in it is not of the bundle"):
        write_bundle(target, SPEC, force=True)
    assert everything(tmp_path) == before


def test_force_refuses_the_manifest_of_another_project(tmp_path: Path) -> None:
    (tmp_path / "web" / "src").mkdir(parents=True)
    (tmp_path / "web" / "manifest.json").write_text('{"name": "app"}')
    (tmp_path / "web" / "src" / "main.js").write_text("x")
    before = everything(tmp_path)
    with pytest.raises(BundleError, match="is not a bundle"):
        write_bundle(tmp_path / "web", SPEC, force=True)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["../precious", "/etc/hostname", "a/../../precious", "."])
def test_a_manifest_that_lists_files_elsewhere_makes_no_bundle(tmp_path: Path, name: str) -> None:
    (tmp_path / "precious").write_text("years of work")
    target = tmp_path / "bundle"
    target.mkdir()
    listed = {"kind": "ptxtune-w4a16-bundle", "files": {name: "0"}}
    (target / "manifest.json").write_text(json.dumps(listed))
    before = everything(tmp_path)
    with pytest.raises(BundleError, match="is not a bundle"):
        write_bundle(target, SPEC, force=True)
    assert everything(tmp_path) == before


def test_force_takes_an_empty_folder_and_one_without_some_of_its_files(
    tmp_path: Path, way: str
) -> None:
    (tmp_path / "empty").mkdir()
    verify(write_bundle(tmp_path / "empty", SPEC, force=True))
    partial = small_bundle(tmp_path / "partial", PROBLEM, (1, 8))
    (partial / "m1" / "kernel.cu").unlink()
    assert [b.m_max for b in verify(write_bundle(partial, SPEC, force=True)).buckets] == [4]
    assert sorted(os.listdir(tmp_path)) == ["empty", "partial"]


def appear(target: Path, kind: str) -> None:
    if kind == "link":
        target.symlink_to(target.parent / "nowhere")
    elif kind == "file":
        target.write_text("theirs")
    else:
        target.mkdir()
        if kind == "full":
            (target / "theirs.txt").write_text("theirs")


@pytest.mark.parametrize(  # with force an empty folder is replaced
    ("kind", "force"),
    [("empty", False), *((kind, force) for kind in ("full", "file", "link") for force in (0, 1))],
)
def test_what_appears_while_an_export_runs_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, kind: str, force: bool
) -> None:
    target = tmp_path / "bundle"
    real = write_module._write_files

    def slow(folder: Path, contents: dict[str, bytes]) -> None:
        real(folder, contents)
        appear(target, kind)

    monkeypatch.setattr(write_module, "_write_files", slow)
    with pytest.raises(BundleError, match="exists"):
        write_bundle(target, SPEC, force=bool(force))
    assert os.listdir(tmp_path) == ["bundle"]
    found = everything(tmp_path)
    appear(tmp_path / "again", kind)
    assert {name.replace("bundle", "again") for name in found} == {
        name for name in everything(tmp_path) if name.startswith("again")
    }


def test_of_many_exports_to_one_folder_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    count = 8
    barrier = threading.Barrier(count)
    real = write_module.publish

    def together(staging: Path, target: Path, force: bool) -> None:
        barrier.wait(60)
        real(staging, target, force)

    monkeypatch.setattr(write_module, "publish", together)
    refusals: list[str] = []

    def export() -> None:
        try:
            write_bundle(tmp_path / "bundle", SPEC)
        except BundleError as error:
            refusals.append(str(error))

    threads = [threading.Thread(target=export) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refusals) == count - 1
    assert all("exists already" in text and "\n" not in text for text in refusals)
    verify(tmp_path / "bundle")
    assert os.listdir(tmp_path) == ["bundle"]


def test_a_file_that_comes_into_the_old_bundle_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    target = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    real = publish_module.swap

    def late(one: Path, other: Path) -> bool:
        if (target / "m8").exists():  # not where it is put back
            (target / "late.txt").write_text("mine")
        return real(one, other)

    monkeypatch.setattr(publish_module, "swap", late)
    with pytest.raises(BundleError, match=r"bundle is a bundle, but 'late\.txt'"):
        write_bundle(target, SPEC, force=True)
    assert [b.m_max for b in verify(target).buckets] == [1, 8]
    assert (target / "late.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["bundle"]


def test_a_failed_replacement_puts_the_old_bundle_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = small_bundle(tmp_path / "bundle", PROBLEM)
    before = everything(tmp_path)
    real = renaming.rename_new

    def failing(source: Path, new: Path) -> None:
        if source.name.endswith(".new"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        real(source, new)

    monkeypatch.setattr(publish_module, "swap", lambda _one, _other: False)
    monkeypatch.setattr(publish_module, "rename_new", failing)
    with pytest.raises(BundleError, match="cannot write the bundle"):
        write_bundle(target, SPEC, force=True)
    assert everything(tmp_path) == before


def killed_while_replacing(target: Path, step: str) -> None:
    """Replaces a bundle in a process that ends at once at a step, as after SIGKILL."""
    child = os.fork()
    if child == 0:
        setattr(publish_module, step, lambda *_arguments: os._exit(9))
        write_bundle(target, SPEC, force=True)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_process_that_dies_while_it_replaces_loses_nothing(tmp_path: Path, way: str) -> None:
    target = small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))
    if way == "kernel" and renaming.swap(target, target):
        killed_while_replacing(target, "remove_files")  # right after both had their new names
        assert [b.m_max for b in verify(target).buckets] == [4]
        return
    killed_while_replacing(target, "rename_new")  # the old one is aside, the new one not in place
    with pytest.raises(BundleError, match="cut off left the older bundle in") as caught:
        verify(target)
    aside = Path(str(caught.value).split("the older bundle in ")[1].split(": ")[0])
    aside.rename(target)
    assert [b.m_max for b in verify(target).buckets] == [1, 8]


@pytest.mark.parametrize(("mask", "folder", "file"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
def test_modes_are_what_umask_leaves(tmp_path: Path, mask: int, folder: int, file: int) -> None:
    before = os.umask(mask)
    try:
        target = write_bundle(tmp_path / "bundle", SPEC)
    finally:
        os.umask(before)
    modes = {path.stat().st_mode & 0o777 for path in target.iterdir()}
    assert (target.stat().st_mode & 0o777, modes) == (folder, {file})


def test_folders_made_for_an_export_that_fails_go_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(write_module, "write_synced", full)
    with pytest.raises(BundleError, match="disk is full"):
        write_bundle(tmp_path / "new" / "deep" / "bundle", SPEC)
    assert os.listdir(tmp_path) == []
