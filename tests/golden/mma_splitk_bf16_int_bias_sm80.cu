// ptxtune W4A16: y[m, N] = x[m, K] @ W[N, K]^T, weights dequantized in registers.
// problem: n232-k2752-g64-bf16-int-bias
// config:  mma(block_m=48,warp_m=24,block_n=128,warp_n=32,block_k=128,warps_k=1,num_stages=3,split_k=3,scale_on=weights,weights_first=False,min_ctas=1,trigger=start)
// target:  sm_80; packed layout version 3
//
// Weights are the m16 operand of mma.sync, tokens its n8 operand. Every warp streams its weight fragments
// through a ring of 3 cp.async stages in shared memory.
//
// Words
//   token      a row of x and of y
//   feature    a row of W, a column of y
//   input      a column of x and of W
//   tile       48 tokens x 128 features of y: what a CTA works on at a time
//   strip      64 features of the packed weight: one contiguous stream along K, of 22 blocks
//   block      64 features x 128 inputs of it, 4416 bytes
//   row block  16 features: a warp's part of a tensor instruction
//   group      64 inputs of a feature that share a scale and a zero point
//   stage      128 inputs: what the pipeline loads and multiplies at a time
//   slot       the place of a stage in shared memory; the ring has 3 of them
//
// Arguments (row strides in elements of bf16)
//   x          [m, 2752] activations, bf16; rows ldx apart, a multiple of 8; 16-byte aligned
//   packed     the packed weight, 388608 bytes as drawn below; 16-byte aligned
//   bias       [232], bf16, added before rounding; 8-byte aligned
//   y          [m, 232] results, bf16; rows ldy apart, a multiple of 4; 8-byte aligned
//   workspace  a uint32 counter for each tile, 0 before and after, padded to 256 bytes; then 3 FP32 tiles for each
//   m          tokens, > 0
//
// Grid: (ceil(m / 48), 2, 3): tiles along M, tiles along N, CTAs that split K. A CTA has 256 threads;
// its 8 warps are 2 along M x 4 along N x 1 along K. A warp multiplies 24 tokens x 32 features x 128
// inputs of a stage.
//
// The packed weight: blocks [strip 4][K block 22], N and K filled up with weights of value 0.
// Bytes of a block:
//                     inputs 0..63    inputs 64..127
//   features  0..15      0 ..  511     512 .. 1023
//   features 16..31   1024 .. 1535    1536 .. 2047
//   features 32..47   2048 .. 2559    2560 .. 3071
//   features 48..63   3072 .. 3583    3584 .. 4095
//   scales            4096 .. 4351    [row block 4][group 2][g 8] pairs of bf16
//   zero points       4352 .. 4415    [row block 4][group 2][g 8] bytes
// 16 features x 64 inputs are 32 lanes x 4 words, a word for each step of 16 inputs. In the word of lane 4 g + t nibble i
// is feature g + 8 (i % 2), input 2 t + 8 (i / 2 % 2) + i / 4: what that lane holds of the operand of mma.m16n8k16.
// A pair is of features g and g + 8 of a row block; of a zero point's byte g has the low nibble.
//
// Shared memory, 63360 bytes: slot s of the ring is at s * 21120; in it
//        0  weights: [warp 4][block 1][row block 2][half 2] fragments of 512 bytes
//     8192  scales and zero points: [warp 4][block 1] of 160 bytes
//     8832  activations: [slab 2][token 48] of 64 inputs, 128 bytes, whose 16-byte pieces
//           are swizzled: piece c of token r is at c ^ (r % 8)
// Behind the main loop the ring makes room for FP32 tiles, [warp along K 1][token 48][feature 128 + 4].
//
// The pipeline
//   1. All slots but one are filled by cp.async.
//   2. A stage has arrived: its slot is next to be multiplied, and the slot before it, which is free, is filled.
//   3. A lane reads its words and activations, turns a word into 8 weights, and mma.sync multiplies them.
//   4. Weights are scaled before they are multiplied.
//   5. Warps and CTAs add their sums in FP32 through shared memory and the workspace; rounded once, they are stored.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

