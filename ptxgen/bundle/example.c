/*
 * Loads this bundle's kernels through the CUDA driver, runs the self-test through each of them,
 * prints the largest error and the time of a launch. Exit code 0 where every bucket passes.
 *
 *     cc -O2 example.c -o example -ldl -lm && ./example [folder of this bundle] [device]
 */
#include "ptxtune_w4a16.h"

#include <math.h>
#include <stdlib.h>

#define BUNDLE PTXTUNE_BUNDLE_NAME
#define TIMED_LAUNCHES 50

/* A value that FP16 and BF16 hold exactly (not subnormal), as their bits. */
static uint16_t to_bits(float value, int bf16) {
    uint32_t bits, exponent;
    memcpy(&bits, &value, 4);
    if (bf16) return (uint16_t)(bits >> 16);
    exponent = (bits >> 23) & 255u;
    if (exponent == 0) return 0;
    return (uint16_t)((bits >> 16 & 0x8000u) | (exponent - 112u) << 10 | (bits >> 13 & 0x3FFu));
}

static float from_bits(uint16_t half, int bf16) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    if (!bf16) {
        uint32_t exponent = (uint32_t)half >> 10 & 31u, mantissa = half & 0x3FFu;
        if (exponent == 0) {
            value = ldexpf((float)mantissa, -24);
            return (half & 0x8000u) ? -value : value;
        }
        exponent = exponent == 31u ? 255u : exponent + 112u;
        bits = (bits & 0x80000000u) | exponent << 23 | mantissa << 13;
    }
    memcpy(&value, &bits, 4);
    return value;
}

static int failed(ptxtune_context *ctx, const char *step) {
    fprintf(stderr, "%s: %s\n", step, ptxtune_message(ctx));
    return 1;
}

static void *allocated(size_t bytes) {
    void *memory = malloc(bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        fprintf(stderr, "out of memory: %lu bytes\n", (unsigned long)bytes);
        exit(1);
    }
    return memory;
}

/* The expected output of each distinct row, [rows][N]; NULL with a message where it is missing. */
static float *read_expected(const char *folder) {
    const size_t count = (size_t)BUNDLE.self_test_rows * (size_t)BUNDLE.n;
    float *values = (float *)allocated(count * sizeof(float));
    char path[4096];
    FILE *file;
    size_t found;
    snprintf(path, sizeof path, "%s/selftest_y.f32", folder);
    file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "cannot open %s; give the bundle's folder as first argument\n", path);
        free(values);
        return NULL;
    }
    found = fread(values, sizeof(float), count, file);
    fclose(file);
    if (found == count) return values;
    fprintf(stderr, "%s holds %lu of %lu values\n", path, (unsigned long)found,
            (unsigned long)count);
    free(values);
    return NULL;
}

/* The self-test's packed weight, from the formula. */
static void *make_packed(void) {
    const size_t groups = (size_t)ptxtune_groups(&BUNDLE), k = (size_t)BUNDLE.k;
    const size_t n = (size_t)BUNDLE.n;
    uint8_t *codes = (uint8_t *)allocated(n * k), *zeros = (uint8_t *)allocated(n * groups);
    uint16_t *scales = (uint16_t *)allocated(n * groups * 2);
    void *packed = allocated(ptxtune_packed_bytes(&BUNDLE));
    size_t i;
    for (i = 0; i < n * k; i++)
        codes[i] = (uint8_t)(ptxtune_hash(1, (uint32_t)(i / 8)) >> (4 * (i % 8)) & 15u);
    for (i = 0; i < n * groups; i++) {
        float scale = (float)(8 + (ptxtune_hash(2, (uint32_t)i) & 7u)) / 1024.0f;
        scales[i] = to_bits(scale, BUNDLE.bf16);
        zeros[i] = (uint8_t)(ptxtune_hash(3, (uint32_t)i) & 15u);
    }
    ptxtune_pack(&BUNDLE, codes, scales, zeros, packed);
    free(codes);
    free(scales);
    free(zeros);
    return packed;
}

/* x of a batch: row i is the distinct row i % rows. */
static uint16_t *make_x(int m) {
    const size_t k = (size_t)BUNDLE.k;
    uint16_t *x = (uint16_t *)allocated((size_t)m * k * 2);
    size_t row, i;
    for (row = 0; row < (size_t)m; row++)
        for (i = 0; i < k; i++) {
            size_t index = row % (size_t)BUNDLE.self_test_rows * k + i;
            int step = (int)(ptxtune_hash(4, (uint32_t)index) & 31u) - 16;
            x[row * k + i] = to_bits((float)step / 16.0f, BUNDLE.bf16);
        }
    return x;
}

