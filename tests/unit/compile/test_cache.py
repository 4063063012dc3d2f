"""The compile cache with a fake compiler: keys, races between processes, damage, refusals."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest

from ptxgen import cache as cache_module
from ptxgen.cache import CompileCache, cache_key
from ptxgen.compile import CompiledKernel
from ptxgen.errors import CacheError, CompileError
from ptxgen.lenient_cache import LenientCache
from ptxgen.outcome import Resources
from ptxgen.source import KernelSource, LaunchPlan

PLAN = LaunchPlan(
    threads=128, smem_bytes=1024, block_m=8, block_n=64, n_tiles=1, split_k=1, pdl=False
)
SOURCE = KernelSource("// a kernel: ä\n", "sm_90a", PLAN)
FILES = ("kernel.cu", "kernel.cubin", "kernel.ptx", "log.txt", "build.json")
SPAWN = multiprocessing.get_context("spawn")


class MarkingCompiler:
    """Pretends to compile, and leaves one marker file a call."""

    def __init__(self, markers: Path, seconds: float = 0.0) -> None:
        self.markers = markers
        self.seconds = seconds

    def __call__(self, source: KernelSource) -> CompiledKernel:
        (self.markers / uuid.uuid4().hex).touch()
        time.sleep(self.seconds)
        return CompiledKernel(
            cubin=b"\x7fELF" + source.text.encode() * 1000,
            ptx="// ptx ä",
            log="ptxas info",
            resources=Resources(40, 0, 2048, 1.5),
            entry=source.entry,
            arch=source.arch,
            source_digest=source.digest(),
            nvrtc="13.5",
        )

    def calls(self) -> int:
        return len(list(self.markers.iterdir()))


@pytest.fixture
def compiler(tmp_path: Path) -> MarkingCompiler:
    markers = tmp_path / "markers"
    markers.mkdir()
    return MarkingCompiler(markers)


@pytest.fixture
def cache(tmp_path: Path, compiler: MarkingCompiler) -> CompileCache:
    return CompileCache(tmp_path / "cache", compiler, "13.5")


def test_a_miss_compiles_and_a_hit_does_not(cache: CompileCache, compiler: MarkingCompiler) -> None:
    assert cache.get(SOURCE) is None
    first = cache.get_or_compile(SOURCE)
    second = cache.get_or_compile(SOURCE)
    third = cache.get(SOURCE)
    assert third is not None
    assert (first.hit, second.hit, third.hit) == (False, True, True)
    assert first.compiled == second.compiled == third.compiled
    assert compiler.calls() == 1
    assert sorted(item.name for item in first.path.iterdir()) == sorted(FILES)
    assert first.cubin_path.read_bytes() == first.compiled.cubin
    assert (first.path / "kernel.cu").read_text() == SOURCE.text
    build = json.loads((first.path / "build.json").read_text())
    assert LaunchPlan.from_dict(build["plan"]) == PLAN
    assert build["arch"] == "sm_90a"


def test_a_lookup_writes_nothing(cache: CompileCache) -> None:
    assert cache.get(SOURCE) is None
    assert not cache.root.exists()


def plan_changes() -> list[tuple[LaunchPlan, dict[str, Any]]]:
    """Every field of the plan changed alone; one that needs another starts from a plan with it."""
    numbers = {name: value for name, value in PLAN.to_dict().items() if type(value) is int}
    changes: list[tuple[LaunchPlan, dict[str, Any]]] = [
        (PLAN, {name: value + 1}) for name, value in numbers.items()
    ]
    changes.append((PLAN, {"pdl": not PLAN.pdl}))
    changes.append((replace(PLAN, k=64), {"x_box": (64, 8)}))
    changes.append((replace(PLAN, split_k=1, max_ctas=7), {"stream_k": True}))
    assert numbers.keys() | {"pdl", "x_box", "stream_k"} == PLAN.to_dict().keys()
    return changes


def test_everything_that_matters_is_in_the_key() -> None:
    changed = [
        replace(SOURCE, text=SOURCE.text + " "),
        replace(SOURCE, arch="sm_90"),
        replace(SOURCE, entry="other"),
        *(replace(SOURCE, plan=replace(base, **change)) for base, change in plan_changes()),
    ]
    keys = {cache_key(SOURCE, "13.5"), cache_key(SOURCE, "13.4")}
    keys |= {cache_key(source, "13.5") for source in changed}
    assert len(keys) == 2 + len(changed)
    assert cache_key(replace(SOURCE), "13.5") == cache_key(SOURCE, "13.5")


def test_options_and_version_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cache_key(SOURCE, "13.5")
    monkeypatch.setattr(cache_module, "OPTIONS", (*cache_module.OPTIONS, "--fmad=false"))
    options = cache_key(SOURCE, "13.5")
    monkeypatch.setattr(cache_module, "CACHE_VERSION", cache_module.CACHE_VERSION + 1)
    assert len({before, options, cache_key(SOURCE, "13.5")}) == 3


def test_parts_that_read_alike_when_joined_differ() -> None:
    """Text moved from one part into the next gives another key."""
    one = KernelSource("b", "sm_90", PLAN, "a|1|")
    two = KernelSource("|1|b", "sm_90", PLAN, "a")
    assert cache_key(one, "13") != cache_key(two, "13")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["truncated", "changed", "missing", "empty"])
def test_a_damaged_entry_is_rebuilt(
    cache: CompileCache, compiler: MarkingCompiler, name: str, damage: str
) -> None:
    entry = cache.get_or_compile(SOURCE)
    file = entry.path / name
    whole = file.read_bytes()
    if damage == "missing":
        file.unlink()
    else:
        changed = {"truncated": whole[:-2], "changed": b"{" + whole, "empty": b""}[damage]
        file.write_bytes(changed)
    assert cache.get(SOURCE) is None
    again = cache.get_or_compile(SOURCE)
    assert not again.hit
    assert compiler.calls() == 2
    assert cache.get_or_compile(SOURCE).hit
    assert file.read_bytes() == whole or name == "build.json"
    assert not list(cache.root.rglob(".tmp-*"))


def test_a_failed_compile_leaves_nothing(tmp_path: Path) -> None:
    def refuse(source: KernelSource) -> CompiledKernel:
        raise CompileError("no")

    cache = CompileCache(tmp_path / "cache", refuse, "13.5")
    with pytest.raises(CompileError):
        cache.get_or_compile(SOURCE)
    assert not [item for item in cache.root.rglob("*") if item.suffix != ".lock" and item.is_file()]
    # and the lock is free again
    with pytest.raises(CompileError):
        cache.get_or_compile(SOURCE)


def race(root: Path, markers: Path, start: Barrier, results: object) -> None:
    cache = CompileCache(root, MarkingCompiler(markers, seconds=0.3), "13.5")
    start.wait()
    entry = cache.get_or_compile(SOURCE)
    results.put((entry.hit, entry.compiled, entry.cubin_path.read_bytes()))  # type: ignore[attr-defined]


def test_eight_racing_processes_compile_once(tmp_path: Path, compiler: MarkingCompiler) -> None:
    results = SPAWN.Queue()
    arguments = (tmp_path / "cache", compiler.markers, SPAWN.Barrier(8), results)
    processes = [SPAWN.Process(target=race, args=arguments) for _ in range(8)]
    for process in processes:
        process.start()
    found = [results.get() for _ in processes]
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * 8
    assert compiler.calls() == 1
    assert sorted(hit for hit, _, _ in found) == [False] + [True] * 7
    expected = MarkingCompiler(compiler.markers)(SOURCE)
    assert all(compiled == expected and data == expected.cubin for _, compiled, data in found)


def write_and_stall(root: Path, markers: Path, at_file: str) -> None:
    """Compiles, and stops for good once it has written one of the files."""
    write = cache_module.write_synced

    def stalling(path: Path, data: bytes) -> None:
        write(path, data)
        if path.name == at_file:
            (root / "stalled").touch()
            time.sleep(600)

    cache_module.write_synced = stalling
    CompileCache(root, MarkingCompiler(markers), "13.5").get_or_compile(SOURCE)


@pytest.mark.parametrize("at_file", ["kernel.cu", "build.json"])
def test_a_writer_that_is_killed_midway_leaves_no_entry(
    cache: CompileCache, compiler: MarkingCompiler, at_file: str
) -> None:
    arguments = (cache.root, compiler.markers, at_file)
    process = SPAWN.Process(target=write_and_stall, args=arguments)
    process.start()
    while not (cache.root / "stalled").exists():  # the test's timeout ends it
        assert process.is_alive()
        time.sleep(0.02)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert list(cache.root.rglob(".tmp-*"))
    assert cache.get(SOURCE) is None
    entry = cache.get_or_compile(SOURCE)  # the dead process's lock is free
    assert not entry.hit
    assert cache.get_or_compile(SOURCE).hit
    assert not list(cache.root.rglob(".tmp-*"))


@pytest.mark.parametrize("where", ["root", "parent"])
def test_a_folder_that_cannot_be_written_is_named(
    tmp_path: Path, compiler: MarkingCompiler, where: str
) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    root = file if where == "root" else file / "cache"
    with pytest.raises(CacheError, match=rf"{root}.*PTXTUNE_CACHE_DIR"):
        CompileCache(root, compiler, "13.5").get_or_compile(SOURCE)
    assert compiler.calls() == 0


def test_a_full_disk_leaves_nothing_half_written(
    cache: CompileCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = cache_module.write_synced

    def full(path: Path, data: bytes) -> None:
        if path.name == "kernel.ptx":
            path.write_bytes(data[:3])
            raise OSError(28, "No space left on device")
        write(path, data)

    monkeypatch.setattr(cache_module, "write_synced", full)
    with pytest.raises(CacheError, match="No space left on device"):
        cache.get_or_compile(SOURCE)
    assert not list(cache.root.rglob("kernel.*"))
    monkeypatch.undo()
    assert not cache.get_or_compile(SOURCE).hit


def fields_of(record: dict[str, Any], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Places of all values of a build record, those inside of it too."""
    found = []
    for name, value in record.items():
        found.append((*path, name))
        if isinstance(value, dict):
            found += fields_of(value, (*path, name))
    return found


