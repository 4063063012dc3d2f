// ptxtune W4A16: y[m, N] = x[m, K] @ W[N, K]^T, weights dequantized in registers.
// problem: n4096-k4096-g128-fp16-int-bias
// config:  wgmma_tma(block_m=128,block_n=256,warpgroups=2,num_stages=4,chunk=2,split_k=1,multicast=1,min_ctas=1,max_ctas=132,raster=8)
// target:  sm_90a; packed layout version 3
//
// Weights are the m64 register operand of wgmma, tokens its n dimension, read from shared memory. One
// thread of the last warp fills a ring of 4 slots by TMA; the other warps multiply.
//
// Words
//   token      a row of x and of y
//   feature    a row of W, a column of y
//   input      a column of x and of W
//   tile       128 tokens x 256 features of y: what a CTA works on at a time
//   strip      64 features of the packed weight: one contiguous stream along K, of 32 blocks
//   block      64 features x 128 inputs of it, 4256 bytes
//   row block  16 features: a warp's part of a tensor instruction
//   group      128 inputs of a feature that share a scale and a zero point
//   stage      128 inputs: what the pipeline loads and multiplies at a time
//   slot       the place of a stage in shared memory; the ring has 4 of them
//   chunk      32 inputs, which are dequantized while the chunk before is multiplied
//   producer   the thread that fills slots; consumers: the 256 threads that multiply
//
// Arguments (row strides in elements of fp16)
//   x          [m, 4096] activations, fp16; rows ldx apart, a multiple of 8; 16-byte aligned
//   packed     the packed weight, 8724496 bytes as drawn below; 16-byte aligned
//   bias       [4096], fp16, added before rounding; 8-byte aligned
//   y          [m, 4096] results, fp16; rows ldy apart, a multiple of 4; 8-byte aligned
//   workspace  not read
//   m          tokens, > 0
//   x_map      tensor map of x: 2-D, boxes of 64 inputs x 128 tokens, 128-byte swizzle, zeros outside of it
//
// Grid: 132 CTAs or fewer that walk over the tiles.
// A CTA has 384 threads: 2 warpgroups share out the features of a tile; a warp has 16 of every 64.
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
// Behind the blocks, at byte 8716288, the row factors, [strip][row block 4][g 8] pairs of fp16: 2^12 f, where the
// power of two f makes the scales of a row small enough for 2^24 times them to be an fp16. In strips whose scales spread too
// widely for that they are negative, and the main loop goes another way. A tag of 16 bytes ends the weight.
//
// Shared memory, 208576 bytes
//        0  the ring: 4 slots, 50176 bytes apart; in a slot
//               0  activations: [slab 2][token 128] of 64 inputs, 128 bytes, swizzled as wgmma wants them
//           32768  4 packed blocks of 4256 bytes
//   200320  results on their way to y: [warpgroup 2][n8 tile 4][token 8] of 64 features, 128 bytes
//   208512  mbarriers: a `full` one and an `empty` one for each slot
//
// The pipeline
//   1. The producer waits until a slot is empty, and asks for its packed blocks (bulk copies) and activations (TMA).
//   2. The copies count themselves on the slot's `full` mbarrier; consumers wait for it and read the packed words.
//   3. A lane turns the words of a chunk into weights, in registers of their own, while wgmma multiplies the chunk before.
//   4. When wgmma is done with a slot, each warp arrives on its `empty` mbarrier: the producer may fill it again.
//   5. At the end of a tile its sums are scaled, rounded once, turned in shared memory and stored by whole lines.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

