// ptxtune W4A16: y[m, N] = x[m, K] @ W[N, K]^T, weights dequantized in registers.
// problem: n4096-k4096-g128-fp16-int-bias
// config:  wgmma(block_m=64,block_n=128,warpgroups=2,num_stages=4,split_k=2,weights_first=False,min_ctas=1,raster=1)
// target:  sm_90a; packed layout version 3
//
// Weights are the m64 register operand of wgmma, tokens its n dimension, read from shared memory. All
// threads stream weights and activations through a ring of 4 cp.async stages.
//
// Words
//   token      a row of x and of y
//   feature    a row of W, a column of y
//   input      a column of x and of W
//   tile       64 tokens x 128 features of y: what a CTA works on at a time
//   strip      64 features of the packed weight: one contiguous stream along K, of 32 blocks
//   block      64 features x 128 inputs of it, 4256 bytes
//   row block  16 features: a warp's part of a tensor instruction
//   group      128 inputs of a feature that share a scale and a zero point
//   stage      128 inputs: what the pipeline loads and multiplies at a time
//   slot       the place of a stage in shared memory; the ring has 4 of them
//   chunk      32 inputs: two k16 steps, which are dequantized while the chunk before is multiplied
//
// Arguments (row strides in elements of fp16)
//   x          [m, 4096] activations, fp16; rows ldx apart, a multiple of 8; 16-byte aligned
//   packed     the packed weight, 8724496 bytes as drawn below; 16-byte aligned
//   bias       [4096], fp16, added before rounding; 8-byte aligned
//   y          [m, 4096] results, fp16; rows ldy apart, a multiple of 4; 8-byte aligned
//   workspace  a uint32 counter for each tile, 0 before and after, padded to 256 bytes; then 2 FP32 tiles for each
//   m          tokens, > 0
//
// Grid: (ceil(m / 64), 32, 2): tiles along M, tiles along N, CTAs that split K. A CTA has 256 threads:
// 2 warpgroups share out its features; a warp has 16 of every 64 features of its warpgroup.
//
// The packed weight: blocks [strip 64][K block 32], N and K filled up with weights of value 0.
// Bytes of a block:
//                     inputs 0..63    inputs 64..127
//   features  0..15      0 ..  511     512 .. 1023
//   features 16..31   1024 .. 1535    1536 .. 2047
//   features 32..47   2048 .. 2559    2560 .. 3071
//   features 48..63   3072 .. 3583    3584 .. 4095
//   scales            4096 .. 4223    [row block 4][group 1][g 8] pairs of fp16
//   zero points       4224 .. 4255    [row block 4][group 1][g 8] bytes
// 16 features x 64 inputs are 32 lanes x 4 words, a word for each step of 16 inputs. In the word of lane 4 g + t nibble i
// is feature g + 8 (i % 2), input 2 t + 8 (i / 2 % 2) + i / 4: what that lane holds of the operand of mma.m16n8k16.
// A pair is of features g and g + 8 of a row block; of a zero point's byte g has the low nibble.
// What follows behind the blocks, row factors and a tag, is for other kernels.
//
// Shared memory, 102400 bytes: slot s of the ring is at s * 25600; in it
//        0  weights: [warp 8][block 1][row block 1][half 2] fragments of 512 bytes
//     8192  scales and zero points: [warp 8][block 1] of 48 bytes
//     9216  activations: [slab 2][token 64] of 64 inputs, 128 bytes, whose 16-byte pieces
//           are swizzled: piece c of token r is at c ^ (r % 8)
// Behind the main loop the ring makes room for FP32 tiles, [warp along K 1][token 64][feature 128 + 4].
//
// The pipeline
//   1. All slots but two are filled by cp.async.
//   2. A stage has arrived: its slot is next; wgmma may still read the slot before, and the one before that is filled.
//   3. A lane turns the words of a chunk into weights, in registers of their own, while wgmma multiplies the chunk before.
//   4. Weights are scaled before they are multiplied; sums stay in FP32 registers.
//   5. CTAs add their sums in FP32; rounded once, they are stored.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

