/*
 * Part 1: the runtime, the same in every ptxtune bundle. It loads the CUDA driver (libcuda.so.1)
 * itself, so it builds with a plain C99 or C++ compiler and without the CUDA toolkit:
 *
 *     cc -O2 program.c -o program -ldl
 *
 * Usage:
 *     ptxtune_context ctx;
 *     ptxtune_workspace ws;
 *     ptxtune_open(&ctx, &<bundle of part 3>, 0);
 *     ptxtune_pack(&<bundle>, codes, scales, zeros, packed);            (host, once a weight)
 *     ptxtune_init_workspace(&ctx, &ws, device_memory, bytes, m_cap, stream);      (once)
 *     ptxtune_launch(&ctx, x, ldx, packed, bias, y, ldy, m, &ws, stream, 0);
 *     ptxtune_close(&ctx);
 * Every function returns PTXTUNE_OK or an error code; ptxtune_message(&ctx) says what happened.
 * Pointers named x, packed, bias, y and the workspace's memory are device pointers. Launches are
 * asynchronous, allocate nothing and may be captured in a CUDA graph. A context may be used by
 * several threads at once; a workspace must not be used by two launches at once.
 */
#ifndef PTXTUNE_RUNTIME_VERSION
#define PTXTUNE_RUNTIME_VERSION 4

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PTXTUNE_MAX_BUCKETS 32
#define PTXTUNE_X_ALIGN 16 /* bytes; of x and packed */
#define PTXTUNE_Y_ALIGN 8  /* bytes; of y and bias */
#define PTXTUNE_LDX_MULTIPLE 8
#define PTXTUNE_LDY_MULTIPLE 4
#define PTXTUNE_WORKSPACE_ALIGN 256
#define PTXTUNE_MAP_BYTES 128
#define PTXTUNE_MAP_ALIGN 64
#define PTXTUNE_CHAINED 1u /* flag: launch as a programmatic dependent of the kernel before it */

enum {
    PTXTUNE_OK = 0,
    PTXTUNE_ERROR_NO_DRIVER = 1,
    PTXTUNE_ERROR_NO_DEVICE = 2,
    PTXTUNE_ERROR_ARCH = 3,
    PTXTUNE_ERROR_DRIVER_CALL = 4,
    PTXTUNE_ERROR_ARGUMENT = 5,
    PTXTUNE_ERROR_ALIGNMENT = 6,
    PTXTUNE_ERROR_WORKSPACE = 7
};

/* One kernel, and how to launch it. Sizes as in manifest.json. */
typedef struct ptxtune_bucket {
    int m_max;
    unsigned threads;
    unsigned smem_bytes;
    int block_m;
    int block_n;
    int n_tiles;
    int split_k;
    int pdl;
    int cluster_k; /* above 1 CTAs reduce in a cluster, which the cubin states, not in a workspace */
    int max_ctas;   /* above 0: a persistent kernel, whose CTAs walk the tiles */
    int stream_k;   /* the CTAs of a persistent kernel share the last tiles along K */
    int box_inputs; /* above 0: the kernel takes a tensor map of x with this box */
    int box_tokens;
    int self_test_m;
    const uint64_t *cubin; /* 64-bit words, so that the image is aligned */
} ptxtune_bucket;

/* Everything about one exported problem. */
typedef struct ptxtune_bundle {
    const char *name;
    const char *entry;
    const char *arch;
    int cc_major;
    int cc_minor;
    int cc_exact; /* the cubin runs on exactly this compute capability */
    int n;
    int k;
    int group_size;
    int whole_k; /* one group a row */
    int bf16;    /* else FP16 */
    int zeros;   /* integer zero points, else symmetric (8) */
    int bias;
    int num_buckets;
    const ptxtune_bucket *buckets;
    int self_test_rows;
    float self_test_rel_tolerance;
    float self_test_abs_tolerance;
} ptxtune_bundle;

