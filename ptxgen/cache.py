"""Content-addressed cache of compiled kernels on disk, safe for many processes.

An entry is one directory, <root>/<two hex digits>/<key>, that appears whole or not at all:
    kernel.cu  kernel.cubin  kernel.ptx  log.txt  build.json
build.json holds the readable parts of the key, the launch plan, the resources, and size and sha256
of every other file; an entry that does not match it is a miss and is rebuilt.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
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
from ptxgen.outcome import Resources
from ptxgen.source import KernelSource

CACHE_VERSION = 1
"""Raised whenever the files of an entry or the meaning of the key change."""

CU, CUBIN, PTX, LOG, BUILD = "kernel.cu", "kernel.cubin", "kernel.ptx", "log.txt", "build.json"

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
        path = self._path(self.key(source))
        compiled = _read_entry(path, source)
        return None if compiled is None else CacheEntry(path, compiled, hit=True)

    def get_or_compile(self, source: KernelSource) -> CacheEntry:
        """The entry of a source, compiled now where it is missing or damaged.

        Of several processes that miss the same key one compiles and the others wait for it.

        Raises:
            ArchError: NVRTC cannot target the arch.
            CompileError: NVRTC refused the source. Nothing is stored.
            CacheError: the folder cannot be written.
        """
        found = self.get(source)
        if found is not None:
            return found
        path = self._path(self.key(source))
        with self._reporting():
            path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path.with_name(path.name + ".lock"))
        with self._reporting():
            lock.acquire()
        try:
            compiled = _read_entry(path, source)
            if compiled is not None:  # another process was faster
                return CacheEntry(path, compiled, hit=True)
            compiled = self._compiler(source)
            with self._reporting():
                _write_entry(path, source, compiled)
            return CacheEntry(path, compiled, hit=False)
        finally:
            lock.release()

    def _path(self, key: str) -> Path:
        return self.root / key[:2] / key

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        """Turns the operating system's refusals into one clear error."""
        try:
            yield
        except OSError as error:
            raise CacheError(
                f"the compile cache at {self.root} cannot be written: {error.strerror or error}. "
                f"Free space there or fix its permissions, or set {CACHE_DIR.name} to a folder "
                f"on a local disk that you may write."
            ) from error


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


def _read_entry(path: Path, source: KernelSource) -> CompiledKernel | None:
    """What an entry holds, or None where it is missing, damaged, or of another source."""
    try:
        build = json.loads((path / BUILD).read_text())
        contents = {name: (path / name).read_bytes() for name in (CU, CUBIN, PTX, LOG)}
        if build["files"] != _fingerprints(contents) or contents[CU] != source.text.encode():
            return None
        return CompiledKernel(
            cubin=contents[CUBIN],
            ptx=contents[PTX].decode(),
            log=contents[LOG].decode(),
            resources=Resources(**build["resources"]),
            entry=build["entry"],
            arch=build["arch"],
            source_digest=build["source_digest"],
            nvrtc=build["nvrtc"],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write_entry(path: Path, source: KernelSource, compiled: CompiledKernel) -> None:
    """Puts a whole entry in place. The caller holds the key's lock."""
    prefix = f".tmp-{path.name}-"
    for leftover in path.parent.glob(f"{prefix}*"):  # of a writer that was killed under the lock
        shutil.rmtree(leftover, ignore_errors=True)
    temporary = path.parent / f"{prefix}{uuid.uuid4().hex}"
    contents = {
        CU: source.text.encode(),
        CUBIN: compiled.cubin,
        PTX: compiled.ptx.encode(),
        LOG: compiled.log.encode(),
    }
    contents[BUILD] = json.dumps(_build_record(source, compiled, contents), indent=1).encode()
    try:
        temporary.mkdir()
        for name, data in contents.items():
            _write_durably(temporary / name, data)
        _sync_directory(temporary)
        if path.exists():  # a damaged entry: no reader accepts it, so it may go
            path.rename(path.parent / f"{prefix}damaged-{uuid.uuid4().hex}")
        temporary.rename(path)
        _sync_directory(path.parent)
    finally:
        for leftover in path.parent.glob(f"{prefix}*"):
            shutil.rmtree(leftover, ignore_errors=True)


def _build_record(
    source: KernelSource, compiled: CompiledKernel, contents: dict[str, bytes]
) -> dict[str, Any]:
    return {
        "schema": CACHE_VERSION,
        "nvrtc": compiled.nvrtc,
        "arch": compiled.arch,
        "options": OPTIONS,
        "entry": compiled.entry,
        "source_digest": compiled.source_digest,
        "plan": source.plan.to_dict(),
        "resources": asdict(compiled.resources),
        "files": _fingerprints(contents),
    }


def _fingerprints(contents: dict[str, bytes]) -> dict[str, dict[str, Any]]:
    return {
        name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in contents.items()
    }


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