enum : int { N = 232 };  // output features
enum : int { K = 2752 };  // inputs
enum : int { BLOCK_M = 48 };  // tokens of the CTA's tile
enum : int { BLOCK_N = 128 };  // output features of the CTA's tile
enum : int { BLOCK_K = 128 };  // inputs of a stage
enum : int { WARP_M = 24 };  // tokens of a warp's tile
enum : int { WARP_K = 128 };  // inputs of a stage that a warp consumes
enum : int { WARPS_M = 2 };
enum : int { WARPS_N = 4 };
enum : int { WARPS_K = 1 };  // warps that split a stage along K
enum : int { THREADS = 256 };
enum : int { STAGES = 3 };  // slots of the ring
enum : int { SPLIT_K = 3 };  // CTAs that split K
enum : int { TOTAL_STAGES = 22 };  // stages of the whole K
enum : int { ROW_BLOCKS = 2 };  // 16-feature row blocks of a warp's tile
enum : int { TOKEN_TILES = 3 };  // n8 tiles of a warp's tile
enum : int { K_BLOCKS = 22 };  // 128-input blocks of a strip
enum : int { STAGE_BLOCKS = 1 };  // of them, in a stage
enum : int { WARP_BLOCKS = 1 };  // of them, of a warp in a stage
enum : int { WEIGHT_BYTES = 4096 };  // weights of a block; scales and zero points follow
enum : int { BLOCK_BYTES = 4416 };  // of a block
enum : int { FRAGMENTS = 4 };  // 512-byte fragments of a warp in a stage
enum : int { X_OFFSET = 8832 };  // activations in a slot
enum : int { STAGE_BYTES = 21120 };  // of a slot
enum : int { GROUPS_PER_BLOCK = 2 };  // quantization groups of a block
enum : int { GROUP_STEPS = 4 };  // k16 steps of a group
enum : int { META_OFFSET = 8192 };  // scales and zero points in a slot
enum : int { META_BYTES = 160 };  // of a warp's tile and block
enum : int { META_SCALE_BYTES = 128 };  // of them scales
enum : int { ROW_BLOCK_SCALE_BYTES = 64 };
enum : int { ROW_BLOCK_ZERO_BYTES = 16 };
enum : int { ROW_BLOCK_PIECES = 10 };  // of 8 bytes, of scales and zero points
enum : int { META_ROUNDS = 1 };  // a lane copies one in each
enum : int { BLOCK_SCALE_BYTES = 256 };  // scales of a block

// ==== PTX: one function for each instruction that is called below ====================================

// a - b on both halves. bf16 before sm_90 is a * 1 - b by fma, just as exact.
// PTX ISA: Half Precision Floating-Point: sub, fma
__device__ __forceinline__ u32 sub2(u32 a, u32 b) {
  u32 d;
  asm("{ .reg .b32 one, n; mov.b32 one, 0x3f803f80; neg.bf16x2 n, %2; fma.rn.bf16x2 %0, %1, one, n; }"
      : "=r"(d)
      : "r"(a), "r"(b));
  return d;
}

// Nibbles 0 and 4 of a word as floats: 1024 + q in fp16, 128 + q in bf16, whose ulp is 1.
// PTX ISA: Logic and Shift Instructions: lop3
__device__ __forceinline__ u32 pick_low(u32 value) {
  u32 d;
  asm("lop3.b32 %0, %1, 0x000f000f, 0x43004300, 0xea;"
      : "=r"(d)
      : "r"(value));
  return d;
}

// The 32-bit shared-window address of a generic pointer.
// PTX ISA: Data Movement and Conversion Instructions: cvta
__device__ __forceinline__ u32 shared_address(const void* p) {
  u32 a;
  asm("{ .reg .u64 a; cvta.to.shared.u64 a, %1; cvt.u32.u64 %0, a; }"
      : "=r"(a)
      : "l"(p));
  return a;
}

