/*
 * A stand-in for libcuda.so.1 that runs W4A16 "kernels" on the CPU, for tests without a GPU.
 * Device memory is host memory. Every launch is checked (bounds, alignment, grid, counters) and
 * computed in double from the packed weight, decoded from the layout's description anew.
 *
 * Environment:
 *   FAKE_CUDA_PROBLEM     "n k group whole_k bf16 zeros bias"
 *   FAKE_CUDA_CAPABILITY  such as 90 (default)
 *   FAKE_CUDA_SMEM        opt-in shared memory of a CTA in bytes (default 232448)
 *   FAKE_CUDA_MODE        ok | no_device | garbage | one_wrong | nan | unwritten | refuse |
 *                         refuse_map
 *   FAKE_CUDA_LOG         file to append one line a call to
 * An image of "\x7f" "ELFFAKE block_m block_n " makes a launch also use the workspace as a split-K
 * kernel does: all counters must be zero, and the partials behind them are overwritten. With
 * "max_ctas box_tokens" behind these two, it is a persistent kernel (where max_ctas > 0) and one
 * that takes a tensor map (where box_tokens > 0): grid and map are checked at every launch.
 */
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID_VALUE = 1, NO_DEVICE = 100, INVALID_CONTEXT = 201, MISALIGNED = 716,
       ILLEGAL_ADDRESS = 700, LAUNCH_FAILED = 719 };

typedef struct image { char magic[4]; int fake, block_m, block_n, max_ctas, box_tokens; } image;
/* This driver's own encoding of a tensor map. */
typedef struct tensor_map {
    char magic[8];
    void *address;
    uint64_t dims[2], stride;
    uint32_t box[2], steps[2];
    int modes[5];
} tensor_map;
typedef struct allocation { char *start; size_t bytes; } allocation;
typedef struct config {
    unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, smem_bytes;
    void *stream;
    void *attributes;
    unsigned num_attributes;
} config;

static allocation allocations[256];
static int num_allocations;
static image images[64];
static int num_images;
static unsigned dynamic_smem[64];
static int primary_context; /* its address is the context */
static void *context_stack[16];
static int context_depth;

static const char *setting(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value == NULL ? otherwise : value;
}

static int mode_is(const char *name) { return strcmp(setting("FAKE_CUDA_MODE", "ok"), name) == 0; }

static void record(const char *format, ...) {
    const char *path = getenv("FAKE_CUDA_LOG");
    va_list values;
    FILE *file;
    if (path == NULL || (file = fopen(path, "a")) == NULL) return;
    va_start(values, format);
    vfprintf(file, format, values);
    va_end(values);
    fputc('\n', file);
    fclose(file);
}

static int has_context(void) { return context_depth > 0 && context_stack[context_depth - 1]; }

