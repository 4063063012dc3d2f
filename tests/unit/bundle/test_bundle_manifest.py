"""A manifest with a right digest but wrong contents is refused, field by field."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bundle_helpers import CpuBackend, small_bundle

from ptxgen.bootstrap import Interval
from ptxgen.bundle.load import load
from ptxgen.bundle.manifest import Manifest
from ptxgen.errors import BundleError
from ptxgen.problem import Problem
from ptxgen.proof import Proof

PROBLEM = Problem(n=64, k=128)

Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = small_bundle(tmp_path_factory.mktemp("manifest") / "bundle", PROBLEM, (1, 8))
    return (folder / "manifest.json").read_text()


def signed(text: str, change: Change) -> str:
    """The manifest with a change, and the digest that fits it."""
    data = json.loads(text)
    change(data)
    data.pop("digest")
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    data["digest"] = hashlib.sha256(canonical.encode()).hexdigest()
    return json.dumps(data)


PROOF = Proof(11, Interval(5.0, 4.9, 5.1, 11), 6.0, 9.0, None, Interval(1.2, 1.1, 1.3, 11))


def test_a_proof_of_the_measurement_is_kept(text: str) -> None:
    def prove(data: dict[str, Any]) -> None:
        data["buckets"][0]["measurement"].update(proof=PROOF.to_dict(), state="sustained")

    manifest = Manifest.from_json(signed(text, prove))
    measurement = manifest.buckets[0].measurement
    assert measurement is not None
    assert (measurement.proof, measurement.state) == (PROOF, "sustained")
    assert Manifest.from_json(manifest.to_json()) == manifest


@pytest.mark.parametrize("proof", [7, {}, PROOF.to_dict() | {"rounds": "many"}])
def test_a_damaged_proof_is_refused(text: str, proof: object) -> None:
    changed = signed(text, lambda d: d["buckets"][0]["measurement"].update(proof=proof))
    with pytest.raises(BundleError, match=r"measurement\.proof"):
        Manifest.from_json(changed)


def test_a_bundle_from_before_clusters_reads_as_one_without(text: str) -> None:
    older = signed(text, lambda d: [b["plan"].pop("cluster_k") for b in d["buckets"]])
    assert Manifest.from_json(older).buckets == Manifest.from_json(text).buckets


def test_signing_alone_changes_nothing(text: str) -> None:
    assert Manifest.from_json(signed(text, lambda d: None)) == Manifest.from_json(text)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["problem"].update(n=63), "problem: n = 63 cannot be packed"),
        (lambda d: d["problem"].pop("k"), "problem lacks or has an unknown field"),
        (lambda d: d.update(problem=4), "manifest.problem = 4 must be an object"),
        (lambda d: d.update(buckets={}), "manifest.buckets = {} must be a list"),
        (lambda d: d.update(buckets=[]), "bucket sizes [] must rise"),
        (lambda d: d.update(buckets=[7]), "manifest.buckets[0] is 7, not an object"),
        (lambda d: d["buckets"][1].update(m_max=1), "bucket sizes [1, 1] must rise"),
        (lambda d: d["buckets"][0].update(m_max=0), "buckets[0].m_max = 0 must be at least 1"),
        (lambda d: d["buckets"][0].update(self_test_m=0), "self_test_m = 0 must be at least 1"),
        (lambda d: d["buckets"][0]["plan"].pop("pdl"), "plan has no field 'pdl'"),
        (lambda d: d["buckets"][0]["plan"].update(pdl=1), "plan.pdl = 1 must be true or false"),
        (lambda d: d["buckets"][0]["plan"].update(split_k=0), "split_k = 0 must be at least 1"),
        (lambda d: d["buckets"][0]["plan"].update(cluster_k=0), "cluster_k = 0 must be at least 1"),
        (lambda d: d["buckets"][0]["plan"].update(cluster_k=3), "clusters of 3 CTAs where 2 split"),
        (lambda d: d["buckets"][0]["plan"].update(threads="x"), "threads = 'x' must be an integer"),
        (lambda d: d["buckets"][0]["plan"].update(block_m=-8), "block_m = -8 must be at least 1"),
        (lambda d: d["buckets"][0]["files"].pop("ptx"), "files names ['cu', 'cubin']"),
        (lambda d: d["buckets"][0]["measurement"].update(time_us="1"), "must be a number"),
        (lambda d: d["packed_layout"].update(version=9), "reads packed layout version 9"),
        (lambda d: d["packed_layout"].update(TOTAL_BYTES=1), "of 1 bytes"),
        (lambda d: d["files"].update(x=5), "manifest.files.x = 5 must be a string"),
        (lambda d: d["self_test"].update(rows=0), "self_test.rows = 0 must be at least 1"),
        (lambda d: d.pop("toolchain"), "manifest has no field 'toolchain'"),
    ],
)
def test_wrong_contents_are_named(text: str, change: Change, words: str) -> None:
    with pytest.raises(BundleError) as caught:
        Manifest.from_json(signed(text, change))
    assert words in str(caught.value)


def test_an_arch_that_this_version_does_not_know(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM)
    path = folder / "manifest.json"
    path.write_text(signed(path.read_text(), lambda d: d.update(arch="sm_123")))
    with pytest.raises(BundleError, match="arch 'sm_123' is not known"):
        load(folder, backend=CpuBackend())


def test_a_self_test_of_other_rows_is_refused(tmp_path: Path) -> None:
    folder = small_bundle(tmp_path / "bundle", PROBLEM)
    path = folder / "manifest.json"
    path.write_text(signed(path.read_text(), lambda d: d["self_test"].update(rows=4)))
    with pytest.raises(BundleError, match="320 values for 4 rows of 64"):
        load(folder, backend=CpuBackend())