/* The driver's launch structures (cuda.h: CUlaunchAttribute, CUlaunchConfig). */
typedef struct ptxtune_launch_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        int value;
        uint64_t align;
    } value;
} ptxtune_launch_attribute;

typedef struct ptxtune_launch_config {
    unsigned grid_x, grid_y, grid_z;
    unsigned block_x, block_y, block_z;
    unsigned smem_bytes;
    void *stream;
    ptxtune_launch_attribute *attributes;
    unsigned num_attributes;
} ptxtune_launch_config;

#define PTXTUNE_CU_ATTRIBUTE_SMEM_OPTIN 97
#define PTXTUNE_CU_ATTRIBUTE_CC_MAJOR 75
#define PTXTUNE_CU_ATTRIBUTE_CC_MINOR 76
#define PTXTUNE_CU_FUNC_MAX_DYNAMIC_SMEM 8
#define PTXTUNE_CU_FUNC_SMEM_CARVEOUT 9
#define PTXTUNE_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION 6
#define PTXTUNE_CU_TENSOR_MAP_UINT16 1
#define PTXTUNE_CU_TENSOR_MAP_INTERLEAVE_NONE 0
#define PTXTUNE_CU_TENSOR_MAP_SWIZZLE_128B 3
#define PTXTUNE_CU_TENSOR_MAP_L2_PROMOTION_256B 3
#define PTXTUNE_CU_TENSOR_MAP_OOB_FILL_ZERO 0