enum : int { N = 4096 };  // output features
enum : int { BLOCK_M = 64 };  // tokens of the CTA's tile
enum : int { BLOCK_N = 128 };  // output features of the CTA's tile
enum : int { BLOCK_K = 128 };  // inputs of a stage
enum : int { WARP_M = 64 };  // tokens of a warp's tile
enum : int { WARPS_N = 8 };
enum : int { WARPS_K = 1 };  // warps that split a stage along K
enum : int { THREADS = 256 };
enum : int { STAGES = 4 };  // slots of the ring
enum : int { SPLIT_K = 2 };  // CTAs that split K
enum : int { TOTAL_STAGES = 32 };  // stages of the whole K
enum : int { ROW_BLOCKS = 1 };  // 16-feature row blocks of a warp's tile
enum : int { TOKEN_TILES = 8 };  // n8 tiles of a warp's tile
enum : int { K_BLOCKS = 32 };  // 128-input blocks of a strip
enum : int { STAGE_BLOCKS = 1 };  // of them, in a stage
enum : int { WARP_BLOCKS = 1 };  // of them, of a warp in a stage
enum : int { WEIGHT_BYTES = 4096 };  // weights of a block; scales and zero points follow
enum : int { BLOCK_BYTES = 4256 };  // of a block
enum : int { FRAGMENTS = 2 };  // 512-byte fragments of a warp in a stage
enum : int { X_OFFSET = 9216 };  // activations in a slot
enum : int { STAGE_BYTES = 25600 };  // of a slot
enum : int { GROUPS_PER_BLOCK = 1 };  // quantization groups of a block
enum : int { GROUP_STEPS = 8 };  // k16 steps of a group
enum : int { META_OFFSET = 8192 };  // scales and zero points in a slot
enum : int { META_BYTES = 48 };  // of a warp's tile and block
enum : int { META_SCALE_BYTES = 32 };  // of them scales
enum : int { ROW_BLOCK_SCALE_BYTES = 32 };
enum : int { ROW_BLOCK_ZERO_BYTES = 8 };
enum : int { ROW_BLOCK_PIECES = 5 };  // of 8 bytes, of scales and zero points
enum : int { META_ROUNDS = 1 };  // a lane copies one in each
enum : int { BLOCK_SCALE_BYTES = 128 };  // scales of a block

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

// Lets the next kernel of the stream start its prologue as soon as there is room.
// PTX ISA: Parallel Synchronization and Communication Instructions: griddepcontrol
__device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;"
      :
      :
      : "memory");
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
  asm("mul.rn.f16x2 %0, %1, %2;"
      : "=r"(d)
      : "r"(a), "r"(b));
  return d;
}

// Orders earlier register writes before the wgmma that follow.
// PTX ISA: Asynchronous Warpgroup Level Matrix Instructions: wgmma.fence
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;"
      :
      :
      : "memory");
}

// d[64 x 64] += a[64 x 16] b[16 x 64]: a in registers, b in shared memory by a descriptor.
// PTX ISA: Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async
__device__ __forceinline__ void wgmma_m64n64k16(float (&d)[8][4], const u32 (&a)[4], u64 b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, 1, 1, 1, 0;"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
      : "memory");
}

// Closes the current group of wgmma.
// PTX ISA: Asynchronous Warpgroup Level Matrix Instructions: wgmma.commit_group
__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;"
      :
      :
      : "memory");
}

// Waits until at most 1 of the latest groups are unfinished.
// PTX ISA: Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group
__device__ __forceinline__ void wgmma_wait_1() {
  asm volatile("wgmma.wait_group.sync.aligned 1;"
      :
      :
      : "memory");
}

// Waits until the previous kernel has ended and its writes are visible.
// PTX ISA: Parallel Synchronization and Communication Instructions: griddepcontrol
__device__ __forceinline__ void wait_for_previous() {
  asm volatile("griddepcontrol.wait;"
      :
      :
      : "memory");
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

// Makes this thread's writes to shared memory visible to wgmma, after the next barrier.
// PTX ISA: Parallel Synchronization and Communication Instructions: membar, fence
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;"
      :
      :
      : "memory");
}