def signed(record: dict[str, Any]) -> dict[str, Any]:
    """The record with the digest that fits it, as build.json has it."""
    body = {name: value for name, value in record.items() if name != "digest"}
    text = json.dumps(body, sort_keys=True)
    return {**body, "digest": hashlib.sha256(text.encode()).hexdigest()}


WRONG = ("many", -1, 1.5, 1, True, False, None, [], {}, 10**30)


@pytest.mark.parametrize("sign", [False, True])
def test_no_field_of_an_entry_is_believed(
    cache: CompileCache, compiler: MarkingCompiler, sign: bool
) -> None:
    """Any value of any field makes a miss, or changes nothing of what is read; signed ones too."""
    entry = cache.get_or_compile(SOURCE)
    file = entry.path / "build.json"
    whole = file.read_text()
    places = fields_of(json.loads(whole))
    assert ("resources", "registers") in places
    assert ("files", "kernel.cubin", "sha256") in places
    for place in places:
        for wrong in WRONG:
            record = json.loads(whole)
            inner = record
            for name in place[:-1]:
                inner = inner[name]
            if json.dumps(inner[place[-1]]) == json.dumps(wrong):
                continue
            inner[place[-1]] = wrong
            file.write_text(json.dumps(signed(record) if sign else record))
            found = cache.get(SOURCE)
            if found is None:
                continue
            # Signed, it may state other counts or another NVRTC, of the right type; a digest that
            # was changed is put right by signing. The kernel is the same.
            assert sign
            if place != ("digest",):
                kinds = {"nvrtc": (str,), "compile_ms": (int, float)}.get(place[-1], (int,))
                assert place[0] in ("nvrtc", "resources"), (place, wrong)
                assert type(wrong) in kinds, (place, wrong)
                assert isinstance(wrong, str) or wrong >= 0, (place, wrong)
            same = replace(found.compiled, resources=entry.compiled.resources, nvrtc="13.5")
            assert same == entry.compiled
    file.write_text(json.dumps({**json.loads(whole), "more": 1}))
    assert cache.get(SOURCE) is None
    file.write_text(whole)
    assert cache.get(SOURCE) is not None


