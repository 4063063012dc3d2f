// ptxtune W4A16: y[m, N] = x[m, K] @ W[N, K]^T, weights dequantized in registers.
// problem: n4096-k4096-gk-fp16-int
// config:  mma(block_m=2,warp_m=2,block_n=16,warp_n=16,block_k=512,warps_k=2,num_stages=4,split_k=1,scale_on=accumulators,weights_first=False,min_ctas=1,trigger=start)
// target:  sm_89; packed layout version 3
//
// Weights are the m16 operand of mma.sync, tokens its n8 operand. Every warp streams its weight fragments
// through a ring of 4 cp.async stages in shared memory.
//
// Words
//   token      a row of x and of y
//   feature    a row of W, a column of y
//   input      a column of x and of W
//   tile       2 tokens x 16 features of y: what a CTA works on at a time
//   strip      64 features of the packed weight: one contiguous stream along K, of 32 blocks
//   block      64 features x 128 inputs of it, 4096 bytes
//   row block  16 features: a warp's part of a tensor instruction
//   group      4096 inputs of a feature that share a scale and a zero point
//   stage      512 inputs: what the pipeline loads and multiplies at a time
//   slot       the place of a stage in shared memory; the ring has 4 of them
//
// Arguments (row strides in elements of fp16)
//   x          [m, 4096] activations, fp16; rows ldx apart, a multiple of 8; 16-byte aligned
//   packed     the packed weight, 8398848 bytes as drawn below; 16-byte aligned
//   bias       not read
//   y          [m, 4096] results, fp16; rows ldy apart, a multiple of 4; 8-byte aligned
//   workspace  not read
//   m          tokens, > 0
//
// Grid: (ceil(m / 2), 256, 1): tiles along M, tiles along N, CTAs that split K. A CTA has 64 threads;
// its 2 warps are 1 along M x 1 along N x 2 along K. A warp multiplies 2 tokens x 16 features x 256
// inputs of a stage.
//
// The packed weight: blocks [strip 64][K block 32], N and K filled up with weights of value 0.
// Bytes of a block:
//                     inputs 0..63    inputs 64..127
//   features  0..15      0 ..  511     512 .. 1023
//   features 16..31   1024 .. 1535    1536 .. 2047
//   features 32..47   2048 .. 2559    2560 .. 3071
//   features 48..63   3072 .. 3583    3584 .. 4095
// 16 features x 64 inputs are 32 lanes x 4 words, a word for each step of 16 inputs. In the word of lane 4 g + t nibble i
// is feature g + 8 (i % 2), input 2 t + 8 (i / 2 % 2) + i / 4: what that lane holds of the operand of mma.m16n8k16.
// A pair is of features g and g + 8 of a row block; of a zero point's byte g has the low nibble.
// Behind the blocks, at byte 8388608, the scales of whole rows, [strip][row block 4][g 8] pairs of fp16, then their
// zero points at byte 8396800, [strip][row block 4][g 8] bytes.
//
// Shared memory, 24576 bytes: slot s of the ring is at s * 6144; in it
//        0  weights: [warp 2][block 2][row block 1][half 2] fragments of 512 bytes
//     4096  activations: [slab 8][token 2] of 64 inputs, 128 bytes, whose 16-byte pieces
//           are swizzled: piece c of token r is at c ^ (r % 8)
// Behind the main loop the ring makes room for FP32 tiles, [warp along K 2][token 2][feature 16 + 4].
//
// The pipeline
//   1. All slots but one are filled by cp.async.
//   2. A stage has arrived: its slot is next to be multiplied, and the slot before it, which is free, is filled.
//   3. A lane reads its words and activations, turns a word into 8 weights, and mma.sync multiplies them.
//   4. One scale a feature is applied to the sums at the end.
//   5. Warps add their sums in FP32 through shared memory; rounded once, they are stored.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