// 16 bytes that bypass L1, with a 128-byte L2 prefetch.
// PTX ISA: Data Movement and Conversion Instructions: cp.async
__device__ __forceinline__ void cp_async_16(u32 dst, const u8* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
      :
      : "r"(dst), "l"(src)
      : "memory");
}

// 8 bytes through L1 (.ca is the only form of less than 16), the first `bytes` of them read.
// PTX ISA: Data Movement and Conversion Instructions: cp.async
__device__ __forceinline__ void cp_async_8_zfill(u32 dst, const u8* src, u32 bytes) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;"
      :
      : "r"(dst), "l"(src), "r"(bytes)
      : "memory");
}

// 16 bytes of which the first `bytes` are read and the rest are zero.
// PTX ISA: Data Movement and Conversion Instructions: cp.async
__device__ __forceinline__ void cp_async_16_zfill(u32 dst, const u8* src, u32 bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;"
      :
      : "r"(dst), "l"(src), "r"(bytes)
      : "memory");
}

// One word.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ u32 ld_shared_u32(u32 src) {
  u32 d;
  asm volatile("ld.shared.b32 %0, [%1];"
      : "=r"(d)
      : "r"(src)
      : "memory");
  return d;
}

// One byte, zero-extended.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ u32 ld_shared_u8(u32 src) {
  u32 d;
  asm volatile("ld.shared.u8 %0, [%1];"
      : "=r"(d)
      : "r"(src)
      : "memory");
  return d;
}

// Four words from a 16-byte aligned address.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ void ld_shared_v4(u32 (&d)[4], u32 src) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(src)
      : "memory");
}

// 4 (2 or 4) 8x8 matrices of 16-bit values; each lane names a 16-byte aligned row.
// PTX ISA: Warp-Level Matrix Instructions: ldmatrix
__device__ __forceinline__ void ldmatrix_x4(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(row)
      : "memory");
}

// 2 (2 or 4) 8x8 matrices of 16-bit values; each lane names a 16-byte aligned row.
// PTX ISA: Warp-Level Matrix Instructions: ldmatrix
__device__ __forceinline__ void ldmatrix_x2(u32* d, u32 row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
      : "=r"(d[0]), "=r"(d[1])
      : "r"(row)
      : "memory");
}

// The low half of a register in both halves.
// PTX ISA: Data Movement and Conversion Instructions: prmt
__device__ __forceinline__ u32 low_half_twice(u32 value) {
  u32 d;
  asm("prmt.b32 %0, %1, 0, 0x1010;"
      : "=r"(d)
      : "r"(value));
  return d;
}

// The high half of a register in both halves.
// PTX ISA: Data Movement and Conversion Instructions: prmt
__device__ __forceinline__ u32 high_half_twice(u32 value) {
  u32 d;
  asm("prmt.b32 %0, %1, 0, 0x3232;"
      : "=r"(d)
      : "r"(value));
  return d;
}

// a * b on both halves. bf16 before sm_90 is a * b + (-0) by fma, just as rounded.
// PTX ISA: Half Precision Floating-Point: mul, fma
__device__ __forceinline__ u32 mul2(u32 a, u32 b) {
  u32 d;
  asm("{ .reg .b32 z; mov.b32 z, 0x80008000; fma.rn.bf16x2 %0, %1, %2, z; }"
      : "=r"(d)
      : "r"(a), "r"(b));
  return d;
}

// d[16x8] = a[16x16] b[16x8] + c[16x8], 16-bit operands, FP32 accumulation.
// PTX ISA: Warp-Level Matrix Instructions: mma, Matrix Fragments for mma.m16n8k16
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Closes the current group of copies.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.commit_group
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;"
      :
      :
      : "memory");
}

// Waits until at most 1 of this thread's latest groups are unfinished.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.wait_group
__device__ __forceinline__ void cp_async_wait_1() {
  asm volatile("cp.async.wait_group 1;"
      :
      :
      : "memory");
}

// Two words of read-only memory from an 8-byte aligned address.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ void ld_global_nc_v2(u32& a, u32& b, const void* src) {
  asm("ld.global.nc.v2.b32 {%0, %1}, [%2];"
      : "=r"(a), "=r"(b)
      : "l"(src));
}

