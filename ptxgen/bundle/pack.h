/* Part 2: packing a quantized weight on the host, the same in every ptxtune bundle. */
#ifndef PTXTUNE_PACK_VERSION
#define PTXTUNE_PACK_VERSION 3

/* The layout in words stands in manifest.json, packed_layout. */

static inline int ptxtune_groups_per_block(const ptxtune_bundle *bundle) {
    return bundle->whole_k ? 0 : 128 / bundle->group_size;
}

/* Bytes of a block of 64 output features x 128 inputs. */
static inline size_t ptxtune_block_bytes(const ptxtune_bundle *bundle) {
    return 4096 + (size_t)ptxtune_groups_per_block(bundle) * (bundle->zeros ? 160u : 128u);
}

static inline size_t ptxtune_num_blocks(const ptxtune_bundle *bundle) {
    return (size_t)((bundle->n + 63) / 64) * (size_t)((bundle->k + 127) / 128);
}

/* FP16 weights in groups have a table of row factors after the last block, and a tag behind it. */
static inline int ptxtune_has_factors(const ptxtune_bundle *bundle) {
    return !bundle->whole_k && !bundle->bf16;
}

static inline size_t ptxtune_packed_bytes(const ptxtune_bundle *bundle) {
    size_t tables = bundle->whole_k ? 128 + (bundle->zeros ? 32 : 0)
                                    : (ptxtune_has_factors(bundle) ? 128 : 0);
    return ptxtune_num_blocks(bundle) * ptxtune_block_bytes(bundle) +
           (size_t)((bundle->n + 63) / 64) * tables + (ptxtune_has_factors(bundle) ? 16 : 0);
}

static inline int ptxtune_groups(const ptxtune_bundle *bundle) {
    return bundle->k / bundle->group_size;
}

/* What a kernel may assume of a padded element: zero point 8 and scale 0, or the row's own zero
   point where the group is the whole K. */
static inline unsigned ptxtune_zero_at(const ptxtune_bundle *bundle, const uint8_t *zeros, int row,
                                       int group) {
    int groups = ptxtune_groups(bundle);
    if (!bundle->zeros || row >= bundle->n || group >= groups) return 8;
    return zeros[(size_t)row * (size_t)groups + (size_t)group];
}

static inline unsigned ptxtune_code_at(const ptxtune_bundle *bundle, const uint8_t *codes,
                                       const uint8_t *zeros, int row, int input) {
    if (row < bundle->n && input < bundle->k)
        return codes[(size_t)row * (size_t)bundle->k + (size_t)input];
    return bundle->whole_k ? ptxtune_zero_at(bundle, zeros, row, 0) : 8;
}

/* Scales and zero bytes of one group of a strip: 64 scales, pairs (g, g + 8); 32 zero bytes. */
static inline void ptxtune_pack_group(const ptxtune_bundle *bundle, const uint16_t *scales,
                                      const uint8_t *zeros, int row0, int group,
                                      uint8_t *scale_out, uint8_t *zero_out) {
    int groups = ptxtune_groups(bundle), g, h;
    for (g = 0; g < 8; g++) {
        for (h = 0; h < 2; h++) {
            int row = row0 + g + 8 * h;
            int inside = row < bundle->n && group < groups;
            uint16_t scale =
                inside ? scales[(size_t)row * (size_t)groups + (size_t)group] : (uint16_t)0;
            memcpy(scale_out + 4 * g + 2 * h, &scale, 2);
        }
        if (bundle->zeros)
            zero_out[g] = (uint8_t)(ptxtune_zero_at(bundle, zeros, row0 + g, group) |
                                    ptxtune_zero_at(bundle, zeros, row0 + g + 8, group) << 4);
    }
}

static inline uint32_t ptxtune_pack_word(const ptxtune_bundle *bundle, const uint8_t *codes,
                                         const uint8_t *zeros, int row0, int input0, int lane) {
    uint32_t word = 0;
    int i;
    for (i = 0; i < 8; i++) {
        int row = row0 + lane / 4 + 8 * (i % 2);
        int input = input0 + 2 * (lane % 4) + 8 * (i / 2 % 2) + i / 4;
        word |= (uint32_t)ptxtune_code_at(bundle, codes, zeros, row, input) << (4 * i);
    }
    return word;
}

/* The row factor of a feature: what brings the row's largest scale to 2^-9..2^-8. Where the others
   spread too far for that the row is wide, and has a factor that leaves its weights as they are. */
