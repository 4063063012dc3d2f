"""Puts the wgmma_tma kernel's text together. Pure: equal arguments give the same bytes."""

from __future__ import annotations

from ptxgen.arch import ArchSpec
from ptxgen.errors import ConfigError
from ptxgen.families.wgmma_tma import (
    consumer,
    dequant,
    epilogue,
    producer,
    schedule,
    shared_tiles,
)
from ptxgen.families.wgmma_tma.config import WgmmaTmaConfig
from ptxgen.families.wgmma_tma.pieces import KEEP_ALIVE, TYPES, declared, heading
from ptxgen.families.wgmma_tma.rules import violations
from ptxgen.families.wgmma_tma.shape import (
    BOX_INPUTS,
    CHUNK_STEPS,
    CONSUMER_REGISTERS,
    PRODUCER_REGISTERS,
    TmaShape,
)
from ptxgen.problem import Problem
from ptxgen.ptx import cluster, launch_control, mbarrier, registers, shared, tensor
from ptxgen.ptx.instruction import Instruction, render_all
from ptxgen.source import ENTRY, KernelSource, LaunchPlan
from ptxgen.weights.layout import BLOCK_K, WEIGHT_BYTES

ABOUT = """\
// Weights are the m64 register operand of wgmma, tokens its n dimension, read from shared memory. One
// thread of the last warp fills a ring of {num_stages} slots by TMA; the other warps multiply.
"""

CONSTANT = """\
// A condition that the compiler knows.
template <bool VALUE> struct Constant {
  __device__ constexpr operator bool() const { return VALUE; }
};
"""


def emit(problem: Problem, config: WgmmaTmaConfig, arch: ArchSpec) -> KernelSource:
    """The kernel's text and launch plan.

    Raises:
        ConfigError: the config is illegal; the message lists why.
    """
    reasons = violations(problem, config, arch)
    if reasons:
        raise ConfigError(f"{config.key()} is illegal for {problem.key()}: {'; '.join(reasons)}.")
    shape = TmaShape(problem, config)
    about = ABOUT.format(num_stages=config.num_stages)
    code = "\n".join(
        [
            render_all(_instructions(shape, arch), arch),
            "",
            dequant.device_function(problem),
            "",
            *epilogue.device_functions(shape),
            *shared_tiles.device_functions(shape),
            KEEP_ALIVE,
            *([CONSTANT] if dequant.has_factors(problem) else []),
            tensor.TENSOR_MAP_TYPE,
            "",
            _kernel(shape),
        ]
    )
    text = "\n".join([heading(problem, config, arch, about), TYPES, _constants(shape, code), code])
    return KernelSource(text=text, arch=arch.name, plan=plan(problem, config, arch))


def plan(problem: Problem, config: WgmmaTmaConfig, arch: ArchSpec) -> LaunchPlan:
    """How the kernel of a config is launched."""
    shape = TmaShape(problem, config)
    return LaunchPlan(
        threads=shape.threads,
        smem_bytes=shape.smem_bytes,
        block_m=config.block_m,
        block_n=config.block_n,
        n_tiles=shape.n_tiles,
        split_k=config.split_k,
        pdl=arch.has_pdl,
        cluster_k=config.split_k,
        max_ctas=config.max_ctas,
        k=problem.k,
        x_box=(BOX_INPUTS, shape.copied_tokens),
        stream_k=config.stream_k,
    )


def _instructions(shape: TmaShape, arch: ArchSpec) -> list[Instruction]:
    moves = [
        registers.set_registers_down(PRODUCER_REGISTERS),
        registers.set_registers_up(CONSUMER_REGISTERS),
    ]
    return [
        *(moves if shape.moves_registers else []),
        shared.shared_address(),
        launch_control.launch_dependents(),
        launch_control.wait_for_previous(),
        mbarrier.mbarrier_init(),
        mbarrier.fence_mbarrier_init(),
        tensor.prefetch_tensor_map(),
        *([cluster.cluster_arrive_relaxed(), cluster.cluster_wait()] if shape.cluster > 1 else []),
        *producer.instructions(shape),
        *dequant.instructions(shape.problem, arch),
        *consumer.instructions(shape),
        *epilogue.instructions(shape),
        *shared_tiles.instructions(shape),
    ]