enum : int { N = 4096 };  // output features
enum : int { BLOCK_M = 2 };  // tokens of the CTA's tile
enum : int { BLOCK_N = 16 };  // output features of the CTA's tile
enum : int { BLOCK_K = 512 };  // inputs of a stage
enum : int { WARP_M = 2 };  // tokens of a warp's tile
enum : int { WARP_K = 256 };  // inputs of a stage that a warp consumes
enum : int { WARPS_N = 1 };
enum : int { WARPS_K = 2 };  // warps that split a stage along K
enum : int { THREADS = 64 };
enum : int { STAGES = 4 };  // slots of the ring
enum : int { SPLIT_K = 1 };  // CTAs that split K
enum : int { TOTAL_STAGES = 8 };  // stages of the whole K
enum : int { ROW_BLOCKS = 1 };  // 16-feature row blocks of a warp's tile
enum : int { TOKEN_TILES = 1 };  // n8 tiles of a warp's tile
enum : int { STRIPS = 64 };  // 64-feature strips of the packed weights
enum : int { K_BLOCKS = 32 };  // 128-input blocks of a strip
enum : int { STAGE_BLOCKS = 4 };  // of them, in a stage
enum : int { WARP_BLOCKS = 2 };  // of them, of a warp in a stage
enum : int { BLOCK_BYTES = 4096 };  // of a block
enum : int { FRAGMENTS = 4 };  // 512-byte fragments of a warp in a stage
enum : int { X_OFFSET = 4096 };  // activations in a slot
enum : int { STAGE_BYTES = 6144 };  // of a slot
enum : u64 { TABLE_OFFSET = 8388608 };  // scales of the whole-K groups

// ==== PTX: one function for each instruction that is called below ====================================

// a - b on both halves. bf16 before sm_90 is a * 1 - b by fma, just as exact.
// PTX ISA: Half Precision Floating-Point: sub, fma
__device__ __forceinline__ u32 sub2(u32 a, u32 b) {
  u32 d;
  asm("sub.rn.f16x2 %0, %1, %2;"
      : "=r"(d)
      : "r"(a), "r"(b));
  return d;
}

// Nibbles 0 and 4 of a word as floats: 1024 + q in fp16, 128 + q in bf16, whose ulp is 1.
// PTX ISA: Logic and Shift Instructions: lop3
__device__ __forceinline__ u32 pick_low(u32 value) {
  u32 d;
  asm("lop3.b32 %0, %1, 0x000f000f, 0x64006400, 0xea;"
      : "=r"(d)
      : "r"(value));
  return d;
}

// Nibbles 1 and 5 of a word as fp16: 64 + q. They stay in place, where 64's ulp is 1/16.
// PTX ISA: Logic and Shift Instructions: lop3
__device__ __forceinline__ u32 pick_high(u32 value) {
  u32 d;
  asm("lop3.b32 %0, %1, 0x00f000f0, 0x54005400, 0xea;"
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

// One byte of read-only memory, zero-extended.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ u32 ld_global_nc_u8(const void* src) {
  u32 d;
  asm("ld.global.nc.u8 %0, [%1];"
      : "=r"(d)
      : "l"(src));
  return d;
}

// 16 bytes that bypass L1, with a 128-byte L2 prefetch.
// PTX ISA: Data Movement and Conversion Instructions: cp.async
__device__ __forceinline__ void cp_async_16(u32 dst, const u8* src) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;"
      :
      : "r"(dst), "l"(src)
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

// d[16x8] = a[16x16] b[16x8] + c[16x8], 16-bit operands, FP32 accumulation.
// PTX ISA: Warp-Level Matrix Instructions: mma, Matrix Fragments for mma.m16n8k16
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], u32 b0, u32 b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
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

// Waits until at most 2 of this thread's latest groups are unfinished.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.wait_group
__device__ __forceinline__ void cp_async_wait_2() {
  asm volatile("cp.async.wait_group 2;"
      :
      :
      : "memory");
}