/* Driver functions: F(member, exported name, arguments). All return a CUresult as int. */
#define PTXTUNE_DRIVER_FUNCTIONS(F)                                                          \
    F(init, "cuInit", (unsigned flags))                                                      \
    F(driver_get_version, "cuDriverGetVersion", (int *version))                              \
    F(get_error_name, "cuGetErrorName", (int error, const char **text))                      \
    F(device_get_count, "cuDeviceGetCount", (int *count))                                    \
    F(device_get, "cuDeviceGet", (int *device, int ordinal))                                 \
    F(device_get_name, "cuDeviceGetName", (char *name, int length, int device))              \
    F(device_get_attribute, "cuDeviceGetAttribute", (int *value, int attribute, int device)) \
    F(primary_ctx_retain, "cuDevicePrimaryCtxRetain", (void **context, int device))          \
    F(primary_ctx_release, "cuDevicePrimaryCtxRelease_v2", (int device))                     \
    F(ctx_get_current, "cuCtxGetCurrent", (void **context))                                  \
    F(ctx_push_current, "cuCtxPushCurrent_v2", (void *context))                              \
    F(ctx_pop_current, "cuCtxPopCurrent_v2", (void **context))                               \
    F(module_load_data, "cuModuleLoadData", (void **module, const void *image))              \
    F(module_unload, "cuModuleUnload", (void *module))                                       \
    F(module_get_function, "cuModuleGetFunction",                                            \
      (void **function, void *module, const char *name))                                     \
    F(func_set_attribute, "cuFuncSetAttribute", (void *function, int attribute, int value))  \
    F(launch_kernel_ex, "cuLaunchKernelEx",                                                  \
      (const ptxtune_launch_config *config, void *function, void **arguments, void **extra)) \
    F(tensor_map_encode_tiled, "cuTensorMapEncodeTiled",                                     \
      (void *map, int type, uint32_t rank, void *address, const uint64_t *dims,              \
       const uint64_t *strides, const uint32_t *box, const uint32_t *steps, int interleave,  \
       int swizzle, int l2_promotion, int oob_fill))                                         \
    F(mem_alloc, "cuMemAlloc_v2", (uint64_t *pointer, size_t bytes))                         \
    F(mem_free, "cuMemFree_v2", (uint64_t pointer))                                          \
    F(memcpy_htod, "cuMemcpyHtoD_v2", (uint64_t target, const void *source, size_t bytes))   \
    F(memcpy_dtoh, "cuMemcpyDtoH_v2", (void *target, uint64_t source, size_t bytes))         \
    F(memset_d8_async, "cuMemsetD8Async",                                                    \
      (uint64_t target, unsigned char value, size_t bytes, void *stream))                    \
    F(stream_create, "cuStreamCreate", (void **stream, unsigned flags))                      \
    F(stream_synchronize, "cuStreamSynchronize", (void *stream))                             \
    F(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                  \
    F(event_create, "cuEventCreate", (void **event, unsigned flags))                         \
    F(event_record, "cuEventRecord", (void *event, void *stream))                            \
    F(event_elapsed_time, "cuEventElapsedTime", (float *ms, void *start, void *end))         \
    F(event_destroy, "cuEventDestroy_v2", (void *event))

typedef struct ptxtune_driver {
    void *library;
#define PTXTUNE_MEMBER(member, name, arguments) int(*member) arguments;
    PTXTUNE_DRIVER_FUNCTIONS(PTXTUNE_MEMBER)
#undef PTXTUNE_MEMBER
} ptxtune_driver;

typedef struct ptxtune_context {
    const ptxtune_bundle *bundle;
    int device;
    void *cuda_context; /* the device's primary context */
    void *modules[PTXTUNE_MAX_BUCKETS];
    void *functions[PTXTUNE_MAX_BUCKETS];
    ptxtune_driver driver;
    int cuda_result; /* CUresult of the last failed driver call */
    char message[512];
} ptxtune_context;

typedef struct ptxtune_workspace {
    void *data; /* device memory; NULL where no bucket needs any */
    size_t counter_bytes;
    int m_cap; /* largest batch it serves */
} ptxtune_workspace;

static inline const char *ptxtune_error_string(int code) {
    switch (code) {
    case PTXTUNE_OK: return "no error";
    case PTXTUNE_ERROR_NO_DRIVER: return "the CUDA driver is missing or too old";
    case PTXTUNE_ERROR_NO_DEVICE: return "there is no such CUDA device";
    case PTXTUNE_ERROR_ARCH: return "the kernels were built for another GPU";
    case PTXTUNE_ERROR_DRIVER_CALL: return "a CUDA driver call failed";
    case PTXTUNE_ERROR_ARGUMENT: return "an argument is out of range";
    case PTXTUNE_ERROR_ALIGNMENT: return "a pointer or a row stride is misaligned";
    case PTXTUNE_ERROR_WORKSPACE: return "the workspace is missing, misaligned or too small";
    default: return "unknown error code";
    }
}

static inline const char *ptxtune_message(const ptxtune_context *ctx) { return ctx->message; }

static inline int ptxtune_fail(ptxtune_context *ctx, int code, const char *text, long long value,
                               long long limit) {
    snprintf(ctx->message, sizeof ctx->message, "%s: ", ptxtune_error_string(code));
    {
        size_t used = strlen(ctx->message);
        snprintf(ctx->message + used, sizeof ctx->message - used, text, value, limit);
    }
    return code;
}

static inline int ptxtune_check(ptxtune_context *ctx, int result, const char *call) {
    const char *name = NULL;
    if (result == 0) return PTXTUNE_OK;
    ctx->cuda_result = result;
    if (ctx->driver.get_error_name(result, &name) != 0 || name == NULL) name = "CUresult";
    snprintf(ctx->message, sizeof ctx->message, "%s: %s returned %s (%d).",
             ptxtune_error_string(PTXTUNE_ERROR_DRIVER_CALL), call, name, result);
    return PTXTUNE_ERROR_DRIVER_CALL;
}

static inline int ptxtune_load_driver(ptxtune_context *ctx) {
    ptxtune_driver *driver = &ctx->driver;
    driver->library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (driver->library == NULL) {
        snprintf(ctx->message, sizeof ctx->message, "%s: %s. Install the NVIDIA driver.",
                 ptxtune_error_string(PTXTUNE_ERROR_NO_DRIVER), dlerror());
        return PTXTUNE_ERROR_NO_DRIVER;
    }
    /* POSIX lets dlsym's object pointer become a function pointer this way; ISO C has no cast. */
#define PTXTUNE_RESOLVE(member, name, arguments)                                              \
    *(void **)(&driver->member) = dlsym(driver->library, name);                               \
    if (driver->member == NULL) {                                                             \
        snprintf(ctx->message, sizeof ctx->message,                                           \
                 "%s: it has no %s; a driver of CUDA 12.0 or newer has.",                     \
                 ptxtune_error_string(PTXTUNE_ERROR_NO_DRIVER), name);                        \
        dlclose(driver->library);                                                             \
        driver->library = NULL;                                                               \
        return PTXTUNE_ERROR_NO_DRIVER;                                                       \
    }
    PTXTUNE_DRIVER_FUNCTIONS(PTXTUNE_RESOLVE)
#undef PTXTUNE_RESOLVE
    return PTXTUNE_OK;
}

static inline int ptxtune_check_device(ptxtune_context *ctx, int ordinal) {
    const ptxtune_bundle *bundle = ctx->bundle;
    int count = 0, major = 0, minor = 0, smem = 0, i, code;
    if ((code = ptxtune_check(ctx, ctx->driver.init(0), "cuInit")) != 0) return code;
    code = ptxtune_check(ctx, ctx->driver.device_get_count(&count), "cuDeviceGetCount");
    if (code != 0) return code;
    if (ordinal < 0 || ordinal >= count)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_NO_DEVICE, "device %lld of %lld devices.", ordinal,
                            count);
    code = ptxtune_check(ctx, ctx->driver.device_get(&ctx->device, ordinal), "cuDeviceGet");
    if (code != 0) return code;
    ctx->driver.device_get_attribute(&major, PTXTUNE_CU_ATTRIBUTE_CC_MAJOR, ctx->device);
    ctx->driver.device_get_attribute(&minor, PTXTUNE_CU_ATTRIBUTE_CC_MINOR, ctx->device);
    ctx->driver.device_get_attribute(&smem, PTXTUNE_CU_ATTRIBUTE_SMEM_OPTIN, ctx->device);
    if (major != bundle->cc_major || minor < bundle->cc_minor ||
        (bundle->cc_exact && minor != bundle->cc_minor)) {
        snprintf(ctx->message, sizeof ctx->message,
                 "%s: they are for %s, and device %d has compute capability %d.%d. Tune and "
                 "export on that GPU.",
                 ptxtune_error_string(PTXTUNE_ERROR_ARCH), bundle->arch, ordinal, major, minor);
        return PTXTUNE_ERROR_ARCH;
    }
    for (i = 0; i < bundle->num_buckets; i++)
        if (bundle->buckets[i].smem_bytes > (unsigned)smem)
            return ptxtune_fail(ctx, PTXTUNE_ERROR_ARCH,
                                "a kernel needs %lld bytes of shared memory and this device has "
                                "%lld. Tune and export on this GPU.",
                                bundle->buckets[i].smem_bytes, smem);
    return PTXTUNE_OK;
}