enum : int { N = 4096 };  // output features
enum : int { BLOCK_M = 128 };  // tokens of a tile
enum : int { BLOCK_N = 256 };  // output features of a tile
enum : int { BLOCK_K = 128 };  // inputs of a stage
enum : int { THREADS = 384 };
enum : int { CONSUMERS = 256 };  // threads that multiply
enum : int { CONSUMER_WARPS = 8 };  // the next warp is the producer
enum : int { STAGES = 4 };  // slots of the ring
enum : int { CHUNK = 2 };  // k16 steps that are dequantized at once
enum : int { CHUNKS = 4 };  // of a stage
enum : int { N_TILES = 16 };  // tiles along N
enum : int { TILE_STRIPS = 4 };  // 64-feature strips of a tile
enum : int { ROW_BLOCKS = 2 };  // of them, of a warpgroup: m64 operands
enum : int { TOKEN_TILES = 16 };  // n8 tiles of a tile
enum : int { STRIPS = 64 };  // 64-feature strips of the packed weights
enum : int { K_BLOCKS = 32 };  // 128-input blocks of a strip
enum : int { WEIGHT_BYTES = 4096 };  // weights of a block; scales and zero points follow
enum : int { BLOCK_BYTES = 4256 };  // of a block
enum : int { X_SLAB_BYTES = 16384 };  // activations of 64 inputs
enum : int { WEIGHTS_OFFSET = 32768 };  // packed blocks in a slot
enum : int { COPIED_BYTES = 49792 };  // of a slot that is full
enum : int { STAGE_BYTES = 50176 };  // of a slot
enum : int { BATCH = 4 };  // n8 tiles of tokens that are turned and stored at once
enum : int { OUT_OFFSET = 200320 };  // where they are turned, 1024 bytes a tile
enum : int { BARRIER_OFFSET = 208512 };  // mbarriers
enum : int { GROUPS_PER_BLOCK = 1 };  // quantization groups of a block
enum : int { GROUP_STEPS = 8 };  // k16 steps of a group
enum : int { BLOCK_SCALE_BYTES = 128 };  // scales of a block
enum : u64 { TABLE_OFFSET = 8716288 };  // row factors
// Pairs of fp16, for feature g in the low half and for g + 8, whose nibbles are 2^4 times as large:
enum : u32 { NIBBLE_SCALE = 0x5c006c00 };  // 2^12 and 2^8: make the scales of dequantize()
enum : u32 { SIZES = 0x7fff7fff };  // all bits but the signs, which mark strips
enum : u32 { UNSCALE = 0x0c000c00 };  // 2^-12: of a row factor, 2^12 f, makes f
enum : u32 { MAGIC = 0x54006400 };  // 1024 and 64: what dequantize_wide() adds nibbles to

// ==== PTX: one function for each instruction that is called below ====================================

// Both halves of a times the low half of b; sm_90 for bf16.
// PTX ISA: Half Precision Floating-Point: mul
__device__ __forceinline__ u32 mul2_by_low(u32 a, u32 b) {
  u32 d;
  asm("{ .reg .b16 l, h; .reg .b32 b; mov.b32 {l, h}, %2; mov.b32 b, {l, l}; mul.rn.f16x2 %0, %1, b; }"
      : "=r"(d)
      : "r"(a), "r"(b));
  return d;
}

// Both halves of a minus the low half of b; sm_90 for bf16.
// PTX ISA: Half Precision Floating-Point: sub
__device__ __forceinline__ u32 sub2_by_low(u32 a, u32 b) {
  u32 d;
  asm("{ .reg .b16 l, h; .reg .b32 b; mov.b32 {l, h}, %2; mov.b32 b, {l, l}; sub.rn.f16x2 %0, %1, b; }"
      : "=r"(d)
      : "r"(a), "r"(b));
  return d;
}

// Both halves of a times the high half of b; sm_90 for bf16.
// PTX ISA: Half Precision Floating-Point: mul
__device__ __forceinline__ u32 mul2_by_high(u32 a, u32 b) {
  u32 d;
  asm("{ .reg .b16 l, h; .reg .b32 b; mov.b32 {l, h}, %2; mov.b32 b, {h, h}; mul.rn.f16x2 %0, %1, b; }"
      : "=r"(d)
      : "r"(a), "r"(b));
  return d;
}

// Both halves of a minus the high half of b; sm_90 for bf16.
// PTX ISA: Half Precision Floating-Point: sub
__device__ __forceinline__ u32 sub2_by_high(u32 a, u32 b) {
  u32 d;
  asm("{ .reg .b16 l, h; .reg .b32 b; mov.b32 {l, h}, %2; mov.b32 b, {h, h}; sub.rn.f16x2 %0, %1, b; }"
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

// `bytes` (a multiple of 16) from a 16-byte aligned address to L2; nobody waits for them.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.bulk.prefetch
__device__ __forceinline__ void bulk_prefetch(const void* src, u32 bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;"
      :
      : "l"(src), "r"(bytes)
      : "memory");
}

// Makes eight bytes, 8-byte aligned, an mbarrier of phase 0 that waits for `count` arrivals.
// PTX ISA: Parallel Synchronization and Communication Instructions: mbarrier.init
__device__ __forceinline__ void mbarrier_init(u32 barrier, u32 count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
      :
      : "r"(barrier), "r"(count)
      : "memory");
}