int cuInit(unsigned flags) { return flags == 0 ? OK : INVALID_VALUE; }
int cuDriverGetVersion(int *version) { *version = 13000; return OK; }
int cuGetErrorName(int error, const char **text) {
    *text = error == MISALIGNED ? "CUDA_ERROR_MISALIGNED_ADDRESS"
            : error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : error == LAUNCH_FAILED ? "CUDA_ERROR_LAUNCH_FAILED" : "CUDA_ERROR";
    return OK;
}
int cuDeviceGetCount(int *count) { *count = mode_is("no_device") ? 0 : 2; return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return OK; }
int cuDeviceGetName(char *name, int length, int device) {
    snprintf(name, (size_t)length, "Fake GPU %d", device);
    return OK;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    int capability = atoi(setting("FAKE_CUDA_CAPABILITY", "90"));
    (void)device;
    if (attribute == 75) *value = capability / 10;
    else if (attribute == 76) *value = capability % 10;
    else if (attribute == 97) *value = atoi(setting("FAKE_CUDA_SMEM", "232448"));
    else return INVALID_VALUE;
    return OK;
}
int cuDevicePrimaryCtxRetain(void **context, int device) {
    record("retain %d", device);
    *context = &primary_context;
    return OK;
}
int cuDevicePrimaryCtxRelease_v2(int device) { record("release %d", device); return OK; }
int cuCtxGetCurrent(void **context) {
    *context = context_depth > 0 ? context_stack[context_depth - 1] : NULL;
    return OK;
}
int cuCtxPushCurrent_v2(void *context) {
    if (context_depth == 16) return INVALID_CONTEXT;
    context_stack[context_depth++] = context;
    return OK;
}
int cuCtxPopCurrent_v2(void **context) {
    if (context_depth == 0) return INVALID_CONTEXT;
    *context = context_stack[--context_depth];
    return OK;
}
int cuModuleLoadData(void **module, const void *data) {
    image *made = &images[num_images];
    char text[64];
    if (!has_context()) return INVALID_CONTEXT;
    if ((uintptr_t)data % 8 != 0 || memcmp(data, "\x7f" "ELF", 4) != 0) return INVALID_VALUE;
    if (num_images == 64) return INVALID_VALUE;
    memset(made, 0, sizeof *made);
    memcpy(made->magic, data, 4);
    memcpy(text, (const char *)data + 4, 4);
    if (memcmp(text, "FAKE", 4) == 0) {
        memcpy(text, (const char *)data + 8, 32);
        text[32] = 0;
        made->fake = sscanf(text, "%d %d %d %d", &made->block_m, &made->block_n, &made->max_ctas,
                            &made->box_tokens) >= 2;
    }
    record("load %d", num_images);
    num_images++;
    *module = made;
    return OK;
}
int cuModuleUnload(void *module) {
    if (!has_context()) return INVALID_CONTEXT;
    record("unload %d", (int)((image *)module - images));
    return OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
    if (strcmp(name, "ptxtune_w4a16") != 0) return INVALID_VALUE;
    *function = module;
    return OK;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
    int index = (int)((image *)function - images);
    record("attribute %d %d %d", index, attribute, value);
    if (attribute == 8) dynamic_smem[index] = (unsigned)value;
    return OK;
}
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    void *memory = NULL;
    if (!has_context() || num_allocations == 256) return INVALID_CONTEXT;
    if (posix_memalign(&memory, 256, bytes) != 0) return 2;
    memset(memory, 0xAB, bytes); /* device memory is not zero */
    allocations[num_allocations].start = (char *)memory;
    allocations[num_allocations++].bytes = bytes;
    *pointer = (uint64_t)(uintptr_t)memory;
    return OK;
}
int cuMemFree_v2(uint64_t pointer) {
    int i;
    for (i = 0; i < num_allocations; i++)
        if (allocations[i].start == (char *)(uintptr_t)pointer) {
            free(allocations[i].start);
            allocations[i] = allocations[--num_allocations];
            return OK;
        }
    return INVALID_VALUE;
}

/* True where the bytes lie in one allocation. */
static int inside(const void *pointer, size_t bytes) {
    int i;
    for (i = 0; i < num_allocations; i++) {
        const char *start = allocations[i].start, *wanted = (const char *)pointer;
        if (wanted >= start && wanted + bytes <= start + allocations[i].bytes) return 1;
    }
    return 0;
}
int cuMemcpyHtoD_v2(uint64_t target, const void *source, size_t bytes) {
    if (!has_context() || !inside((void *)(uintptr_t)target, bytes)) return INVALID_VALUE;
    memcpy((void *)(uintptr_t)target, source, bytes);
    return OK;
}
int cuMemcpyDtoH_v2(void *target, uint64_t source, size_t bytes) {
    if (!has_context() || !inside((void *)(uintptr_t)source, bytes)) return INVALID_VALUE;
    memcpy(target, (void *)(uintptr_t)source, bytes);
    return OK;
}
int cuMemsetD8Async(uint64_t target, unsigned char value, size_t bytes, void *stream) {
    (void)stream;
    if (!has_context() || !inside((void *)(uintptr_t)target, bytes)) return INVALID_VALUE;
    record("memset %lu", (unsigned long)bytes);
    memset((void *)(uintptr_t)target, value, bytes);
    return OK;
}
int cuStreamCreate(void **stream, unsigned flags) {
    (void)flags;
    *stream = (void *)&context_depth;
    return has_context() ? OK : INVALID_CONTEXT;
}
int cuStreamSynchronize(void *stream) { (void)stream; return has_context() ? OK : INVALID_CONTEXT; }
int cuStreamDestroy_v2(void *stream) { (void)stream; return OK; }
int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = &num_images; return OK; }
int cuEventRecord(void *event, void *stream) { (void)event; (void)stream; return OK; }
int cuEventElapsedTime(float *ms, void *start, void *end) {
    (void)start;
    (void)end;
    *ms = 0.5f;
    return OK;
}
int cuEventDestroy_v2(void *event) { (void)event; return OK; }