// Both halves of a register as FP32 (a bf16 is the high half of its FP32).
// PTX ISA: Data Movement and Conversion Instructions: cvt
__device__ __forceinline__ void unpack_to_float(float& lo, float& hi, u32 value) {
  asm("{ shl.b32 %0, %2, 16; and.b32 %1, %2, 0xffff0000; }"
      : "=f"(lo), "=f"(hi)
      : "r"(value));
}

// Two words to an 8-byte aligned address.
// PTX ISA: Data Movement and Conversion Instructions: st
__device__ __forceinline__ void st_global_v2(void* dst, u32 a, u32 b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};"
      :
      : "l"(dst), "r"(a), "r"(b)
      : "memory");
}

// Two FP32 values rounded to nearest even into one register, lo in the low half.
// PTX ISA: Data Movement and Conversion Instructions: cvt
__device__ __forceinline__ u32 pack_from_float(float lo, float hi) {
  u32 d;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;"
      : "=r"(d)
      : "f"(lo), "f"(hi));
  return d;
}

// Four FP32 partial sums, kept in L2 for another CTA.
// PTX ISA: Data Movement and Conversion Instructions: st
__device__ __forceinline__ void st_partial(float* dst, float4 v) {
  asm volatile("st.global.cg.v4.f32 [%0], {%1, %2, %3, %4};"
      :
      : "l"(dst), "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w)
      : "memory");
}

// Counts this CTA in, returns how many came before; releases its partials, acquires theirs.
// PTX ISA: Parallel Synchronization and Communication Instructions: atom
__device__ __forceinline__ u32 arrive_on_tile(u32* counter) {
  u32 before;
  asm volatile("atom.global.acq_rel.gpu.inc.u32 %0, [%1], %2;"
      : "=r"(before)
      : "l"(counter), "r"(SPLIT_K - 1)
      : "memory");
  return before;
}

// Four FP32 partial sums of another CTA, read from L2.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ float4 ld_partial(const float* src) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
      : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
      : "l"(src)
      : "memory");
  return v;
}

// ==== from nibbles to weights ========================================================================

// Eight nibbles of `word` to the A fragment of mma.m16n8k16, as q - zero, bit-exact.
// zero_0 and zero_8 hold magic + zero point of features g and g + 8, twice each.
__device__ __forceinline__ void dequantize(u32 (&a)[4], u32 word, u32 zero_0, u32 zero_8) {
  a[0] = sub2(pick_low(word), zero_0);
  a[1] = sub2(pick_low(word >> 4), zero_8);
  a[2] = sub2(pick_low(word >> 8), zero_0);
  a[3] = sub2(pick_low(word >> 12), zero_8);
}

// ==== the kernel =====================================================================================

extern "C" __global__ void __launch_bounds__(THREADS, 1)
ptxtune_w4a16(const void* __restrict__ x_arg,       // [m, K], rows of ldx elements
              const void* __restrict__ packed_arg,  // the packed weight
              const void* __restrict__ bias_arg,    // [N]
              void* __restrict__ y_arg,             // [m, N], rows of ldy elements
              void* __restrict__ workspace_arg,     // counters and FP32 partial sums
              int m, long long ldx, long long ldy) {
  extern __shared__ __align__(1024) u8 smem[];
  const u8* x = (const u8*)x_arg;
  const u8* packed = (const u8*)packed_arg;
  const u8* bias = (const u8*)bias_arg;
  u8* y = (u8*)y_arg;
  u8* workspace = (u8*)workspace_arg;
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const int warp_k = warp % WARPS_K, warp_n = warp / WARPS_K % WARPS_N, warp_m = warp / (WARPS_K * WARPS_N);
  const int m_tile = blockIdx.x, n_tile = blockIdx.y;
  const int m_first = m_tile * BLOCK_M;
  const u32 smem_base = shared_address(smem);

  // ---- this thread's part of every stage -------------------------------------------------------
  const int first_stage = (int)((long long)TOTAL_STAGES * blockIdx.z / SPLIT_K);
  const int last_stage = (int)((long long)TOTAL_STAGES * (blockIdx.z + 1) / SPLIT_K);
  const int num_stages = last_stage - first_stage;

  // Weights stream straight in fragment order: a warp copies what it will consume, 512 bytes a time.
  const u8* weights = packed + (u64)(first_stage * STAGE_BLOCKS + warp_k * WARP_BLOCKS) * BLOCK_BYTES;
  u64 row_block_offset[ROW_BLOCKS];
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
    const int row_block = n_tile * (BLOCK_N / 16) + (warp_n * ROW_BLOCKS + rb);
    row_block_offset[rb] = (u64)(row_block / 4) * (K_BLOCKS * (u64)BLOCK_BYTES) + (row_block % 4) * 1024;
  }
  const u32 warp_slot = warp_n * WARPS_K + warp_k;
  const u32 weights_smem = smem_base + warp_slot * (FRAGMENTS * 512) + lane * 16;
  const u32 meta_smem = smem_base + META_OFFSET + warp_slot * (META_BYTES * WARP_BLOCKS);
  // Scales and zero points in pieces of 8 bytes: of every block a lane copies the same ones.
  u64 meta_from[META_ROUNDS];  // in the packed block
  u32 meta_to[META_ROUNDS];