// Makes this thread's mbarrier_init visible to copies and to the cluster, after a barrier.
// PTX ISA: Parallel Synchronization and Communication Instructions: membar, fence
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;"
      :
      :
      : "memory");
}

// Brings a tensor map into the cache of the copy engine before its first use.
// PTX ISA: Data Movement and Conversion Instructions: prefetch, prefetchu
__device__ __forceinline__ void prefetch_tensor_map(u64 map_address) {
  asm volatile("prefetch.tensormap [%0];"
      :
      : "l"(map_address)
      : "memory");
}

// One arrival, and the present phase also waits for `bytes` of copies.
// PTX ISA: Parallel Synchronization and Communication Instructions: mbarrier.arrive
__device__ __forceinline__ void mbarrier_arrive_expect_tx(u32 barrier, u32 bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
      :
      : "r"(barrier), "r"(bytes)
      : "memory");
}

// `bytes` (a multiple of 16) between 16-byte aligned addresses; counted on the mbarrier.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.bulk
__device__ __forceinline__ void bulk_copy(u32 dst, const void* src, u32 bytes, u32 barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
      :
      : "r"(dst), "l"(src), "r"(bytes), "r"(barrier)
      : "memory");
}

// The box at input c0 and token c1 of a 2-D map; zeros stand for what lies outside the tensor.
// PTX ISA: Data Movement and Conversion Instructions: cp.async.bulk.tensor
__device__ __forceinline__ void tensor_copy_2d(u32 dst, u64 map_address, int c0, int c1, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
      :
      : "r"(dst), "l"(map_address), "r"(c0), "r"(c1), "r"(barrier)
      : "memory");
}

// Lowers the registers of a thread to 40.
// PTX ISA: Miscellaneous Instructions: setmaxnreg
__device__ __forceinline__ void set_registers_down_40() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"
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

// Waits until the phase of this parity (0 for the first) is complete, and acquires it.
// PTX ISA: Parallel Synchronization and Communication Instructions: mbarrier.test_wait, mbarrier.try_wait
__device__ __forceinline__ void mbarrier_wait(u32 barrier, u32 parity) {
  asm volatile("{ .reg .pred done; again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1; @!done bra again; }"
      :
      : "r"(barrier), "r"(parity)
      : "memory");
}

// Raises the registers of a thread to 232; waits until others have given them back.
// PTX ISA: Miscellaneous Instructions: setmaxnreg
__device__ __forceinline__ void set_registers_up_232() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;"
      :
      :
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