@pytest.mark.parametrize("text", ["[" * 200_000, '{"schema": ' + "7" * 5000 + "}", "[]", "null"])
def test_a_build_file_that_is_none_is_a_miss(cache: CompileCache, text: str) -> None:
    entry = cache.get_or_compile(SOURCE)
    (entry.path / "build.json").write_text(text)
    assert cache.get(SOURCE) is None
    assert not cache.get_or_compile(SOURCE).hit


def test_an_entry_of_another_source_is_a_miss(cache: CompileCache) -> None:
    """Whole folders that were exchanged, of sources that differ in one thing alone."""
    entry = cache.get_or_compile(SOURCE)
    for other in (
        replace(SOURCE, arch="sm_90"),
        replace(SOURCE, entry="other"),
        replace(SOURCE, plan=replace(PLAN, threads=256)),
        replace(SOURCE, text=SOURCE.text + " "),
    ):
        theirs = cache.get_or_compile(other)
        shutil.rmtree(theirs.path)
        shutil.copytree(entry.path, theirs.path)
        assert cache.get(other) is None
        assert cache.get_or_compile(other).compiled.arch == other.arch
        assert cache.get(other) is not None


@pytest.mark.parametrize("kind", ["file", "link", "pipe", "folder in it"])
def test_what_is_no_entry_at_all_is_rebuilt(cache: CompileCache, kind: str) -> None:
    path = cache.get_or_compile(SOURCE).path
    cubin = path / "kernel.cubin"
    if kind in ("pipe", "folder in it"):
        cubin.unlink()
        os.mkfifo(cubin) if kind == "pipe" else cubin.mkdir()
    else:
        shutil.rmtree(path)
        path.write_text("x") if kind == "file" else path.symlink_to("nowhere")
    assert cache.get(SOURCE) is None
    assert not cache.get_or_compile(SOURCE).hit
    assert cache.get_or_compile(SOURCE).hit
    assert not list(cache.root.rglob(".tmp-*"))