/* The limits are those of the CUDA Driver API's text for UINT16 and the 128-byte swizzle. */
int cuTensorMapEncodeTiled(void *to, int type, uint32_t rank, void *address, const uint64_t *dims,
                           const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                           int interleave, int swizzle, int l2_promotion, int oob_fill) {
    tensor_map map;
    if (mode_is("refuse_map") || (uintptr_t)to % 64 != 0 || rank != 2) return INVALID_VALUE;
    if ((uintptr_t)address % 16 != 0 || strides[0] % 16 != 0 || strides[0] >> 40) return INVALID_VALUE;
    if (dims[0] == 0 || dims[1] == 0 || box[0] == 0 || box[1] == 0) return INVALID_VALUE;
    if (box[0] > 256 || box[1] > 256 || (swizzle == 3 && box[0] * 2 > 128)) return INVALID_VALUE;
    memset(to, 0xEE, 128);
    memset(&map, 0, sizeof map);
    memcpy(map.magic, "fakemap", 8);
    map.address = address;
    memcpy(map.dims, dims, sizeof map.dims);
    map.stride = strides[0];
    memcpy(map.box, box, sizeof map.box);
    memcpy(map.steps, steps, sizeof map.steps);
    map.modes[0] = type;
    map.modes[1] = interleave;
    map.modes[2] = swizzle;
    map.modes[3] = l2_promotion;
    map.modes[4] = oob_fill;
    memcpy(to, &map, sizeof map);
    return OK;
}

/* ---- the "kernel" ---- */

typedef struct problem { int n, k, group, whole_k, bf16, zeros, bias; } problem;

static double value_of(uint16_t bits, int bf16) {
    int sign = bits >> 15 ? -1 : 1;
    int exponent = bf16 ? bits >> 7 & 255 : bits >> 10 & 31;
    int mantissa = bf16 ? bits & 127 : bits & 1023;
    int width = bf16 ? 7 : 10, center = bf16 ? 127 : 15;
    if (exponent == 0) return sign * ldexp(mantissa, 1 - center - width);
    return sign * ldexp(mantissa + (1 << width), exponent - center - width);
}

/* Nearest even, by trying both neighbours; normal range only, which the self-test stays in. */
static uint16_t nearest(double value, int bf16) {
    int width = bf16 ? 7 : 10, center = bf16 ? 127 : 15, exponent;
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double fraction = frexp(fabs(value), &exponent), steps;
    if (value == 0.0) return sign;
    exponent -= 1;
    if (exponent < 1 - center) exponent = 1 - center;
    (void)fraction;
    steps = nearbyint(ldexp(fabs(value), width - exponent));
    if (steps >= ldexp(1, width + 1)) {
        steps /= 2;
        exponent += 1;
    }
    if (steps < ldexp(1, width)) return (uint16_t)(sign | (uint16_t)steps);
    return (uint16_t)(sign | (uint16_t)((exponent + center) << width) |
                      (uint16_t)(steps - ldexp(1, width)));
}