// One arrival where `yes` is not 0, without a branch: ptxas serialises wgmma across one.
// PTX ISA: Parallel Synchronization and Communication Instructions: mbarrier.arrive
__device__ __forceinline__ void mbarrier_arrive_if(u32 barrier, u32 yes) {
  asm volatile("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p mbarrier.arrive.shared::cta.b64 _, [%0]; }"
      :
      : "r"(barrier), "r"(yes)
      : "memory");
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

// Lane 0's value in all lanes; tells ptxas that it fits into a uniform register.
// PTX ISA: Data Movement and Conversion Instructions: shfl.sync
__device__ __forceinline__ u32 warp_uniform(u32 value) {
  u32 d;
  asm volatile("shfl.sync.idx.b32 %0, %1, 0, 31, 0xffffffff;"
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

// d[64 x 128] += a[64 x 16] b[16 x 128]: a in registers, b in shared memory, in 8-row atoms of
// 128 swizzled bytes that follow each other.
// PTX ISA: Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async
__device__ __forceinline__ void wgmma_m64n128k16_swizzled(float (&d)[16][4], const u32 (&a)[4], u32 b) {
  asm volatile("{ .reg .b64 descriptor; mov.b64 descriptor, {%68, 0x40000040}; wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, %66, %67}, descriptor, 1, 1, 1, 0; }"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]), "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]), "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]), "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3]), "+f"(d[8][0]), "+f"(d[8][1]), "+f"(d[8][2]), "+f"(d[8][3]), "+f"(d[9][0]), "+f"(d[9][1]), "+f"(d[9][2]), "+f"(d[9][3]), "+f"(d[10][0]), "+f"(d[10][1]), "+f"(d[10][2]), "+f"(d[10][3]), "+f"(d[11][0]), "+f"(d[11][1]), "+f"(d[11][2]), "+f"(d[11][3]), "+f"(d[12][0]), "+f"(d[12][1]), "+f"(d[12][2]), "+f"(d[12][3]), "+f"(d[13][0]), "+f"(d[13][1]), "+f"(d[13][2]), "+f"(d[13][3]), "+f"(d[14][0]), "+f"(d[14][1]), "+f"(d[14][2]), "+f"(d[14][3]), "+f"(d[15][0]), "+f"(d[15][1]), "+f"(d[15][2]), "+f"(d[15][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b)
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

// Waits until at most 0 of the latest groups are unfinished.
// PTX ISA: Asynchronous Warpgroup Level Matrix Instructions: wgmma.wait_group
__device__ __forceinline__ void wgmma_wait_0() {
  asm volatile("wgmma.wait_group.sync.aligned 0;"
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

// Two bytes of read-only memory, zero-extended.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ u32 ld_global_nc_u16(const void* src) {
  u32 d;
  asm("{ .reg .u16 h; ld.global.nc.u16 h, [%1]; cvt.u32.u16 %0, h; }"
      : "=r"(d)
      : "l"(src));
  return d;
}

// Stores two 8 x 8 matrices of 16-bit values, transposed, to shared memory.
// PTX ISA: Warp-Level Matrix Instructions: stmatrix
__device__ __forceinline__ void store_turned(u32 row, u32 a, u32 b) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};"
      :
      : "r"(row), "r"(a), "r"(b)
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

// Waits at barrier `id` (1 .. 15) for `threads` threads, a multiple of 32, of whole warps.
// PTX ISA: Parallel Synchronization and Communication Instructions: bar, barrier
__device__ __forceinline__ void named_barrier_sync(u32 id, u32 threads) {
  asm volatile("bar.sync %0, %1;"
      :
      : "r"(id), "r"(threads)
      : "memory");
}

// Two words from an 8-byte aligned address.
// PTX ISA: Data Movement and Conversion Instructions: ld
__device__ __forceinline__ void ld_shared_v2(u32& a, u32& b, u32 src) {
  asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
      : "=r"(a), "=r"(b)
      : "r"(src)
      : "memory");
}

// Two words to an 8-byte aligned address.
// PTX ISA: Data Movement and Conversion Instructions: st
__device__ __forceinline__ void st_global_v2(void* dst, u32 a, u32 b) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};"
      :
      : "l"(dst), "r"(a), "r"(b)
      : "memory");
}

// ==== from nibbles to weights ========================================================================

// Eight nibbles of `word` to an A fragment of wgmma: (q - zero) * scale, rounded once. A nibble alone is
// a subnormal number; the scale of its feature, g or g + 8, undoes that. The difference is exact.
__device__ __forceinline__ void dequantize(u32 (&a)[4], u32 word, u32 scales, u32 zeros) {
  a[0] = mul2_by_low(sub2_by_low(word & 0x000f000f, zeros), scales);
  a[1] = mul2_by_high(sub2_by_high(word & 0x00f000f0, zeros), scales);
  word >>= 8;
  a[2] = mul2_by_low(sub2_by_low(word & 0x000f000f, zeros), scales);
  a[3] = mul2_by_high(sub2_by_high(word & 0x00f000f0, zeros), scales);
}

// The same for strips of a wide spread of scales, whatever these are: a nibble q is put into the mantissa
// of a float whose ulp is 1 (0x6400 is 1024; 0x5400 is 64, with an ulp of 1/16, so q << 4 adds q), from
// which the float of the zero point is subtracted. The difference is exact.
__device__ __forceinline__ void dequantize_wide(u32 (&a)[4], u32 word, u32 scales, u32 zeros) {
  a[0] = mul2_by_low(sub2_by_low(pick_low(word), zeros), scales);
  a[1] = mul2_by_high(sub2_by_high(pick_high(word), zeros), scales);
  word >>= 8;
  a[2] = mul2_by_low(sub2_by_low(pick_low(word), zeros), scales);
  a[3] = mul2_by_high(sub2_by_high(pick_high(word), zeros), scales);
}