static uint16_t *make_bias(void) {
    uint16_t *bias = (uint16_t *)allocated((size_t)BUNDLE.n * 2);
    int i;
    for (i = 0; i < BUNDLE.n; i++) {
        int step = (int)(ptxtune_hash(5, (uint32_t)i) & 63u) - 32;
        bias[i] = to_bits((float)step / 16.0f, BUNDLE.bf16);
    }
    return bias;
}

/* Device memory with a copy of host memory (or without, where source is NULL); 0 on failure. */
static uint64_t on_device(ptxtune_context *ctx, const void *source, size_t bytes) {
    uint64_t pointer = 0;
    if (ptxtune_check(ctx, ctx->driver.mem_alloc(&pointer, bytes == 0 ? 1 : bytes), "cuMemAlloc"))
        return 0;
    if (source == NULL) return pointer;
    /* From pageable memory the copy may return before it has landed (CUDA Driver API, "API
       synchronization behavior"), and a non-blocking stream does not wait for it: wait here. */
    if (ptxtune_check(ctx, ctx->driver.memcpy_htod(pointer, source, bytes), "cuMemcpyHtoD") ||
        ptxtune_check(ctx, ctx->driver.stream_synchronize(NULL), "cuStreamSynchronize")) {
        ctx->driver.mem_free(pointer);
        return 0;
    }
    return pointer;
}

static void *pointer_of(uint64_t address) { return (void *)(uintptr_t)address; }

/* Compares y with the expected rows; returns the number of elements beyond the tolerance. */
static size_t count_wrong(const uint16_t *y, const float *expected, int m, float *worst) {
    const size_t n = (size_t)BUNDLE.n;
    size_t row, i, wrong = 0;
    *worst = 0.0f;
    for (row = 0; row < (size_t)m; row++)
        for (i = 0; i < n; i++) {
            float wanted = expected[row % (size_t)BUNDLE.self_test_rows * n + i];
            float error = fabsf(from_bits(y[row * n + i], BUNDLE.bf16) - wanted);
            float allowed = BUNDLE.self_test_rel_tolerance * fabsf(wanted) +
                            BUNDLE.self_test_abs_tolerance;
            if (!(error <= allowed)) wrong++; /* true for NaN as well */
            if (!(error <= *worst)) *worst = error;
        }
    return wrong;
}

typedef struct device_buffers {
    uint64_t x, packed, bias, y, work;
} device_buffers;

static int launch(ptxtune_context *ctx, const device_buffers *buffers, int m,
                  const ptxtune_workspace *workspace, void *stream, unsigned flags) {
    return ptxtune_launch(ctx, pointer_of(buffers->x), BUNDLE.k, pointer_of(buffers->packed),
                          pointer_of(buffers->bias), pointer_of(buffers->y), BUNDLE.n, m,
                          workspace, stream, flags);
}

/* Microseconds of a launch, back to back on one weight (so it may come from the L2 cache). */
static int time_launches(ptxtune_context *ctx, const device_buffers *buffers, int m,
                         const ptxtune_workspace *workspace, void *stream, float *time_us) {
    void *start = NULL, *end = NULL;
    float ms = 0.0f;
    int i, code = 0;
    if (ptxtune_check(ctx, ctx->driver.event_create(&start, 0), "cuEventCreate")) return 1;
    if (ptxtune_check(ctx, ctx->driver.event_create(&end, 0), "cuEventCreate")) return 1;
    ctx->driver.event_record(start, stream);
    for (i = 0; i < TIMED_LAUNCHES && code == 0; i++)
        code = launch(ctx, buffers, m, workspace, stream, PTXTUNE_CHAINED);
    ctx->driver.event_record(end, stream);
    if (code == 0)
        code = ptxtune_check(ctx, ctx->driver.stream_synchronize(stream), "cuStreamSynchronize");
    if (code == 0)
        code = ptxtune_check(ctx, ctx->driver.event_elapsed_time(&ms, start, end),
                             "cuEventElapsedTime");
    ctx->driver.event_destroy(start);
    ctx->driver.event_destroy(end);
    *time_us = ms * 1000.0f / TIMED_LAUNCHES;
    return code;
}