// Waits until at most 0 of the latest groups are unfinished.
// PTX ISA: Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group
__device__ __forceinline__ void wgmma_wait_0() {
  asm volatile("wgmma.wait_group.sync.aligned 0;"
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
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
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
  asm("cvt.rn.f16x2.f32 %0, %2, %1;"
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
  a[1] = sub2(pick_high(word), zero_8);
  word >>= 8;
  a[2] = sub2(pick_low(word), zero_0);
  a[3] = sub2(pick_high(word), zero_8);
}

enum : int { CHUNK_STEPS = 2 };  // k16 steps that are dequantized at once

// Pins a register in the compiler's eyes: it is not given away before this point.
__device__ __forceinline__ void keep_alive(u32& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void keep_alive(float& value) { asm volatile("" : "+f"(value)::"memory"); }

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
  launch_dependents();

  // ---- this thread's part of every stage -------------------------------------------------------
  const int first_stage = (int)((long long)TOTAL_STAGES * blockIdx.z / SPLIT_K);
  const int last_stage = (int)((long long)TOTAL_STAGES * (blockIdx.z + 1) / SPLIT_K);
  const int num_stages = last_stage - first_stage;

  // Weights stream straight in fragment order: a warp copies what it will consume, 512 bytes a time.
  const u8* weights = packed + (u64)(first_stage * STAGE_BLOCKS + warp_k * WARP_BLOCKS) * BLOCK_BYTES;
  u64 row_block_offset[ROW_BLOCKS];
#pragma unroll
  for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
    const int row_block = n_tile * (BLOCK_N / 16) + ((warp_n / 4 * ROW_BLOCKS + rb) * 4 + warp_n % 4);
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
    const int row_block = n_tile * (BLOCK_N / 16) + ((warp_n / 4 * ROW_BLOCKS + rb) * 4 + warp_n % 4);
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

  // ---- operands of wgmma ----------------------------------------------------------------
  // Descriptor of 8-row atoms of 128 swizzled bytes, 1024 bytes from one to the next
  // (PTX ISA, "Matrix Descriptor Format"); the address is in units of 16 bytes.
  const u64 x_descriptor = (1ull << 62) | (64ull << 32) | (1ull << 16) | ((smem_base + X_OFFSET) >> 4);
  u32 a[2][CHUNK_STEPS][ROW_BLOCKS][4] = {};  // fragments of two chunks, in turns
  const u32 scale_smem = meta_smem + lane / 4 * 4;
  u32 scales[ROW_BLOCKS];
  const u32 zero_smem = meta_smem + META_SCALE_BYTES + lane / 4;
  u32 zero_0[ROW_BLOCKS], zero_8[ROW_BLOCKS];

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
      {
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
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = x_row + i * 16;
      const u32 to = x_slab + slot + row * 128 + ((x_chunk % 8) ^ (row % 8)) * 16;
      cp_async_16_zfill(to, source + (u64)(i * 16) * ldx * 2, m_first + row < m ? 16 : 0);
    }
  };

  float acc[ROW_BLOCKS][TOKEN_TILES][4] = {};

  auto consume = [&](u32 slot) {
    u32 words[ROW_BLOCKS][4];
#pragma unroll
    for (int chunk = 0; chunk < 4; ++chunk) {
#pragma unroll
      for (int s = 0; s < CHUNK_STEPS; ++s) {
        const int step = chunk * CHUNK_STEPS + s;
        if (step % GROUP_STEPS == 0) {  // a new group
#pragma unroll
          for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
            const int group = rb * GROUPS_PER_BLOCK + step / GROUP_STEPS;
            scales[rb] = ld_shared_u32(scale_smem + slot + group * 32);
            const u32 zeros = ld_shared_u8(zero_smem + slot + group * 8);
            zero_0[rb] = pick_low(zeros * 0x00010001);
            zero_8[rb] = pick_high(zeros * 0x00010001);
          }
        }
        if (step % 4 == 0) {  // 64 inputs of weights: one 16-byte load a row block
#pragma unroll
          for (int rb = 0; rb < ROW_BLOCKS; ++rb)
            ld_shared_v4(words[rb], weights_smem + slot + (rb * 2 + step / 4) * 512);
        }
#pragma unroll
        for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
          u32 (&part)[4] = a[chunk % 2][s][rb];
          dequantize(part, words[rb][step % 4], zero_0[rb], zero_8[rb]);
          const u32 scale_0 = low_half_twice(scales[rb]);
          const u32 scale_8 = high_half_twice(scales[rb]);
          part[0] = mul2(part[0], scale_0), part[1] = mul2(part[1], scale_8);
          part[2] = mul2(part[2], scale_0), part[3] = mul2(part[3], scale_8);
        }
      }
      wgmma_fence();
#pragma unroll
      for (int s = 0; s < CHUNK_STEPS; ++s) {
        const int step = chunk * CHUNK_STEPS + s;
        const u64 x_tile = x_descriptor + ((slot + step / 4 * (BLOCK_M * 128) + step % 4 * 32) >> 4);
#pragma unroll
        for (int rb = 0; rb < ROW_BLOCKS; ++rb)
          wgmma_m64n64k16(acc[rb], a[chunk % 2][s][rb], x_tile);
      }
      wgmma_commit();
      wgmma_wait_1();  // the chunk before is done: its registers may be written again
#pragma unroll
      for (int i = 0; i < CHUNK_STEPS * ROW_BLOCKS * 4; ++i)
        keep_alive(a[(chunk + 1) % 2][i / (ROW_BLOCKS * 4)][i / 4 % ROW_BLOCKS][i % 4]);
    }
  };

  // ---- prologue: fill all slots but two ----------------------------------------------------------
  wait_for_previous();  // x, y and the workspace belong to the previous kernel until here
