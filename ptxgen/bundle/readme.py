"""The README.md inside a bundle."""

from __future__ import annotations

import textwrap

from ptxgen.bundle import words
from ptxgen.bundle.manifest import Bucket, Manifest
from ptxgen.bundle.unpacking import WORDS

PREDICTED_NOTE = """\
> **Predicted, not measured.** No GPU ran these kernels: they were compiled for {arch} and ranked by
> a model of {device}. Times below are the model's. Tune on the GPU itself for measured ones.
"""

UNTIMED_NOTE = """\
> **Not measured.** At least one kernel below was never timed on {device}: it is the built-in
> default, or another GPU's winner.
"""

TEXT = """\
# W4A16 kernel {key} for {arch}

y[M, N] = x[M, K] * W[N, K]^T{bias} with 4-bit W: N = {n}, K = {k}, group size {group}, {dtype}
activations, {zero}. Made by ptxtune {version} {how} {device}.

{note}
{table}
{unpacking}
{dispatch}

## Use from Python

```python
import ptxtune

kernel = ptxtune.load("path/to/this/folder")  # checks every file, then runs the self-test
y = kernel(x, packed{bias_argument})
```

## Use from C

`ptxtune_w4a16.h` is all that is needed: it embeds the kernels, loads the CUDA driver itself, and
builds with a plain C99 or C++ compiler, without the CUDA toolkit.

```make
example: example.c ptxtune_w4a16.h
	cc -O2 example.c -o example -ldl -lm
```

`./example` runs the self-test through every kernel and exits with 0 where all pass.

## Use from anything else

Load a `kernel.cubin` with the CUDA driver API and launch `{entry}` by `manifest.json`: arguments,
launch geometry, workspace rule, packed layout and self-test are there in words and as formulas.

{launch}

{workspace}
{tensor_map}
## Files

| file | what it is |
| --- | --- |
| manifest.json | everything above as data, with the sha256 of every other file |
| ptxtune_w4a16.h, example.c | C header with the kernels embedded, and its example |
| {folder}kernel.cu | readable CUDA C++ source with inline PTX |
| {folder}kernel.ptx | PTX, for study (never loaded) |
| {folder}kernel.cubin | machine code for {arch} |
| selftest_y.f32 | expected output of the self-test, FP32 [{rows}, {n}] |
"""


def readme(manifest: Manifest) -> str:
    """The text of the bundle's README."""
    problem = manifest.problem
    return TEXT.format(
        key=problem.key(),
        arch=manifest.arch,
        n=problem.n,
        k=problem.k,
        group="K" if problem.whole_k else problem.group_size,
        dtype=problem.dtype.upper(),
        zero="integer zero points" if problem.zero == "int" else "symmetric (zero point 8)",
        bias=" + bias" if problem.bias else "",
        bias_argument=", bias" if problem.bias else "",
        version=manifest.toolchain.ptxtune,
        how="and measured on" if manifest.measured else "for",
        device=manifest.device.name,
        note=_note(manifest),
        table=_table(manifest),
        unpacking=_unpacking(manifest),
        dispatch=_wrapped(words.DISPATCH["words"]),
        entry=manifest.entry,
        launch=_wrapped(f"Launch: {words.LAUNCH['words']}"),
        workspace=_wrapped(f"Workspace: {words.WORKSPACE['words']}"),
        tensor_map=_tensor_map(manifest),
        rows=manifest.self_test.rows,
        folder="" if len(manifest.buckets) == 1 else "m*/",
    )


def _note(manifest: Manifest) -> str:
    if manifest.measured:
        return ""
    note = PREDICTED_NOTE if manifest.predicted else UNTIMED_NOTE
    return note.format(arch=manifest.arch, device=manifest.device.name)


def _tensor_map(manifest: Manifest) -> str:
    if not manifest.takes_tensor_map:
        return ""
    return "\n" + _wrapped(f"Tensor map: {words.TENSOR_MAP['words']}") + "\n"


def _unpacking(manifest: Manifest) -> str:
    """Which buckets go by way of the dense weight first; empty where none does."""
    first = [
        f"{_us(timed.dequantized_us)} against {_us(timed.time_us)} at M = {timed.m}"
        for bucket in manifest.buckets
        if bucket.dequantize_first and (timed := bucket.measurement) is not None
    ]
    if not first:
        return ""
    text = f"dequantize + matmul is faster here: {'; '.join(first)}. {WORDS}"
    return f"\n{_wrapped(text)}\n"


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 100)


def _table(manifest: Manifest) -> str:
    columns = ("batches", "time", "default", "cuBLAS", "kernel", "config")
    head = f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}"
    rows, below = [], 0
    for bucket in manifest.buckets:
        last = bucket is manifest.buckets[-1]
        rows.append(_row(bucket, below, last))
        below = bucket.m_max
    return "\n".join((head, *rows))


def _row(bucket: Bucket, below: int, last: bool) -> str:
    batches = f"{below + 1}..{bucket.m_max}{' and above' if last else ''}"
    measured = bucket.measurement
    if measured is None:
        times = ("not measured", "-", "-")
    else:
        kind = "predicted" if measured.predicted else measured.protocol
        kind += f", on {measured.device}" if measured.device else ""
        times = (
            f"{measured.time_us:.2f} us at M = {measured.m} ({kind})",
            _us(measured.default_us),
            _us(measured.cublas_us),
        )
    cells = (batches, *times, f"`{bucket.files['cu']}`", f"`{bucket.config_key}`")
    return f"| {' | '.join(cells)} |"


def _us(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} us"