static inline int ptxtune_load_buckets(ptxtune_context *ctx) {
    const ptxtune_bundle *bundle = ctx->bundle;
    int i, code;
    for (i = 0; i < bundle->num_buckets; i++) {
        const ptxtune_bucket *bucket = &bundle->buckets[i];
        code = ptxtune_check(ctx, ctx->driver.module_load_data(&ctx->modules[i], bucket->cubin),
                             "cuModuleLoadData");
        if (code != 0) return code;
        code = ptxtune_check(ctx, ctx->driver.module_get_function(&ctx->functions[i],
                                                                 ctx->modules[i], bundle->entry),
                             "cuModuleGetFunction");
        if (code != 0) return code;
        code = ptxtune_check(ctx, ctx->driver.func_set_attribute(ctx->functions[i],
                                                                PTXTUNE_CU_FUNC_MAX_DYNAMIC_SMEM,
                                                                (int)bucket->smem_bytes),
                             "cuFuncSetAttribute");
        if (code != 0) return code;
        /* All of L1 as shared memory, so that a successor kernel can become resident beside this
           one; a hint, so its result does not matter. */
        ctx->driver.func_set_attribute(ctx->functions[i], PTXTUNE_CU_FUNC_SMEM_CARVEOUT, 100);
    }
    return PTXTUNE_OK;
}

