"""Inside a compile process: compiles one KernelSource a request, through the cache."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ptxgen.cache import CompileCache
from ptxgen.errors import CompileError
from ptxgen.source import KernelSource, LaunchPlan


def make_handler(options: dict[str, Any]) -> Callable[[dict[str, Any]], Any]:
    """The request handler over the compile cache at options["cache_root"]."""
    cache = CompileCache(Path(options["cache_root"]))

    def handle(message: dict[str, Any]) -> Any:
        source = KernelSource(
            text=message["text"],
            arch=message["arch"],
            plan=LaunchPlan.from_dict(message["plan"]),
            entry=message["entry"],
        )
        try:
            entry = cache.get_or_compile(source)
        except CompileError as error:
            return {"compile_error": str(error)}
        return {
            "cubin_path": str(entry.cubin_path),
            "resources": asdict(entry.compiled.resources),
        }

    return handle
