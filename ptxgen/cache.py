"""Content-addressed cache of compiled kernels on disk, safe for many processes.

An entry is one directory, <root>/<two hex digits>/<key>, that appears whole or not at all:
    kernel.cu  kernel.cubin  kernel.ptx  log.txt  build.json
build.json holds the key and its readable parts, the launch plan, the resources, size and sha256 of
every other file, and a digest of all this. Nothing in an entry is believed: one that does not match
its digests, the key, or what the source says is a miss and is rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from ptxgen.compile import OPTIONS, CompiledKernel, compile_source, nvrtc_version
from ptxgen.env import CACHE_DIR
from ptxgen.errors import CacheError
from ptxgen.json_text import json_value
from ptxgen.outcome import Resources
from ptxgen.publish import check_writable, sync_folder, write_synced
from ptxgen.source import KernelSource

CACHE_VERSION = 2
"""Raised whenever the files of an entry or the meaning of the key change."""

CU, CUBIN, PTX, LOG, BUILD = "kernel.cu", "kernel.cubin", "kernel.ptx", "log.txt", "build.json"

MAX_FILE_BYTES = 1 << 28
"""A larger file is none of an entry's, and is not read."""

Compiler = Callable[[KernelSource], CompiledKernel]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """A compiled kernel and the directory that holds it.

    Attributes:
        path: the entry's directory.
        compiled: its content.
        hit: False where this call compiled it.
    """

    path: Path
    compiled: CompiledKernel
    hit: bool

    @property
    def cubin_path(self) -> Path:
        return self.path / CUBIN


class CompileCache:
    """Compiled kernels by content, in a folder that any number of processes may share.

    Holds no open files and may be pickled into worker processes.
    """

    def __init__(
        self, root: Path, compiler: Compiler = compile_source, toolchain: str | None = None
    ) -> None:
        """Names the folder; nothing is created before the first write.

        Args:
            root: the cache's folder, on a local disk.
            compiler: compiles a miss.
            toolchain: version of the compiler; NVRTC's where None.
        """
        self.root = root
        self._compiler = compiler
        self._toolchain = toolchain

    def key(self, source: KernelSource) -> str:
        """sha256 over everything that the compiled bytes depend on, and the launch plan."""
        return cache_key(source, self._toolchain or nvrtc_version())

    def get(self, source: KernelSource) -> CacheEntry | None:
        """The entry of a source, or None where there is none or it is damaged."""
        key = self.key(source)
        compiled = _read_entry(self._path(key), source, key)
        return None if compiled is None else CacheEntry(self._path(key), compiled, hit=True)

    def get_or_compile(self, source: KernelSource) -> CacheEntry:
        """The entry of a source, compiled now where it is missing or damaged.

        Of several processes that miss the same key one compiles and the others wait for it.

        Raises:
            ArchError: NVRTC cannot target the arch.
            CompileError: NVRTC refused the source. Nothing is stored.
            CacheError: the folder cannot be written; it has what was compiled, if anything was.
        """
        found = self.get(source)
        if found is not None:
            return found
        key = self.key(source)
        path = self._path(key)
        with self._reporting():
            path.parent.mkdir(parents=True, exist_ok=True)
            check_writable(path.parent)
        lock = FileLock(path.with_name(path.name + ".lock"))
        with self._reporting():
            lock.acquire()
        try:
            compiled = _read_entry(path, source, key)
            if compiled is not None:  # another process was faster
                return CacheEntry(path, compiled, hit=True)
            compiled = self._compiler(source)
            with self._reporting(compiled):
                _write_entry(path, source, compiled, key)
            return CacheEntry(path, compiled, hit=False)
        finally:
            lock.release()

    def check_writable(self) -> None:
        """Raises CacheError where entries cannot be stored; before a run that stores thousands."""
        with self._reporting():
            check_writable(self.root)

    def compile_unstored(self, source: KernelSource) -> CompiledKernel:
        """A source compiled without a look at the cache. Raises ArchError, CompileError."""
        return self._compiler(source)

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / key

    @contextmanager
    def _reporting(self, compiled: CompiledKernel | None = None) -> Iterator[None]:
        """Turns the operating system's refusals into one clear error."""
        try:
            yield
        except OSError as error:
            refusal = CacheError(
                f"the compile cache at {self.root} cannot be written: {error.strerror or error}. "
                f"Free space there or fix its permissions, or set {CACHE_DIR.name} to a folder "
                f"on a local disk that you may write."
            )
            refusal.compiled = compiled
            raise refusal from error


