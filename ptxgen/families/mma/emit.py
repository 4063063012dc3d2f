"""Puts the mma kernel's text together. Pure: the same problem, config and arch give the same bytes."""

from __future__ import annotations

from dataclasses import dataclass

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.kernel_text import TYPES, declared, heading
from ptxgen.families.mma import compute, dequant, epilogue, loads
from ptxgen.families.mma.config import KNOBS, MmaConfig
from ptxgen.families.mma.rules import violations
from ptxgen.families.mma.shape import Shape
from ptxgen.problem import Problem
from ptxgen.ptx import cp_async, global_memory, launch_control, shared
from ptxgen.ptx.instruction import Instruction, render_all
from ptxgen.ptx.mma import mma_m16n8k16
from ptxgen.source import ENTRY, KernelSource, LaunchPlan
from ptxgen.weights.layout import BLOCK_K, WEIGHT_BYTES

ABOUT = """\
// Weights are the m16 operand of mma.sync, tokens its n8 operand. Every warp streams its weight fragments
// through a ring of {num_stages} cp.async stages in shared memory.
"""

WAIT = (
    "  wait_for_previous();  // x, y and the workspace belong to the previous kernel until here\n"
)


def emit(problem: Problem, config: MmaConfig, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan.

    Raises:
        ConfigError: the config is illegal; the message lists why.
    """
    reasons = violations(problem, config, arch)
    if reasons:
        raise ConfigError(f"{config.key()} is illegal for {problem.key()}: {'; '.join(reasons)}.")
    shape = Shape(problem, config)
    trigger = trigger_calls(shape, arch)
    parts = KernelParts(
        about=ABOUT.format(num_stages=config.num_stages),
        instructions=_instructions(shape, arch),
        setup=compute.setup(shape),
        consume=compute.consume(shape),
        main_loop=_main_loop(shape, arch, trigger),
    )
    return assemble(shape, arch, parts)


@dataclass(frozen=True, slots=True)
class KernelParts:
    """What differs between the families that share loads, dequantization and epilogue.

    Attributes:
        about: comment lines that explain the kernel.
        instructions: PTX of setup, consume and main loop; of the shared parts it is added.
        setup: text before the main loop.
        consume: text of the lambda consume(slot).
        main_loop: text of prologue and main loop.
        helpers: device functions and constants of the family.
        raster: which tile a CTA works on, as m_tile and n_tile.
    """

    about: str
    instructions: list[Instruction]
    setup: str
    consume: str
    main_loop: str
    helpers: str = ""
    raster: str = "  const int m_tile = blockIdx.x, n_tile = blockIdx.y;\n"


def assemble(shape: Shape, arch: ArchSpec, parts: KernelParts) -> KernelSource:
    """The whole translation unit, and how it is launched."""
    instructions = [*parts.instructions, *_shared_instructions(shape, arch)]
    code = "\n".join(
        [
            render_all(instructions, arch),
            "",
            dequant.device_function(shape),
            "",
            parts.helpers,
            _kernel(shape, arch, parts),
        ]
    )
    text = "\n".join(
        [
            heading(shape.problem, shape.config, arch, parts.about),
            TYPES,
            _constants(shape, code),
            code,
        ]
    )
    return KernelSource(text=text, arch=arch.name, plan=plan(shape, arch))


def plan(shape: Shape, arch: ArchSpec) -> LaunchPlan:
    """How the kernel of a shape is launched."""
    return LaunchPlan(
        threads=shape.threads,
        smem_bytes=shape.smem_bytes,
        block_m=shape.config.block_m,
        block_n=shape.config.block_n,
        n_tiles=shape.n_tiles,
        split_k=shape.config.split_k,
        pdl=arch.has_pdl,
        cluster_k=shape.config.split_k if shape.config.cluster else 1,
    )


def _constants(shape: Shape, code: str) -> str:
    """Declarations of the constants that the code uses; an enum takes no memory."""
    problem, config, layout = shape.problem, shape.config, shape.layout
    groups = layout.groups_per_block
    rows = [
        ("N", problem.n, "output features"),
        ("K", problem.k, "inputs"),
        ("BLOCK_M", config.block_m, "tokens of the CTA's tile"),
        ("BLOCK_N", config.block_n, "output features of the CTA's tile"),
        ("BLOCK_K", config.block_k, "inputs of a stage"),
        ("WARP_M", config.warp_m, "tokens of a warp's tile"),
        ("WARP_N", config.warp_n, "output features of a warp's tile"),
        ("WARP_K", shape.warp_k, "inputs of a stage that a warp consumes"),
        ("WARPS_M", shape.warps_m, ""),
        ("WARPS_N", shape.warps_n, ""),
        ("WARPS_K", config.warps_k, "warps that split a stage along K"),
        ("THREADS", shape.threads, ""),
        ("STAGES", config.num_stages, "slots of the ring"),
        ("SPLIT_K", config.split_k, "CTAs that split K"),
        ("TOTAL_STAGES", shape.total_stages, "stages of the whole K"),
        ("ROW_BLOCKS", shape.row_blocks, "16-feature row blocks of a warp's tile"),
        ("TOKEN_TILES", shape.token_tiles, "n8 tiles of a warp's tile"),
        ("CHAINS", shape.chains, "independent sums of a group"),
        ("STRIPS", layout.strips, "64-feature strips of the packed weights"),
        ("K_BLOCKS", layout.k_blocks, "128-input blocks of a strip"),
        ("STAGE_BLOCKS", config.block_k // BLOCK_K, "of them, in a stage"),
        ("WARP_BLOCKS", shape.warp_blocks, "of them, of a warp in a stage"),
        ("WEIGHT_BYTES", WEIGHT_BYTES, "weights of a block; scales and zero points follow"),
        ("BLOCK_BYTES", layout.block_bytes, "of a block"),
        ("FRAGMENTS", shape.fragments, "512-byte fragments of a warp in a stage"),
        ("X_OFFSET", shape.x_offset, "activations in a slot"),
        ("STAGE_BYTES", shape.stage_bytes, "of a slot"),
    ]
    if groups:
        rows += [
            ("GROUPS_PER_BLOCK", groups, "quantization groups of a block"),
            ("GROUP_STEPS", problem.group_size // 16, "k16 steps of a group"),
            ("META_OFFSET", shape.weight_stage_bytes, "scales and zero points in a slot"),
            ("META_BYTES", shape.meta_bytes, "of a warp's tile and block"),
            ("META_SCALE_BYTES", shape.meta_scale_bytes, "of them scales"),
            ("ROW_BLOCK_SCALE_BYTES", 32 * groups, ""),
            ("ROW_BLOCK_ZERO_BYTES", 8 * groups, ""),
            ("ROW_BLOCK_PIECES", 5 * groups, "of 8 bytes, of scales and zero points"),
            ("META_ROUNDS", -(-5 * groups * shape.row_blocks // 32), "a lane copies one in each"),
            ("BLOCK_SCALE_BYTES", layout.scale_bytes, "scales of a block"),
        ]
    lines = declared(rows, code)
    if problem.whole_k:
        lines.append(
            f"enum : u64 {{ TABLE_OFFSET = {layout.blocks_bytes} }};  // scales of the whole-K groups"
        )
    return "\n".join([*lines, ""])


def _instructions(shape: Shape, arch: ArchSpec) -> list[Instruction]:
    used = [cp_async.cp_async_wait(shape.config.num_stages - 2), shared.ldmatrix(4)]
    if shape.token_tiles > 1 and shape.token_tiles % 2:
        used.append(shared.ldmatrix(2))
    return [*used, mma_m16n8k16(shape.problem.dtype)]


def _shared_instructions(shape: Shape, arch: ArchSpec) -> list[Instruction]:
    used = [
        cp_async.cp_async_16(),
        cp_async.cp_async_16_zfill(),
        cp_async.cp_async_8_zfill(),
        cp_async.cp_async_commit(),
        shared.shared_address(),
        shared.ld_shared_v4(),
    ]
    if shape.meta_bytes:
        used.append(shared.ld_shared_u32())
    if shape.meta_zero_bytes:
        used.append(shared.ld_shared_u8())
    if shape.problem.whole_k and shape.problem.zero == "int":
        used.append(global_memory.ld_global_nc_u8())
    used += [*dequant.instructions(shape, arch), *epilogue.instructions(shape)]
    if arch.has_pdl:
        used += [launch_control.launch_dependents(), launch_control.wait_for_previous()]
    return used


def _kernel(shape: Shape, arch: ArchSpec, parts: KernelParts) -> str:
    trigger = trigger_calls(shape, arch)
    config = shape.config
    cluster = "__cluster_dims__(1, 1, SPLIT_K) " if config.cluster else ""
    workspace = config.split_k > 1 and not config.cluster
    return f"""\
extern "C" __global__ void {cluster}__launch_bounds__(THREADS, {config.min_ctas})
{ENTRY}(const void* __restrict__ x_arg, const void* __restrict__ packed_arg,
              const void* __restrict__ bias_arg, void* __restrict__ y_arg, void* __restrict__ workspace_arg,
              int m, long long ldx, long long ldy) {{
  extern __shared__ __align__(1024) u8 smem[];
  const u8* x = (const u8*)x_arg;
  const u8* packed = (const u8*)packed_arg;
{"  const u8* bias = (const u8*)bias_arg;" if shape.problem.bias else ""}
  u8* y = (u8*)y_arg;
{"  u8* workspace = (u8*)workspace_arg;" if workspace else ""}
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int warp_k = warp % WARPS_K, warp_n = warp / WARPS_K % WARPS_N, warp_m = warp / (WARPS_K * WARPS_N);
{parts.raster}  const int m_first = m_tile * BLOCK_M;
  const u32 smem_base = shared_address(smem);
  {trigger["start"]}

{loads.setup(shape)}
{parts.setup}
{loads.load_weights(shape)}
{loads.load_x(shape)}
  float acc[ROW_BLOCKS][TOKEN_TILES][4] = {{}};

{parts.consume}
{parts.main_loop}
  {trigger["end"]}
{epilogue.epilogue(shape)}}}
"""


def trigger_calls(shape: Shape, arch: ArchSpec) -> dict[str, str]:
    """The call that lets the next kernel start, at the place that the config says."""
    places = {str(place): "" for place in KNOBS["trigger"]}
    if arch.has_pdl:
        places[shape.config.trigger] = "launch_dependents();"
    return places


def _main_loop(shape: Shape, arch: ArchSpec, trigger: dict[str, str]) -> str:
    barrier = "__syncwarp();" if shape.private else "__syncthreads();"
    wait = WAIT if arch.has_pdl else ""
    if trigger["waited"]:
        wait += f"  {trigger['waited']}\n"
    drained = trigger["drained"]
    return f"""\
  // ---- prologue: fill all slots but one ----------------------------------------------------------
{prologue(shape, wait, 1)}
  // ---- main loop: one slot is consumed while the others are in flight ----------------------------
  u32 slot = 0, free_slot = (STAGES - 1) * STAGE_BYTES;
  for (int stage = 0; stage < num_stages; ++stage) {{
    cp_async_wait_{shape.config.num_stages - 2}();
    {barrier}  // everybody's copies have landed, and the slot before this one is consumed
    if (stage + STAGES - 1 < num_stages) {{
      load_weights(stage + STAGES - 1, free_slot);
      load_x(stage + STAGES - 1, free_slot);
    }}{f" else {drained}" if drained else ""}
    cp_async_commit();
    consume(slot);
    free_slot = slot;
    slot = slot == (STAGES - 1) * STAGE_BYTES ? 0 : slot + STAGE_BYTES;
  }}
"""


def prologue(shape: Shape, wait: str, unfilled: int) -> str:
    """Fills all slots but the last `unfilled` ones; `wait` is where the previous kernel must be over."""
    loop = f"  for (int stage = 0; stage < STAGES - {unfilled}; ++stage) {{\n"
    guard = "    if (stage < num_stages) "
    weights = guard + "load_weights(stage, stage * STAGE_BYTES);\n"
    x = guard + "load_x(stage, stage * STAGE_BYTES);\n"
    commit = "    cp_async_commit();\n  }\n"
    if shape.config.weights_first:
        return f"#pragma unroll\n{loop}{weights}  }}\n{wait}#pragma unroll\n{loop}{x}{commit}"
    return f"{wait}#pragma unroll\n{loop}{weights}{x}{commit}"