/* Releases what ptxtune_open took; harmless on a context that failed to open or is closed. */
static inline void ptxtune_close(ptxtune_context *ctx) {
    int i;
    if (ctx->driver.library == NULL) return;
    if (ctx->cuda_context != NULL && ctx->driver.ctx_push_current(ctx->cuda_context) == 0) {
        void *popped = NULL;
        for (i = 0; i < PTXTUNE_MAX_BUCKETS; i++)
            if (ctx->modules[i] != NULL) ctx->driver.module_unload(ctx->modules[i]);
        ctx->driver.ctx_pop_current(&popped);
    }
    if (ctx->cuda_context != NULL) ctx->driver.primary_ctx_release(ctx->device);
    dlclose(ctx->driver.library);
    memset(ctx->modules, 0, sizeof ctx->modules);
    ctx->cuda_context = NULL;
    ctx->driver.library = NULL;
}

/* Loads a bundle's kernels into the primary context of a device (which the CUDA runtime API and
   PyTorch use as well). On an error nothing stays open. */
static inline int ptxtune_open(ptxtune_context *ctx, const ptxtune_bundle *bundle, int device) {
    void *popped = NULL;
    int code;
    memset(ctx, 0, sizeof *ctx);
    ctx->bundle = bundle;
    code = ptxtune_load_driver(ctx);
    if (code == PTXTUNE_OK) code = ptxtune_check_device(ctx, device);
    if (code == PTXTUNE_OK)
        code = ptxtune_check(ctx, ctx->driver.primary_ctx_retain(&ctx->cuda_context, ctx->device),
                             "cuDevicePrimaryCtxRetain");
    if (code == PTXTUNE_OK)
        code = ptxtune_check(ctx, ctx->driver.ctx_push_current(ctx->cuda_context),
                             "cuCtxPushCurrent");
    if (code == PTXTUNE_OK) {
        code = ptxtune_load_buckets(ctx);
        ctx->driver.ctx_pop_current(&popped);
    }
    if (code != PTXTUNE_OK) ptxtune_close(ctx);
    return code;
}

/* Index of the bucket of a batch: the first with m_max >= m, else the last. */
static inline int ptxtune_bucket_index(const ptxtune_bundle *bundle, int m) {
    int i = 0;
    while (i + 1 < bundle->num_buckets && bundle->buckets[i].m_max < m) i++;
    return i;
}

static inline int64_t ptxtune_m_tiles(const ptxtune_bucket *bucket, int m) {
    return ((int64_t)m + bucket->block_m - 1) / bucket->block_m;
}

static inline int64_t ptxtune_tiles(const ptxtune_bucket *bucket, int m) {
    return ptxtune_m_tiles(bucket, m) * bucket->n_tiles;
}

static inline void ptxtune_grid(const ptxtune_bucket *bucket, int m,
                                ptxtune_launch_config *config) {
    const int64_t tiles = ptxtune_tiles(bucket, m);
    const int64_t walkers = bucket->max_ctas / bucket->split_k;
    config->grid_z = (unsigned)bucket->split_k;
    if (bucket->max_ctas > 0) {
        const int64_t most = walkers > 1 ? walkers : 1;
        config->grid_x = (unsigned)(tiles < most && !bucket->stream_k ? tiles : most);
        config->grid_y = 1;
    } else {
        config->grid_x = (unsigned)ptxtune_m_tiles(bucket, m);
        config->grid_y = (unsigned)bucket->n_tiles;
    }
}

static inline int ptxtune_has_workspace(const ptxtune_bucket *bucket, int m) {
    return m > 0 && (bucket->stream_k || (bucket->split_k > 1 && bucket->cluster_k == 1));
}

