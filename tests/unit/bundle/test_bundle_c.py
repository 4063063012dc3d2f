"""The C side of a bundle, built with a plain compiler and run against a fake driver."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import bundle_helpers
import pytest
from bundle_helpers import FakeDriver, compiled, run, small_bundle

from ptxgen.bundle.manifest import Manifest
from ptxgen.bundle.verify import verify
from ptxgen.bundle.write import write_bundle
from ptxgen.problem import Problem
from ptxgen.weights.layout import packed_layout

PROBLEM = Problem(n=136, k=256)

# Every branch of the layout: group sizes, whole K with a tail, N below, at and above a strip of 64;
# each with both zero kinds, and every dtype with and without a bias.
PROBLEMS = [
    Problem(n=n, k=k, group_size=group, dtype=dtype, zero=zero, bias=bias)
    for ((n, k, group), zero), (dtype, bias) in zip(
        itertools.product(
            [(64, 128, 32), (136, 192, 64), (72, 256, 128), (40, 160, 160)], ["sym", "int"]
        ),
        itertools.cycle([("fp16", False), ("bf16", True), ("bf16", False), ("fp16", True)]),
        strict=False,
    )
]


def example(folder: Path, compiler: str = "cc", *options: str) -> Path:
    return compiled(folder / "example.c", folder / "example", folder, compiler, "-O1", *options)


@pytest.mark.parametrize("problem", PROBLEMS, ids=Problem.key)
def test_example_passes_its_self_test(
    tmp_path: Path, fake_driver: FakeDriver, problem: Problem
) -> None:
    folder = small_bundle(tmp_path / "bundle", problem)
    program = example(folder, "cc", "-std=c99")
    code, output = run(program, fake_driver.environment(problem), str(folder))
    assert code == 0, output
    assert "m = 8: 0 of" in output
    assert output.endswith("PASSED\n")


@pytest.mark.parametrize("mode", ["garbage", "one_wrong", "nan", "unwritten", "refuse"])
def test_example_fails_where_the_kernel_does(
    tmp_path: Path, fake_driver: FakeDriver, mode: str
) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM)
    program = example(folder)
    code, output = run(program, fake_driver.environment(PROBLEM, mode), str(folder))
    assert code == 1
    assert "PASSED" not in output
    assert ("cuLaunchKernelEx" in output) == (mode == "refuse")


def test_several_buckets_share_one_workspace(tmp_path: Path, fake_driver: FakeDriver) -> None:
    problem = Problem(n=520, k=64, group_size=32)
    folder = small_bundle(tmp_path / "bundle", problem, (1, 16, 64, 70))
    manifest = verify(folder)
    heads = [bucket.plan.counter_bytes(bucket.self_test_m) for bucket in manifest.buckets]
    assert heads[0] < heads[2]  # partials of the first would lie where the third has counters
    code, output = run(example(folder), fake_driver.environment(problem), str(folder))
    assert code == 0, output
    launches = fake_driver.launches()
    by_m = {launch["m"]: launch for launch in launches}
    assert sorted(by_m) == [bucket.self_test_m for bucket in manifest.buckets]
    for index, bucket in enumerate(manifest.buckets):
        launch = by_m[bucket.self_test_m]
        assert launch["kernel"] == index
        assert launch["grid"] == bucket.plan.grid(bucket.self_test_m)
        assert launch["block"] == (bucket.plan.threads, 1, 1)
        assert launch["smem"] == bucket.plan.smem_bytes
        assert (launch["ldx"], launch["ldy"]) == (problem.k, problem.n)
    chained = {launch["kernel"] for launch in launches if launch["pdl"]}
    assert chained == {i for i, bucket in enumerate(manifest.buckets) if bucket.plan.pdl}
    assert len(fake_driver.calls("unload")) == len(manifest.buckets)
    assert fake_driver.calls("release") == ["release 0"]


@pytest.mark.parametrize(("compiler", "options"), [("c++", ("-xc++", "-std=c++11")), ("cc", ())])
def test_header_builds_as_cpp_and_as_the_default_c(
    tmp_path: Path, fake_driver: FakeDriver, compiler: str, options: tuple[str, ...]
) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM)
    program = example(folder, compiler, *options)
    code, output = run(program, fake_driver.environment(PROBLEM), str(folder))
    assert code == 0, output


def test_two_bundles_in_one_program(tmp_path: Path, fake_driver: FakeDriver) -> None:
    other = Problem(n=64, k=128, group_size=64)
    first = small_bundle(tmp_path / "first", PROBLEM)
    second = small_bundle(tmp_path / "second", other)
    source = tmp_path / "two.c"
    source.write_text(
        f'#include "{first}/ptxtune_w4a16.h"\n#include "{second}/ptxtune_w4a16.h"\n'
        "int main(void) {\n"
        "    ptxtune_context a, b;\n"
        "    int bad = ptxtune_open(&a, &ptxtune_n136_k256_g128_fp16_sym, 0);\n"
        "    bad |= ptxtune_open(&b, &ptxtune_n64_k128_g64_fp16_sym, 1);\n"
        "    ptxtune_close(&a);\n    ptxtune_close(&b);\n    return bad;\n}\n"
    )
    program = compiled(source, tmp_path / "two", tmp_path, "cc", "-std=c99")
    code, output = run(program, fake_driver.environment(PROBLEM))
    assert code == 0, output
    assert fake_driver.calls("retain") == ["retain 0", "retain 1"]


def cluster_bundle(folder: Path) -> Path:
    """Split K through the workspace up to 8 tokens, over clusters above."""
    through = bundle_helpers.plan(PROBLEM, 8, 32, 2)
    cluster = replace(bundle_helpers.plan(PROBLEM, 16, 64, 4), cluster_k=4)
    plans = {8: through, 64: cluster}
    buckets = [bundle_helpers.bucket(PROBLEM, m_max, made) for m_max, made in plans.items()]
    return write_bundle(folder, bundle_helpers.spec(PROBLEM, buckets))


def test_clusters_are_launched_as_any_grid_and_take_no_workspace(
    tmp_path: Path, fake_driver: FakeDriver
) -> None:
    folder = cluster_bundle(tmp_path / "bundle")
    manifest = verify(folder)
    assert [bucket.plan.cluster_k for bucket in manifest.buckets] == [1, 4]
    code, output = run(example(folder), fake_driver.environment(PROBLEM), str(folder))
    assert code == 0, output
    grids = {launch["kernel"]: launch["grid"] for launch in fake_driver.launches()}
    assert grids[1] == (-(-manifest.buckets[1].self_test_m // 16), 3, 4)
    answers = c_answers(folder, 70)
    for m in range(71):
        counters, workspace = (int(word) for word in answers[m][2:])
        tiles = -(-m // 8) * 5
        assert counters == (256 if 0 < m <= 8 else 0)
        assert workspace == (256 + tiles * 2 * 8 * 32 * 4 if 0 < m <= 8 else 0)


def test_stream_k_launches_all_its_ctas_and_takes_two_partial_tiles_for_each(
    tmp_path: Path, fake_driver: FakeDriver
) -> None:
    shared = replace(bundle_helpers.plan(PROBLEM, 16, 64, 1), max_ctas=5, stream_k=True)
    buckets = [bundle_helpers.bucket(PROBLEM, 64, shared)]
    folder = write_bundle(tmp_path / "bundle", bundle_helpers.spec(PROBLEM, buckets))
    assert verify(folder).buckets[0].plan == shared
    code, output = run(example(folder), fake_driver.environment(PROBLEM), str(folder))
    assert code == 0, output
    assert {launch["grid"] for launch in fake_driver.launches()} == {(5, 1, 1)}
    for m, (_, _, counters, workspace) in enumerate(c_answers(folder, 70)[:71]):
        assert int(counters) == (256 if m else 0)  # at most 5 x 3 tiles
        assert int(workspace) == (256 + 2 * 5 * 16 * 64 * 4 if m else 0)
        assert int(workspace) == shared.workspace_bytes(m)


DISPATCH_SOURCE = """\
#include "ptxtune_w4a16.h"
#define BUNDLE {symbol}
int main(void) {{
    int m;
    for (m = 0; m <= {m_last}; m++) {{
        const ptxtune_bucket *bucket = &BUNDLE.buckets[ptxtune_bucket_index(&BUNDLE, m)];
        printf("%d %d %lu %lu\\n", m, bucket->m_max,
               (unsigned long)ptxtune_counter_bytes(bucket, m),
               (unsigned long)(ptxtune_counter_bytes(bucket, m) +
                               ptxtune_partial_bytes(bucket, m)));
    }}
    for (m = 0; m <= {m_last}; m++)
        printf("w %d %lu\\n", m, (unsigned long)ptxtune_workspace_bytes(&BUNDLE, m));
    printf("packed %lu\\n", (unsigned long)ptxtune_packed_bytes(&BUNDLE));
    return 0;
}}
"""


def c_answers(folder: Path, m_last: int) -> list[list[str]]:
    source = folder / "dispatch.c"
    symbol = "ptxtune_n136_k256_g128_fp16_sym"
    source.write_text(DISPATCH_SOURCE.format(symbol=symbol, m_last=m_last))
    program = compiled(source, folder / "dispatch", folder, "cc", "-std=c99")
    code, output = run(program, {})
    assert code == 0
    return [line.split() for line in output.splitlines()]


def largest_regions(manifest: Manifest, m_cap: int) -> int:
    """Workspace for every batch of up to m_cap, by trying each of them."""
    counters = partials = 0
    for m in range(m_cap + 1):
        plan = manifest.bucket_for(m).plan
        counters = max(counters, plan.counter_bytes(m))
        partials = max(partials, plan.workspace_bytes(m) - plan.counter_bytes(m))
    return counters + partials


@pytest.mark.parametrize("m_maxes", [(8,), (1, 2), (1, 16, 64, 200), (5, 6, 7)])
def test_dispatch_and_sizes_agree_in_c_and_python(
    tmp_path: Path, fake_driver: FakeDriver, m_maxes: tuple[int, ...]
) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM, m_maxes)
    manifest = verify(folder)
    m_last = m_maxes[-1] + 70
    answers = c_answers(folder, m_last)
    for m, (c_m, m_max, counters, workspace) in enumerate(answers[: m_last + 1]):
        bucket = manifest.bucket_for(m)
        expected = next((size for size in m_maxes if size >= m), m_maxes[-1])
        assert (int(c_m), int(m_max)) == (m, expected)
        assert bucket.m_max == expected
        assert int(counters) == bucket.plan.counter_bytes(m)
        assert int(workspace) == bucket.plan.workspace_bytes(m)
    for m, (_, c_m, needed) in enumerate(answers[m_last + 1 : -1]):
        assert (int(c_m), int(needed)) == (m, largest_regions(manifest, m))
    assert answers[-1] == ["packed", str(packed_layout(PROBLEM).total_bytes)]
