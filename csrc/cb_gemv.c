/* Matrix-vector product y = W x: decode's own pattern, the weights read once, x in cache.
 *
 *   gemv_f32   y[r] = Σ_c W[r,c] · x[c]    W, x, y in float32
 *
 * A unit is a row; traffic is per weight. Reading x and writing y stays in cache and is
 * not counted.
 */
#include <string.h>

#include "cb_kernels.h"
#include "cb_target.h"

/* Fold y into a checksum. */
static uint64_t checksum_of_rows(const float *y, size_t begin, size_t end) {
    uint64_t sum = 0;
    for (size_t row = begin; row < end; ++row) {
        uint32_t bits;
        memcpy(&bits, &y[row], sizeof bits);
        sum = 31 * sum + bits;
    }
    return sum;
}

/* Weights and activations in -1 … 1 that differ from place to place. */
static float value_at(size_t i) {
    const uint32_t hash = (uint32_t)i * UINT32_C(2654435761);
    return (float)(int32_t)(hash >> 8) * (1.0f / 8388608.0f) - 1.0f;
}

static void fill_f32(const cb_args *args, size_t begin, size_t end) {
    float *w = args->array[0];
    for (size_t i = begin * args->columns; i < end * args->columns; ++i) {
        w[i] = value_at(i);
    }
}

static void store_f32(const float *x, void *activations, size_t n) {
    memcpy(activations, x, n * sizeof *x);
}

static const cb_format format_f32 = {1, sizeof(float), 1, sizeof(float), store_f32};

#define CB_GEMV_F32(SUFFIX) \
    static uint64_t gemv_f32_##SUFFIX(const cb_args *args, size_t begin, size_t end) { \
        const float *w = args->array[0]; /* (rows, columns) */ \
        const float *x = args->array[1]; /* (columns) */ \
        float *y = args->array[2];       /* (rows) */ \
        for (size_t row = begin; row < end; ++row) { \
            y[row] = dot_f32_##SUFFIX(w + row * args->columns, x, args->columns); \
        } \
        return checksum_of_rows(y, begin, end); \
    }

/* portable: independent sums, since a compiler must not reorder additions itself */

static float dot_f32_portable(const float *w, const float *x, size_t n) {
    float sum[16] = {0};
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        for (int k = 0; k < 16; ++k) {
            sum[k] += w[i + k] * x[i + k];
        }
    }
    for (; i < n; ++i) {
        sum[0] += w[i] * x[i];
    }
    for (int half = 8; half > 0; half /= 2) {
        for (int k = 0; k < half; ++k) {
            sum[k] += sum[k + half];
        }
    }
    return sum[0];
}

CB_GEMV_F32(portable)

#if defined(CB_X86)

CB_TARGET_BEGIN(CB_FEATURES_AVX2)

static float sum_of_lanes_avx2(__m256 x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

static float dot_f32_avx2(const float *w, const float *x, size_t n) {
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        a0 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i), _mm256_loadu_ps(x + i), a0);
        a1 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 8), _mm256_loadu_ps(x + i + 8), a1);
        a2 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 16), _mm256_loadu_ps(x + i + 16), a2);
        a3 = _mm256_fmadd_ps(_mm256_loadu_ps(w + i + 24), _mm256_loadu_ps(x + i + 24), a3);
    }
    float sum = sum_of_lanes_avx2(_mm256_add_ps(_mm256_add_ps(a0, a1), _mm256_add_ps(a2, a3)));
    for (; i < n; ++i) {
        sum += w[i] * x[i];
    }
    return sum;
}

CB_GEMV_F32(avx2)

CB_TARGET_END

CB_TARGET_BEGIN(CB_FEATURES_AVX512)

static float dot_f32_avx512(const float *w, const float *x, size_t n) {
    __m512 a0 = _mm512_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        a0 = _mm512_fmadd_ps(_mm512_loadu_ps(w + i), _mm512_loadu_ps(x + i), a0);
        a1 = _mm512_fmadd_ps(_mm512_loadu_ps(w + i + 16), _mm512_loadu_ps(x + i + 16), a1);
        a2 = _mm512_fmadd_ps(_mm512_loadu_ps(w + i + 32), _mm512_loadu_ps(x + i + 32), a2);
        a3 = _mm512_fmadd_ps(_mm512_loadu_ps(w + i + 48), _mm512_loadu_ps(x + i + 48), a3);
    }
    float sum = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(a0, a1), _mm512_add_ps(a2, a3)));
    for (; i < n; ++i) {
        sum += w[i] * x[i];
    }
    return sum;
}

CB_GEMV_F32(avx512)

CB_TARGET_END

#elif defined(CB_ARM64)

static float dot_f32_neon(const float *w, const float *x, size_t n) {
    float32x4_t a0 = vdupq_n_f32(0), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        a0 = vfmaq_f32(a0, vld1q_f32(w + i), vld1q_f32(x + i));
        a1 = vfmaq_f32(a1, vld1q_f32(w + i + 4), vld1q_f32(x + i + 4));
        a2 = vfmaq_f32(a2, vld1q_f32(w + i + 8), vld1q_f32(x + i + 8));
        a3 = vfmaq_f32(a3, vld1q_f32(w + i + 12), vld1q_f32(x + i + 12));
    }
    float sum = vaddvq_f32(vaddq_f32(vaddq_f32(a0, a1), vaddq_f32(a2, a3)));
    for (; i < n; ++i) {
        sum += w[i] * x[i];
    }
    return sum;
}

CB_GEMV_F32(neon)

#endif

#define CB_ROW(ISA, SUFFIX) \
    {"gemv_f32", "", ISA, "f32", 3, 1, {4, 0, 0, 2}, gemv_f32_##SUFFIX, fill_f32, &format_f32}

const cb_kernel cb_gemv_kernels[] = {
    CB_ROW(CB_ISA_PORTABLE, portable),
#if defined(CB_X86)
    CB_ROW(CB_ISA_AVX2, avx2),
    CB_ROW(CB_ISA_AVX512, avx512),
#elif defined(CB_ARM64)
    CB_ROW(CB_ISA_NEON, neon),
#endif
};

const size_t cb_gemv_kernel_count = sizeof cb_gemv_kernels / sizeof *cb_gemv_kernels;