#pragma unroll
  for (int round = 0; round < META_ROUNDS; ++round) {
    const int rb = (round * 32 + lane) / ROW_BLOCK_PIECES, piece = (round * 32 + lane) % ROW_BLOCK_PIECES;
    const int row_block = n_tile * (BLOCK_N / 16) + (warp_n * ROW_BLOCKS + rb);
    const int zeros = piece - ROW_BLOCK_SCALE_BYTES / 8;  // which piece of the zero points, if it is one
    meta_from[round] = (u64)(row_block / 4) * (K_BLOCKS * (u64)BLOCK_BYTES) + WEIGHT_BYTES
        + (zeros < 0 ? row_block % 4 * ROW_BLOCK_SCALE_BYTES + piece * 8
                     : BLOCK_SCALE_BYTES + row_block % 4 * ROW_BLOCK_ZERO_BYTES + zeros * 8);
    meta_to[round] = zeros < 0 ? rb * ROW_BLOCK_SCALE_BYTES + piece * 8
                               : META_SCALE_BYTES + rb * ROW_BLOCK_ZERO_BYTES + zeros * 8;
  }

  // Activations: rows of BLOCK_K inputs as slabs of 64, each row of a slab 128 bytes, swizzled.
  constexpr int X_CHUNKS = BLOCK_K / 8;  // 16-byte chunks of a row
  const int x_row = tid / X_CHUNKS, x_chunk = tid % X_CHUNKS;
  const int x_k = x_chunk * 8;  // first input of this thread's chunk
  const u8* x_source = x + 2 * ((u64)(m_first + x_row) * ldx + first_stage * BLOCK_K + x_k);
  const u32 x_slab = smem_base + X_OFFSET + (x_k / 64) * (BLOCK_M * 128);

  // ---- this lane's fragments ------------------------------------------------------------
  const int token_row = warp_m * WARP_M + lane / 16 * 8 + lane % 8;
  const u32 x_smem = smem_base + X_OFFSET + warp_k * (WARP_K / 64) * (BLOCK_M * 128) + token_row * 128;
  u32 x_chunk_of[4];  // ldmatrix takes chunks 2 i and 2 i + 1 of two n8 tiles, swizzled