static inline size_t ptxtune_counter_bytes(const ptxtune_bucket *bucket, int m) {
    if (!ptxtune_has_workspace(bucket, m)) return 0;
    return ((size_t)ptxtune_tiles(bucket, m) * 4 + PTXTUNE_WORKSPACE_ALIGN - 1) /
           PTXTUNE_WORKSPACE_ALIGN * PTXTUNE_WORKSPACE_ALIGN;
}

static inline size_t ptxtune_partial_bytes(const ptxtune_bucket *bucket, int m) {
    int64_t parts;
    if (!ptxtune_has_workspace(bucket, m)) return 0;
    parts = bucket->stream_k ? 2 * (int64_t)bucket->max_ctas
                             : ptxtune_tiles(bucket, m) * bucket->split_k;
    return (size_t)parts * (size_t)bucket->block_m * (size_t)bucket->block_n * 4;
}

/* The largest counter and partial regions over every batch of up to m_cap. */
static inline void ptxtune_workspace_regions(const ptxtune_bundle *bundle, int m_cap,
                                             size_t *counters, size_t *partials) {
    int i;
    *counters = *partials = 0;
    for (i = 0; i < bundle->num_buckets; i++) {
        const ptxtune_bucket *bucket = &bundle->buckets[i];
        int last = i + 1 == bundle->num_buckets || bucket->m_max >= m_cap;
        int m = last ? m_cap : bucket->m_max; /* both regions grow with m */
        size_t counter = ptxtune_counter_bytes(bucket, m);
        size_t partial = ptxtune_partial_bytes(bucket, m);
        if (counter > *counters) *counters = counter;
        if (partial > *partials) *partials = partial;
        if (last) break;
    }
}

/* Bytes of workspace that serve every batch of up to m; 0 where none is needed. */
static inline size_t ptxtune_workspace_bytes(const ptxtune_bundle *bundle, int m) {
    size_t counters, partials;
    ptxtune_workspace_regions(bundle, m, &counters, &partials);
    return counters + partials;
}

/* Prepares device memory as a workspace for batches of up to m_cap, and zeroes its counters on a
   stream. Needed once; launches leave the counters zero. */
static inline int ptxtune_init_workspace(ptxtune_context *ctx, ptxtune_workspace *workspace,
                                         void *data, size_t bytes, int m_cap, void *stream) {
    size_t counters, partials;
    void *popped = NULL;
    int code;
    ptxtune_workspace_regions(ctx->bundle, m_cap, &counters, &partials);
    if (bytes < counters + partials)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_WORKSPACE, "%lld bytes given, %lld needed.",
                            (long long)bytes, (long long)(counters + partials));
    if (counters != 0 && (data == NULL || (uintptr_t)data % PTXTUNE_WORKSPACE_ALIGN != 0))
        return ptxtune_fail(ctx, PTXTUNE_ERROR_WORKSPACE,
                            "address %lld must be a multiple of %lld and not 0.",
                            (long long)(uintptr_t)data, PTXTUNE_WORKSPACE_ALIGN);
    workspace->data = data;
    workspace->counter_bytes = counters;
    workspace->m_cap = m_cap;
    if (counters == 0) return PTXTUNE_OK;
    code = ptxtune_check(ctx, ctx->driver.ctx_push_current(ctx->cuda_context), "cuCtxPushCurrent");
    if (code != 0) return code;
    code = ptxtune_check(
        ctx, ctx->driver.memset_d8_async((uint64_t)(uintptr_t)data, 0, counters, stream),
        "cuMemsetD8Async");
    ctx->driver.ctx_pop_current(&popped);
    return code;
}

