"""ptxtune bench: which layers and configs it takes, its rows, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from click.testing import CliRunner

from db.records import Protocol
from db.session import open_database
from db.store import Store
from ptxgen.errors import ArchError, ModelError, ProblemError
from ptxgen.families import config_from_dict, default_config, emit
from ptxgen.outcome import Outcome, Resources, Status
from ptxgen.problem import Problem
from ptxtune.bench import NothingTimedError, check_timed, make_bench, run_bench
from ptxtune.bench_selection import LayerOptions, select_layers
from ptxtune.checkpoint import read_checkpoint
from ptxtune.cli import cli
from ptxtune.detect import DetectedGpu, Detection
from ptxtune.models import Layer
from ptxtune.selection import Selection
from ptxtune.target import Target, resolve_target
from ptxtune.toolchain import current_toolchain
from search.bench.case import Case, Entry, Result, Verdict
from search.bench.registry import CONTENDERS

H200 = DetectedGpu(0, "NVIDIA H200", (9, 0), "580.95", "GPU-aaaa-1", 150 << 30, 140 << 30, 700, 132)
NOWHERE = resolve_target("h200", Detection((), "no driver"))
PROBLEM = Problem(4096, 4096)
SHAPES = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "torch_dtype": "bfloat16",
}


@pytest.fixture
def here() -> Target:
    return resolve_target(None, Detection((H200,)))


@dataclass
class FakeRunner:
    """Times in order 10, 11, ... us a round; contenders named in `broken` crash."""

    broken: frozenset[str] = frozenset()
    closed: bool = False
    asked: list[tuple[Case, list[Entry]]] = field(default_factory=list)

    def run(self, case: Case, entries: Sequence[Entry], rounds: int) -> list[Result]:
        self.asked.append((case, list(entries)))
        results = []
        for place, entry in enumerate(entries):
            if entry.contender.name in self.broken:
                results.append(Result(case, entry, Verdict.CRASHED, "it died"))
                continue
            time_us = 10.0 + place
            outcome = Outcome(Status.OK, "", time_us, 0.0, (time_us,) * rounds, 1e-4)
            results.append(Result(case, entry, Verdict.OK, "", outcome))
        return results

    def __enter__(self) -> FakeRunner:
        return self

    def __exit__(self, *exc: object) -> None:
        self.closed = True


def store_winner(db: str, target: Target, problem: Problem, m: int, protocol: Protocol) -> dict:
    """A measured winner that is not the default config; returns that config."""
    default = default_config(problem, target.arch, m, target.device.num_sms).to_dict()
    config = config_from_dict({**default, "num_stages": default["num_stages"] - 1})
    source = emit(problem, config, target.arch)
    with open_database(db) as database:
        store = Store(database)
        run = store.start_run(target.device, current_toolchain(target.driver), {})
        trial = store.start_trial(
            run, problem, m, protocol, config=config, source_digest=source.digest()
        )
        resources = Resources(100, 0, source.plan.smem_bytes)
        store.end_trial(trial, Outcome(Status.OK, "", 5.0, 0.0, (5.0,), 1e-4, resources, 2.0))
        store.set_winner(trial, default_us=6.0, cublas_us=12.0)
    return config.to_dict()


def empty(folder: Path) -> str:
    """A database of nothing: an empty file counts as one."""
    (folder / "empty.db").touch()
    return str(folder / "empty.db")


def test_our_config_is_the_winner_of_its_protocol_or_the_default(
    here: Target, tmp_path: Path
) -> None:
    db = str(tmp_path / "ptxtune.db")
    config = store_winner(db, here, PROBLEM, 8, Protocol.PLAIN)
    other = Problem(6144, 4096)
    job = make_bench(
        Selection((PROBLEM, other), {(4096, 4096): "o"}),
        (8,),
        target=here,
        protocols=tuple(Protocol),
        others=("tinygemm",),
        db=db,
        cache_dir=str(tmp_path),
    )
    tuned, untuned = (job.entries(case) for case in job.cases())
    assert [entry.key for entry in tuned] == [
        "ptxtune-plain",
        "ptxtune-chained",
        "cublas-plain",
        "tinygemm-plain",
    ]
    assert (tuned[0].source, tuned[0].options["config"]) == ("measured", config)
    chained = default_config(PROBLEM, here.arch, 8, 132, chained=True).to_dict()
    assert (tuned[1].source, tuned[1].options["config"]) == ("default", chained)
    default = default_config(other, here.arch, 8, 132).to_dict()
    assert (untuned[0].source, untuned[0].options["config"]) == ("default", default)
    assert [entry.options["chained"] for entry in tuned[:2]] == [False, True]
    assert all(not entry.options for entry in tuned[2:])


def test_every_contender_of_every_case_is_a_row(here: Target, tmp_path: Path) -> None:
    job = make_bench(
        Selection((PROBLEM,), {(4096, 4096): "o"}),
        (1, 16),
        target=here,
        rounds=3,
        db=empty(tmp_path),
    )
    runner = FakeRunner(frozenset({"gemlite"}))
    found = list(run_bench(job, runner))  # type: ignore[arg-type]
    assert [case.m for case, _ in runner.asked] == [1, 16]
    assert all(case.floor_us > 1 for case, _ in runner.asked)
    assert runner.closed
    assert [[row.contender for row in rows] for rows in found] == [list(CONTENDERS)] * 2
    rows = {row.contender: row for row in found[0]}
    assert (rows["gemlite"].verdict, rows["gemlite"].reason) == ("crashed", "it died")
    assert rows["gemlite"].over_cublas is None
    ours = rows["ptxtune"]
    assert (ours.time_us, ours.layer, ours.source) == (10.0, "o", "default")
    assert ours.version.startswith("ptxtune ")
    assert ours.over_cublas is not None
    assert ours.over_cublas.median == pytest.approx(1.1)
    assert ours.over_cublas.count == 3
    assert (ours.host.device, ours.host.driver) == ("NVIDIA H200", "580.95")
    check_timed(found[0])


def test_without_cublas_there_are_times_and_no_ratios(here: Target, tmp_path: Path) -> None:
    job = make_bench(Selection((PROBLEM,), {}), (1,), target=here, rounds=2, db=empty(tmp_path))
    (rows,) = run_bench(job, FakeRunner(frozenset({"cublas"})))  # type: ignore[arg-type]
    assert rows[0].time_us == 10.0
    assert all(row.over_cublas is None for row in rows)


def test_nothing_timed_lists_the_reasons(here: Target, tmp_path: Path) -> None:
    job = make_bench(Selection((PROBLEM,), {}), (1,), target=here, rounds=2, db=empty(tmp_path))
    (rows,) = run_bench(job, FakeRunner(frozenset(CONTENDERS)))  # type: ignore[arg-type]
    with pytest.raises(NothingTimedError, match=r"ptxtune: it died.*ptxtune doctor"):
        check_timed(rows)


def test_a_gpu_that_is_not_here_cannot_be_compared_on() -> None:
    with pytest.raises(ArchError, match=r"NVIDIA H200 is not in this machine.*ptxtune tune"):
        make_bench(Selection((PROBLEM,), {}), (1,), target=NOWHERE)


# ---- layers -----------------------------------------------------------------------------------


def test_layers_in_each_dtype() -> None:
    layers = (Layer("", 4096, 4096), Layer("", 6144, 4096), Layer("", 4096, 4096))
    found = select_layers(LayerOptions(layers=layers, dtype="both", zero="int", group=64))
    assert found.problems == (
        Problem(4096, 4096, 64, "fp16", "int"),
        Problem(6144, 4096, 64, "fp16", "int"),
        Problem(4096, 4096, 64, "bf16", "int"),
        Problem(6144, 4096, 64, "bf16", "int"),
    )


def test_one_layer_and_a_model_are_those_of_tune() -> None:
    assert select_layers(LayerOptions(n=4096, k=4096)).problems == (PROBLEM,)
    found = select_layers(LayerOptions(model="llama-3.1-8b", tp=2))
    assert found.layer_names[14336, 4096] == "gate_up"


QUANTIZED = [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True}, 128, "sym"),
    ({"quant_method": "gptq", "bits": 4, "group_size": -1, "sym": False}, -1, "int"),
    ({"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True}, 64, "int"),
    ({"quant_method": "awq", "w_bit": 4, "q_group_size": 32, "zero_point": False}, 32, "sym"),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {
                "group_0": {"weights": {"num_bits": 4, "group_size": 128, "symmetric": True}}
            },
        },
        128,
        "sym",
    ),
]


@pytest.mark.parametrize(("quantization", "group", "zero"), QUANTIZED)
def test_a_checkpoint_says_its_quantization(
    quantization: dict, group: int, zero: str, tmp_path: Path
) -> None:
    config = {**SHAPES, "quantization_config": quantization}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for path in (tmp_path, tmp_path / "config.json"):
        found = read_checkpoint(path)
        assert (found.group, found.zero, found.dtype) == (group, zero, "bf16")
        first = found.model.layers[0]
        assert (first.name, first.n, first.k) == ("qkv", 6144, 4096)
    problems = select_layers(LayerOptions(checkpoint=tmp_path)).problems
    assert {(item.dtype, item.zero) for item in problems} == {("bf16", zero)}
    assert {item.group_size for item in problems} == ({4096, 14336} if group == -1 else {group})
    chosen = select_layers(LayerOptions(checkpoint=tmp_path, dtype="fp16")).problems
    assert {item.dtype for item in chosen} == {"fp16"}


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        (None, "no quantization_config.*--model"),
        ({"quant_method": "gptq", "bits": 8, "group_size": 128}, "weights of 8 bits"),
        ({"quant_method": "fp8"}, "'fp8', which names no bits"),
        ({"bits": 4, "group_size": "wide"}, "group_size = 'wide'"),
    ],
)
def test_a_checkpoint_that_is_not_of_4_bits(
    quantization: dict | None, words: str, tmp_path: Path
) -> None:
    config = {**SHAPES, "quantization_config": quantization}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match=words):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (LayerOptions(), "no layers are named"),
        (LayerOptions(n=4096, k=4096, model="llama-3.1-8b"), "--n/--k and --model exclude"),
        (LayerOptions(n=4096), "--n 4096, --k None"),
        (LayerOptions(layers=(Layer("", 4096, 4096),), tp=2), "--tp 2 splits a --model"),
        (LayerOptions(checkpoint=Path("nowhere"), group=64), "--group and --zero follow"),
        (LayerOptions(layers=(Layer("", 4095, 4096),)), "4095 cannot be packed"),
    ],
)
def test_layers_that_cannot_be_compared(options: LayerOptions, words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        select_layers(options)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), ["no layers are named", "--layers"]),
        (("--layers", "4096"), ["'4096' is no layer", "4096x14336"]),
        (("--layers", "4096x4096,"), ["'' is no layer"]),
        (("--layers", "4096x4096", "--m", "0"), ["M = 0", "least is 1"]),
        (
            ("--layers", "4096x4096", "--contenders", "cutlass"),
            ["'cutlass' is not known", "marlin"],
        ),
        (("--layers", "4096x4096", "--rounds", "1"), ["1", "x>=2"]),
        (("--layers", "4096x4096", "--protocol", "warm"), ["warm", "plain", "chained"]),
        (("--checkpoint", "nowhere"), ["nowhere", "config.json"]),
        (("--checkpoint", "x", "--zero", "sym"), ["--group and --zero follow"]),
    ],
)
def test_bad_input_is_one_paragraph(
    words: tuple[str, ...], expected: list[str], tmp_path: Path
) -> None:
    env = {"PTXTUNE_DB": str(tmp_path / "ptxtune.db")}
    result = CliRunner().invoke(cli, ["bench", *words], env=env, prog_name="ptxtune")
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    for word in expected:
        assert word in result.output.replace("\n", " ")
    assert not (tmp_path / "ptxtune.db").exists()