#pragma unroll
  for (int i = 0; i < 4; ++i) x_chunk_of[i] = ((2 * i + lane / 8 % 2) ^ (token_row % 8)) * 16;
  const u32 scale_smem = meta_smem + lane / 4 * 4;
  const u32 zero_smem = meta_smem + META_SCALE_BYTES + lane / 4;

  auto load_weights = [&](int stage, u32 slot) {
    const u8* source = weights + (u64)stage * (STAGE_BLOCKS * BLOCK_BYTES);
#pragma unroll
    for (int kb = 0; kb < WARP_BLOCKS; ++kb) {
#pragma unroll
      for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int fragment = (kb * ROW_BLOCKS + rb) * 2 + half;
          if (fragment % WARPS_M != warp_m) continue;  // shared by WARPS_M warps
          const u8* from = source + row_block_offset[rb] + kb * BLOCK_BYTES + half * 512 + lane * 16;
          cp_async_16(weights_smem + slot + fragment * 512, from);
        }
      }
      if (warp_m == 0) {
        const u8* block = source + kb * BLOCK_BYTES;
        const u32 meta = meta_smem + slot + kb * META_BYTES;
#pragma unroll
        for (int round = 0; round < META_ROUNDS; ++round)
          if (round * 32 + lane < ROW_BLOCKS * ROW_BLOCK_PIECES)
            cp_async_8_zfill(meta + meta_to[round], block + meta_from[round], 8);
      }
    }
  };

  auto load_x = [&](int stage, u32 slot) {
    const u8* source = x_source + (u64)stage * (BLOCK_K * 2);
    const bool inside = (first_stage + stage) * BLOCK_K + x_k < K;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const int row = x_row + i * 16;
      const u32 to = x_slab + slot + row * 128 + ((x_chunk % 8) ^ (row % 8)) * 16;
      cp_async_16_zfill(to, source + (u64)(i * 16) * ldx * 2, m_first + row < m && inside ? 16 : 0);
    }
  };

  float acc[ROW_BLOCKS][TOKEN_TILES][4] = {};

  auto consume = [&](u32 slot) {
#pragma unroll
    for (int kb = 0; kb < WARP_BLOCKS; ++kb) {
      u32 scales[ROW_BLOCKS];
      u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];
      u32 words[ROW_BLOCKS][4];
      u32 b[TOKEN_TILES][2];
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        if (step % GROUP_STEPS == 0) {  // a new group
#pragma unroll
          for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
            const int group = rb * GROUPS_PER_BLOCK + step / GROUP_STEPS;
            scales[rb] = ld_shared_u32(scale_smem + slot + kb * META_BYTES + group * 32);
            const u32 zeros = ld_shared_u8(zero_smem + slot + kb * META_BYTES + group * 8);
            zero_0[rb] = pick_low(zeros * 0x00010001);
            zero_8[rb] = pick_low(zeros * 0x00010001 >> 4);
          }
        }
        if (step % 4 == 0) {  // 64 inputs of weights: one 16-byte load a row block
#pragma unroll
          for (int rb = 0; rb < ROW_BLOCKS; ++rb)
            ld_shared_v4(words[rb], weights_smem + slot + ((kb * ROW_BLOCKS + rb) * 2 + step / 4) * 512);
        }
        const u32 x_step = x_smem + slot + (kb * 2 + step / 4) * (BLOCK_M * 128) + x_chunk_of[step % 4];
#pragma unroll
        for (int t = 0; t + 1 < TOKEN_TILES; t += 2)
          ldmatrix_x4(b[t], x_step + t * 1024);  // two n8 tiles
        ldmatrix_x2(b[TOKEN_TILES - 1], x_step + (TOKEN_TILES - 1) * 1024);
#pragma unroll
        for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
          u32 a[4];
          dequantize(a, words[rb][step % 4], zero_0[rb], zero_8[rb]);
          const u32 scale_0 = low_half_twice(scales[rb]);
          const u32 scale_8 = high_half_twice(scales[rb]);
          a[0] = mul2(a[0], scale_0), a[1] = mul2(a[1], scale_8);
          a[2] = mul2(a[2], scale_0), a[3] = mul2(a[3], scale_8);
#pragma unroll
          for (int t = 0; t < TOKEN_TILES; ++t)
            mma_m16n8k16(acc[rb][t], a, b[t][0], b[t][1]);
        }
      }
    }
  };

  // ---- prologue: fill all slots but one ----------------------------------------------------------