/* Launches one bucket's batch and compares; 0 where it passes. */
static int test_batch(ptxtune_context *ctx, device_buffers *buffers, const float *expected, int m,
                      const ptxtune_workspace *workspace, void *stream) {
    const size_t y_bytes = (size_t)m * (size_t)BUNDLE.n * 2;
    uint16_t *x = make_x(m), *y = (uint16_t *)allocated(y_bytes);
    size_t wrong = 0;
    float worst = 0.0f, time_us = 0.0f;
    int code = 0;
    memset(y, 0xFF, y_bytes); /* NaN, so that an element never written is seen */
    buffers->x = on_device(ctx, x, (size_t)m * (size_t)BUNDLE.k * 2);
    buffers->y = on_device(ctx, y, y_bytes);
    if (buffers->x == 0 || buffers->y == 0) code = 1;
    if (code == 0) code = launch(ctx, buffers, m, workspace, stream, 0);
    if (code == 0)
        code = ptxtune_check(ctx, ctx->driver.stream_synchronize(stream), "cuStreamSynchronize");
    if (code == 0)
        code = ptxtune_check(ctx, ctx->driver.memcpy_dtoh(y, buffers->y, y_bytes), "cuMemcpyDtoH");
    if (code == 0) {
        wrong = count_wrong(y, expected, m, &worst);
        code = time_launches(ctx, buffers, m, workspace, stream, &time_us);
    }
    if (code != 0)
        failed(ctx, "self-test");
    else
        printf("m = %d: %lu of %lu elements wrong, largest error %g, %.2f us a launch\n", m,
               (unsigned long)wrong, (unsigned long)(y_bytes / 2), (double)worst, (double)time_us);
    if (buffers->x != 0) ctx->driver.mem_free(buffers->x);
    if (buffers->y != 0) ctx->driver.mem_free(buffers->y);
    free(x);
    free(y);
    return code != 0 || wrong != 0;
}

static int test_all(ptxtune_context *ctx, const float *expected) {
    const int m_cap = BUNDLE.buckets[BUNDLE.num_buckets - 1].self_test_m;
    const size_t work_bytes = ptxtune_workspace_bytes(&BUNDLE, m_cap);
    ptxtune_workspace workspace;
    device_buffers buffers;
    uint16_t *bias = BUNDLE.bias ? make_bias() : NULL;
    void *packed = make_packed(), *stream = NULL;
    int i, bad = 0;
    memset(&buffers, 0, sizeof buffers);
    if (ptxtune_check(ctx, ctx->driver.stream_create(&stream, 1), "cuStreamCreate"))
        return failed(ctx, "stream");
    buffers.packed = on_device(ctx, packed, ptxtune_packed_bytes(&BUNDLE));
    buffers.bias = bias == NULL ? 0 : on_device(ctx, bias, (size_t)BUNDLE.n * 2);
    buffers.work = on_device(ctx, NULL, work_bytes);
    free(packed);
    free(bias);
    if (buffers.packed == 0 || buffers.work == 0 || (BUNDLE.bias && buffers.bias == 0))
        return failed(ctx, "device memory");
    if (ptxtune_init_workspace(ctx, &workspace, pointer_of(buffers.work), work_bytes, m_cap, stream))
        return failed(ctx, "workspace");
    for (i = 0; i < BUNDLE.num_buckets; i++)
        bad |= test_batch(ctx, &buffers, expected, BUNDLE.buckets[i].self_test_m, &workspace,
                          stream);
    ctx->driver.mem_free(buffers.packed);
    ctx->driver.mem_free(buffers.work);
    if (buffers.bias != 0) ctx->driver.mem_free(buffers.bias);
    ctx->driver.stream_destroy(stream);
    return bad;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : ".";
    const int device = argc > 2 ? atoi(argv[2]) : 0;
    float *expected = read_expected(folder);
    ptxtune_context ctx;
    void *popped = NULL;
    int bad;
    if (expected == NULL) return 1;
    if (ptxtune_open(&ctx, &BUNDLE, device) != PTXTUNE_OK) {
        free(expected);
        return failed(&ctx, "open");
    }
    /* The driver's memory, stream and event calls below need a current context. */
    ctx.driver.ctx_push_current(ctx.cuda_context);
    bad = test_all(&ctx, expected);
    ctx.driver.ctx_pop_current(&popped);
    ptxtune_close(&ctx);
    free(expected);
    puts(bad ? "FAILED" : "PASSED");
    return bad;
}