def cache_key(source: KernelSource, toolchain: str) -> str:
    """sha256 over labelled, length-prefixed parts, so that no two different inputs read alike."""
    digest = hashlib.sha256()
    for label, value in _key_parts(source, toolchain).items():
        data = value.encode()
        digest.update(f"{label}|{len(data)}|".encode() + data)
    return digest.hexdigest()


def _key_parts(source: KernelSource, toolchain: str) -> dict[str, str]:
    return {
        "schema": str(CACHE_VERSION),
        "nvrtc": toolchain,
        "arch": source.arch,
        "options": json.dumps(OPTIONS),
        "entry": source.entry,
        "plan": json.dumps(source.plan.to_dict(), sort_keys=True),
        "text": source.text,
    }


def _read_entry(path: Path, source: KernelSource, key: str) -> CompiledKernel | None:
    """What an entry holds, or None where it is missing, damaged, or of another source."""
    try:
        build = json_value(_read_file(path / BUILD))
        contents = {name: _read_file(path / name) for name in (CU, CUBIN, PTX, LOG)}
        compiled = CompiledKernel(
            cubin=contents[CUBIN],
            ptx=contents[PTX].decode(),
            log=contents[LOG].decode(),
            resources=_resources(build["resources"]),
            entry=source.entry,
            arch=source.arch,
            source_digest=source.digest(),
            nvrtc=_text(build["nvrtc"]),
        )
        # What the entry must say is written down anew and compared whole: no field is forgotten.
        # As text, where 1 is neither 1.0 nor true.
        record = _build_record(source, compiled, contents, key)
        whole = json.dumps(build, sort_keys=True) == json.dumps(record, sort_keys=True)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return compiled if whole and contents[CU] == source.text.encode() else None


def _read_file(path: Path) -> bytes:
    """A plain file's bytes. Raises OSError, and ValueError for what is no file of an entry."""
    with open(path, "rb", opener=_without_waiting) as file:
        state = os.fstat(file.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > MAX_FILE_BYTES:
            raise ValueError(f"{path} is no file of an entry")
        return file.read()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # for the writer of a pipe


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no string")
    return value


def _resources(found: dict[str, Any]) -> Resources:
    """Resources of a build record. Raises KeyError, TypeError and ValueError for anything else."""
    resources = Resources(**found)
    for name, value in asdict(resources).items():
        kinds = (int, float) if name == "compile_ms" else (int,)
        if type(value) not in kinds or value < 0:
            raise ValueError(f"{name} = {value!r:.60} is no count")
    return resources


def _write_entry(path: Path, source: KernelSource, compiled: CompiledKernel, key: str) -> None:
    """Puts a whole entry in place. The caller holds the key's lock."""
    prefix = f".tmp-{path.name}-"
    for leftover in path.parent.glob(f"{prefix}*"):  # of a writer that was killed under the lock
        _remove(leftover)
    temporary = path.parent / f"{prefix}{uuid.uuid4().hex}"
    contents = {
        CU: source.text.encode(),
        CUBIN: compiled.cubin,
        PTX: compiled.ptx.encode(),
        LOG: compiled.log.encode(),
    }
    record = _build_record(source, compiled, contents, key)
    contents[BUILD] = json.dumps(record, indent=1).encode()
    try:
        temporary.mkdir()
        for name, data in contents.items():
            write_synced(temporary / name, data)
        sync_folder(temporary)
        if os.path.lexists(path):  # a damaged entry: no reader accepts it, so it may go
            path.rename(path.parent / f"{prefix}damaged-{uuid.uuid4().hex}")
        temporary.rename(path)
        sync_folder(path.parent)
    finally:
        for leftover in path.parent.glob(f"{prefix}*"):
            _remove(leftover)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _build_record(
    source: KernelSource, compiled: CompiledKernel, contents: dict[str, bytes], key: str
) -> dict[str, Any]:
    """What build.json says, as JSON gives it back."""
    record = {
        "schema": CACHE_VERSION,
        "key": key,
        "nvrtc": compiled.nvrtc,
        "arch": compiled.arch,
        "options": list(OPTIONS),
        "entry": compiled.entry,
        "source_digest": compiled.source_digest,
        "plan": source.plan.to_dict(),
        "resources": asdict(compiled.resources),
        "files": _fingerprints(contents),
    }
    text = json.dumps(record, sort_keys=True)
    return {**record, "digest": hashlib.sha256(text.encode()).hexdigest()}


def _fingerprints(contents: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    return {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
        if name != BUILD
    }