def refused_by_the_system(root: Path, make: Callable[[], None]) -> tuple[int, str]:
    """Exit code and output of a process that may not write below root."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.dup2(write_end, 1)
            if os.geteuid() == 0:
                os.setegid(65534)
                os.seteuid(65534)
            assert not os.access(root, os.W_OK, effective_ids=True)
            make()
            code = 0
        finally:
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end) as output:
        text = output.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), text


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("mode", [0o555, 0o000])
def test_without_write_permission_kernels_are_compiled_all_the_same(
    stored: bool, mode: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # its own is private, and the process becomes another user
        root = Path(folder) / "home" / "cache"
        root.parent.mkdir()
        calls: list[str] = []

        def compiler(source: KernelSource) -> CompiledKernel:
            calls.append(source.text)
            return CompiledKernel(
                b"\x7fELF", "", "", Resources(40, 0, 0), source.entry, source.arch,
                source.digest(), "13.5",
            )  # fmt: skip

        cache = CompileCache(root, compiler, "13.5")
        if stored:
            cache.get_or_compile(SOURCE)
            calls.clear()
        root.parent.chmod(mode)

        def make() -> None:
            told: list[str] = []
            lenient = LenientCache(cache, told.append)
            first, second = (
                lenient.compiled(source) for source in (SOURCE, replace(SOURCE, text="int two;\n"))
            )
            assert first.source_digest == SOURCE.digest() != second.source_digest
            os.write(1, json.dumps([len(calls), told]).encode())

        code, text = refused_by_the_system(root.parent, make)
        root.parent.chmod(0o755)
        assert code == 0
        compiled, told = json.loads(text)
        assert compiled == 1 + (not stored or mode == 0)
        assert len(told) == 1
        assert "without a cache" in told[0]
        assert str(root) in told[0]
        assert "\n" not in told[0]


def test_what_a_full_disk_did_not_store_is_not_compiled_again(
    cache: CompileCache, compiler: MarkingCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache_module, "write_synced", full)
    told: list[str] = []
    assert LenientCache(cache, told.append).compiled(SOURCE).entry == SOURCE.entry
    assert compiler.calls() == 1
    assert "No space left" in told[0]
