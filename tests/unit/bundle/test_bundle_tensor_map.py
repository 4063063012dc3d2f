"""Bundles of persistent kernels and of kernels on a tensor map: manifest, words, C header."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import bundle_helpers
import pytest
from bundle_helpers import CpuBackend, FakeDriver, compiled, run, small_bundle
from formulas import evaluated

from ptxgen.bundle.load import load
from ptxgen.bundle.manifest import Manifest
from ptxgen.bundle.verify import verify
from ptxgen.bundle.write import write_bundle
from ptxgen.errors import BundleError
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan

PROBLEM = Problem(n=200, k=192, group_size=64)
SYMBOL = "ptxtune_n200_k192_g64_fp16_sym"


def plans() -> dict[int, LaunchPlan]:
    """A plain one, one with a map, a persistent one, and all together with split K."""
    plain = bundle_helpers.plan(PROBLEM, 8, 64, 1)
    mapped = replace(plain, block_m=16, k=PROBLEM.k, x_box=(64, 16))
    walking = replace(plain, max_ctas=3)
    both = replace(bundle_helpers.plan(PROBLEM, 16, 64, 2), max_ctas=5, k=PROBLEM.k, x_box=(64, 24))
    return {1: plain, 8: mapped, 20: walking, 70: both}


def bundle(folder: Path) -> Path:
    buckets = [bundle_helpers.bucket(PROBLEM, m_max, made) for m_max, made in plans().items()]
    return write_bundle(folder, bundle_helpers.spec(PROBLEM, buckets))


def example(folder: Path, compiler: str = "cc", *options: str) -> Path:
    return compiled(folder / "example.c", folder / "example", folder, compiler, *options)


@pytest.mark.parametrize(
    ("compiler", "options"), [("cc", ("-std=c99",)), ("c++", ("-xc++", "-std=c++11"))]
)
def test_the_driver_is_told_the_recipe_of_each_launch(
    tmp_path: Path, fake_driver: FakeDriver, compiler: str, options: tuple[str, ...]
) -> None:
    folder = bundle(tmp_path / "bundle")
    program = example(folder, compiler, *options)
    code, output = run(program, fake_driver.environment(PROBLEM), str(folder))
    assert code == 0, output
    assert output.endswith("PASSED\n")
    launches = fake_driver.launches()
    assert {launch["kernel"] for launch in launches} == {0, 1, 2, 3}
    expected = []
    for launch in launches:
        plan = list(plans().values())[launch["kernel"]]
        assert launch["grid"] == plan.grid(launch["m"])
        if plan.x_box is not None:
            inputs, tokens = plan.x_box
            expected.append(
                f"map dims {PROBLEM.k} {launch['m']} stride {2 * launch['ldx']} "
                f"box {inputs} {tokens} steps 1 1 modes 1 0 3 3 0"
            )
    assert len(expected) >= 2
    assert fake_driver.calls("map") == expected


def test_a_refused_map_is_told(tmp_path: Path, fake_driver: FakeDriver) -> None:
    folder = bundle(tmp_path / "bundle")
    environment = fake_driver.environment(PROBLEM, "refuse_map")
    code, output = run(example(folder), environment, str(folder))
    assert code == 1
    assert "cuTensorMapEncodeTiled returned" in output


GRIDS = """\
#include "ptxtune_w4a16.h"
int main(void) {{
    int m;
    for (m = 1; m <= 300; m++) {{
        const ptxtune_bucket *bucket = &{symbol}.buckets[ptxtune_bucket_index(&{symbol}, m)];
        ptxtune_launch_config config;
        ptxtune_grid(bucket, m, &config);
        printf("%d %u %u %u %lu\\n", m, config.grid_x, config.grid_y, config.grid_z,
               (unsigned long)ptxtune_counter_bytes(bucket, m));
    }}
    return 0;
}}
"""


def test_grids_agree_in_c_and_python(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "bundle")
    manifest = verify(folder)
    source = folder / "grids.c"
    source.write_text(GRIDS.format(symbol=SYMBOL))
    code, output = run(compiled(source, folder / "grids", folder, "cc", "-std=c99"), {})
    assert code == 0
    for line in output.splitlines():
        m, x, y, z, counters = map(int, line.split())
        plan = manifest.bucket_for(m).plan
        assert (x, y, z) == plan.grid(m)
        assert counters == plan.counter_bytes(m)


def test_headers_of_two_versions_do_not_build_together(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "bundle")
    source = folder / "old.c"
    source.write_text(
        '#define PTXTUNE_RUNTIME_VERSION 1\n#include "ptxtune_w4a16.h"\nint main(void);\n'
    )
    with pytest.raises(AssertionError, match="two bundles of different ptxtune versions"):
        compiled(source, folder / "old", folder)


def test_the_manifest_holds_the_recipe(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "bundle")
    data = json.loads((folder / "manifest.json").read_text())
    assert data["tensor_map"]["boxDim"] == ["x_box[0]", "x_box[1]"]
    assert data["tensor_map"]["swizzle"] == 3
    assert data["arguments"][8]["name"] == "x_map"
    assert [item["plan"]["x_box"] for item in data["buckets"]] == [None, [64, 16], None, [64, 24]]
    assert [bucket.plan for bucket in verify(folder).buckets] == list(plans().values())
    assert "Tensor map: Only for a bucket" in (folder / "README.md").read_text()


def test_formulas_give_the_plans_grids(tmp_path: Path) -> None:
    data = json.loads((bundle(tmp_path / "bundle") / "manifest.json").read_text())
    for bucket, plan in zip(data["buckets"], plans().values(), strict=True):
        words = data["launch"]["persistent_grid" if plan.max_ctas else "grid"]
        for m in (1, 8, 9, 100, 1000):
            known = {**bucket["plan"], "m": m}
            assert tuple(evaluated(text, known) for text in words) == plan.grid(m)


def test_bundles_without_a_map_do_not_speak_of_one(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM)
    data = json.loads((folder / "manifest.json").read_text())
    assert "tensor_map" not in data
    assert len(data["arguments"]) == 8
    assert "Tensor map" not in (folder / "README.md").read_text()


def test_a_bundle_runs_through_the_loader(tmp_path: Path) -> None:
    backend = CpuBackend()
    load(bundle(tmp_path / "bundle"), backend=backend)
    assert backend.used == list(plans().values())


def signed(text: str, bucket: int, change: dict[str, Any]) -> str:
    """The manifest with a changed plan, and the digest that fits it."""
    data = json.loads(text)
    data["buckets"][bucket]["plan"].update(change)
    data.pop("digest")
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return json.dumps({**data, "digest": hashlib.sha256(canonical.encode()).hexdigest()})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_ctas": -1}, "plan.max_ctas = -1 must be at least 0"),
        ({"max_ctas": "all"}, "plan.max_ctas = 'all' must be an integer"),
        ({"k": None}, "plan.k = None must be an integer"),
        ({"k": 256}, "has a tensor map of 256 inputs for K = 192"),
        ({"k": 0}, "must say k"),
        ({"n_tiles": 3}, "has 3 tiles of 64 for N = 200"),
        ({"n_tiles": 20}, "has 20 tiles of 64 for N = 200"),
        ({"x_box": 64}, "plan.x_box = 64 must be a list"),
        ({"x_box": [64]}, "x_box = [64] must be two integers of at least 1"),
        ({"x_box": [64, "8"]}, "must be two integers of at least 1"),
        ({"x_box": [64, True]}, "must be two integers of at least 1"),
        ({"x_box": [64, 0]}, "must be two integers of at least 1"),
        ({"x_box": [64, 257]}, "64 inputs x 257 tokens"),
        ({"x_box": [32, 8]}, "32 inputs x 8 tokens"),
    ],
)
def test_wrong_plans_are_named(tmp_path: Path, change: dict[str, Any], words: str) -> None:
    text = (bundle(tmp_path / "bundle") / "manifest.json").read_text()
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(signed(text, 1, change))
    assert words in str(caught.value)


@pytest.mark.parametrize("n_tiles", [4, 6, 8, 19])
def test_tiles_may_be_rounded_up_to_whole_clusters(tmp_path: Path, n_tiles: int) -> None:
    text = (bundle(tmp_path / "bundle") / "manifest.json").read_text()
    parsed = Manifest.from_json(signed(text, 1, {"n_tiles": n_tiles}))
    assert parsed.buckets[1].plan.n_tiles == n_tiles


def test_a_bundle_from_before_tensor_maps_is_read(tmp_path: Path) -> None:
    text = (small_bundle(tmp_path / "bundle", PROBLEM) / "manifest.json").read_text()
    data = json.loads(text)
    for name in ("max_ctas", "k", "x_box"):
        data["buckets"][0]["plan"].pop(name)
    older = signed(json.dumps(data), 0, {})
    assert Manifest.from_json(older).buckets == Manifest.from_json(text).buckets
