"""LenientCache: compiled kernels through a cache where it can be written, and without it elsewhere.

For whoever needs the kernel and not the entry: an export in a container with a read-only home is as
good as any. A tuning run compiles thousands and uses the cache itself, which refuses.
"""

from __future__ import annotations

from collections.abc import Callable

from ptxgen.cache import CompileCache
from ptxgen.compile import CompiledKernel
from ptxgen.errors import CacheError
from ptxgen.source import KernelSource


class LenientCache:
    """Compiles through a cache, or without it.

    Args:
        cache: the cache.
        tell: called once, with one paragraph, where the cache cannot be written.
    """

    def __init__(self, cache: CompileCache, tell: Callable[[str], None]) -> None:
        self._cache = cache
        self._tell = tell
        self._told = False

    def compiled(self, source: KernelSource) -> CompiledKernel:
        """The compiled kernel, as the cache has it or as it was compiled now.

        Raises:
            ArchError: NVRTC cannot target the arch.
            CompileError: NVRTC refused the source.
        """
        try:
            return self._cache.get_or_compile(source).compiled
        except CacheError as error:
            if not self._told:
                self._tell(f"compiled without a cache: {error}")
            self._told = True
            kept = error.compiled
        return kept if isinstance(kept, CompiledKernel) else self._cache.compile_unstored(source)
