#include "cb_formats.h"

#include <math.h>
#include <string.h>

#include "cb_half.h"

/* Weights: any bits are valid but those of a scale, which must be finite. */

static uint64_t hash(size_t i) {
    uint64_t x = (uint64_t)i * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93);
    return x ^ x >> 32;
}

/* Values in -1 … 1 that differ from place to place. */
static float value_at(size_t i) {
    return (float)(int32_t)(hash(i) >> 40) * (1.0f / 8388608.0f) - 1.0f;
}

/* A scale of about 0.01, of either sign. */
static uint16_t scale_at(size_t i) { return (uint16_t)(0x2000u | (hash(i) & 0x83FFu)); }

static void fill_bytes(uint8_t *bytes, size_t count, size_t place) {
    for (size_t i = 0; i < count; i += sizeof(uint64_t)) {
        const uint64_t bits = hash(place + i);
        const size_t part = count - i < sizeof bits ? count - i : sizeof bits;
        memcpy(bytes + i, &bits, part);
    }
}

void cb_fill_f32(const cb_args *args, size_t begin, size_t end) {
    float *w = args->array[0];
    for (size_t i = begin * args->columns; i < end * args->columns; ++i) {
        w[i] = value_at(i);
    }
}

void cb_fill_f16(const cb_args *args, size_t begin, size_t end) {
    uint16_t *w = args->array[0];
    for (size_t i = begin * args->columns; i < end * args->columns; ++i) {
        w[i] = (uint16_t)(0x3400u | (hash(i) & 0x83FFu));
    }
}

#define CB_FILL_BLOCKS(format, block_type, elements, set_scales) \
    void cb_fill_##format(const cb_args *args, size_t begin, size_t end) { \
        const size_t per_row = args->columns / (elements); \
        block_type *blocks = args->array[0]; \
        for (size_t i = begin * per_row; i < end * per_row; ++i) { \
            block_type block; \
            fill_bytes((uint8_t *)&block, sizeof block, i * sizeof block); \
            set_scales; \
            memcpy(&blocks[i], &block, sizeof block); \
        } \
    }

CB_FILL_BLOCKS(q8_0, cb_block_q8_0, 32, block.d = scale_at(i))
CB_FILL_BLOCKS(q4_0, cb_block_q4_0, 32, block.d = scale_at(i))
CB_FILL_BLOCKS(q4_k, cb_block_q4_k, 256, (block.d = scale_at(i), block.dmin = scale_at(i + 1)))
CB_FILL_BLOCKS(q6_k, cb_block_q6_k, 256, block.d = scale_at(i))

/* Activations */

static void store_f32(const float *x, void *activations, size_t n) {
    memcpy(activations, x, n * sizeof *x);
}

static void round_to_f16(const float *x, void *activations, size_t n) {
    float *rounded = activations;
    for (size_t i = 0; i < n; ++i) {
        rounded[i] = cb_half_to_float(cb_float_to_half(x[i]));
    }
}

/* quantize_row_q8_0_ref */
static void quantize_q8_0(const float *x, void *activations, size_t n) {
    cb_activations_32 *blocks = activations;
    for (size_t i = 0; i < n / 32; ++i, x += 32) {
        float largest = 0.0f;
        for (int j = 0; j < 32; ++j) {
            largest = fmaxf(largest, fabsf(x[j]));
        }
        const float d = largest / 127.0f;
        const float inverse = d != 0.0f ? 1.0f / d : 0.0f;
        blocks[i].d = cb_half_to_float(cb_float_to_half(d));
        for (int j = 0; j < 32; ++j) {
            blocks[i].qs[j] = (int8_t)roundf(x[j] * inverse);
        }
        for (int lane = 0; lane < 8; ++lane) {
            const int8_t *four = blocks[i].qs + 4 * lane;
            blocks[i].offsets[lane] = -8 * (four[0] + four[1] + four[2] + four[3]);
        }
    }
}

/* quantize_row_q8_K_ref */
static void quantize_q8_k(const float *x, void *activations, size_t n) {
    cb_activations_256 *blocks = activations;
    for (size_t i = 0; i < n / 256; ++i, x += 256) {
        float largest = 0.0f;
        for (int j = 0; j < 256; ++j) {
            largest = fabsf(x[j]) > fabsf(largest) ? x[j] : largest;
        }
        memset(&blocks[i], 0, sizeof blocks[i]);
        if (largest == 0.0f) {
            continue;
        }
        const float inverse = -127.0f / largest;
        blocks[i].d = 1.0f / inverse;
        for (int group = 0; group < 16; ++group) {
            int sum = 0;
            for (int j = 16 * group; j < 16 * group + 16; ++j) {
                blocks[i].qs[j] = (int8_t)fminf(127.0f, rintf(inverse * x[j]));
                sum += blocks[i].qs[j];
            }
            blocks[i].sums[group] = (int16_t)sum;
            blocks[i].group_sums[8 + group / 2] += (int16_t)sum;
        }
    }
}

const cb_format cb_format_f32 = {1, 4, 1, 4, store_f32};
const cb_format cb_format_f16 = {1, 2, 1, 4, round_to_f16};
const cb_format cb_format_q8_0 = {32, sizeof(cb_block_q8_0), 32, sizeof(cb_activations_32),
                                  quantize_q8_0};
const cb_format cb_format_q4_0 = {32, sizeof(cb_block_q4_0), 32, sizeof(cb_activations_32),
                                  quantize_q8_0};
const cb_format cb_format_q4_k = {256, sizeof(cb_block_q4_k), 256, sizeof(cb_activations_256),
                                  quantize_q8_k};
const cb_format cb_format_q6_k = {256, sizeof(cb_block_q6_k), 256, sizeof(cb_activations_256),
                                  quantize_q8_k};

/* A layout with padding would not be ggml's. */
_Static_assert(sizeof(cb_block_q8_0) == 34, "Q8_0 block");
_Static_assert(sizeof(cb_block_q4_0) == 18, "Q4_0 block");
_Static_assert(sizeof(cb_block_q4_k) == 144, "Q4_K block");
_Static_assert(sizeof(cb_block_q6_k) == 210, "Q6_K block");
