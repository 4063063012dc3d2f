"""Bad and odd calls of the API. A row: the call, and what its error must name ("" = it works).

They are run in the folder of odd_files.py.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import ptxtune as p

M = Path("models")

PROBLEM = [
    (lambda: p.problem(1024.0, 512), "n = 1024.0"),
    (lambda: p.problem("1024", 512), "n = '1024'"),
    (lambda: p.problem(True, 512), "n = True"),
    (lambda: p.problem(None, 512), "n = None"),
    (lambda: p.problem(1024, float("nan")), "k = nan"),
    (lambda: p.problem(np.float64(1024), 512), "1024.0"),
    (lambda: p.problem(np.bool_(True), 512), "n = "),
    (lambda: p.problem([1024], 512), "n = [1024]"),
    (lambda: p.problem(10**5000, 512), "1048576"),
    (lambda: p.problem(1024, 512, group=64.0), "group = 64.0"),
    (lambda: p.problem(1024, 512, group="64"), "group = '64'"),
    (lambda: p.problem(1024, 512, group=None), "group = None"),
    (lambda: p.problem(1024, 512, group=True), "group = True"),
    (lambda: p.problem(1024, 512, group=7), "group size 7"),
    (lambda: p.problem(1024, 512, bias="no"), "bias = 'no'"),
    (lambda: p.problem(1024, 512, bias=0), "bias = 0"),
    (lambda: p.problem(1024, 512, bias=None), "bias = None"),
    (lambda: p.problem(1024, 512, dtype="fp32"), "fp16 or bf16"),
    (lambda: p.problem(1024, 512, dtype=torch.float16), "fp16 or bf16"),
    (lambda: p.problem(1024, 512, dtype=None), "fp16 or bf16"),
    (lambda: p.problem(1024, 512, zero=8), "sym"),
    (lambda: p.problem(1024, 512, zero=["sym"]), "sym"),
    (lambda: p.problem(np.int64(1024), np.int32(512), group=np.int64(64), bias=np.bool_(True)), ""),
    (lambda: p.problem(np.uint16(1024), 512, group=np.int8(-1)), ""),
]

BEST = [
    (lambda: p.best(n=1024, k=512, m=8, protocol="graph"), "protocol 'graph'"),
    (lambda: p.best(n=1024, k=512, m=8, protocol=None), "protocol None"),
    (lambda: p.best(n=1024, k=512, m=8.0), "M = 8.0"),
    (lambda: p.best(n=1024, k=512, m="8"), "M = '8'"),
    (lambda: p.best(n=1024, k=512, m=[8]), "M = [8]"),
    (lambda: p.best(n=1024, k=512, m=True), "M = True"),
    (lambda: p.best(n=1024, k=512, m=None), "M = None"),
    (lambda: p.best(n=1024, k=512, m=-1), "M = -1"),
    (lambda: p.best(n=1024, k=512, m=8, gpu=7), "gpu = 7"),
    (lambda: p.best(n=1024, k=512, m=8, gpu="4090"), "did you mean rtx4090"),
    (lambda: p.best(n=1024, k=512, m=8, db=7), "db = 7"),
    (lambda: p.best(n=1024, k=512, m=8, allow_predicted="no"), "allow_predicted = 'no'"),
    (lambda: p.best(n=1024, k=512, m=8, batch_invariant=1), "batch_invariant = 1"),
    (lambda: p.best(n=1024, k=512, m=8, group=64.0), "group = 64.0"),
    (lambda: p.best(n=1024, k=512, m=np.int64(8), group=np.int64(64)), ""),
    (lambda: p.best(n=1024, k=512, m=8, db=Path("known.db")), ""),
    (lambda: p.best(n=1024, k=512, m=8, allow_predicted=np.bool_(False)), ""),
]

TUNE = [
    (p.tune, "--n and --k"),
    (lambda: p.tune(n=1024), "--n and --k"),
    (lambda: p.tune(n=1024, k=512, model="llama-3.1-8b"), "exclude"),
    (lambda: p.tune(model=Path("nowhere")), "nowhere"),
    (lambda: p.tune(model=Path("llama-3.1-8b")), "cannot be read"),
    (lambda: p.tune(model=M / "deep"), "nested too deep"),
    (lambda: p.tune(model=M / "digits"), "not JSON"),
    (lambda: p.tune(model=Path("a\0b")), "NUL"),
    (lambda: p.tune(model="a\0b"), "no name"),
    (lambda: p.tune(model=7), "model = 7"),
    (lambda: p.tune(model=b"llama"), "model = b'llama'"),
    (lambda: p.tune(model=""), "''"),
    (lambda: p.tune(model="llama3-8b"), "did you mean llama-3-8b"),
    (lambda: p.tune(model="llama-3.1-8b", tp=2.0), "tp = 2.0"),
    (lambda: p.tune(model="llama-3.1-8b", tp="2"), "tp = '2'"),
    (lambda: p.tune(model="llama-3.1-8b", tp=True), "tp = True"),
    (lambda: p.tune(n=1024, k=512, tp=2), "--tp 2"),
    (lambda: p.tune(n=1024, k=512, m="8"), "m = '8'"),
    (lambda: p.tune(n=1024, k=512, m=8.0), "m = 8.0"),
    (lambda: p.tune(n=1024, k=512, m=[8.5]), "m = 8.5"),
    (lambda: p.tune(n=1024, k=512, m=[]), "at least one"),
    (lambda: p.tune(n=1024, k=512, m=0), "M = 0"),
    (lambda: p.tune(n=1024, k=512, m=None), "m = None"),
    (lambda: p.tune(n=1024, k=512, m=[True]), "m = True"),
    (lambda: p.tune(n=1024, k=512, m=1 << 21), "1048576"),
    (lambda: p.tune(n=1024, k=512, dtype="fp32"), "dtype 'fp32'"),
    (lambda: p.tune(n=1024, k=512, dtype=["fp16"]), "dtype ['fp16']"),
    (lambda: p.tune(n=1024, k=512, zero="none"), "zero 'none'"),
    (lambda: p.tune(n=1024, k=512, bias="no"), "bias = 'no'"),
    (lambda: p.tune(n=1024, k=512, protocols="graph"), "protocols 'graph'"),
    (lambda: p.tune(n=1024, k=512, protocols=["plain", "graph"]), "protocols 'graph'"),
    (lambda: p.tune(n=1024, k=512, protocols=[]), "names nothing"),
    (lambda: p.tune(n=1024, k=512, protocols=3), "protocols = 3"),
    (lambda: p.tune(n=1024, k=512, budget="huge"), "budget 'huge'"),
    (lambda: p.tune(n=1024, k=512, budget=None), "budget = None"),
    (lambda: p.tune(n=1024, k=512, trials=1.5), "trials = 1.5"),
    (lambda: p.tune(n=1024, k=512, trials=0), "0 trials"),
    (lambda: p.tune(n=1024, k=512, seconds="5"), "seconds = '5'"),
    (lambda: p.tune(n=1024, k=512, seconds=float("nan")), "seconds = nan"),
    (lambda: p.tune(n=1024, k=512, seconds=True), "seconds = True"),
    (lambda: p.tune(n=1024, k=512, sampler="cmaes"), "cmaes"),
    (lambda: p.tune(n=1024, k=512, sampler=3), "sampler 3"),
    (lambda: p.tune(n=1024, k=512, seed="x"), "seed = 'x'"),
    (lambda: p.tune(n=1024, k=512, seed=-1), "seed = -1"),
    (lambda: p.tune(n=1024, k=512, strict="yes"), "strict = 'yes'"),
    (lambda: p.tune(n=1024, k=512, batch_invariant=None), "batch_invariant = None"),
    (lambda: p.tune(n=1024, k=512, device=1.0), "device = 1.0"),
    (lambda: p.tune(n=1024, k=512, device=3), "device '3'"),
    (lambda: p.tune(n=1024, k=512, db=1.5), "db = 1.5"),
    (lambda: p.tune(n=1024, k=512, cache_dir=7), "cache_dir = 7"),
    (lambda: p.tune(n=1024, k=512, cache_dir="~nouser/c"), "home"),
    (lambda: p.tune(n=1024, k=512, on_event=None), "on_event = None"),
]

EXPORT = [
    (lambda: p.export("b", n=1024, k=512, m="8"), "m = '8'"),
    (lambda: p.export("b", n=1024, k=512, m=[0]), "at least one M"),
    (lambda: p.export("b", n=1024, k=512, m=[]), "at least one M"),
    (lambda: p.export("b", n=1024, k=512, protocol="graph"), "protocol 'graph'"),
    (lambda: p.export("b", n=1024, k=512, force="yes"), "force = 'yes'"),
    (lambda: p.export("b", n=1 << 20, k=1 << 20), "GiB"),
    (lambda: p.export(None, n=1024, k=512), "out = None"),
    (lambda: p.export("", n=1024, k=512), "out = ''"),
    (lambda: p.export("~nouser/b", n=1024, k=512), "home"),
    (lambda: p.export("a\0b", n=1024, k=512), "NUL"),
    (lambda: p.export(b"b", n=1024, k=512), "out = b'b'"),
    (lambda: p.export(7, n=1024, k=512), "out = 7"),
]

WEIGHTS = [
    (lambda: p.pack("w", p.problem(64, 128)), "QuantizedWeight"),
    (lambda: p.pack(torch.zeros(64, 128), p.problem(64, 128)), "QuantizedWeight"),
    (lambda: p.pack(p.quantize(torch.zeros(64, 128), p.problem(64, 128)), None), "ptxtune.problem"),
    (lambda: p.pack(p.QuantizedWeight(None, None), p.problem(64, 128)), "q is NoneType"),
    (lambda: p.quantize([[1.0]], p.problem(64, 128)), "not a torch tensor"),
    (lambda: p.quantize(np.zeros((64, 128)), p.problem(64, 128)), "not a torch tensor"),
    (lambda: p.quantize(torch.zeros(64, 128), "fp16"), "ptxtune.problem"),
    (lambda: p.quantize(torch.zeros(64, 128, dtype=torch.int8), p.problem(64, 128)), "torch.int8"),
    (lambda: p.quantize(torch.zeros(128, 64), p.problem(64, 128)), "(64, 128)"),
    (lambda: p.unpack(b"bytes", p.problem(64, 128)), "not a torch tensor"),
    (lambda: p.unpack(torch.zeros(3, dtype=torch.uint8), None), "ptxtune.problem"),
    (lambda: p.dequantize(None, p.problem(64, 128)), "QuantizedWeight"),
    (lambda: p.load(None), "bundle = None"),
    (lambda: p.load(""), "bundle = ''"),
    (lambda: p.load("~nouser/b"), "home"),
    (lambda: p.load("nowhere"), "nowhere"),
    (lambda: p.load("web"), "web"),
    (lambda: p.load("a\0b"), "NUL"),
    (
        lambda: p.pack(
            p.quantize(torch.ones(64, 128), p.problem(np.int64(64), 128)),
            p.problem(64, np.int64(128)),
        ),
        "",
    ),
]

CALLS = PROBLEM + BEST + TUNE + EXPORT + WEIGHTS