// 1 / f of a row factor's bits, an fp16 2^12 f: its exponent field e says 2^(e - 15) = 2^12 f, and so 1 / f is
// 2^(15 + 12 - e), an FP32 number of exponent field 127 + 15 + 12 - e.
__device__ __forceinline__ float inverse_factor(u32 factor) {
  return __uint_as_float((127 + 15 + 12 - (factor >> 10 & 31)) << 23);
}

// Pins a register in the compiler's eyes: it is not given away before this point.
__device__ __forceinline__ void keep_alive(u32& value) { asm volatile("" : "+r"(value)::"memory"); }
__device__ __forceinline__ void keep_alive(float& value) { asm volatile("" : "+f"(value)::"memory"); }

struct alignas(64) TensorMap { u64 opaque[16]; };

// ==== the kernel =====================================================================================

extern "C" __global__ void __launch_bounds__(THREADS, 1)
ptxtune_w4a16(const void* __restrict__ x_arg,       // [m, K], rows of ldx elements
              const void* __restrict__ packed_arg,  // the packed weight
              const void* __restrict__ bias_arg,    // [N]
              void* __restrict__ y_arg,             // [m, N], rows of ldy elements
              void* __restrict__ workspace_arg,     // not read
              int m, long long ldx, long long ldy, const __grid_constant__ TensorMap x_map) {
  extern __shared__ __align__(1024) u8 smem[];
  const u8* packed = (const u8*)packed_arg;
  const u8* bias = (const u8*)bias_arg;
  u8* y = (u8*)y_arg;
  const int tid = threadIdx.x, lane = tid % 32, warp = tid / 32;
  const u32 smem_base = shared_address(smem);
  const u32 full = smem_base + BARRIER_OFFSET, empty = full + STAGES * 8;  // an mbarrier a slot
  launch_dependents();

  // ---- this CTA's share ---------------------------------------------------------------------------
  const int m_tiles = (m + BLOCK_M - 1) / BLOCK_M, tiles = m_tiles * N_TILES;
  const int tile_step = gridDim.x * gridDim.y;
  int tile = (int)(blockIdx.x + gridDim.x * blockIdx.y) - tile_step;
  auto next_part = [&] { tile += tile_step; return tile < tiles; };
  constexpr int first_stage = 0, num_stages = K_BLOCKS;
  auto find_tile = [&](int index, int& m_first, int& n_tile) {
    const int first_row = index / (8 * N_TILES) * 8;  // 8 tiles along M go together
    const int rows = max(1, min(8, m_tiles - first_row)), in_group = index - first_row * N_TILES;
    m_first = (first_row + in_group % rows) * BLOCK_M;
    n_tile = in_group / rows;
  };

  // ---- the producer's first weights, and mbarriers --------------------------------------------------
  auto block = [&](int n_tile, int strip, int stage) {  // of packed weights
    return packed + ((u64)(n_tile * TILE_STRIPS + strip) * K_BLOCKS + first_stage + stage) * BLOCK_BYTES;
  };
  if (tid == CONSUMERS && tile + tile_step < tiles) {
    int m_first, n_tile;
    find_tile(tile + tile_step, m_first, n_tile);
#pragma unroll
    for (int strip = 0; strip < TILE_STRIPS; ++strip)
      bulk_prefetch(block(n_tile, strip, 0), BLOCK_BYTES);  // to L2, while barriers are set up
  }
  if (tid == 0) {
    for (int slot = 0; slot < STAGES; ++slot) {
      mbarrier_init(full + slot * 8, 1);
      mbarrier_init(empty + slot * 8, CONSUMER_WARPS);
    }
    fence_mbarrier_init();
    prefetch_tensor_map((u64)&x_map);
  }
  __syncthreads();

  // ---- the producer -------------------------------------------------------------------------------
  auto load_weights = [&](int n_tile, int stage, u32 slot) {
    mbarrier_arrive_expect_tx(full + slot * 8, COPIED_BYTES);
#pragma unroll
    for (int strip = 0; strip < TILE_STRIPS; ++strip)
      bulk_copy(smem_base + slot * STAGE_BYTES + WEIGHTS_OFFSET + strip * BLOCK_BYTES,
                block(n_tile, strip, stage), BLOCK_BYTES, full + slot * 8);
  };
  auto load_x = [&](int m_first, int stage, u32 slot) {
#pragma unroll
    for (int half = 0; half < 2; ++half)
      tensor_copy_2d(smem_base + slot * STAGE_BYTES + half * X_SLAB_BYTES, (u64)&x_map,
                     (first_stage + stage) * BLOCK_K + half * 64, m_first, full + slot * 8);
  };
  if (warp >= CONSUMER_WARPS) {
    set_registers_down_40();
    if (tid == CONSUMERS) {
      u32 slot = 0, parity = 0;
      int m_first, n_tile;
      bool more = next_part();
      if (more) {
        find_tile(tile, m_first, n_tile);
        const int ahead = min(num_stages, STAGES);
        load_weights(n_tile, 0, 0);
        wait_for_previous();  // x belongs to the previous kernel until here
        load_x(m_first, 0, 0);
        for (int stage = 1; stage < ahead; ++stage) {
          load_weights(n_tile, stage, stage);
          load_x(m_first, stage, stage);  // behind all slots' weights it would come last (2-6 %, H200)
        }
        if (ahead == STAGES) parity = 1; else slot = ahead;
        for (int stage = ahead; more; stage = 0) {
          for (; stage < num_stages; ++stage) {
            mbarrier_wait(empty + slot * 8, parity ^ 1);
            load_weights(n_tile, stage, slot);
            load_x(m_first, stage, slot);
            if (++slot == STAGES) slot = 0, parity ^= 1;
          }
          more = next_part();
          find_tile(tile, m_first, n_tile);
        }
      }
    }
    return;
  }

  set_registers_up_232();
  // ---- operands of wgmma ------------------------------------------------------------
  // Descriptor of 8-row atoms of 128 swizzled bytes, 1024 bytes from one to the next
  // (PTX ISA, "Matrix Descriptor Format"); the address is in units of 16 bytes.
  // Its high half is the same everywhere: swizzle (1 << 30) and distance (64 units).
  const u32 x_descriptor = (1u << 16) | (smem_base >> 4);
  const u32 blocks_smem = smem_base + WEIGHTS_OFFSET + warp / 4 * (ROW_BLOCKS * BLOCK_BYTES);
  const u32 weights_smem = blocks_smem + warp % 4 * 1024 + lane * 16;
  u32 words[ROW_BLOCKS][2][4];               // the packed words of a stage
  u32 a[2][CHUNK][ROW_BLOCKS][4] = {};       // fragments of two chunks, in turns
  const u32 scale_smem = blocks_smem + WEIGHT_BYTES + warp % 4 * (GROUPS_PER_BLOCK * 32) + lane / 4 * 4;
  u32 scales[ROW_BLOCKS][GROUPS_PER_BLOCK];  // of features g and g + 8
  const u32 zero_smem = blocks_smem + WEIGHT_BYTES + BLOCK_SCALE_BYTES + warp % 4 * (GROUPS_PER_BLOCK * 8) + lane / 4;
  u32 zeros[ROW_BLOCKS][GROUPS_PER_BLOCK];
  u32 group_scales[ROW_BLOCKS], group_zeros[ROW_BLOCKS];  // what dequantize takes
  auto fetch = [&](u32 slot, int half) {     // 64 of a stage's inputs, and their groups
#pragma unroll
    for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
      const u32 block = slot * STAGE_BYTES + rb * BLOCK_BYTES;
      ld_shared_v4(words[rb][half], weights_smem + block + half * 512);
#pragma unroll
      for (int group = 0; group < GROUPS_PER_BLOCK; ++group) {
        if (group * GROUP_STEPS / 4 != half) continue;
        scales[rb][group] = ld_shared_u32(scale_smem + block + group * 32);
        zeros[rb][group] = ld_shared_u8(zero_smem + block + group * 8);
      }
    }
  };
  auto release = [&](u32 slot, bool yes) {
    __syncwarp();
    mbarrier_arrive_if(empty + slot * 8, yes && lane == 0);
  };
  u32 factors[ROW_BLOCKS];  // what multiplies the scales of features g and g + 8
  auto load_table = [&](int n_tile) {
#pragma unroll
    for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
      const int strip = min(n_tile * TILE_STRIPS + warp / 4 * ROW_BLOCKS + rb, STRIPS - 1);
      factors[rb] = ld_global_nc_u32(packed + TABLE_OFFSET + (strip * 4 + warp % 4) * 32 + lane / 4 * 4);
    }
  };

  // ---- the consumers ------------------------------------------------------------------------------
  wait_for_previous();  // y belongs to the previous kernel until here
  u32 slot = 0, parity = 0;
  int m_first, n_tile;
  auto next_tile = [&] {
    if (!next_part()) return false;
    find_tile(tile, m_first, n_tile);
    load_table(n_tile);
    return true;
  };
  for (bool more = next_tile(); more;) {
    float acc[ROW_BLOCKS][TOKEN_TILES][4] = {};
    // The zeros of the accumulators are written before the first wgmma_fence, not moved behind it.
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES * 4; ++i)
      keep_alive(acc[i / (TOKEN_TILES * 4)][i / 4 % TOKEN_TILES][i % 4]);
    mbarrier_wait(full + slot * 8, parity);
    fetch(slot, 0);
    fetch(slot, 1);
    // Inlined twice, with wide known to the compiler. A generic lambda NVRTC 13.0 takes for a host function.
    auto multiply = [&](const bool wide) __attribute__((always_inline)) {
      for (int stage = 0; stage < num_stages; ++stage) {
        const u32 x_slot = warp_uniform(x_descriptor + slot * (STAGE_BYTES / 16));
        const u32 used_slot = slot;
        if (++slot == STAGES) slot = 0, parity ^= 1;
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
#pragma unroll
          for (int s = 0; s < CHUNK; ++s) {
            const int step = chunk * CHUNK + s;
            if (step % GROUP_STEPS == 0) {  // a new group
#pragma unroll
              for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
                const u32 zero = zeros[rb][step / GROUP_STEPS];
                if (wide) {
                  group_scales[rb] = mul2(scales[rb][step / GROUP_STEPS], mul2(factors[rb] & SIZES, UNSCALE));
                  group_zeros[rb] = zero & 15 | (zero & 240) << 16 | MAGIC;
                  continue;
                }
                const u32 scale = mul2(scales[rb][step / GROUP_STEPS], factors[rb]);
                group_scales[rb] = mul2(scale, NIBBLE_SCALE);
                group_zeros[rb] = zero & 15 | (zero & 240) << 16;
              }
            }
#pragma unroll
            for (int rb = 0; rb < ROW_BLOCKS; ++rb)
              if (wide) dequantize_wide(a[chunk % 2][s][rb], words[rb][step / 4][step % 4], group_scales[rb], group_zeros[rb]);
              else dequantize(a[chunk % 2][s][rb], words[rb][step / 4][step % 4], group_scales[rb], group_zeros[rb]);
          }
          wgmma_fence();
#pragma unroll
          for (int s = 0; s < CHUNK; ++s) {
            const int step = chunk * CHUNK + s;
            const u32 x_tile = x_slot + (step / 4 * X_SLAB_BYTES + step % 4 * 32) / 16;
#pragma unroll
            for (int rb = 0; rb < ROW_BLOCKS; ++rb)
              wgmma_m64n128k16_swizzled(acc[rb], a[chunk % 2][s][rb], x_tile);
          }
          wgmma_commit();
          if (chunk == CHUNKS - 1 && stage + 1 < num_stages) {  // the next words, while this is multiplied
            mbarrier_wait(full + slot * 8, parity);
            fetch(slot, 0);
            fetch(slot, 1);
          }
          wgmma_wait_1();  // the chunk before is done: its registers may be written again
#pragma unroll
          for (int i = 0; i < CHUNK * ROW_BLOCKS * 4; ++i)
            keep_alive(a[(chunk + 1) % 2][i / (ROW_BLOCKS * 4)][i / 4 % ROW_BLOCKS][i % 4]);
          if (chunk == 0) release(used_slot == 0 ? STAGES - 1 : used_slot - 1, stage > 0);
        }
      }
      wgmma_wait_0();