static inline int ptxtune_check_arguments(ptxtune_context *ctx, const void *x, int64_t ldx,
                                          const void *packed, const void *bias, const void *y,
                                          int64_t ldy, int m) {
    const ptxtune_bundle *bundle = ctx->bundle;
    if (m < 0)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ARGUMENT, "m = %lld must be at least %lld.", m, 0);
    if (m == 0) return PTXTUNE_OK;
    if (x == NULL || packed == NULL || y == NULL)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ARGUMENT,
                            "x, packed and y must not be null (m = %lld, %lld inputs).", m,
                            bundle->k);
    if ((bias != NULL) != (bundle->bias != 0))
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ARGUMENT,
                            "bias given: %lld; the kernel adds one: %lld.", bias != NULL,
                            bundle->bias);
    if (ldx < bundle->k)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ARGUMENT, "ldx = %lld must be at least K = %lld.",
                            ldx, bundle->k);
    if (ldy < bundle->n)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ARGUMENT, "ldy = %lld must be at least N = %lld.",
                            ldy, bundle->n);
    if (ldx % PTXTUNE_LDX_MULTIPLE != 0)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ALIGNMENT,
                            "ldx = %lld must be a multiple of %lld elements.", ldx,
                            PTXTUNE_LDX_MULTIPLE);
    if (ldy % PTXTUNE_LDY_MULTIPLE != 0)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ALIGNMENT,
                            "ldy = %lld must be a multiple of %lld elements.", ldy,
                            PTXTUNE_LDY_MULTIPLE);
    if ((uintptr_t)x % PTXTUNE_X_ALIGN != 0)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ALIGNMENT, "x at %lld must be %lld-byte aligned.",
                            (long long)(uintptr_t)x, PTXTUNE_X_ALIGN);
    if ((uintptr_t)packed % PTXTUNE_X_ALIGN != 0)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ALIGNMENT,
                            "packed at %lld must be %lld-byte aligned.",
                            (long long)(uintptr_t)packed, PTXTUNE_X_ALIGN);
    if ((uintptr_t)y % PTXTUNE_Y_ALIGN != 0)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ALIGNMENT, "y at %lld must be %lld-byte aligned.",
                            (long long)(uintptr_t)y, PTXTUNE_Y_ALIGN);
    if ((uintptr_t)bias % PTXTUNE_Y_ALIGN != 0)
        return ptxtune_fail(ctx, PTXTUNE_ERROR_ALIGNMENT,
                            "bias at %lld must be %lld-byte aligned.", (long long)(uintptr_t)bias,
                            PTXTUNE_Y_ALIGN);
    return PTXTUNE_OK;
}

/* The tensor map of x[m][ldx] into 128 bytes at a 64-byte aligned address: rows of K 16-bit
   elements (UINT16 copies the bits of FP16 and BF16 alike), zeros outside of them. */
static inline int ptxtune_encode_x_map(ptxtune_context *ctx, const ptxtune_bucket *bucket,
                                       const void *x, int64_t ldx, int m, void *map) {
    uint64_t dims[2], strides[1];
    uint32_t box[2], steps[2];
    dims[0] = (uint64_t)ctx->bundle->k;
    dims[1] = (uint64_t)m;
    strides[0] = (uint64_t)ldx * 2;
    box[0] = (uint32_t)bucket->box_inputs;
    box[1] = (uint32_t)bucket->box_tokens;
    steps[0] = steps[1] = 1;
    return ptxtune_check(
        ctx,
        ctx->driver.tensor_map_encode_tiled(
            map, PTXTUNE_CU_TENSOR_MAP_UINT16, 2, (void *)(uintptr_t)x, dims, strides, box, steps,
            PTXTUNE_CU_TENSOR_MAP_INTERLEAVE_NONE, PTXTUNE_CU_TENSOR_MAP_SWIZZLE_128B,
            PTXTUNE_CU_TENSOR_MAP_L2_PROMOTION_256B, PTXTUNE_CU_TENSOR_MAP_OOB_FILL_ZERO),
        "cuTensorMapEncodeTiled");
}

/*
 * y[m, N] = x[m, K] * W^T + bias, asynchronously on a stream (NULL: the legacy default stream).
 *
 * x: [m][ldx], 16-byte aligned, ldx >= K and a multiple of 8 elements.
 * packed: ptxtune_packed_bytes of packed weight, 16-byte aligned.
 * bias: [N] where the bundle has one, 8-byte aligned, else NULL.
 * y: [m][ldy], 8-byte aligned, ldy >= N and a multiple of 4 elements.
 * m: any batch >= 0; 0 launches nothing.
 * workspace: from ptxtune_init_workspace with m_cap >= m; may be NULL where none is needed.
 * flags: 0 or PTXTUNE_CHAINED, which lets the kernel load its weights while the kernel before it
 *     in the stream still runs (ignored where the kernel cannot).
 */
