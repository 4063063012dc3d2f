"""What the C header refuses, and that it packs as the package does."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from bundle_helpers import FakeDriver, bucket, compiled, plan, run, small_bundle, spec

from ptxgen.bundle.write import write_bundle
from ptxgen.problem import Problem
from ptxgen.weights.layout import packed_layout
from ptxgen.weights.pack import pack
from ptxgen.weights.quantize import QuantizedWeight

PROBLEM = Problem(n=64, k=128)
SYMBOL = "ptxtune_n64_k128_g128_fp16_sym"

# One launch with arguments from the command line, on aligned host memory.
LAUNCH_SOURCE = f"""\
#include "ptxtune_w4a16.h"
#include <stdlib.h>
#define BUNDLE {SYMBOL}
static void *at(ptxtune_context *ctx, const char *offset, void **others) {{
    uint64_t memory = 0;
    if (offset[0] == '=') return (char *)others[offset[1] - '0'] + atoi(offset + 2);
    if (offset[0] == 'n') return NULL;
    ctx->driver.mem_alloc(&memory, 1 << 20);
    return (char *)(uintptr_t)memory + atoi(offset);
}}
int main(int argc, char **argv) {{
    ptxtune_context ctx;
    ptxtune_workspace ws = {{0}};
    int code = ptxtune_open(&ctx, &BUNDLE, atoi(argv[1])), m = atoi(argv[8]), m_cap = atoi(argv[9]);
    if (code == PTXTUNE_OK) {{
        void *popped, *current = &ctx, *memory[5];
        int i;
        ctx.driver.ctx_push_current(ctx.cuda_context);
        for (i = 0; i < 4; i++) memory[i] = at(&ctx, argv[2 + i], memory);
        memory[4] = at(&ctx, "0", memory);
        ctx.driver.ctx_pop_current(&popped);
        if (m_cap >= 0)
            code = ptxtune_init_workspace(&ctx, &ws, memory[4], (size_t)atoi(argv[10]), m_cap,
                                          NULL);
        if (code == PTXTUNE_OK)
            code = ptxtune_launch(&ctx, memory[0], atoi(argv[6]), memory[1], memory[2], memory[3],
                                  atoi(argv[7]), m, m_cap >= 0 ? &ws : NULL, NULL, 0);
        ctx.driver.ctx_get_current(&current);
        if (current != NULL) puts("the caller's context was not put back");
    }}
    printf("%d %s\\n", code, code == 0 ? "" : ptxtune_message(&ctx));
    ptxtune_close(&ctx);
    ptxtune_close(&ctx);
    return argc - 11;
}}
"""


@dataclass(frozen=True, slots=True)
class Arguments:
    """A launch's arguments; pointers as byte offsets, "null" for a null pointer.

    "=0128" is 128 bytes behind x, "=1128" behind packed.
    """

    device: int = 0
    x: str = "0"
    packed: str = "0"
    bias: str = "null"
    y: str = "0"
    ldx: int = 128
    ldy: int = 64
    m: int = 8
    m_cap: int = 8
    bytes: int = 1 << 20

    def words(self) -> list[str]:
        return [str(getattr(self, name)) for name in self.__slots__]


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = small_bundle(tmp_path_factory.mktemp("errors") / "bundle", PROBLEM)
    source = folder / "launch.c"
    source.write_text(LAUNCH_SOURCE)
    return compiled(source, folder / "launch", folder, "cc", "-std=c99")


OK, NO_DEVICE, ARCH, ARGUMENT, ALIGNMENT, WORKSPACE = 0, 2, 3, 5, 6, 7


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (Arguments(), OK, ""),
        (Arguments(m=0), OK, ""),
        (Arguments(m=0, x="null", packed="null", y="null", m_cap=-1), OK, ""),
        (Arguments(m=1), OK, ""),
        (Arguments(ldx=136, ldy=68), OK, ""),
        (Arguments(y="8"), OK, ""),
        (Arguments(m=-1), ARGUMENT, "m = -1 must be at least 0"),
        (Arguments(x="null"), ARGUMENT, "must not be null"),
        (Arguments(packed="null"), ARGUMENT, "must not be null"),
        (Arguments(y="null"), ARGUMENT, "must not be null"),
        (Arguments(bias="0"), ARGUMENT, "bias given: 1; the kernel adds one: 0"),
        (Arguments(ldx=120), ARGUMENT, "ldx = 120 must be at least K = 128"),
        (Arguments(ldy=60), ARGUMENT, "ldy = 60 must be at least N = 64"),
        (Arguments(ldx=129), ALIGNMENT, "ldx = 129 must be a multiple of 8"),
        (Arguments(ldy=66), ALIGNMENT, "ldy = 66 must be a multiple of 4"),
        (Arguments(x="2"), ALIGNMENT, "must be 16-byte aligned"),
        (Arguments(packed="8"), ALIGNMENT, "must be 16-byte aligned"),
        (Arguments(y="2"), ALIGNMENT, "must be 8-byte aligned"),
        (Arguments(y="=00"), ARGUMENT, "overlaps x at"),
        (Arguments(y="=02040"), ARGUMENT, "overlaps x at"),
        (Arguments(y="=02048"), OK, ""),
        (Arguments(x="1024", y="=0-1024"), OK, ""),
        (Arguments(x="1024", y="=0-1016"), ARGUMENT, "overlaps x at"),
        (Arguments(ldx=256, ldy=256, y="=0256"), OK, ""),  # between the rows of x
        (Arguments(ldx=256, ldy=256, y="=0248"), ARGUMENT, "overlaps x at"),
        (Arguments(ldx=256, ldy=256, y="=0392"), ARGUMENT, "overlaps x at"),
        (Arguments(y="=14360"), ARGUMENT, "overlaps packed at"),
        (Arguments(y="=14368"), OK, ""),
        (Arguments(m_cap=-1), WORKSPACE, "m = 8, and the workspace was initialised for 0"),
        (Arguments(m=9, m_cap=8), WORKSPACE, "m = 9, and the workspace was initialised for 8"),
        (Arguments(bytes=1000), WORKSPACE, "1000 bytes given"),
        (Arguments(device=2), NO_DEVICE, "device 2 of 2 devices"),
        (Arguments(device=-1), NO_DEVICE, "device -1 of 2 devices"),
    ],
)
def test_launch_arguments(
    launcher: Path, fake_driver: FakeDriver, arguments: Arguments, code: int, words: str
) -> None:
    status, output = run(launcher, fake_driver.environment(PROBLEM), *arguments.words())
    assert status == 0
    assert "not put back" not in output
    found, message = output.split(" ", 1)
    assert int(found) == code
    assert words in message
    assert len(fake_driver.launches()) == int(code == OK and arguments.m > 0)


@pytest.mark.parametrize(
    ("settings", "code", "words"),
    [
        ({"FAKE_CUDA_CAPABILITY": "80"}, ARCH, "sm_90, and device 0 has compute capability 8.0"),
        ({"FAKE_CUDA_CAPABILITY": "100"}, ARCH, "compute capability 10.0"),
        ({"FAKE_CUDA_SMEM": "50000"}, ARCH, "needs 60000 bytes of shared memory"),
        ({"FAKE_CUDA_MODE": "no_device"}, NO_DEVICE, "device 0 of 0 devices"),
    ],
)
def test_open_refuses_other_devices(
    launcher: Path, fake_driver: FakeDriver, settings: dict[str, str], code: int, words: str
) -> None:
    environment = {**fake_driver.environment(PROBLEM), **settings}
    _, output = run(launcher, environment, *Arguments().words())
    assert output.startswith(f"{code} ")
    assert words in output


def test_open_without_a_driver_says_so(launcher: Path, tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")
    environment = {"LD_LIBRARY_PATH": str(tmp_path)}
    _, output = run(launcher, environment, *Arguments().words())
    assert output.startswith("1 the CUDA driver is missing")
    assert "Install the NVIDIA driver" in output


@pytest.mark.parametrize(
    ("arch", "capability", "code"),
    [("sm_80", "86", OK), ("sm_80", "89", OK), ("sm_86", "80", ARCH), ("sm_90a", "90", OK)],
)
def test_cubins_run_on_later_minors_of_their_major(
    tmp_path: Path, fake_driver: FakeDriver, arch: str, capability: str, code: int
) -> None:
    made = bucket(PROBLEM, 8, plan(PROBLEM, 8, 32, 1), arch=arch)
    folder = write_bundle(tmp_path / "bundle", spec(PROBLEM, [made]))
    program = compiled(folder / "example.c", folder / "example", folder)
    environment = fake_driver.environment(PROBLEM, FAKE_CUDA_CAPABILITY=capability)
    status, output = run(program, environment, str(folder))
    assert status == int(code != OK), output


PACK_SOURCE = """\
#include "ptxtune_w4a16.h"
#include <stdlib.h>
#define BUNDLE {symbol}
static void *read_all(const char *path, size_t bytes) {{
    FILE *file = fopen(path, "rb");
    void *data = malloc(bytes + 1);
    if (file == NULL || fread(data, 1, bytes, file) != bytes) exit(3);
    fclose(file);
    return data;
}}
int main(int argc, char **argv) {{
    size_t n = (size_t)BUNDLE.n, groups = (size_t)ptxtune_groups(&BUNDLE);
    size_t bytes = ptxtune_packed_bytes(&BUNDLE);
    uint8_t *codes = (uint8_t *)read_all(argv[1], n * (size_t)BUNDLE.k);
    uint16_t *scales = (uint16_t *)read_all(argv[2], n * groups * 2);
    uint8_t *zeros = argc > 5 ? (uint8_t *)read_all(argv[5], n * groups) : NULL;
    void *packed = malloc(bytes);
    FILE *file = fopen(argv[3], "wb");
    memset(packed, 0xEE, bytes);
    ptxtune_pack(&BUNDLE, codes, scales, zeros, packed);
    if (fwrite(packed, 1, bytes, file) != bytes) return 3;
    return fclose(file);
}}
"""


@pytest.mark.parametrize(
    "problem",
    [
        Problem(n=72, k=160, group_size=32, zero="int"),
        Problem(n=136, k=192, group_size=64, dtype="bf16"),
        Problem(n=136, k=192, group_size=64),
        Problem(n=64, k=384, group_size=128, zero="int"),
        Problem(n=40, k=160, group_size=160, zero="int"),
        Problem(n=200, k=288, group_size=288, dtype="bf16"),
    ],
    ids=Problem.key,
)
def test_c_packs_the_same_bytes(tmp_path: Path, problem: Problem) -> None:
    folder = small_bundle(tmp_path / "bundle", problem)
    source = folder / "pack.c"
    source.write_text(PACK_SOURCE.format(symbol="ptxtune_" + problem.key().replace("-", "_")))
    program = compiled(source, folder / "pack", folder, "cc", "-std=c99")
    rng = np.random.default_rng(7)
    groups = (problem.n, problem.num_groups)
    codes = rng.integers(0, 16, (problem.n, problem.k), dtype=np.uint8)
    # Finite bits in both dtypes, of both signs; a row each of zeros, of subnormal and of all sizes.
    top = 0x7BFF if problem.dtype == "fp16" else 0x5C80  # 2^58
    limits = np.linspace(0, top, problem.n).astype(np.uint16)[:, None]
    limits[1] = 0x3FF
    scales = rng.integers(0, limits, groups, dtype=np.uint16, endpoint=True)
    scales |= rng.integers(0, 2, groups, dtype=np.uint16) << np.uint16(15)
    zeros = rng.integers(0, 16, groups, dtype=np.uint8) if problem.zero == "int" else None
    names = [tmp_path / name for name in ("codes", "scales", "packed")]
    codes.tofile(names[0])
    scales.tofile(names[1])
    arguments = [*map(str, names), "-"]
    if zeros is not None:
        zeros.tofile(tmp_path / "zeros")
        arguments.append(str(tmp_path / "zeros"))
    assert run(program, {}, *arguments) == (0, "")
    dtype = torch.float16 if problem.dtype == "fp16" else torch.bfloat16
    weight = QuantizedWeight(
        torch.from_numpy(codes),
        torch.from_numpy(scales.view(np.int16)).view(dtype),
        None if zeros is None else torch.from_numpy(zeros),
    )
    packed = pack(weight, problem).numpy()
    assert np.array_equal(np.fromfile(names[2], np.uint8), packed)
    layout = packed_layout(problem)
    if layout.factor_bytes:
        factors = packed[layout.blocks_bytes : -16].view(np.uint16)
        assert len(set(factors)) >= 3
        assert np.any(factors & 0x8000)