// Both halves of a register as FP32 (a bf16 is the high half of its FP32).
// PTX ISA: Data Movement and Conversion Instructions: cvt
__device__ __forceinline__ void unpack_to_float(float& lo, float& hi, u32 value) {
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(lo), "=f"(hi)
      : "r"(value));
}

// One word of read-only memory.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ u32 ld_global_nc_u32(const void* src) {
  u32 d;
  asm("ld.global.nc.b32 %0, [%1];"
      : "=r"(d)
      : "l"(src));
  return d;
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
  asm("cvt.rn.f16x2.f32 %0, %2, %1;"
      : "=r"(d)
      : "f"(lo), "f"(hi));
  return d;
}

// ==== from nibbles to weights ========================================================================

// Eight nibbles of `word` to the A fragment of mma.m16n8k16, as q - zero, bit-exact.
// zero_0 and zero_8 hold magic + zero point of features g and g + 8, twice each.
__device__ __forceinline__ void dequantize(u32 (&a)[4], u32 word, u32 zero_0, u32 zero_8) {
  a[0] = sub2(pick_low(word), zero_0);
  a[1] = sub2(pick_high(word), zero_8);
  word >>= 8;
  a[2] = sub2(pick_low(word), zero_0);
  a[3] = sub2(pick_high(word), zero_8);
}

// ==== the kernel =====================================================================================

