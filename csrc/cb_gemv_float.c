/* Matrix-vector products with float weights: float32 and binary16.
 *
 *   y[r] = Σ_c W[r,c] · x[c]     sums in float32
 */
#include "cb_gemv.h"
#include "cb_half.h"
#include "cb_target.h"

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

static float dot_f16_portable(const uint16_t *w, const float *x, size_t n) {
    float sum[8] = {0};
    for (size_t i = 0; i < n; ++i) {
        sum[i % 8] += cb_half_to_float(w[i]) * x[i];
    }
    return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

CB_GEMV(f32, portable)
CB_GEMV(f16, portable)

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
        CB_FETCH_AHEAD(w + i);
        CB_FETCH_AHEAD(w + i + 16);
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

static __m256 load_half_avx2(const uint16_t *w) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)w));
}

static float dot_f16_avx2(const uint16_t *w, const float *x, size_t n) {
    __m256 a0 = _mm256_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 32 <= n; i += 32) {
        CB_FETCH_AHEAD(w + i);
        a0 = _mm256_fmadd_ps(load_half_avx2(w + i), _mm256_loadu_ps(x + i), a0);
        a1 = _mm256_fmadd_ps(load_half_avx2(w + i + 8), _mm256_loadu_ps(x + i + 8), a1);
        a2 = _mm256_fmadd_ps(load_half_avx2(w + i + 16), _mm256_loadu_ps(x + i + 16), a2);
        a3 = _mm256_fmadd_ps(load_half_avx2(w + i + 24), _mm256_loadu_ps(x + i + 24), a3);
    }
    float sum = sum_of_lanes_avx2(_mm256_add_ps(_mm256_add_ps(a0, a1), _mm256_add_ps(a2, a3)));
    for (; i < n; ++i) {
        sum += cb_half_to_float(w[i]) * x[i];
    }
    return sum;
}

CB_GEMV(f32, avx2)
CB_GEMV(f16, avx2)

/* Four rows at a time, a quarter of the rows apart: four streams, which memory often, but
 * not on all pages, serves faster than one. */
#define CB_GEMV_STREAMS(format, weight, load, to_float) \
    static uint64_t gemv_##format##_streams_avx2(const cb_args *args, size_t begin, size_t end) { \
        const size_t n = args->columns, quarter = (end - begin) / 4; \
        const weight *w = args->array[0]; \
        const float *x = args->array[1]; \
        float *y = args->array[2]; \
        for (size_t row = begin; row < begin + quarter; ++row) { \
            const weight *rows[4]; \
            __m256 sum[4]; \
            size_t i = 0; \
            for (size_t k = 0; k < 4; ++k) { \
                rows[k] = w + (row + k * quarter) * n; \
                sum[k] = _mm256_setzero_ps(); \
            } \
            for (; i + 8 <= n; i += 8) { \
                const __m256 eight = _mm256_loadu_ps(x + i); \
                for (size_t k = 0; k < 4; ++k) { \
                    sum[k] = _mm256_fmadd_ps(load(rows[k] + i), eight, sum[k]); \
                } \
            } \
            for (size_t k = 0; k < 4; ++k) { \
                float total = sum_of_lanes_avx2(sum[k]); \
                for (size_t j = i; j < n; ++j) { \
                    total += to_float(rows[k][j]) * x[j]; \
                } \
                y[row + k * quarter] = total; \
            } \
        } \
        for (size_t row = begin + 4 * quarter; row < end; ++row) { \
            y[row] = dot_##format##_avx2(w + row * n, x, n); \
        } \
        return cb_checksum_of_rows(y, begin, end); \
    }

CB_GEMV_STREAMS(f32, float, _mm256_loadu_ps, )
CB_GEMV_STREAMS(f16, uint16_t, load_half_avx2, cb_half_to_float)

CB_TARGET_END

CB_TARGET_BEGIN(CB_FEATURES_AVX512)

static float dot_f32_avx512(const float *w, const float *x, size_t n) {
    __m512 a0 = _mm512_setzero_ps(), a1 = a0, a2 = a0, a3 = a0;
    size_t i = 0;
    for (; i + 64 <= n; i += 64) {
        CB_FETCH_AHEAD(w + i);
        CB_FETCH_AHEAD(w + i + 16);
        CB_FETCH_AHEAD(w + i + 32);
        CB_FETCH_AHEAD(w + i + 48);
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

CB_GEMV(f32, avx512)

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

static float dot_f16_neon(const uint16_t *w, const float *x, size_t n) {
    float32x4_t a0 = vdupq_n_f32(0), a1 = a0;
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const float16x8_t half = vreinterpretq_f16_u16(vld1q_u16(w + i));
        a0 = vfmaq_f32(a0, vcvt_f32_f16(vget_low_f16(half)), vld1q_f32(x + i));
        a1 = vfmaq_f32(a1, vcvt_high_f32_f16(half), vld1q_f32(x + i + 4));
    }
    float sum = vaddvq_f32(vaddq_f32(a0, a1));
    for (; i < n; ++i) {
        sum += cb_half_to_float(w[i]) * x[i];
    }
    return sum;
}

CB_GEMV(f32, neon)
CB_GEMV(f16, neon)

#endif

const cb_kernel cb_gemv_float_kernels[] = {
    CB_GEMV_ROW(f32, "", CB_ISA_PORTABLE, portable, 4),
    CB_GEMV_ROW(f16, "", CB_ISA_PORTABLE, portable, 2),
#if defined(CB_X86)
    CB_GEMV_ROW(f32, "", CB_ISA_AVX2, avx2, 4),
    CB_GEMV_ROW(f16, "", CB_ISA_AVX2, avx2, 2),
    CB_GEMV_ROW(f32, "streams", CB_ISA_AVX2, streams_avx2, 4),
    CB_GEMV_ROW(f16, "streams", CB_ISA_AVX2, streams_avx2, 2),
    CB_GEMV_ROW(f32, "", CB_ISA_AVX512, avx512, 4),
#elif defined(CB_ARM64)
    CB_GEMV_ROW(f32, "", CB_ISA_NEON, neon, 4),
    CB_GEMV_ROW(f16, "", CB_ISA_NEON, neon, 2),
#endif
};

const size_t cb_gemv_float_kernel_count =
    sizeof cb_gemv_float_kernels / sizeof *cb_gemv_float_kernels;