#pragma unroll
      for (int i = 0; i < 2 * CHUNK * ROW_BLOCKS * 4; ++i)
        keep_alive(a[i / (CHUNK * ROW_BLOCKS * 4)][i / (ROW_BLOCKS * 4) % CHUNK][i / 4 % ROW_BLOCKS][i % 4]);
      release(slot == 0 ? STAGES - 1 : slot - 1, true);
    };
    u32 marks = 0;  // of this warpgroup's strips, in the sign of every row factor
#pragma unroll
    for (int rb = 0; rb < ROW_BLOCKS; ++rb) marks |= factors[rb];
    // ptxas knows a vote to be the same in all lanes. From a shuffle it would have both loops synchronise
    // the warp once a stage.
    if (__any_sync(0xffffffff, (int)marks < 0)) multiply(true);
    else multiply(false);
#pragma unroll
    for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES * 4; ++i)
      keep_alive(acc[i / (TOKEN_TILES * 4)][i / 4 % TOKEN_TILES][i % 4]);

    // ---- to y: a warpgroup turns BATCH tiles of 8 tokens x 64 features, then stores whole rows --------
    u32 thread = tid;
    keep_alive(thread);  // what follows is worked out here: in the main loop no register is free for it
    const u32 share = thread / 128, out = smem_base + OUT_OFFSET + share * (BATCH * 1024);
    const int first_feature = n_tile * BLOCK_N + share * (ROW_BLOCKS * 64);
    thread %= 128;
    // The 16-byte pieces of a row are swizzled by the row; of a warp are two of the eight.
    const u32 turned = out + thread % 8 * 128 + ((thread / 32 * 2 + thread / 8 % 2) ^ thread % 8) * 16;
    const int out_row = thread / 16, out_piece = thread % 16;  // of 8 bytes
    const u32 finished = out + out_row * 128 + (out_piece / 2 ^ out_row) * 16 + out_piece % 2 * 8;
    const int out_token = m_first + out_row, out_feature = first_feature + out_piece * 4;
    u8* y_tile = y + 2 * ((u64)out_token * ldy + out_feature);
    const u64 eight_rows = 16 * (u64)ldy;  // bytes of y
    float unit_0[ROW_BLOCKS], unit_8[ROW_BLOCKS];
    float bias_0[ROW_BLOCKS], bias_8[ROW_BLOCKS];
