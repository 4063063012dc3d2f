"""A bundle looked at without a GPU: what it holds, all that is wrong with it, odd manifests."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_helpers import CpuBackend, bucket, plan, small_bundle, spec
from click.testing import CliRunner, Result

import ptxtune
from ptxgen.bundle.load import load
from ptxgen.bundle.write import write_bundle
from ptxgen.errors import BundleError, NotABundleError, PtxtuneError
from ptxgen.problem import Problem
from ptxtune.cli import cli

PROBLEM = Problem(n=72, k=160, group_size=32, zero="int", bias=True)
SPEC = spec(PROBLEM, [bucket(PROBLEM, 4, plan(PROBLEM, 8, 32, 2))])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return small_bundle(tmp_path / "bundle", PROBLEM, (1, 8))


def inspect(*words: str | Path) -> Result:
    return CliRunner().invoke(cli, ["inspect", *map(str, words)])


def test_verify_says_what_a_bundle_holds(folder: Path) -> None:
    found = ptxtune.verify(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (found.path, found.problem, found.arch) == (folder, PROBLEM, manifest["arch"])
    assert found.device == "Fake GPU"
    assert (found.ptxtune, found.nvrtc) == ("0.1.0", "13.0")
    assert list(found.files) == sorted(manifest["files"])
    assert (found.faults, found.foreign) == ((), ())
    assert [(k.m_max, k.timed_m, k.time_us, k.predicted) for k in found.kernels] == [
        (1, 1, 3.25, False),
        (8, 8, 3.25, False),
    ]
    assert [k.config for k in found.kernels] == [b["config"] for b in manifest["buckets"]]
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.arch = "sm_80"  # type: ignore[misc]


def test_the_command_says_the_same(folder: Path) -> None:
    done = inspect(folder)
    assert done.exit_code == 0, done.output
    assert PROBLEM.key() in done.stdout
    assert "whole: 10 files match their sha256" in done.stdout
    document = json.loads(inspect(folder, "--json").stdout)
    assert document["whole"] is True
    assert document["files"] == list(ptxtune.verify(folder).files)
    assert [kernel["m_max"] for kernel in document["kernels"]] == [1, 8]


def test_predicted_and_untimed_kernels_are_called_so(tmp_path: Path) -> None:
    guessed = bucket(PROBLEM, 8, plan(PROBLEM, 8, 32, 2), predicted=True)
    untimed = dataclasses.replace(bucket(PROBLEM, 1, plan(PROBLEM, 8, 32, 2)), measurement=None)
    write_bundle(tmp_path / "b", spec(PROBLEM, [guessed, untimed]))
    text = inspect(tmp_path / "b").stdout
    assert [text.count(word) for word in ("predicted", "not timed", "measured")] == [1, 1, 0]


def test_everything_that_is_wrong_is_named(folder: Path) -> None:
    (folder / "m1" / "kernel.cubin").write_bytes(b"\x7fELF")
    (folder / "m8" / "kernel.ptx").unlink()
    os.replace(folder / "m1" / "kernel.cu", folder / "m8" / "kernel.cu")
    (folder / "mine.txt").write_text("x")
    (folder / "build").mkdir()
    (folder / "build" / "a.o").write_text("x")
    done = inspect(folder)
    assert done.exit_code == 1
    wrong = ("m1/kernel.cubin", "m8/kernel.ptx", "m1/kernel.cu", "m8/kernel.cu")
    assert done.stdout.count("damaged: ") == len(wrong)
    for name in wrong:
        assert f"damaged: {name} of the bundle" in done.stdout
    assert "not of the bundle: 'build/', 'mine.txt'" in done.stdout
    document = json.loads(inspect(folder, "--json").stdout)
    assert (document["whole"], len(document["faults"])) == (False, len(wrong))
    with pytest.raises(BundleError, match="m1/kernel"):
        ptxtune.verify(folder)


def test_what_is_no_bundle_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "manifest.json").write_text('{"kind": "app"}')
    for path, words in (
        (tmp_path, "holds no *.safetensors"),
        (tmp_path / "nowhere", "is not a bundle"),
        (tmp_path / "file", "is not a bundle"),
        (tmp_path / "empty", "is not a bundle"),
        (tmp_path / "web", "not a bundle"),
        (Path("~nobody-of-this-name"), "is no path"),
    ):
        done = inspect(path)
        assert done.exit_code == 2, (path, done.output)
        assert words in done.stderr
        assert done.stderr.strip().count("\n") == 0
        with pytest.raises(NotABundleError if "path" not in words else PtxtuneError):
            ptxtune.verify(path)


def resigned(text: str, change: Callable[[dict[str, Any]], Any]) -> str:
    """A manifest that was changed by somebody who knows how its digest is made."""
    data = json.loads(text)
    change(data)
    data.pop("digest")
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return json.dumps({**data, "digest": hashlib.sha256(canonical.encode()).hexdigest()})


def deep(text: str) -> str:
    return text.replace('"entry":', '"deep": ' + "[" * 200_000 + "]" * 200_000 + ', "entry":', 1)


def long_number(text: str) -> str:
    return text.replace('"registers": 40', '"registers": ' + "4" * 5000, 1)


ODD: dict[str, Callable[[str], str]] = {
    "deep": deep,
    "long number": long_number,
    "only brackets": lambda _text: "[" * 200_000,
    "NUL in a name": lambda text: resigned(text, lambda d: d["files"].update({"a\0b": "0"})),
    "half a pair in a name": lambda t: resigned(t, lambda d: d["files"].update({"\ud800": "0"})),
    "half a pair": lambda t: resigned(t, lambda d: d["device"].update(name="GPU \udfff")),
    "NUL": lambda text: resigned(text, lambda d: d["toolchain"].update(nvrtc="13\0")),
    "newlines in a name": lambda t: resigned(t, lambda d: d["files"].update({"a\n\nb": "0"})),
    "large number": lambda t: resigned(t, lambda d: d["buckets"][0].update(m_max=10**15)),
    "large plan": lambda t: resigned(t, lambda d: d["buckets"][0]["plan"].update(block_m=10**15)),
    "large time": lambda t: t.replace('"time_us": 3.25', '"time_us": 1e999', 1),
    "not a number": lambda t: t.replace('"time_us": 3.25', '"time_us": NaN', 1),
    "deep in a field": lambda t: resigned(
        t, lambda d: d["buckets"][0].update(config=json.loads("[" * 500 + "]" * 500))
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_an_odd_manifest_is_one_paragraph(folder: Path, name: str) -> None:
    file = folder / "manifest.json"
    before = file.read_text()
    file.write_text(ODD[name](before))
    assert file.read_text() != before
    for use in (ptxtune.verify, lambda path: load(path, backend=CpuBackend())):
        with pytest.raises(BundleError) as caught:
            use(folder)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 1500
        str(caught.value).encode()
    done = inspect(folder)
    assert done.exit_code == 1
    assert done.stdout.startswith("damaged: ") or "damaged: manifest.json" in done.stdout
    assert isinstance(done.exception, SystemExit)


def test_a_pipe_or_a_huge_file_does_not_stop_it(folder: Path) -> None:
    (folder / "kernel.log").symlink_to("/dev/zero")
    (folder / "m1" / "kernel.cu").unlink()
    os.mkfifo(folder / "m1" / "kernel.cu")
    with pytest.raises(BundleError, match=r"m1/kernel\.cu of the bundle .* is no file"):
        ptxtune.verify(folder)
    with (folder / "manifest.json").open("ab") as file:
        file.truncate(1 << 33)
    with pytest.raises(BundleError, match="is no manifest"):
        ptxtune.verify(folder)


def test_without_write_permission_a_bundle_loads_and_a_closed_folder_is_said() -> None:
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)  # its own is private, and the process becomes another user
        small_bundle(Path(home) / "open", PROBLEM)
        closed = small_bundle(Path(home) / "closed", PROBLEM)
        load(closed, backend=CpuBackend())  # all is imported
        closed.chmod(0o000)
        Path(home).chmod(0o555)
        read_end, write_end = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                if os.geteuid() == 0:
                    os.setegid(65534)
                    os.seteuid(65534)
                load(Path(home) / "open", backend=CpuBackend())
                errors = []
                for use in (load, ptxtune.verify, lambda path: write_bundle(path, SPEC)):
                    try:
                        use(closed)
                    except PtxtuneError as error:
                        errors.append(str(error))
                try:
                    write_bundle(Path(home) / "new", SPEC)
                except PtxtuneError as error:
                    errors.append(str(error))
                done = inspect(closed)
                os.write(write_end, json.dumps([errors, done.exit_code, done.stderr]).encode())
                os._exit(0)
            finally:
                os._exit(1)
        os.close(write_end)
        with os.fdopen(read_end) as output:
            text = output.read()
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        Path(home).chmod(0o755)
        closed.chmod(0o755)
    errors, code, shown = json.loads(text)
    assert len(errors) == 4
    assert all("\n" not in error for error in errors)
    assert "cannot be read: Permission denied" in errors[0]
    assert errors[0] == errors[1]
    assert "may not be written to" in errors[3]
    assert code == 2
    assert "cannot be looked into: Permission denied" in shown