#pragma unroll
  for (int stage = 0; stage < STAGES - 2; ++stage) {
    if (stage < num_stages) load_weights(stage, stage * STAGE_BYTES);
    if (stage < num_stages) load_x(stage, stage * STAGE_BYTES);
    cp_async_commit();
  }

  // The zeros of the accumulators are written before the first wgmma_fence, not moved behind it.
#pragma unroll
  for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES * 4; ++i)
    keep_alive(acc[i / (TOKEN_TILES * 4)][i / 4 % TOKEN_TILES][i % 4]);
  // ---- main loop: one slot is consumed, one may still be read by wgmma in flight ------------------
  u32 slot = 0, free_slot = (STAGES - 2) * STAGE_BYTES;
  for (int stage = 0; stage < num_stages; ++stage) {
    cp_async_wait_1();
    fence_proxy_async();
    __syncthreads();  // everybody's copies are visible to wgmma, and the free slot is done with
    if (stage + STAGES - 2 < num_stages) {
      load_weights(stage + STAGES - 2, free_slot);
      load_x(stage + STAGES - 2, free_slot);
    }
    cp_async_commit();
    consume(slot);
    slot = slot == (STAGES - 1) * STAGE_BYTES ? 0 : slot + STAGE_BYTES;
    free_slot = free_slot == (STAGES - 1) * STAGE_BYTES ? 0 : free_slot + STAGE_BYTES;
  }
  wgmma_wait_0();
#pragma unroll
  for (int i = 0; i < 2 * CHUNK_STEPS * ROW_BLOCKS * 4; ++i)
    keep_alive(a[i / (CHUNK_STEPS * ROW_BLOCKS * 4)][i / (ROW_BLOCKS * 4) % CHUNK_STEPS][i / 4 % ROW_BLOCKS][i % 4]);
#pragma unroll
  for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES * 4; ++i)
    keep_alive(acc[i / (TOKEN_TILES * 4)][i / 4 % TOKEN_TILES][i % 4]);

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
        const int feature = ((warp_n / 4 * ROW_BLOCKS + rb) * 4 + warp_n % 4) * 16 + lane / 4 + i / 2 * 8;
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