def _constants(shape: TmaShape, code: str) -> str:
    """Declarations of the constants that the code uses; an enum takes no memory."""
    problem, config, layout = shape.problem, shape.config, shape.layout
    groups = layout.groups_per_block
    rows: list[tuple[str, int, str]] = [
        ("N", problem.n, "output features"),
        ("BLOCK_M", config.block_m, "tokens of a tile"),
        ("BLOCK_N", config.block_n, "output features of a tile"),
        ("BLOCK_K", BLOCK_K, "inputs of a stage"),
        ("THREADS", shape.threads, ""),
        ("CONSUMERS", shape.consumers, "threads that multiply"),
        ("CONSUMER_WARPS", shape.consumers // 32, "the next warp is the producer"),
        ("WARPGROUPS", config.warpgroups, "that share out the features of a tile"),
        ("TURNS", config.warpgroups_k, "such groups of warpgroups, which take the stages in turns"),
        ("FINISHERS", shape.finishers, "threads that finish a tile"),
        ("SLOT_READERS", shape.finishers // 32, "warps that release a slot"),
        ("STAGES", config.num_stages, "slots of the ring"),
        ("CHUNK", config.chunk, "k16 steps that are dequantized at once"),
        ("CHUNKS", CHUNK_STEPS // config.chunk, "of a stage"),
        ("SPLIT_K", config.split_k, "CTAs of a cluster that split K"),
        ("MULTICAST", config.multicast, "CTAs of a cluster that share activations"),
        ("COPIED_TOKENS", shape.copied_tokens, "tokens that one of them copies"),
        ("N_TILES", shape.n_tiles, "tiles along N"),
        ("TILE_STRIPS", shape.strips, "64-feature strips of a tile"),
        ("ROW_BLOCKS", shape.row_blocks, "of them, of a warpgroup: m64 operands"),
        ("TOKEN_TILES", shape.token_tiles, "n8 tiles of a tile"),
        ("OWNED_TILES", shape.owned_tiles, "of them, that one CTA of a cluster finishes"),
        ("STRIPS", layout.strips, "64-feature strips of the packed weights"),
        ("K_BLOCKS", layout.k_blocks, "128-input blocks of a strip"),
        ("WEIGHT_BYTES", WEIGHT_BYTES, "weights of a block; scales and zero points follow"),
        ("BLOCK_BYTES", layout.block_bytes, "of a block"),
        ("X_SLAB_BYTES", shape.x_slab_bytes, "activations of 64 inputs"),
        ("WEIGHTS_OFFSET", shape.weights_offset, "packed blocks in a slot"),
        ("COPIED_BYTES", shape.copied_bytes, "of a slot that is full"),
        ("STAGE_BYTES", shape.stage_bytes, "of a slot"),
        ("BATCH", shape.batch_tiles, "n8 tiles of tokens that are turned and stored at once"),
        ("OUT_OFFSET", shape.out_offset, "where they are turned, 1024 bytes a tile"),
        ("EXCHANGE_OFFSET", shape.exchange_offset, "sums from the other CTAs of the cluster"),
        ("BARRIER_OFFSET", shape.barrier_offset, "mbarriers"),
        ("SLICES_OFFSET", shape.extra_offset, "which slices of shared tiles this CTA finishes"),
        ("RECEIVED_OFFSET", shape.extra_offset, "mbarrier of the other CTAs' sums"),
        ("RECEIVED_BYTES", shape.exchange_bytes, "of them"),
        *shared_tiles.constants(shape),
    ]
    if groups:
        rows += [
            ("GROUPS_PER_BLOCK", groups, "quantization groups of a block"),
            ("GROUP_STEPS", problem.group_size // 16, "k16 steps of a group"),
            ("BLOCK_SCALE_BYTES", layout.scale_bytes, "scales of a block"),
        ]
    lines = declared(rows, code)
    if problem.whole_k or layout.factor_bytes:
        what = "whole-K groups" if problem.whole_k else "row factors"
        lines.append(f"enum : u64 {{ TABLE_OFFSET = {layout.blocks_bytes} }};  // {what}")
        if problem.whole_k and problem.zero == "int":
            lines.append(f"enum : u64 {{ TABLE_SCALE_BYTES = {layout.table_scale_bytes} }};")
    return "\n".join([*lines, ""])


def _kernel(shape: TmaShape) -> str:
    config, problem = shape.config, shape.problem
    sharers = f"{config.multicast}, 1" if config.max_ctas else f"1, {config.multicast}"
    clusters = f" __cluster_dims__({sharers}, {config.split_k})"
    bias = "  const u8* bias = (const u8*)bias_arg;\n" if problem.bias else ""
    workspace = "  u8* workspace = (u8*)workspace_arg;\n" if config.stream_k else ""
    readers = "CONSUMER_WARPS" if config.warpgroups_k == 1 else "SLOT_READERS"
    return f"""\
extern "C" __global__ void __launch_bounds__(THREADS, {config.min_ctas}){clusters if shape.cluster > 1 else ""}
{ENTRY}(const void* __restrict__ x_arg, const void* __restrict__ packed_arg,
              const void* __restrict__ bias_arg, void* __restrict__ y_arg, void* __restrict__ workspace_arg,
              int m, long long ldx, long long ldy, const __grid_constant__ TensorMap x_map) {{
  extern __shared__ __align__(1024) u8 smem[];
  const u8* packed = (const u8*)packed_arg;
{bias}{workspace}  u8* y = (u8*)y_arg;
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const u32 smem_base = shared_address(smem);
  const u32 full = smem_base + BARRIER_OFFSET, empty = full + STAGES * 8;  // an mbarrier a slot
  launch_dependents();

{schedule.share(shape)}{shared_tiles.setup(shape)}
  // ---- the producer's first weights, and mbarriers --------------------------------------------------
{producer.block(shape)}{producer.first_weights(shape)}  if (tid == 0) {{
    for (int slot = 0; slot < STAGES; ++slot) {{
      mbarrier_init(full + slot * 8, 1);
      mbarrier_init(empty + slot * 8, {readers}{" * MULTICAST" if config.multicast > 1 else ""});
    }}
{_expect_sums(shape)}    fence_mbarrier_init();
    prefetch_tensor_map((u64)&x_map);
  }}
{_synchronise(shape)}

  // ---- the producer -------------------------------------------------------------------------------
{producer.producer(shape)}
{_take(shape)}{consumer.setup(shape)}{consumer.tile_setup(shape)}
  // ---- the consumers ------------------------------------------------------------------------------
  wait_for_previous();  // y belongs to the previous kernel until here
{consumer.first_slot(shape)}{consumer.tiles(shape)}    float acc[ROW_BLOCKS][TOKEN_TILES][4] = {{}};
    // The zeros of the accumulators are written before the first wgmma_fence, not moved behind it.
{_keep_accumulators()}
{consumer.main_loop(shape)}{_keep_accumulators()}
{shared_tiles.leave_part(shape)}{epilogue.epilogue(shape)}  }}
{shared_tiles.finish(shape)}}}
"""


def _synchronise(shape: TmaShape) -> str:
    if shape.cluster == 1:
        return "  __syncthreads();"
    return (
        "  cluster_arrive_relaxed();\n"
        "  cluster_wait();  // the mbarriers of all CTAs of the cluster are ready"
    )


def _expect_sums(shape: TmaShape) -> str:
    if shape.config.split_k == 1:
        return ""
    return """\
    mbarrier_init(smem_base + RECEIVED_OFFSET, 1);
    mbarrier_arrive_expect_tx(smem_base + RECEIVED_OFFSET, RECEIVED_BYTES);
"""


def _take(shape: TmaShape) -> str:
    """Before all else that consumers do: what lives across it has only the registers of the start.

    Behind the set-up of the operands it made two of 95 winners spill 8 bytes.
    """
    return f"  set_registers_up_{CONSUMER_REGISTERS}();\n" if shape.moves_registers else ""


def _keep_accumulators() -> str:
    return """\
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES * 4; ++i)
      keep_alive(acc[i / (TOKEN_TILES * 4)][i / 4 % TOKEN_TILES][i % 4]);"""