/* Weight of output feature f and input i, decoded from the packed tensor. */
static double weight_at(const problem *p, const uint8_t *packed, int f, int i) {
    int k_blocks = (p->k + 127) / 128, strips = (p->n + 63) / 64;
    int per_block = p->whole_k ? 0 : 128 / p->group;
    size_t block_bytes = 4096 + (size_t)per_block * (p->zeros ? 160 : 128);
    const uint8_t *block =
        packed + ((size_t)(f / 64) * (size_t)k_blocks + (size_t)(i / 128)) * block_bytes;
    int r = f % 64 / 16, h = f % 16 / 8, g = f % 8;
    int k64 = i % 128 / 64, step = i % 64 / 16, b = i % 16 / 8, t = i % 8 / 2, c = i % 2;
    const uint8_t *scales, *zeros;
    uint32_t word;
    uint16_t scale;
    int zero = 8, slot;
    memcpy(&word, block + 4 * (((r * 2 + k64) * 32 + 4 * g + t) * 4 + step), 4);
    if (p->whole_k) {
        scales = packed + (size_t)strips * (size_t)k_blocks * block_bytes;
        zeros = scales + (size_t)strips * 128;
        slot = f / 64 * 4 + r;
    } else {
        scales = block + 4096;
        zeros = scales + 128 * per_block;
        slot = r * per_block + i % 128 / p->group;
    }
    memcpy(&scale, scales + 2 * ((slot * 8 + g) * 2 + h), 2);
    if (p->zeros) zero = zeros[slot * 8 + g] >> (4 * h) & 15;
    return ((int)(word >> (4 * (h + 2 * b + 4 * c)) & 15) - zero) * value_of(scale, p->bf16);
}

static size_t packed_bytes(const problem *p) {
    size_t strips = (size_t)(p->n + 63) / 64, blocks = strips * (size_t)((p->k + 127) / 128);
    size_t group = p->zeros ? 160 : 128;
    return p->whole_k ? blocks * 4096 + strips * group
                      : blocks * (4096 + (size_t)(128 / p->group) * group) + (p->bf16 ? 0 : strips * 128 + 16);
}

static void compute(const problem *p, const uint16_t *x, long long ldx, const uint8_t *packed,
                    const uint16_t *bias, uint16_t *y, long long ldy, int m) {
    double *row = (double *)malloc((size_t)p->k * sizeof(double));
    double *xs = (double *)malloc((size_t)m * (size_t)p->k * sizeof(double));
    int f, i, j;
    for (j = 0; j < m; j++)
        for (i = 0; i < p->k; i++) xs[j * p->k + i] = value_of(x[j * ldx + i], p->bf16);
    for (f = 0; f < p->n; f++) {
        for (i = 0; i < p->k; i++) row[i] = weight_at(p, packed, f, i);
        for (j = 0; j < m; j++) {
            double sum = p->bias ? value_of(bias[f], p->bf16) : 0.0;
            for (i = 0; i < p->k; i++) sum += xs[j * p->k + i] * row[i];
            y[j * ldy + f] = nearest(sum, p->bf16);
        }
    }
    free(row);
    free(xs);
}

static size_t tiles_of(const image *kernel, const problem *p, int m) {
    return (size_t)((m + kernel->block_m - 1) / kernel->block_m) *
           (size_t)((p->n + kernel->block_n - 1) / kernel->block_n);
}

static int use_workspace(const image *kernel, const config *c, size_t tiles, char *work) {
    size_t head = (tiles * 4 + 255) / 256 * 256, i;
    size_t partials = tiles * c->grid_z * (size_t)kernel->block_m * (size_t)kernel->block_n * 4;
    if (work == NULL || !inside(work, head + partials)) return ILLEGAL_ADDRESS;
    if ((uintptr_t)work % 16 != 0) return MISALIGNED;
    for (i = 0; i < tiles; i++)
        if (((const uint32_t *)(const void *)work)[i] != 0) {
            record("dirty counter %lu", (unsigned long)i);
            return LAUNCH_FAILED;
        }
    memset(work + head, 0x3C, partials);
    return OK;
}

/* The map by value must be there, and describe this launch's x. */
static int use_map(const image *kernel, const problem *p, const void *x, long long ldx, int m,
                   const void *argument) {
    tensor_map map;
    if ((uintptr_t)argument % 64 != 0) return MISALIGNED;
    memcpy(&map, argument, sizeof map);
    if (memcmp(map.magic, "fakemap", 8) != 0) return INVALID_VALUE;
    record("map dims %lu %lu stride %lu box %u %u steps %u %u modes %d %d %d %d %d",
           (unsigned long)map.dims[0], (unsigned long)map.dims[1], (unsigned long)map.stride,
           map.box[0], map.box[1], map.steps[0], map.steps[1], map.modes[0], map.modes[1],
           map.modes[2], map.modes[3], map.modes[4]);
    if (map.address != x || map.dims[0] != (uint64_t)p->k || map.dims[1] != (uint64_t)m ||
        map.stride != (uint64_t)ldx * 2 || map.box[1] != (uint32_t)kernel->box_tokens)
        return ILLEGAL_ADDRESS;
    return OK;
}

