// Copies x[m, K] box by box through shared memory to y, whose rows and columns are padded to whole
// boxes: zeros there show what the tensor map gives outside of x. Persistent, with a producer and a
// consumer warpgroup on a ring of boxes. BOX_TOKENS, K_TILES and STAGES are declared before.
extern "C" __global__ void __launch_bounds__(256, 1) ptxtune_w4a16(
    const void* x, const void* packed, const void* bias, void* y, void* workspace,
    int m, long long ldx, long long ldy, const __grid_constant__ TensorMap x_map) {
  extern __shared__ __align__(1024) u8 smem[];
  constexpr u32 BOX_BYTES = BOX_TOKENS * 128;
  const u32 base = shared_address(smem);
  const u32 full = base + STAGES * BOX_BYTES, empty = full + STAGES * 8;
  const u32 tiles = (m + BOX_TOKENS - 1) / BOX_TOKENS * K_TILES;
  if (threadIdx.x == 0) {
    for (u32 slot = 0; slot < STAGES; ++slot) {
      mbarrier_init(full + slot * 8, 1);
      mbarrier_init(empty + slot * 8, 128);
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  u32 step = 0;
  if (threadIdx.x < 128) {
    set_registers_down_40();
    if (threadIdx.x == 0) {
      const u64 map = reinterpret_cast<u64>(&x_map);
      prefetch_tensor_map(map);
      for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++step) {
        const u32 slot = step % STAGES, parity = step / STAGES & 1;
        mbarrier_wait(empty + slot * 8, parity ^ 1);
        mbarrier_arrive_expect_tx(full + slot * 8, BOX_BYTES);
        tensor_copy_2d(base + slot * BOX_BYTES, map, tile % K_TILES * 64,
                       tile / K_TILES * BOX_TOKENS, full + slot * 8);
      }
    }
  } else {
    set_registers_up_232();
    for (u32 tile = blockIdx.x; tile < tiles; tile += gridDim.x, ++step) {
      const u32 slot = step % STAGES, parity = step / STAGES & 1;
      mbarrier_wait(full + slot * 8, parity);
      for (u32 i = threadIdx.x - 128; i < BOX_TOKENS * 8; i += 128) {
        const u32 row = i / 8, chunk = i % 8;
        u32 d[4];
        ld_shared_v4(d, base + slot * BOX_BYTES + row * 128 + (chunk ^ row % 8) * 16);
        const long long token = tile / K_TILES * BOX_TOKENS + row;
        u8* to = static_cast<u8*>(y) + (token * ldy + tile % K_TILES * 64 + chunk * 8) * 2;
        *reinterpret_cast<uint4*>(to) = make_uint4(d[0], d[1], d[2], d[3]);
      }
      mbarrier_arrive(empty + slot * 8);
    }
  }
}
