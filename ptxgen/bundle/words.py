"""The rules of a bundle in words and formulas, for its manifest and README. No logic here."""

from __future__ import annotations

from typing import Any

from ptxgen.problem import Problem
from ptxgen.source import COUNTER_ALIGN
from ptxgen.tensor_map import (
    DATA_TYPE_UINT16,
    ELEMENT_BYTES,
    INTERLEAVE_NONE,
    L2_PROMOTION_256B,
    MAP_ALIGN,
    MAP_BYTES,
    OOB_FILL_ZERO,
    SWIZZLE_128B,
)

X_ALIGN = 16  # bytes; of x and packed
Y_ALIGN = 8  # bytes; of y and bias
LDX_MULTIPLE = 8
LDY_MULTIPLE = 4

DISPATCH: dict[str, Any] = {
    "words": "Buckets are sorted by m_max. A batch of m uses the first bucket with m_max >= m; "
    "a batch above every m_max uses the last bucket. m = 0 launches nothing.",
}

LAUNCH: dict[str, Any] = {
    "words": "One CTA computes block_m tokens x block_n output features over its share of K. "
    "threads, block_m, block_n, n_tiles, split_k and smem_bytes come from the bucket's plan; "
    "divisions round down. Where smem_bytes is above 48 KiB, first set "
    "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES of the function to it. Where pdl is true, the "
    "launch may carry CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel then loads "
    "weights while its predecessor still runs, and waits for it before it touches x. A "
    "cubin states its clusters of CTAs itself, cluster_k of them along z: no launch attribute is "
    "needed for them, and n_tiles is rounded up to whole clusters. Where max_ctas is "
    "above 0, the kernel is persistent: its CTAs walk the tiles, and it is launched with "
    "persistent_grid instead of grid; with stream_k, whose CTAs share the last tiles along K, "
    "always with max_ctas CTAs along x.",
    "grid": ["(m + block_m - 1) / block_m", "n_tiles", "split_k"],
    "persistent_grid": [
        "min((m + block_m - 1) / block_m * n_tiles, max(max_ctas / split_k, 1))",
        "1",
        "split_k",
    ],
    "block": ["threads", "1", "1"],
    "dynamic_shared_memory_bytes": "smem_bytes",
}

WORKSPACE: dict[str, Any] = {
    "words": "Needed only where split_k > 1 and cluster_k is 1 (the CTAs of a cluster reduce in "
    "their shared memory), and with stream_k: one uint32 counter for each tile (see tiles), "
    f"padded to {COUNTER_ALIGN} bytes, then FP32 partial tiles of block_m * block_n: split_k for "
    "each tile, or with stream_k two for each of max_ctas CTAs. Zero the counters once before the "
    "first launch; every launch leaves them zero. One "
    "workspace must not be used by two launches at once. A workspace that serves several m keeps "
    "its counters in one fixed region in front, of the largest counter_bytes, and passes the "
    "kernel workspace + largest_counter_bytes - counter_bytes(m), so that partials never lie "
    "where counters are read.",
    "counter_bytes": f"(tiles * 4 + {COUNTER_ALIGN - 1}) / {COUNTER_ALIGN} * {COUNTER_ALIGN}",
    "workspace_bytes": "counter_bytes + tiles * split_k * block_m * block_n * 4",
    "stream_k_workspace_bytes": "counter_bytes + 2 * max_ctas * block_m * block_n * 4",
    "tiles": "(m + block_m - 1) / block_m * n_tiles",
    "align": COUNTER_ALIGN,
}

TENSOR_MAP: dict[str, Any] = {
    "words": "Only for a bucket whose plan has an x_box: its kernel takes one argument more, "
    f"x_map, {MAP_BYTES} bytes by value at a {MAP_ALIGN}-byte aligned address, encoded by "
    "cuTensorMapEncodeTiled with the values below for each x, m and ldx. The map describes x as a "
    "tensor of m rows of k 16-bit elements (UINT16 for FP16 and BF16 alike: only bits are copied); "
    "what lies outside of it reads as zero.",
    "tensorDataType": DATA_TYPE_UINT16,
    "tensorRank": 2,
    "globalAddress": "x",
    "globalDim": ["k", "m"],
    "globalStrides": [f"ldx * {ELEMENT_BYTES}"],
    "boxDim": ["x_box[0]", "x_box[1]"],
    "elementStrides": [1, 1],
    "interleave": INTERLEAVE_NONE,
    "swizzle": SWIZZLE_128B,
    "l2Promotion": L2_PROMOTION_256B,
    "oobFill": OOB_FILL_ZERO,
}

SELF_TEST: dict[str, Any] = {
    "words": "Inputs follow from a 32-bit hash of the element's index, all products and sums are "
    "exact in FP32, and the expected output is rounded to FP32 once. Arithmetic is modulo 2^32.",
    "hash": "h = index * 0x9E3779B1 + stream * 0x85EBCA77 + 1; h ^= h >> 16; h *= 0x7FEB352D; "
    "h ^= h >> 15; h *= 0x846CA68B; h ^= h >> 16",
    "weight_code": "q[n][k] = hash(stream 1, n * (K / 8) + k / 8) >> (4 * (k % 8)) & 15",
    "scale": "scale[n][g] = (8 + (hash(stream 2, n * groups + g) & 7)) / 1024",
    "zero_point": "zero[n][g] = hash(stream 3, n * groups + g) & 15; 8 where symmetric",
    "x": "x[row][k] = ((hash(stream 4, row % rows * K + k) & 31) - 16) / 16",
    "bias": "bias[n] = ((hash(stream 5, n) & 63) - 32) / 16, where the problem has a bias",
    "y": "y[row][n] = bias[n] + sum over k of x[row][k] * (q[n][k] - zero[n][g]) * scale[n][g]",
}


def arguments(problem: Problem, tensor_map: bool = False) -> list[dict[str, str]]:
    """The kernel's arguments, in order, with their C type and meaning.

    Args:
        problem: what the kernel computes.
        tensor_map: some bucket's kernel takes a tensor map of x.
    """
    value = "__half" if problem.dtype == "fp16" else "__nv_bfloat16"
    bias = f"[N] {value}; {Y_ALIGN}-byte aligned" if problem.bias else "null"
    rows = (
        ("x", "const void*", f"activations, [m][ldx] {value}; {X_ALIGN}-byte aligned"),
        ("packed", "const void*", f"packed weight, bytes; {X_ALIGN}-byte aligned"),
        ("bias", "const void*", bias),
        ("y", "void*", f"output, [m][ldy] {value}; {Y_ALIGN}-byte aligned"),
        (
            "workspace",
            "void*",
            f"see workspace; {COUNTER_ALIGN}-byte aligned, or null",
        ),
        ("m", "int", "tokens, > 0"),
        (
            "ldx",
            "long long",
            f"elements between rows of x; at least K and a multiple of {LDX_MULTIPLE}",
        ),
        (
            "ldy",
            "long long",
            f"elements between rows of y; at least N and a multiple of {LDY_MULTIPLE}",
        ),
    )
    x_map = ("x_map", f"{MAP_BYTES} bytes by value", "see tensor_map; not of every bucket")
    named = (*rows, x_map) if tensor_map else rows
    return [{"name": name, "type": kind, "words": text} for name, kind, text in named]
