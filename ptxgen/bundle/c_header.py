"""The bundle's C side: one self-contained header with the kernels embedded, and the example."""

from __future__ import annotations

import re
from importlib.resources import files

from ptxgen.arch import ArchSpec, arch_named
from ptxgen.bundle.manifest import Bucket, Manifest
from ptxgen.errors import BundleError

HEADER_NAME = "ptxtune_w4a16.h"
EXAMPLE_NAME = "example.c"
MAX_BUCKETS = 32
"""PTXTUNE_MAX_BUCKETS of runtime.h."""

RUNTIME_VERSION = 4
"""PTXTUNE_RUNTIME_VERSION of runtime.h; rises with the structures of part 3 and the layout."""

WORD_BYTES = 8
WORDS_PER_LINE = 5


def header(manifest: Manifest, cubins: dict[int, bytes]) -> str:
    """The text of the header: runtime, packer, and this bundle's constants and kernels.

    Args:
        manifest: of the bundle.
        cubins: the cubin of each bucket, by m_max.

    Raises:
        BundleError: more buckets than the runtime holds.
    """
    if len(manifest.buckets) > MAX_BUCKETS:
        raise BundleError(
            f"a bundle holds at most {MAX_BUCKETS} buckets and {len(manifest.buckets)} were given; "
            f"export fewer, or several bundles."
        )
    parts = (_banner(manifest), _part("runtime.h"), _part("pack.h"), _data(manifest, cubins))
    return "\n".join(parts)


def example(manifest: Manifest) -> str:
    """The text of example.c for a bundle."""
    return _part("example.c").replace("PTXTUNE_BUNDLE_NAME", bundle_symbol(manifest))


def bundle_symbol(manifest: Manifest) -> str:
    """The C name of the bundle's constant, such as ptxtune_n4096_k4096_g128_fp16_sym."""
    return "ptxtune_" + re.sub(r"\W", "_", manifest.problem.key())


def runs_on_exactly(arch: ArchSpec) -> bool:
    """True where a cubin of the arch runs on its own compute capability only (the "a" targets)."""
    return arch.name.endswith("a")


def _banner(manifest: Manifest) -> str:
    how = (
        f"on {manifest.device.name}"
        if manifest.measured
        else f"never measured on {manifest.device.name}"
    )
    if manifest.predicted:
        how = f"predicted for {manifest.device.name}, never measured on a GPU"
    return (
        "/* SPDX-License-Identifier: Apache-2.0 */\n"
        f"/* W4A16 kernels of {manifest.problem.key()} for {manifest.arch}, tuned by ptxtune\n"
        f"   {manifest.toolchain.ptxtune} ({how}). Part 1 is the runtime,\n"
        f"   part 2 the packer, part 3 this bundle: {bundle_symbol(manifest)}.\n"
        f"   Headers of several bundles may be included together. */"
    )


def _part(name: str) -> str:
    return files("ptxgen.bundle").joinpath(name).read_text(encoding="utf-8")


def _data(manifest: Manifest, cubins: dict[int, bytes]) -> str:
    symbol = bundle_symbol(manifest)
    guard = f"{symbol.upper()}_DATA"
    kernels = [_kernel_words(symbol, b.m_max, cubins[b.m_max]) for b in manifest.buckets]
    rows = ",\n".join(_bucket_row(symbol, bucket) for bucket in manifest.buckets)
    return "\n".join(
        (
            f"/* Part 3: {manifest.problem.key()}, {len(manifest.buckets)} bucket(s). */",
            f"#ifndef {guard}",
            f"#define {guard} 1",
            "",
            f"#if PTXTUNE_RUNTIME_VERSION != {RUNTIME_VERSION}",
            "#error two bundles of different ptxtune versions: export one of them again",
            "#endif",
            "",
            *kernels,
            f"static const ptxtune_bucket {symbol}_buckets[] = {{",
            rows,
            "};",
            "",
            _bundle_constant(symbol, manifest),
            "",
            f"#endif /* {guard} */",
            "",
        )
    )


def _bucket_row(symbol: str, bucket: Bucket) -> str:
    plan = bucket.plan
    numbers = (
        bucket.m_max,
        plan.threads,
        plan.smem_bytes,
        plan.block_m,
        plan.block_n,
        plan.n_tiles,
        plan.split_k,
        int(plan.pdl),
        plan.cluster_k,
        plan.max_ctas,
        int(plan.stream_k),
        *(plan.x_box or (0, 0)),
        bucket.self_test_m,
    )
    return f"    {{{', '.join(map(str, numbers))}, {symbol}_m{bucket.m_max}}}"


def _bundle_constant(symbol: str, manifest: Manifest) -> str:
    """The ptxtune_bundle constant; positional, because C++ before 20 has no named initialisers."""
    problem, test = manifest.problem, manifest.self_test
    arch = arch_named(manifest.arch)
    fields = (
        ("name", f'"{problem.key()}"'),
        ("entry", f'"{manifest.entry}"'),
        ("arch", f'"{manifest.arch}"'),
        ("cc_major", arch.capability[0]),
        ("cc_minor", arch.capability[1]),
        ("cc_exact", int(runs_on_exactly(arch))),
        ("n", problem.n),
        ("k", problem.k),
        ("group_size", problem.group_size),
        ("whole_k", int(problem.whole_k)),
        ("bf16", int(problem.dtype == "bf16")),
        ("zeros", int(problem.zero == "int")),
        ("bias", int(problem.bias)),
        ("num_buckets", len(manifest.buckets)),
        ("buckets", f"{symbol}_buckets"),
        ("self_test_rows", test.rows),
        ("self_test_rel_tolerance", f"{test.rel_tolerance!r}f"),
        ("self_test_abs_tolerance", f"{test.abs_tolerance!r}f"),
    )
    lines = [f"    /* {name} */ {value}" for name, value in fields]
    return f"static const ptxtune_bundle {symbol} = {{\n" + ",\n".join(lines) + "\n};"


def _kernel_words(symbol: str, m_max: int, cubin: bytes) -> str:
    """A cubin as little-endian 64-bit words: aligned, and far quicker to compile than bytes."""
    padded = cubin + bytes(-len(cubin) % WORD_BYTES)
    words = [
        f"0x{int.from_bytes(padded[i : i + WORD_BYTES], 'little'):x}"
        for i in range(0, len(padded), WORD_BYTES)
    ]
    lines = [
        "    " + ", ".join(words[i : i + WORDS_PER_LINE]) + ","
        for i in range(0, len(words), WORDS_PER_LINE)
    ]
    return "\n".join(
        (
            f"/* {len(cubin)} bytes */",
            f"static const uint64_t {symbol}_m{m_max}[{len(words)}] = {{",
            *lines,
            "};",
            "",
        )
    )