static int walks_all_tiles(const image *kernel, const config *c, size_t tiles) {
    return c->grid_y == 1 && c->grid_x >= 1 && c->grid_x <= tiles &&
           (c->grid_x == 1 || c->grid_x * c->grid_z <= (unsigned)kernel->max_ctas);
}

static void spoil(uint16_t *y, long long ldy, int n, int m) {
    if (mode_is("garbage")) memset(y, 0x35, (size_t)n * 2);
    if (mode_is("one_wrong")) y[(m - 1) * ldy + n - 1] ^= 0x0100;
    if (mode_is("nan")) y[n / 2] = 0x7FFF;
}

int cuLaunchKernelEx(const config *c, void *function, void **arguments, void **extra) {
    const image *kernel = (const image *)function;
    problem p;
    const uint16_t *x = *(const uint16_t **)arguments[0];
    const uint8_t *packed = *(const uint8_t **)arguments[1];
    const uint16_t *bias = *(const uint16_t **)arguments[2];
    uint16_t *y = *(uint16_t **)arguments[3];
    char *work = *(char **)arguments[4];
    int m = *(int *)arguments[5], code;
    long long ldx = *(long long *)arguments[6], ldy = *(long long *)arguments[7];
    int attribute = 0, allowed = 0;
    size_t tiles;
    if (!has_context()) return INVALID_CONTEXT;
    if (mode_is("refuse") || extra != NULL) return INVALID_VALUE;
    if (sscanf(setting("FAKE_CUDA_PROBLEM", ""), "%d %d %d %d %d %d %d", &p.n, &p.k, &p.group,
               &p.whole_k, &p.bf16, &p.zeros, &p.bias) != 7)
        return INVALID_VALUE;
    if (c->num_attributes == 1) {
        memcpy(&attribute, c->attributes, 4);
        memcpy(&allowed, (const char *)c->attributes + 8, 4);
    }
    record("launch %d grid %u %u %u block %u %u %u smem %u m %d ldx %lld ldy %lld pdl %d",
           (int)(kernel - images), c->grid_x, c->grid_y, c->grid_z, c->block_x, c->block_y,
           c->block_z, c->smem_bytes, m, ldx, ldy, attribute == 6 && allowed == 1);
    if (c->smem_bytes > 49152 && dynamic_smem[kernel - images] < c->smem_bytes) return INVALID_VALUE;
    if (c->grid_y > 65535 || c->grid_z > 65535) return INVALID_VALUE;
    if ((uintptr_t)x % 16 || (uintptr_t)packed % 16 || (uintptr_t)y % 8 || (uintptr_t)bias % 8 ||
        ldx % 8 || ldy % 4)
        return MISALIGNED;
    if (m <= 0 || !inside(x, ((size_t)(m - 1) * (size_t)ldx + (size_t)p.k) * 2) ||
        !inside(y, ((size_t)(m - 1) * (size_t)ldy + (size_t)p.n) * 2) ||
        !inside(packed, packed_bytes(&p)) || (p.bias && !inside(bias, (size_t)p.n * 2)))
        return ILLEGAL_ADDRESS;
    tiles = kernel->fake ? tiles_of(kernel, &p, m) : 0;
    if (kernel->fake && kernel->max_ctas > 0 && !walks_all_tiles(kernel, c, tiles))
        return INVALID_VALUE;
    if (kernel->fake && kernel->box_tokens > 0 &&
        (code = use_map(kernel, &p, x, ldx, m, arguments[8])) != OK)
        return code;
    if (kernel->fake && c->grid_z > 1 && (code = use_workspace(kernel, c, tiles, work)) != OK)
        return code;
    if (mode_is("unwritten")) return OK;
    compute(&p, x, ldx, packed, bias, y, ldy, m);
    spoil(y, ldy, p.n, m);
    return OK;
}