static inline int ptxtune_launch(ptxtune_context *ctx, const void *x, int64_t ldx,
                                 const void *packed, const void *bias, void *y, int64_t ldy, int m,
                                 const ptxtune_workspace *workspace, void *stream, unsigned flags) {
    const int index = ptxtune_bucket_index(ctx->bundle, m);
    const ptxtune_bucket *bucket = &ctx->bundle->buckets[index];
    const size_t counters = ptxtune_counter_bytes(bucket, m);
    ptxtune_launch_attribute attribute;
    ptxtune_launch_config config;
    void *work = NULL, *current = NULL, *popped = NULL;
    long long kernel_ldx = ldx, kernel_ldy = ldy;
    char map_room[PTXTUNE_MAP_BYTES + PTXTUNE_MAP_ALIGN];
    void *arguments[9];
    int code = ptxtune_check_arguments(ctx, x, ldx, packed, bias, y, ldy, m);
    if (code != PTXTUNE_OK || m == 0) return code;
    if (counters != 0) {
        if (workspace == NULL || workspace->data == NULL || workspace->m_cap < m)
            return ptxtune_fail(ctx, PTXTUNE_ERROR_WORKSPACE,
                                "m = %lld, and the workspace was initialised for %lld.", m,
                                workspace == NULL ? 0 : workspace->m_cap);
        /* Counters always end where the partials of every batch begin: see manifest.json. */
        work = (char *)workspace->data + (workspace->counter_bytes - counters);
    }
    memset(&config, 0, sizeof config);
    memset(&attribute, 0, sizeof attribute);
    ptxtune_grid(bucket, m, &config);
    config.block_y = config.block_z = 1;
    config.block_x = bucket->threads;
    config.smem_bytes = bucket->smem_bytes;
    config.stream = stream;
    if ((flags & PTXTUNE_CHAINED) != 0 && bucket->pdl) {
        attribute.id = PTXTUNE_CU_LAUNCH_PROGRAMMATIC_SERIALIZATION;
        attribute.value.value = 1;
        config.attributes = &attribute;
        config.num_attributes = 1;
    }
    arguments[0] = (void *)&x;
    arguments[1] = (void *)&packed;
    arguments[2] = (void *)&bias;
    arguments[3] = (void *)&y;
    arguments[4] = (void *)&work;
    arguments[5] = (void *)&m;
    arguments[6] = (void *)&kernel_ldx;
    arguments[7] = (void *)&kernel_ldy;
    if (bucket->box_inputs > 0) {
        const size_t past = (uintptr_t)map_room % PTXTUNE_MAP_ALIGN;
        arguments[8] = map_room + (PTXTUNE_MAP_ALIGN - past);
        code = ptxtune_encode_x_map(ctx, bucket, x, ldx, m, arguments[8]);
        if (code != PTXTUNE_OK) return code;
    }
    /* A launch needs a current context; the caller's is put back. */
    code = ptxtune_check(ctx, ctx->driver.ctx_get_current(&current), "cuCtxGetCurrent");
    if (code != 0) return code;
    if (current != ctx->cuda_context) {
        code = ptxtune_check(ctx, ctx->driver.ctx_push_current(ctx->cuda_context),
                             "cuCtxPushCurrent");
        if (code != 0) return code;
    }
    code = ptxtune_check(
        ctx, ctx->driver.launch_kernel_ex(&config, ctx->functions[index], arguments, NULL),
        "cuLaunchKernelEx");
    if (current != ctx->cuda_context) ctx->driver.ctx_pop_current(&popped);
    return code;
}

#endif /* PTXTUNE_RUNTIME_VERSION */