static inline unsigned ptxtune_row_factor(const ptxtune_bundle *bundle, const uint16_t *scales, int row,
                                          int *wide) {
    int groups = ptxtune_groups(bundle), largest = 0, smallest = 31, group;
    for (group = 0; row < bundle->n && group < groups; group++) {
        int size = scales[(size_t)row * (size_t)groups + (size_t)group] & 0x7fff;
        if (size >> 10 > largest) largest = size >> 10;
        if (size && size >> 10 < smallest) smallest = size >> 10;
    }
    if (33 - largest >= 27 || largest - smallest <= 5)
        return (unsigned)(33 - largest < 30 ? 33 - largest : 30) << 10;
    *wide = 1;
    return (largest >= 27 && smallest >= 5 ? 23u : 27u) << 10;
}

/* Row factors of a strip: [16 features][g 0..7][2], pairs (g, g + 8), negative where a row is wide. */
static inline int ptxtune_pack_factors(const ptxtune_bundle *bundle, const uint16_t *scales, int row0,
                                       uint8_t *out) {
    int wide = 0, i;
    uint16_t factors[64];
    for (i = 0; i < 64; i++)
        factors[i] = (uint16_t)ptxtune_row_factor(bundle, scales, row0 + i, &wide);
    for (i = 0; i < 64; i++) {
        uint16_t factor = (uint16_t)(factors[i] | (wide ? 0x8000 : 0));
        memcpy(out + 32 * (i / 16) + 4 * (i % 8) + 2 * (i / 8 % 2), &factor, 2);
    }
    return wide;
}

/*
 * Packs a quantized weight, w[n][k] = (codes[n][k] - zeros[n][group]) * scales[n][group], into
 * ptxtune_packed_bytes of host memory.
 *
 * codes: [N][K], one value 0..15 a byte.
 * scales: [N][groups], FP16 or BF16 bits as the bundle's dtype.
 * zeros: [N][groups], 0..15 a byte; ignored where the bundle is symmetric.
 */
static inline void ptxtune_pack(const ptxtune_bundle *bundle, const uint8_t *codes,
                                const uint16_t *scales, const uint8_t *zeros, void *packed) {
    const int strips = (bundle->n + 63) / 64, k_blocks = (bundle->k + 127) / 128;
    const int per_block = ptxtune_groups_per_block(bundle);
    const size_t block_bytes = ptxtune_block_bytes(bundle);
    uint8_t *tables = (uint8_t *)packed + ptxtune_num_blocks(bundle) * block_bytes;
    int strip, block, rows, k64, lane, step, group;
    for (strip = 0; strip < strips; strip++)
        for (block = 0; block < k_blocks; block++) {
            uint8_t *out = (uint8_t *)packed +
                           ((size_t)strip * (size_t)k_blocks + (size_t)block) * block_bytes;
            for (rows = 0; rows < 4; rows++)
                for (k64 = 0; k64 < 2; k64++)
                    for (lane = 0; lane < 32; lane++)
                        for (step = 0; step < 4; step++) {
                            uint32_t word = ptxtune_pack_word(
                                bundle, codes, zeros, strip * 64 + rows * 16,
                                block * 128 + k64 * 64 + step * 16, lane);
                            memcpy(out + (((rows * 2 + k64) * 32 + lane) * 4 + step) * 4, &word, 4);
                        }
            for (rows = 0; rows < 4; rows++)
                for (group = 0; group < per_block; group++) {
                    uint8_t *scale_out = out + 4096 + (rows * per_block + group) * 32;
                    uint8_t *zero_out = out + 4096 + per_block * 128 + (rows * per_block + group) * 8;
                    ptxtune_pack_group(bundle, scales, zeros, strip * 64 + rows * 16,
                                       block * per_block + group, scale_out, zero_out);
                }
        }
    if (ptxtune_has_factors(bundle)) {
        uint32_t tag[4] = {PTXTUNE_PACK_VERSION, 0, 0, 0};
        for (strip = 0; strip < strips; strip++)
            tag[1] += (uint32_t)ptxtune_pack_factors(bundle, scales, strip * 64,
                                                     tables + (size_t)strip * 128);
        memcpy(tables + (size_t)strips * 128, tag, 16);
    }
    if (!bundle->whole_k) return;
    for (strip = 0; strip < strips; strip++)
        for (rows = 0; rows < 4; rows++)
            ptxtune_pack_group(bundle, scales, zeros, strip * 64 + rows * 16, 0,
                               tables + (size_t)(strip * 4 + rows) * 32,
                               tables + (size_t)strips * 128 + (size_t)(strip * 4 + rows) * 8);
}

/* ---- The self-test's inputs: the formula stands in manifest.json, self_test. ---- */

static inline uint32_t ptxtune_hash(uint32_t stream, uint32_t index) {
    uint32_t h = index * 0x9E3779B1u + stream * 0x85EBCA77u + 1u;
    h ^= h >> 16;
    h *= 0x7FEB352Du;
    h ^= h >> 15;
    h *= 0x846CA68Bu;
    h ^= h >> 16;
    return h;
}

#endif /* PTXTUNE_PACK_VERSION */