#pragma unroll
    for (int rb = 0; rb < ROW_BLOCKS; ++rb) {
      unit_0[rb] = inverse_factor(factors[rb]), unit_8[rb] = inverse_factor(factors[rb] >> 16);
      const int feature = min(first_feature + rb * 64 + warp % 4 * 16 + lane / 4, N - 1);
      const int feature_8 = min(feature + 8, N - 1);
      unpack_to_float(bias_0[rb], bias_8[rb],
                      ld_global_nc_u16(bias + 2 * feature) | ld_global_nc_u16(bias + 2 * feature_8) << 16);
    }
    auto turn_tile = [&](int rb, int i, float v0, float v1, float v2, float v3) {
      v0 *= unit_0[rb], v1 *= unit_0[rb], v2 *= unit_8[rb], v3 *= unit_8[rb];
      v0 += bias_0[rb], v1 += bias_0[rb], v2 += bias_8[rb], v3 += bias_8[rb];
      store_turned(turned + i * 1024, pack_from_float(v0, v1), pack_from_float(v2, v3));
    };
    auto store_batch = [&](int rb, int first_tile) {
      u32 v[BATCH][2];
      named_barrier_sync(2 + share, 128);  // all features of the rows are there
#pragma unroll
      for (int i = 0; i < BATCH; ++i) ld_shared_v2(v[i][0], v[i][1], finished + i * 1024);
      named_barrier_sync(2 + share, 128);  // the next batch may be turned
      const int token = out_token + first_tile * 8;
      u8* to = y_tile + first_tile * eight_rows + rb * 128;
#pragma unroll
      for (int i = 0; i < BATCH; ++i)
        if (token + i * 8 < m) st_global_v2(to + i * eight_rows, v[i][0], v[i][1]);
    };

    more = next_tile();  // the table's values for it come while this one is stored

#pragma unroll
    for (int i = 0; i < ROW_BLOCKS * TOKEN_TILES; ++i) {
      const int rb = i / TOKEN_TILES, t = i % TOKEN_TILES;
      turn_tile(rb, i % BATCH, acc[rb][t][0], acc[rb][t][1], acc[rb][t][2], acc[rb][t][3]);
      if ((i + 1) % BATCH == 0) store_batch(rb, t + 1 - BATCH);
    }
  }
}
