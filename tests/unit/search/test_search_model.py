"""The model: floors and occupancy by hand, and the directions in which predictions must move."""

from __future__ import annotations

from dataclasses import replace

import pytest
from search_fakes import BASE, DEVICE, LARGE, PROBLEM, families

from db.records import DeviceRecord, Protocol
from ptxgen.arch import GPUS, arch_named, gpu_named
from ptxgen.config import KernelConfig
from ptxgen.outcome import Resources
from ptxgen.problem import Problem
from ptxgen.source import LaunchPlan
from search.events import Task
from search.model import estimate_resources, floor_us, occupancy, predict_us
from search.ranking import Ranker, gpu_spec_of
from search.space import Space

H200 = gpu_named("h200")
ARCH = H200.spec
FITS = Resources(96, 0, 16384)


def plan(block_n: int = 64, split_k: int = 1, smem: int = 65536, threads: int = 256) -> LaunchPlan:
    return LaunchPlan(threads, smem, 8, block_n, 4096 // block_n, split_k, True)


def with_knobs(**knobs: object) -> KernelConfig:
    own = {name: value for name, value in BASE.to_dict().items() if name != "family"}
    return type(BASE).from_knobs({**own, **knobs})


def predicted(  # noqa: PLR0917 (a test's shorthand)
    m: int = 8,
    config: KernelConfig = BASE,
    launch: LaunchPlan | None = None,
    resources: Resources = FITS,
    problem: Problem = PROBLEM,
    gpu: str = "h200",
    protocol: Protocol = Protocol.PLAIN,
) -> float:
    return predict_us(
        problem, config, launch or plan(), resources, m, gpu=gpu_named(gpu), protocol=protocol
    )


def test_the_floor_is_bytes_or_multiplications() -> None:
    # 4096 x 4096: 8388608 + 2 * 131072 bytes of weights and scales, 2 * (4096 + 4096) of x and y.
    bytes_m1 = 8388608 + 262144 + 16384
    assert floor_us(PROBLEM, 1, 1000.0, 1000.0) == pytest.approx(bytes_m1 / 1e6)
    flops = 2 * 4096 * 4096 * 4096
    assert floor_us(PROBLEM, 4096, 1000.0, 100.0) == pytest.approx(flops / 1e8)


@pytest.mark.parametrize(
    ("arch", "threads", "registers", "smem", "expected"),
    [
        ("sm_90a", 256, 64, 0, 4),  # registers: 65536 / (64 * 256)
        ("sm_90a", 256, 255, 0, 1),
        ("sm_90a", 512, 255, 0, 0),  # not even one
        ("sm_90a", 128, 32, 100 * 1024, 2),  # 228 / 101
        ("sm_90a", 32, 16, 0, 32),  # CTAs an SM
        ("sm_86", 128, 32, 0, 12),  # 48 warps
        ("sm_86", 128, 32, 90 * 1024, 1),
    ],
)
def test_occupancy(arch: str, threads: int, registers: int, smem: int, expected: int) -> None:
    launch = plan(smem=smem, threads=threads)
    assert occupancy(launch, Resources(registers, 0, smem), arch_named(arch)) == expected


def test_no_fit_is_infinitely_slow() -> None:
    assert predicted(resources=Resources(255, 0, 0), launch=plan(threads=512)) == float("inf")


@pytest.mark.parametrize("gpu", sorted(GPUS))
@pytest.mark.parametrize("m", [1, 8, 64, 1024])
def test_no_prediction_beats_the_floor(gpu: str, m: int) -> None:
    spec = gpu_named(gpu)
    task = Task(PROBLEM, m, Protocol.CHAINED)
    ranker = Ranker(task, spec.spec, spec, families(LARGE))
    floor = floor_us(PROBLEM, m, spec.read_gbps, spec.tensor_tflops)
    space = Space(PROBLEM, spec.spec, m, families(LARGE))
    assert all(ranker.predicted_us(config) >= floor for config in space.shuffled(0)[:200])


def test_more_tokens_never_get_faster() -> None:
    times = [predicted(m) for m in (1, 8, 9, 16, 64, 256, 1024, 4096)]
    assert times == sorted(times)
    assert times[0] == times[1]  # one n8 tile
    assert times[-1] > times[-2] > times[1]


def test_larger_layers_take_longer() -> None:
    large = Problem(8192, 8192)
    launch = replace(plan(), n_tiles=128)
    assert predicted(problem=large, launch=launch) > predicted()


def test_faster_memory_helps_decode() -> None:
    big, launch = Problem(8192, 28672), replace(plan(), n_tiles=128)
    slow = predicted(problem=big, launch=launch, gpu="h100-pcie")
    assert predicted(problem=big, launch=launch) < slow


def test_a_deeper_ring_helps_until_memory_is_busy() -> None:
    times = [
        predicted(config=with_knobs(num_stages=stages, block_k=128), launch=plan(block_n=16))
        for stages in (2, 3, 4, 8)
    ]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[1]


def test_chaining_hides_the_launch() -> None:
    full = replace(plan(block_n=16), n_tiles=264)  # two CTAs on each of 132 SMs: no room is left
    saved = predicted(launch=full) - predicted(launch=full, protocol=Protocol.CHAINED)
    assert saved == pytest.approx(H200.launch_us, rel=0.6)
    assert saved > 0
    without_pdl = replace(plan(), pdl=False)
    assert predicted(launch=without_pdl) == predicted(launch=without_pdl, protocol=Protocol.CHAINED)


def test_a_successor_that_starts_at_once_needs_no_free_gpu() -> None:
    """It takes from the kernel that runs, unless that fills the GPU or lets it start later."""
    few, full = replace(plan(), n_tiles=66), replace(plan(), n_tiles=264)
    for launch, crowded in ((few, True), (full, False)):
        times = [
            predicted(config=with_knobs(trigger=word), launch=launch, protocol=Protocol.CHAINED)
            for word in ("start", "drained", "end")
        ]
        assert (times[0] > times[1]) == crowded
        assert times[1] < times[2]
        plain = {
            predicted(config=with_knobs(trigger=word), launch=launch)
            for word in ("start", "drained", "end")
        }
        assert len(plain) == 1


def test_what_the_recorded_trials_showed() -> None:
    """Split K costs some 2 us, and warps that split the tokens dequantize the same weights."""
    many = plan(block_n=16)
    assert 1.5 < predicted(launch=replace(many, split_k=2)) - predicted(launch=many) < 4
    tall = replace(plan(), block_m=64)
    whole = with_knobs(block_m=64, warp_m=64, warp_n=16)
    halves = with_knobs(block_m=64, warp_m=32, warp_n=16)
    long = Problem(8192, 28672)
    twice = replace(tall, threads=2 * tall.threads)
    assert predicted(512, whole, tall, problem=long) < predicted(512, halves, twice, problem=long)


def test_weights_first_only_matters_when_chained() -> None:
    early, late = with_knobs(weights_first=True), with_knobs(weights_first=False)
    assert predicted(config=early) == predicted(config=late)
    chained = Protocol.CHAINED
    assert predicted(config=early, protocol=chained) < predicted(config=late, protocol=chained)


def test_a_cluster_saves_the_workspace_and_costs_idle_sms() -> None:
    """66 tiles by 2 fill an H200 either way; of 33 clusters of 4 only 30 run at once."""
    one = Resources(96, 0, 120 * 1024)
    pairs, quads = (replace(plan(), n_tiles=tiles, split_k=132 // tiles) for tiles in (66, 33))
    both = [
        [predicted(launch=replace(p, cluster_k=k), resources=one) for k in (1, p.split_k)]
        for p in (pairs, quads)
    ]
    saved, lost = (through - cluster for through, cluster in both)
    assert 0.5 < saved < 1.8
    assert lost < 0
    full = replace(plan(), n_tiles=132)
    split = replace(full, split_k=2, cluster_k=2)
    assert predicted(launch=split, resources=one) > predicted(launch=full, resources=one)


def test_splitting_k_helps_few_tiles_and_costs_many() -> None:
    few, many = plan(block_n=256), plan(block_n=16)
    assert predicted(launch=replace(few, split_k=4)) < predicted(launch=few)
    assert predicted(launch=replace(many, split_k=4)) > predicted(launch=many)


def test_a_second_wave_costs() -> None:
    one = Resources(96, 0, 16384)
    crowded = Resources(96, 0, 200 * 1024)  # one CTA an SM: 256 tiles are two waves
    launch = plan(block_n=16)
    assert predicted(launch=launch, resources=crowded) > predicted(launch=launch, resources=one)


def test_hand_tuned_kernels_on_an_h200_are_met_within_a_third() -> None:
    # Best plain times of a hand exploration (2026-11-29) at 8192 x 8192: 12.3 and 14.5 us with two
    # row blocks a warp, eight warps along K, 256 CTAs of 32 features, about 97 KB.
    problem = Problem(8192, 8192)
    for m, measured in ((1, 12.3), (16, 14.5)):
        config = with_knobs(
            block_m=max(m, 8), warp_m=max(m, 8), block_n=32, warp_n=32, block_k=1024, warps_k=8
        )
        launch = LaunchPlan(256, 97 * 1024, max(m, 8), 32, 256, 1, True)
        time_us = predicted(m, config, launch, Resources(120, 0, 97 * 1024), problem)
        assert time_us == pytest.approx(measured, rel=1 / 3)


def test_the_estimate_grows_with_the_tile_and_is_exact_in_shared_memory() -> None:
    small = estimate_resources(PROBLEM, with_knobs(warp_n=16), plan())
    large = estimate_resources(PROBLEM, with_knobs(warp_n=64, warp_m=32), plan())
    scaled = estimate_resources(PROBLEM, with_knobs(scale_on="accumulators"), plan())
    assert small.registers < large.registers <= 255
    assert scaled.registers > estimate_resources(PROBLEM, BASE, plan()).registers
    assert small.smem_bytes == plan().smem_bytes


def test_ranking_a_whole_space_is_sorting_it() -> None:
    task = Task(PROBLEM, 8, Protocol.PLAIN)
    ranker = Ranker(task, ARCH, H200, families(LARGE))
    space = Space(PROBLEM, ARCH, 8, families(LARGE))
    best = ranker.best(space, 5)
    times = sorted(ranker.predicted_us(config) for config in space)
    assert [ranker.predicted_us(config) for config in best] == times[:5]


def test_the_climb_finds_the_top_of_a_space_that_is_not_ranked_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("search.ranking.RANKED", 40)
    task = Task(PROBLEM, 8, Protocol.PLAIN)
    ranker = Ranker(task, ARCH, H200, families(LARGE))
    space = Space(PROBLEM, ARCH, 8, families(LARGE))
    (best,) = ranker.best(space, 1)
    assert ranker.predicted_us(best) == min(ranker.predicted_us(config) for config in space)


def test_a_devices_own_ceilings_go_before_the_tables() -> None:
    own = replace(DEVICE, read_gbps=4000.0)
    assert gpu_spec_of(own).read_gbps == 4000.0
    unmeasured = replace(DEVICE, read_gbps=0.0, tensor_tflops=0.0, launch_us=0.0)
    assert gpu_spec_of(unmeasured).read_gbps == H200.read_gbps
    stranger = DeviceRecord("NVIDIA Something", "8.6", 28, 99 * 1024, 1 << 21)
    found = gpu_spec_of(stranger)
    assert (found.arch, found.num_sms) == ("sm_86", 28)
    assert found.read_gbps > 0
    assert found.launch_us > 0
