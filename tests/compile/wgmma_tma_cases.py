"""Small launches of every kind of wgmma_tma kernel, for the interpreter."""

from __future__ import annotations

from dataclasses import replace

from ptxgen.arch import ARCHS
from ptxgen.cpucheck.reduced import Case
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.problem import Problem

SM90A = ARCHS["sm_90a"]
BASE = WgmmaTmaConfig(
    block_m=16,
    block_n=64,
    warpgroups=1,
    num_stages=2,
    chunk=2,
    split_k=1,
    multicast=1,
    min_ctas=1,
    max_ctas=0,
)

CASES: dict[str, Case] = {
    name: Case(problem, config, SM90A, m)
    for name, (problem, config, m) in {
        "ring turns twice": (Problem(64, 640), BASE, 16),
        "tails of m, n and k, two row blocks, bias": (
            Problem(136, 544, 32, "bf16", "int", bias=True),
            replace(BASE, block_n=128, block_m=24, chunk=4),
            29,
        ),
        "whole K, two warpgroups, fewer tokens than a tile": (
            Problem(72, 416, 416, "fp16", "int", bias=True),
            replace(BASE, block_n=128, warpgroups=2, chunk=1),
            5,
        ),
        "four warpgroups, a ring longer than K": (
            Problem(256, 256, 64, "bf16"),
            replace(BASE, block_n=256, warpgroups=4, num_stages=4),
            16,
        ),
        "in turns, a ring that turns twice": (
            Problem(136, 1120, 32, "bf16", "int", bias=True),
            replace(BASE, num_stages=4, warpgroups_k=2),
            13,
        ),
        "in turns, two row blocks, split K, an odd number of stages": (
            Problem(256, 1280, 128),
            replace(BASE, block_n=128, num_stages=6, chunk=4, warpgroups_k=2, split_k=2),
            16,
        ),
        "the last strip is wide": (
            Problem(72, 256, 128, "fp16", "int"),
            replace(BASE, block_n=128, warpgroups=2),
            7,
        ),
        "the last strip is wide, one fma elsewhere": (Problem(72, 256, 64), BASE, 9),
        "split K in two": (Problem(64, 640, 64), replace(BASE, split_k=2), 17),
        "split K in four, uneven, tails, bias": (
            Problem(136, 608, 32, "bf16", "int", bias=True),
            replace(BASE, block_m=32, split_k=4),
            33,
        ),
        "split K, whole K": (
            Problem(72, 544, 544, "fp16", "int"),
            replace(BASE, block_n=128, split_k=2, num_stages=3),
            11,
        ),
        "multicast over two, a tile beyond N": (
            Problem(136, 384, 32, "fp16", "int", bias=True),
            replace(BASE, multicast=2),
            17,
        ),
        "multicast over four": (Problem(136, 384), replace(BASE, multicast=4, block_m=32), 33),
        "multicast and split K": (
            Problem(136, 640, 128, "bf16"),
            replace(BASE, multicast=2, split_k=2),
            17,
        ),
        "multicast, more rows than a raster has": (
            Problem(136, 384, 64, "bf16", "int"),
            replace(BASE, multicast=2, raster=4),
            90,
        ),
        "multicast over two, persistent": (
            Problem(328, 384, 32, "fp16", "int", bias=True),
            replace(BASE, multicast=2, max_ctas=132, raster=4),
            90,
        ),
        "multicast over four, persistent": (
            Problem(328, 256),
            replace(BASE, multicast=4, block_m=32, max_ctas=132, num_stages=3),
            70,
        ),
        "words of two row blocks half a stage early": (
            Problem(256, 640, 64, "bf16", "int"),
            replace(BASE, block_n=256, warpgroups=2, num_stages=3, chunk=1),
            15,
        ),
        "persistent, rasters": (Problem(192, 384), replace(BASE, max_ctas=132, raster=4), 90),
        "persistent, whole K": (
            Problem(192, 416, 416, "bf16", "int"),
            replace(BASE, max_ctas=132, num_stages=3),
            40,
        ),
        "stream-K": (
            Problem(192, 384, 64, "bf16", "int", bias=True),
            replace(BASE, max_ctas=132, stream_k=True),
            40,
        ),
        "stream-K, a CTA between two tiles": (
            Problem(256, 512, 32, "fp16", "int"),
            replace(BASE, max_ctas=132, stream_k=True, chunk=4),
            30,
        ),
        "stream-K, whole K, tails": (
            Problem(200, 544, 544, "fp16", "int"),
            replace(BASE, max_ctas=132, stream_k=True, num_stages=3, raster=8),
            33,
        ),
        "stream-K, parts first, two warpgroups of two row blocks": (
            Problem(768, 640, 128, "fp16", "int"),
            replace(
                BASE,
                block_m=24,
                block_n=256,
                warpgroups=2,
                num_stages=3,
                chunk=1,
                max_ctas=132,
                stream_k=True,
            ),
            24,
        ),
        "stream-K, the sums of a part fill the ring": (
            Problem(256, 640, 128, bias=True),
            replace(BASE, block_m=48, block_n=128, max_ctas=132, stream_k=True),
            90,
        ),
        "128 sums a thread take registers from the producer": (
            Problem(128, 256),
            replace(BASE, block_m=256, block_n=128, warpgroups=2),
            70,
        ),
    }.items()
}