extern "C" __global__ void __launch_bounds__(THREADS, 1)
ptxtune_w4a16(const void* __restrict__ x_arg,       // [m, K], rows of ldx elements
              const void* __restrict__ packed_arg,  // the packed weight
              const void* __restrict__ bias_arg,    // [N]: not read
              void* __restrict__ y_arg,             // [m, N], rows of ldy elements
              void* __restrict__ workspace_arg,     // not read
              int m, long long ldx, long long ldy) {
  extern __shared__ __align__(1024) u8 smem[];
  const u8* x = (const u8*)x_arg;
  const u8* packed = (const u8*)packed_arg;
  u8* y = (u8*)y_arg;
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

  // Activations: rows of BLOCK_K inputs as slabs of 64, each row of a slab 128 bytes, swizzled.
  constexpr int X_CHUNKS = WARP_K / 8;  // 16-byte chunks of a row
  const int x_row = lane / X_CHUNKS, x_chunk = lane % X_CHUNKS;
  const int x_k = warp_k * WARP_K + x_chunk * 8;  // first input of this thread's chunk
  const u8* x_source = x + 2 * ((u64)(m_first + x_row) * ldx + first_stage * BLOCK_K + x_k);
  const u32 x_slab = smem_base + X_OFFSET + (x_k / 64) * (BLOCK_M * 128);

  // ---- this lane's fragments ------------------------------------------------------------
  const int token_row = warp_m * WARP_M + lane % BLOCK_M;
  const u32 x_smem = smem_base + X_OFFSET + warp_k * (WARP_K / 64) * (BLOCK_M * 128) + token_row * 128;
  // ldmatrix.x4 takes the chunks 4 i .. 4 i + 3 of a row, swizzled by the row
  const u32 x_chunk_of[2] = {((lane / 8) ^ (token_row % 8)) * 16, ((4 + lane / 8) ^ (token_row % 8)) * 16};
  u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];  // one zero point serves the whole K
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
    const int row_block = min(n_tile * (BLOCK_N / 16) + (warp_n * ROW_BLOCKS + rb), STRIPS * 4 - 1);
    const u32 zeros = ld_global_nc_u8(packed + TABLE_OFFSET + STRIPS * 128 + row_block * 8 + lane / 4);
    zero_0[rb] = pick_low(zeros * 0x00010001);
    zero_8[rb] = pick_high(zeros * 0x00010001);
  }

  auto load_weights = [&](int stage, u32 slot) {
    const u8* source = weights + (u64)stage * (STAGE_BLOCKS * BLOCK_BYTES);
#pragma unroll
    for (int kb = 0; kb < WARP_BLOCKS; ++kb) {
#pragma unroll
      for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int fragment = (kb * ROW_BLOCKS + rb) * 2 + half;
          const u8* from = source + row_block_offset[rb] + kb * BLOCK_BYTES + half * 512 + lane * 16;
          cp_async_16(weights_smem + slot + fragment * 512, from);
        }
      }
    }
  };

  auto load_x = [&](int stage, u32 slot) {
    const u8* source = x_source + (u64)stage * (BLOCK_K * 2);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = x_row + i * 1;
      const u32 to = x_slab + slot + row * 128 + ((x_chunk % 8) ^ (row % 8)) * 16;
      cp_async_16_zfill(to, source + (u64)(i * 1) * ldx * 2, m_first + row < m ? 16 : 0);
    }
  };

  float acc[ROW_BLOCKS][TOKEN_TILES][4] = {};

  auto consume = [&](u32 slot) {
#pragma unroll
    for (int kb = 0; kb < WARP_BLOCKS; ++kb) {
      u32 words[ROW_BLOCKS][4];
      u32 b[TOKEN_TILES][8];
#pragma unroll
      for (int step = 0; step < 8; ++step) {
        if (step % 4 == 0) {  // 64 inputs of weights: one 16-byte load a row block
#pragma unroll
          for (int rb = 0; rb < ROW_BLOCKS; ++rb)
            ld_shared_v4(words[rb], weights_smem + slot + ((kb * ROW_BLOCKS + rb) * 2 + step / 4) * 512);
        }
        if (step % 2 == 0)  // 32 inputs of the n8 tile's activations
          ldmatrix_x4(b[0] + step % 4 * 2, x_smem + slot + (kb * 2 + step / 4) * (BLOCK_M * 128) + x_chunk_of[step % 4 / 2]);
#pragma unroll
        for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
          u32 a[4];
          dequantize(a, words[rb][step % 4], zero_0[rb], zero_8[rb]);
#pragma unroll
          for (int t = 0; t < TOKEN_TILES; ++t)
            mma_m16n8k16(acc[rb][t], a, b[t][step % 4 * 2], b[t][step % 4 * 2 + 1]);
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
    cp_async_wait_2();
    __syncwarp();  // everybody's copies have landed, and the slot before this one is consumed
    if (stage + STAGES - 1 < num_stages) {
      load_weights(stage + STAGES - 1, free_slot);
      load_x(stage + STAGES - 1, free_slot);
    }
    cp_async_commit();
    consume(slot);
    free_slot = slot;
    slot = slot == (STAGES - 1) * STAGE_BYTES ? 0 : slot + STAGE_BYTES;
  }

  // ---- one scale a feature ----------------------------------------------------------------------
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
    const int row_block = min(n_tile * (BLOCK_N / 16) + (warp_n * ROW_BLOCKS + rb), STRIPS * 4 - 1);
    float scale_0, scale_8;
    unpack_to_float(scale_0, scale_8,
                    ld_global_nc_u32(packed + TABLE_OFFSET + row_block * 32 + lane / 4 * 4));
#pragma unroll
    for (int t = 0; t < TOKEN_TILES; ++t) {
      acc[rb][t][0] *= scale_0, acc[rb][t][1] *= scale_0;
      acc[rb][t][2] *= scale_8, acc[rb][t][3] *= scale_8;
    }
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
        if (token < BLOCK_M) tile[(warp_k * BLOCK_M + token) * TILE_ROW + feature] = acc[rb][t][i];
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
    st_global_v2(y + 2 * ((u64)(m_first + token) * ldy + n),
                 pack_from_float(v.x, v.y), pack_from_float(v.z, v.w));
  };

  for (int i = tid; i < BLOCK_M * BLOCK_N / 4; i += THREADS) {
    const int token = i / (BLOCK_N / 4), feature = i % (BLOCK_N / 4) * 4;
    if (m_first + token < m) store(token, feature, sum_over_warps(token, feature));
  }
}