#pragma unroll
  for (int stage = 0; stage < STAGES - 1; ++stage) {
    if (stage < num_stages) load_weights(stage, stage * STAGE_BYTES);
    if (stage < num_stages) load_x(stage, stage * STAGE_BYTES);
    cp_async_commit();
  }

  // ---- main loop: one slot is consumed while the others are in flight ----------------------------
  u32 slot = 0, free_slot = (STAGES - 1) * STAGE_BYTES;
  for (int stage = 0; stage < num_stages; ++stage) {
    cp_async_wait_1();
    __syncthreads();  // everybody's copies have landed, and the slot before this one is consumed
    if (stage + STAGES - 1 < num_stages) {
      load_weights(stage + STAGES - 1, free_slot);
      load_x(stage + STAGES - 1, free_slot);
    }
    cp_async_commit();
    consume(slot);
    free_slot = slot;
    slot = slot == (STAGES - 1) * STAGE_BYTES ? 0 : slot + STAGE_BYTES;
  }

  // ---- fragments to shared memory, one FP32 tile for each warp along K ---------------------------
  __syncthreads();  // the ring is done with: its memory serves the reduction
  float* tile = (float*)smem;
  constexpr int TILE_ROW = BLOCK_N + 4;
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb)
#pragma unroll
    for (int t = 0; t < TOKEN_TILES; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = warp_m * WARP_M + t * 8 + lane % 4 * 2 + i % 2;
        const int feature = (warp_n * ROW_BLOCKS + rb) * 16 + lane / 4 + i / 2 * 8;
        tile[(warp_k * BLOCK_M + token) * TILE_ROW + feature] = acc[rb][t][i];
      }
  __syncthreads();

  auto sum_over_warps = [&](int token, int feature) {
    float4 sum = *(const float4*)&tile[token * TILE_ROW + feature];
#pragma unroll
    for (int w = 1; w < WARPS_K; ++w) {
      const float4 v = *(const float4*)&tile[(w * BLOCK_M + token) * TILE_ROW + feature];
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    return sum;
  };

  auto store = [&](int token, int feature, float4 v) {
    const int n = n_tile * BLOCK_N + feature;
    if (n >= N) return;
    u32 bias_01, bias_23;
    ld_global_nc_v2(bias_01, bias_23, bias + 2 * n);
    float b0, b1, b2, b3;
    unpack_to_float(b0, b1, bias_01);
    unpack_to_float(b2, b3, bias_23);
    v.x += b0, v.y += b1, v.z += b2, v.w += b3;
    st_global_v2(y + 2 * ((u64)(m_first + token) * ldy + n),
                 pack_from_float(v.x, v.y), pack_from_float(v.z, v.w));
  };

  // ---- split K: the last CTA of a tile adds all partial tiles up, always in the same order --------
  const u32 tile_index = n_tile * gridDim.x + m_tile;
  const u32 tiles = gridDim.x * gridDim.y;
  u32* counter = (u32*)workspace + tile_index;
  float* partials = (float*)(workspace + (tiles * 4 + 255) / 256 * 256)
      + (u64)tile_index * (SPLIT_K * BLOCK_M * BLOCK_N);
  for (int i = tid; i < BLOCK_M * BLOCK_N / 4; i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    if (m_first + token < m)
      st_partial(partials + blockIdx.z * (BLOCK_M * BLOCK_N) + i * 4, sum_over_warps(token, feature));
  }
  u32* arrived_before = (u32*)smem;
  __threadfence();
  __syncthreads();  // all partials are out, and the tiles in shared memory are done with
  if (tid == 0) *arrived_before = arrive_on_tile(counter);  // wraps to 0 for the next launch
  __syncthreads();
  if (*arrived_before != SPLIT_K - 1) return;
  __threadfence();
  for (int i = tid; i < BLOCK_M * BLOCK_N / 4; i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    if (m_first + token >= m) continue;
    float4 sum = ld_partial(partials + i * 4);
#pragma unroll
    for (int s = 1; s < SPLIT_K; ++s) {
      const float4 v = ld_partial(partials + s * (BLOCK_M * BLOCK_N) + i * 4);
      sum.x += v.x, sum.y += v.y, sum.z += v.z, sum.w += v.w;
    }
    store(token, feature, sum);
  }
}
