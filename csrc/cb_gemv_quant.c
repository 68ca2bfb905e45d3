/* Matrix-vector products with quantised weights, in ggml's layouts.
 *
 *   y[r] = Σ_c W[r,c] · x[c]     x quantised once: Q8_0 for blocks of 32, Q8_K for 256
 *
 * Within a block sums are integers and exact; blocks are added in float32.
 */
#include "cb_gemv.h"
#include "cb_half.h"
#include "cb_target.h"

/* The eight 6-bit scales and minimums of a Q4_K block (get_scale_min_k4). */
static inline void unpack_scales(const cb_block_q4_k *w, uint8_t *scales, uint8_t *minimums) {
    for (int i = 0; i < 4; ++i) {
        scales[i] = w->scales[i] & 63;
        minimums[i] = w->scales[i + 4] & 63;
        scales[i + 4] = (uint8_t)((w->scales[i + 8] & 15) | (w->scales[i] >> 6 << 4));
        minimums[i + 4] = (uint8_t)((w->scales[i + 8] >> 4) | (w->scales[i + 4] >> 6 << 4));
    }
}

/* portable */

static float dot_q8_0_portable(const cb_block_q8_0 *w, const cb_activations_32 *x, size_t n) {
    float total = 0;
    for (size_t b = 0; b < n / 32; ++b) {
        int32_t dot = 0;
        for (int j = 0; j < 32; ++j) {
            dot += w[b].qs[j] * x[b].qs[j];
        }
        total += cb_half_to_float(w[b].d) * x[b].d * (float)dot;
    }
    return total;
}

static float dot_q4_0_portable(const cb_block_q4_0 *w, const cb_activations_32 *x, size_t n) {
    float total = 0;
    for (size_t b = 0; b < n / 32; ++b) {
        int32_t dot = 0;
        for (int j = 0; j < 16; ++j) {
            dot += ((w[b].qs[j] & 15) - 8) * x[b].qs[j];
            dot += ((w[b].qs[j] >> 4) - 8) * x[b].qs[j + 16];
        }
        total += cb_half_to_float(w[b].d) * x[b].d * (float)dot;
    }
    return total;
}

static float dot_q4_k_portable(const cb_block_q4_k *w, const cb_activations_256 *x, size_t n) {
    float total = 0;
    for (size_t b = 0; b < n / 256; ++b) {
        uint8_t scales[8], minimums[8];
        int32_t dot = 0, minimum = 0;
        unpack_scales(&w[b], scales, minimums);
        for (int group = 0; group < 8; ++group) {
            const uint8_t *q = w[b].qs + 32 * (group / 2);
            const int shift = group % 2 * 4;
            int32_t part = 0;
            for (int j = 0; j < 32; ++j) {
                part += (q[j] >> shift & 15) * x[b].qs[32 * group + j];
            }
            dot += scales[group] * part;
            minimum += minimums[group] * x[b].group_sums[8 + group];
        }
        total += x[b].d * (cb_half_to_float(w[b].d) * (float)dot -
                           cb_half_to_float(w[b].dmin) * (float)minimum);
    }
    return total;
}

static float dot_q6_k_portable(const cb_block_q6_k *w, const cb_activations_256 *x, size_t n) {
    float total = 0;
    for (size_t b = 0; b < n / 256; ++b) {
        int32_t dot = 0;
        for (int group = 0; group < 16; ++group) {
            const int half = group / 8, fourth = group % 8 / 2, first = group % 2 * 16;
            const uint8_t *ql = w[b].ql + 64 * half + fourth % 2 * 32 + first;
            const uint8_t *qh = w[b].qh + 32 * half + first;
            const int8_t *a = x[b].qs + 16 * group;
            int32_t part = 0;
            for (int j = 0; j < 16; ++j) {
                const int q = (ql[j] >> fourth / 2 * 4 & 15) | (qh[j] >> 2 * fourth & 3) << 4;
                part += (q - 32) * a[j];
            }
            dot += w[b].scales[group] * part;
        }
        total += cb_half_to_float(w[b].d) * x[b].d * (float)dot;
    }
    return total;
}

CB_GEMV(q8_0, portable)
CB_GEMV(q4_0, portable)
CB_GEMV(q4_k, portable)
CB_GEMV(q6_k, portable)

#if defined(CB_X86)

CB_TARGET_BEGIN(CB_FEATURES_AVX2)

static __m256 scale_avx2(uint16_t half) {
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}

static float sum_of_lanes_avx2(__m256 x) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}

static __m256i pairs_avx2(__m256i products) {
    return _mm256_madd_epi16(products, _mm256_set1_epi16(1));
}

static __m256i dot_s8_avx2(__m256i w, __m256i a) {
    return pairs_avx2(_mm256_maddubs_epi16(_mm256_sign_epi8(w, w), _mm256_sign_epi8(a, w)));
}

#define CB_NAME(kernel) kernel##_avx2
#define CB_DOT_U8(acc, u, s) _mm256_add_epi32(acc, pairs_avx2(_mm256_maddubs_epi16(u, s)))
#define CB_DOT_S8(offsets, w, a) dot_s8_avx2(w, a)
#define CB_MADD(acc, a, b) _mm256_add_epi32(acc, _mm256_madd_epi16(a, b))
#include "cb_gemv_quant_x86.h"

CB_TARGET_END

/* Σ w·a = Σ (w + 128)·a - 128 Σ a */
#define CB_DOT_SHIFTED(dpbusd, offsets, w, a) \
    dpbusd(_mm256_slli_epi32(offsets, 4), _mm256_xor_si256(w, _mm256_set1_epi8((char)0x80)), a)

#if defined(CB_FEATURES_AVXVNNI)

CB_TARGET_BEGIN(CB_FEATURES_AVXVNNI)

#define scale_avxvnni scale_avx2
#define sum_of_lanes_avxvnni sum_of_lanes_avx2

#define CB_NAME(kernel) kernel##_avxvnni
#define CB_DOT_U8(acc, u, s) _mm256_dpbusd_avx_epi32(acc, u, s)
#define CB_DOT_S8(offsets, w, a) CB_DOT_SHIFTED(_mm256_dpbusd_avx_epi32, offsets, w, a)
#define CB_MADD(acc, a, b) _mm256_dpwssd_avx_epi32(acc, a, b)
#include "cb_gemv_quant_x86.h"

CB_TARGET_END

#endif

CB_TARGET_BEGIN(CB_FEATURES_AVX512VNNI)

/* Half the register width on purpose: blocks are 32 bytes, and cores that split 512-bit
 * operations gain nothing from them. */

#define scale_avx512vnni scale_avx2
#define sum_of_lanes_avx512vnni sum_of_lanes_avx2

#define CB_NAME(kernel) kernel##_avx512vnni
#define CB_DOT_U8(acc, u, s) _mm256_dpbusd_epi32(acc, u, s)
#define CB_DOT_S8(offsets, w, a) CB_DOT_SHIFTED(_mm256_dpbusd_epi32, offsets, w, a)
#define CB_MADD(acc, a, b) _mm256_dpwssd_epi32(acc, a, b)
#include "cb_gemv_quant_x86.h"

CB_TARGET_END

#elif defined(CB_ARM64)

static int32x4_t dot_neon(int32x4_t acc, int8x16_t a, int8x16_t b) {
    acc = vpadalq_s16(acc, vmull_s8(vget_low_s8(a), vget_low_s8(b)));
    return vpadalq_s16(acc, vmull_high_s8(a, b));
}

#define CB_NAME(kernel) kernel##_neon
#define CB_DOT(acc, a, b) dot_neon(acc, a, b)
#include "cb_gemv_quant_arm.h"

CB_GEMV(q8_0, neon)
CB_GEMV(q4_0, neon)
CB_GEMV(q4_k, neon)
CB_GEMV(q6_k, neon)

CB_TARGET_BEGIN(CB_FEATURES_DOTPROD)

/* The strongest for i8mm too: smmla multiplies two rows with two vectors, and one vector would
 * leave half of it idle. llama.cpp at 0c1e57098bba has it in ggml_gemm_… (arch/arm/repack.cpp in
 * ggml/src/ggml-cpu) and for two rows at once (nrc == 2, arch/arm/quants.c); ggml_gemv_…, also
 * over blocks repacked for i8mm, and nrc == 1 are sdot. */

#define CB_NAME(kernel) kernel##_dotprod
#define CB_DOT(acc, a, b) vdotq_s32(acc, a, b)
#include "cb_gemv_quant_arm.h"

CB_GEMV(q8_0, dotprod)
CB_GEMV(q4_0, dotprod)
CB_GEMV(q4_k, dotprod)
CB_GEMV(q6_k, dotprod)

CB_TARGET_END

#endif

#define CB_ROWS(isa, variant, suffix) \
    CB_GEMV_ROW(q8_0, variant, isa, suffix, 34.0 / 32), \
        CB_GEMV_ROW(q4_0, variant, isa, suffix, 18.0 / 32), \
        CB_GEMV_ROW(q4_k, variant, isa, suffix, 144.0 / 256), \
        CB_GEMV_ROW(q6_k, variant, isa, suffix, 210.0 / 256)

const cb_kernel cb_gemv_quant_kernels[] = {
    CB_ROWS(CB_ISA_PORTABLE, "", portable),
#if defined(CB_X86)
    CB_ROWS(CB_ISA_AVX2, "", avx2),
    CB_ROWS(CB_ISA_AVX2, "streams", streams_avx2),
#if defined(CB_FEATURES_AVXVNNI)
    CB_ROWS(CB_ISA_AVXVNNI, "", avxvnni),
    CB_ROWS(CB_ISA_AVXVNNI, "streams", streams_avxvnni),
#endif
    CB_ROWS(CB_ISA_AVX512VNNI, "", avx512vnni),
    CB_ROWS(CB_ISA_AVX512VNNI, "streams", streams_avx512vnni),
#elif defined(CB_ARM64)
    CB_ROWS(CB_ISA_NEON, "", neon),
    CB_ROWS(CB_ISA_DOTPROD, "", dotprod),
#endif
};

const size_t cb_gemv_quant_kernel_count =
    sizeof cb_gemv_quant_kernels / sizeof *cb_gemv_quant_kernels;
